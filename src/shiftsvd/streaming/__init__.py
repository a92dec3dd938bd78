"""Streaming PCA: update the scatter matrix of the rows, exact or sketched, by batches, and merge streams."""
