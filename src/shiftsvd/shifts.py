"""Shifts and scales: by name, for groups, and for covariates.

A shift of one's own is an object that can say what it is for a given matrix:

>>> import numpy as np, shiftsvd as ss
>>> class Controls:  # subtracts the mean of the first three rows
...     def resolve(self, A, moments, weights):
...         controls = (np.arange(A.shape[0]) < 3) / 3
...         return ss.LowRank(np.ones(A.shape[0]), A.rmatmat(controls[:, None]))
>>> X = np.arange(12.0).reshape(6, 2) ** 2
>>> F = ss.svd(X, 2, shift=Controls())
>>> bool(np.allclose(F.S, np.linalg.svd(X - X[:3].mean(axis=0), compute_uv=False)))
True
"""

from shiftsvd.preparation.covariates import Covariates, GroupMeans, LearnedCovariates, LearnedGroups
from shiftsvd.preparation.shifts import Learned, Shift

__all__ = ["Covariates", "GroupMeans", "Learned", "LearnedCovariates", "LearnedGroups", "Shift"]
