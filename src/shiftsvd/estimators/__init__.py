"""Estimators in scikit-learn's manner: thin shells over what `shiftsvd.svd` is made of."""
