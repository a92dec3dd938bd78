"""How many components: by the spectrum, by permuted data, by data held out."""
