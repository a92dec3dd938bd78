"""Streaming PCA: the scatter matrix of all rows so far, whole or sketched; batches add to it, and it merges."""
