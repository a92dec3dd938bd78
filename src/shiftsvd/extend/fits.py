"""What fits, their settings and their results are made of."""

from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.features import least_squares
from shiftsvd.missing import check_unused
from shiftsvd.missing.fits import regressed_rows
from shiftsvd.missing.gaps import Gaps, Observed, gaps_of
from shiftsvd.missing.lazy import LazyGaps
from shiftsvd.preparation.covariates import Column, Design, LearnedCovariates
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.shifts import Learned, Plain
from shiftsvd.solvers.auto import asked_for, solver_named
