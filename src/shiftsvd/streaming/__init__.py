"""Streaming PCA: the scatter matrix of all rows so far, whole or sketched; batches add to it, and it merges."""

from shiftsvd.streaming.estimator import forget, merge, partial_fit, recover, refine

__all__ = ["forget", "merge", "partial_fit", "recover", "refine"]
