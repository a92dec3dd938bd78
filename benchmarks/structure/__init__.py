"""The house itself: lines of code, the walk of a fit, hashes of fits."""
