"""Estimators with scikit-learn's interface, built on the functions behind `shiftsvd.svd`."""
