"""Whether bounds bound, what is missed, and what a tolerance costs."""
