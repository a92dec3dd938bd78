"""Estimators in scikit-learn's manner: thin shells over `shiftsvd.svd`."""
