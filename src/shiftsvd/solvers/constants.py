"""The constants of the solvers, with the experiment behind each and when to measure again.

Constants of error bounds are in `numerics.bounds`; seconds of the cost model are in `solvers.cost`. A poor value of
most constants here makes a fit slower, not wrong; the comment says where a poor value gives wrong results.
"""

from typing import Final

import numpy as np

EPS: Final = float(np.finfo(np.float64).eps)
SINGLE: Final = float(np.finfo(np.float32).eps)

# --- convergence: measure again with benchmarks.certificate.bounds (columns, passes) when checks change -----------

# Largest share of the tolerance for rounding errors; beyond it, products continue in double precision.
ROUNDING_SHARE: Final = 0.5
# Give up after PATIENCE checks without improvement if residuals are at most NEAR_ROUNDING rounding errors. Of 645
# improvements in fits of all families of benchmarks.certificate.problems, none came later than 7 checks after the one
# before.
PATIENCE, NEAR_ROUNDING = 10, 10.0
# Bounds are within the tolerance when the estimated error is about ENOUGH times the tolerance. Errors shrink FASTER
# times as fast as between the last two checks, because convergence speeds up. With these, counts, text, ratings and
# feedback take 0 to 2 products more than with a check after each (benchmarks.claims.middle). Check after at most
# MOST_STEPS steps.
ENOUGH, FASTER, MOST_STEPS = 0.3, 2.5, 4
# For data in memory, whose steps take one call, a check takes as long as two to five steps: with these, fits have one
# or two checks less, and take up to two products more and up to 9 % less time.
FASTER_IN_MEMORY, MOST_IN_MEMORY = 1.6, 6
# For such data, check first when the basis has FIRST_IN_MEMORY blocks more than twice the components. If the estimated
# error is then more than FAR times the tolerance, take MOST_IN_MEMORY steps: of fourteen sets, none with such an error
# converged earlier.
FIRST_IN_MEMORY, FAR = 3, 100.0
# Columns of a probe over a file, where one product of more columns takes less time than two: twice those of a step, but
# at most so many.
PROBE_OF_FILES: Final = 64
# Begin a probe together with a step over a file if that step is likely to be the last, as it is if the estimated error
# is at most JOINT times the tolerance, and if this error is at most LACKING times the share of the last value that may
# be missed.
JOINT, LACKING = 30.0, 0.3
# In single precision, stop when bounds are at most this part of the tolerance: the last reading adds its rounding
# error, 0.03 to 0.23 of 1e-4 on counts, ratings and feedback, and a reading that fails costs five products.
WITH_ROUNDING: Final = 0.8
# Maximum number of readings of the components. If the errors of a reading exceed the bounds that the residuals
# predicted, iterate further and read again; the last reading is returned. Of 835 fits, 7 took more than one reading,
# and 6 of these all four.
READINGS: Final = 4
# Start in single precision only if the budget has this many products left. The first step takes two, the product and a
# comparison in double precision; on overflow three, the last two in double precision. The next step takes the fourth.
FIRST_STEP: Final = 4
# Compute components of data in files from the basis if its rounding errors are at most this share of the tolerance,
# which saves a read.
FROM_BASIS: Final = 0.05
# Leaders (converged leading values) are deflated if the relative rounding error of the last value exceeds
# max(tol, LEAST_TOL). Values whose squares are at least LEADING times the first square are deflated together: the error
# of their vectors is at most the rounding error divided by LEADING (certificate.leaders).
LEAST_TOL, LEADING = 1e-8, 1e-4
# They are also deflated after a probe that failed, and a probe ends if a product does not lower its level, where the
# rounding of the basis exceeds this share of the last square. A level contains it enlarged by 200 to 1000 times.
PROBE_SHARE: Final = 1e-3

# --- precision: wrong values give wrong bounds; measure again with certificate.leaders when kernels sum otherwise ---

# Range of the largest entry of a product in which neither the product nor its terms overflow or underflow in single
# precision.
SINGLE_RANGE: Final = 1e-25, 1e30
# Factor for rounding errors of products in single precision, which are measured on two columns. The largest error of
# all columns was at most 2.1 times as large in products with components (49 fits), and at most 3 times in nine of ten
# first products (once 5.2).
MEASURED_MARGIN: Final = 4.0
# Double data are multiplied in single precision only if the tolerance is at least this many rounding errors.
ROUNDINGS_IN_TOL: Final = 100

# --- the basis: wrong values lose orthogonality (tests/solvers/test_probe.py, test_lanczos.py) ------------------------

# Repeat a projection that shortens a column to less than this factor, because it has lost digits (Daniel et al. 1976).
REPEAT_BELOW: Final = 0.1
# Columns shorter than this, relative to the longest product, consist of rounding errors of single precision.
SINGLE_ROUNDING: Final = 2 * SINGLE
# The Gram matrix of a block cannot resolve columns shorter than this, relative to the longest column: squaring halves
# the number of digits.
RESOLVED_BY_SQUARES: Final = 1e-6

# --- the sizes of a run: measure again with benchmarks.claims.middle when kernels change ------------------------------

# Columns of a basis for k components by blocks of b: 2 k + 12 b, and at least k + 8 b. With 6 b instead of 12 b, fits
# took up to two products more, with 8 b and 10 b up to one. Without restarts they took as many, and more time.
OF_COMPONENTS, OF_BLOCKS, LEAST_BLOCKS = 2, 12, 8
# Share of the basis, less two blocks, that a restart keeps: bounds need values beyond the k-th to determine the gap.
KEPT_SHARE: Final = 0.5
# A basis with at most so many rows stays in main memory if the data are on a GPU: its small products take less time
# there than the calls of a GPU (benchmarks.device).
HOST_ROWS: Final = 2**14
# The default of `max_passes` is 40 + 20 n / b, far more than fits take that converge.
PASSES, PASSES_OF_BLOCKS = 40, 20
# Number of components by which the basis is sized if k is a share of the variance, plus one per column of a block.
OF_SHARE: Final = 10
# Columns of a block of HermitianLanczos, of the probe of `certify`, and in forecasts. BlockLanczos uses
# `Costs.panel_columns` of the data instead.
USUAL_BLOCK: Final = 16
LONG_COLUMNS: Final = 16, 32  # columns of a block on the long side, where memory is scarce
STEPS: Final = 4  # least number of blocks on the short side; with fewer, a basis soon spans the whole space
SWEEPS: Final = 6  # products of a probe for which the basis reserves memory

# --- the probe: measure again with benchmarks.claims.levels and benchmarks.certificate.cost ---------------------------

# Defaults of `miss_probability` and `missed_tol` (benchmarks.certificate.levels).
PROBABILITY, MISSED_TOL = 1e-9, 0.05
# Maximum number of probes per run; each may fail with half the probability of the one before.
PROBES: Final = 20
# Forecast of the level (bound) of a probe, used to guess which product will be its last, because the last product also
# multiplies the components. After the first product: FIRST_LEVEL times the least Ritz value. Then the distance from the
# largest Ritz value of the chain shrinks by FIRST_GAIN, and by GAIN in each further product (on counts, text and noise
# 50 to 70 times, then 6 to 10, and 1.6 to 3).
FIRST_LEVEL, FIRST_GAIN, GAIN = 60.0, 8.0, 2.0
# Least distance of a level from the largest Ritz value, relative to the largest norm of a coefficient.
NEAREST: Final = 1e-4
# Intervals that are tested at once, and the ratio of the ends of the widest: wider ones need more terms of the series.
INTERVALS, WIDEST = 8, 1.3
# Maximum number of terms per interval; the remainder of the series, relative to the length that excludes an interval.
TERMS, REMAINDER = 30, 0.01
# Precision of a level, relative to its distance from the largest Ritz value. Half of it made levels of counts and texts
# lower by 0.1 to 0.6 %, and took 3 to 5 ms.
PRECISION: Final = 0.04
# A fit is complete if at most this many rounding errors of a product lie between the k-th square and the bound of what
# was missed: values that are zero but for rounding need such a limit (tests/solvers/test_missed_below.py).
MISSED_NOISE: Final = 256
# Least number of columns of a probe: narrower blocks are too likely to be nearly orthogonal to a missed vector. Least
# `miss_probability`: the quantile of chi^2 of one column is 1e-213 for the last probe, and underflows for p^2 < 1e-308.
LEAST_COLUMNS, LEAST_PROBABILITY = 8, 1e-100
# Maximum number of products of the probe of `certify`: for a flat spectrum of a million values, 9 give a level of 1.05.
CERTIFY_SWEEPS: Final = 24
# Fewest, usual and most products, nearly always: 1 to 7 for matrices of up to 500 rows, 9 as above.
LIKELY_SWEEPS: Final = 1, 4, 9
# Below this `tol`, `Gram` may take one more pass for values whose squares lost their digits: 32 of 32 fits to small
# matrices with tol=0, 8 with 1e-12, none with 1e-10.
LOST_TOL: Final = 1e-10

# --- passes predicted by `estimate`: measure again with benchmarks.claims.passes when the loop changes ----------------

# Least number of passes in addition to those that add k columns to the basis.
QUICKEST, QUICKEST_OF_FILES = 2, 1
# Passes for noise, the slowest natural spectrum: (NOISE + RESTARTED k / b) (n / b)^(1/3) for blocks of b columns and a
# short side n, because eigenvalues at the edge of the Marchenko-Pastur law are n^(-2/3) apart. For n from 100 to
# 12,000, k up to 100 and a tolerance of 1e-4, 6 + 1.2 k / b were measured; a fourth is added for random variation.
NOISE, RESTARTED = 7.5, 1.5
# Passes that measure the rounding of single precision, at the start and the end, and one that restores lost digits.
MEASURING_PASSES: Final = 3
# A tolerance ten times smaller takes 1 / DIGITS more passes.
DIGITS: Final = 20

# --- small matrices and the norm of the rest: measure again with benchmarks.claims.small ------------------------------

# Use eigenvalues of squares (``A^H A``) if their rounding error is at most this share of the tolerance.
SQUARES_SHARE: Final = 0.1
# Use a difference of squares if it exceeds its rounding error by this factor: its relative error is then 1 / 1000.
DIFFERENCE_MARGIN: Final = 1000.0
# Compute the norm of the residual from both returned factors if the rounding of one factor exceeds this share of it.
ROUNDED_PART: Final = 0.2
# Largest long-side factor, in bytes, that is computed for that purpose if the data are in files.
WHOLE_FACTOR: Final = 2**24
# Root mean square of the error of rounding to nearest, in rounding units, over numbers of all sizes.
TO_NEAREST: Final = 0.2
# Compute all components if k is at least this share of them: computing k would cost as much.
ALL_FROM: Final = 0.2
# Compute the leading eigenvalues of a Gram matrix of at most this side by LAPACK or by Lanczos with single columns. All
# of 200 take 2 ms (block Lanczos 7 ms for ten of them); fifty of 500 take 14 ms (45), fifty of 1000 54 ms (66).
LEADING_SIDE: Final = 1000
# Compute leading eigenvalues alone if they are at most this part of all: 1.4 ms for ten of 200, 2.0 ms for ten of 250.
PART_OF_ALL: Final = 0.15
# Use Lanczos on Gram matrices of at least this side, for at most this part of the eigenvalues: ten of 500 take 5 ms, by
# LAPACK 13 ms. Iterate until residuals are RESIDUAL times the tolerance. Check residuals at OF_PAIRS columns of the
# basis per vector plus FIRST_COLUMNS, then whenever the basis has grown by a quarter. Give up at MOST_COLUMNS times n
# columns.
KRYLOV_SIDE, PART_OF_KRYLOV = 250, 0.125
RESIDUAL, OF_PAIRS, FIRST_COLUMNS, MOST_COLUMNS = 1e-2, 2, 20, 1 / 3
# A column that is shorter than this, relative to the largest values, shows that the basis spans an invariant space.
INVARIANT_SPACE: Final = 1e-10
# Relative distance from the last Ritz value to the level that the Cholesky factor proves.
LEVEL_MARGIN: Final = 1e-6

# --- the choice of a solver: measure again with benchmarks.claims.small and benchmarks.claims.foreseen ----------------

# Use `Exact` if the cost model predicts fewer seconds than this.
EXACT_SECONDS: Final = 0.02
# Try squares first if the cost model predicts that they save this many seconds.
SQUARES_SAVE: Final = 7e-5
# Longest short sides for which "auto" chooses `Exact` and `Gram`, which store n x n numbers. For files each thread
# stores as many, which takes 0.9 GB for 3000.
EXACT_SIDE, GRAM_SIDE, GRAM_SIDE_OF_FILES = 1000, 10_000, 3000
# `estimate(probe=True)` counts the passes of fits to two subsets of the rows: one of COUNTED numbers, with at least
# ROWS_EACH rows per component, and half of that subset. Each doubling of the rows is predicted to add FLATTENS times as
# many passes as the doubling between the subsets.
COUNTED, ROWS_EACH, FLATTENS = 400_000, 4, 0.6

# --- matrices with approximated entries: measure again with benchmarks.claims.transforms ------------------------------

# Largest share of the tolerance for the approximation error of the matrix.
APPROXIMATED: Final = 0.1
# Share of the tolerance that rounding errors of transformed entries may have: 1e-12 to 1e-10 of most values.
ROUNDED: Final = 1e-3
# Least tolerance for transformed matrices: smaller ones are below the rounding errors of transformed zeros.
LEAST_APPROXIMATED: Final = 1e-11
