"""The constants of the solvers, with the experiment behind each and when to measure again.

Those that bounds rest on are in `numerics.bounds`; the seconds of the cost model are in `solvers.cost`. With a wrong
value of most of these a fit is slower, not wrong; where it would be wrong, the comment says so.
"""

from typing import Final

import numpy as np

EPS: Final = float(np.finfo(np.float64).eps)
SINGLE: Final = float(np.finfo(np.float32).eps)

# --- convergence: measure again with benchmarks.certificate.bounds (columns, passes) when checks change -----------

# Rounding may take this share of the tolerance; where it takes more, products continue in double precision.
SHARE: Final = 0.5
# Give up after PATIENCE checks without improvement if residuals are within NEAR roundings. Of 645 improvements in fits
# of all families of benchmarks.certificate.problems, none came later than 7 checks after the one before.
PATIENCE, NEAR = 10, 10.0
# Readings whose errors may turn out larger than residuals promised, until one is returned as it is. Of 835 fits, 7
# took more than one, and 6 of these all four.
READINGS: Final = 4
# Products that a run needs room for to begin in single precision. A first step takes two, the product and a comparison
# in double; where numbers leave the range, three, the last two of them in double. One more is for another step.
FIRST_STEP: Final = 4
# Leaders are deflated where rounding takes more of the last value than max(tol, LEAST_TOL); those whose squares are
# within LEADING of the first go together, since their vectors are right to rounding over it (certificate.leaders).
LEAST_TOL, LEADING = 1e-8, 1e-4

# --- precision: wrong values give wrong bounds; measure again with certificate.leaders when kernels sum otherwise ---

# Sizes of products that single precision holds, with what they are made of.
SINGLE_RANGE: Final = 1e-25, 1e30
# Rounding of single products is measured on two columns, and multiplied by this. The largest of all columns was at most
# 2.1 times as large when components were read (49 fits); 3 times in nine of ten first products, and once 5.2.
UNLUCKY: Final = 4.0
# So many roundings must fit into the tolerance before double data are multiplied in single precision.
DOUBT: Final = 100

# --- the basis: wrong values lose orthogonality (tests/solvers/test_probe.py, test_lanczos.py) ------------------------

# A projection that leaves less than this of a column has lost digits, and is repeated (Daniel et al. 1976).
TWICE: Final = 0.1
# Columns shorter than this, relative to the longest product, are rounding of products in single precision.
SINGLE_ROUNDING: Final = 2 * SINGLE
# The Gram matrix of a block does not tell columns shorter than this, relative to the longest: half of the digits.
TOLD_BY_SQUARES: Final = 1e-6

# --- the sizes of a run: measure again with benchmarks.claims.middle when kernels change ------------------------------

# Columns of a basis for k components by blocks of b: 2 k + 12 b, and never fewer than k + 8 b.
OF_COMPONENTS, OF_BLOCKS, LEAST_BLOCKS = 2, 12, 8
# The default of `max_passes` is 40 + 20 n / b, far above what converges.
PASSES, PASSES_OF_BLOCKS = 40, 20
# Components that a basis is made for where a share of the variance is asked for, beside one for each column of a block.
OF_SHARE: Final = 10
# Columns of a product where no costs tell: of HermitianLanczos and of the probe of `certify`, and in forecasts. Blocks
# of BlockLanczos are as wide as `Costs.panel_columns` of the data say.
USUAL_BLOCK: Final = 16
LONG_COLUMNS: Final = 16, 32  # of a block on the long side, where room is scarce: as of dense data in memory
STEPS: Final = 4  # that the short side must have room for: with fewer, a basis there soon holds everything
SWEEPS: Final = 6  # of a probe, for which the basis has room

# --- the probe: measure again with benchmarks.claims.levels and benchmarks.certificate.cost ---------------------------

# Defaults of `miss_probability` and `missed_tol`.
PROBABILITY, MISSED_TOL = 1e-9, 0.05
# Probes of a run, each of half the probability of the one before.
PROBES: Final = 20
# Forecast of a level, used to guess which product will be the last and takes the components along: after the first
# product FIRST_LEVEL times the least Ritz value, then FIRST_GAIN and GAIN times nearer to the largest Ritz value of the
# chain (on counts, text and noise 50 to 70 times, then 6 to 10, and 1.6 to 3).
FIRST_LEVEL, FIRST_GAIN, GAIN = 60.0, 8.0, 2.0
# Least distance of a level from the largest Ritz value, relative to the largest norm of a coefficient.
NEAREST: Final = 1e-4
# Intervals tested in one call, and the ratio of the ends of the widest: wider ones need more terms of the series.
INTERVALS, WIDEST = 8, 1.3
# Most terms for an interval; the remainder of the series, relative to the length that excludes.
TERMS, REMAINDER = 30, 0.01
# Precision of a level, relative to its distance from the largest Ritz value: of the last one, and of those before,
# which the next product brings several times nearer.
SOUGHT, COARSE = 1e-3, 0.1
# Narrower blocks are too likely to have next to nothing of what is sought; the quantile underflows below 1e-15.
LEAST_COLUMNS, LEAST_PROBABILITY = 8, 1e-15
# Products of the probe of `certify`, at most: in a flat spectrum a million wide, 9 give a level of 1.05.
CERTIFY_SWEEPS: Final = 24

# --- passes that `estimate` foresees: measure again with benchmarks.claims.passes when the loop changes ---------------

# Reads beside those that bring k columns in, at the least.
QUICKEST: Final = 2
# Reads of noise, the slowest of natural spectra: (NOISE + RESTARTED k / b) (n / b)^(1/3) for blocks of b columns and a
# short side n, as eigenvalues at the edge of the Marchenko-Pastur law lie n^(-2/3) apart. For n from 100 to 12 000, k
# up to 100 and a tolerance of 1e-4, 6 + 1.2 k / b were measured; a fourth more is for what is drawn at random.
NOISE, RESTARTED = 7.5, 1.5
# Reads that measure the rounding of single precision, at the start and at the end, and one for digits of squares.
JUDGED: Final = 3
# A tolerance ten times smaller takes a twentieth more.
DIGITS: Final = 20

# --- small matrices and the norm of the rest: measure again with benchmarks.claims.small ------------------------------

# Values come from squares where their rounding takes no more of the tolerance than this.
PART_SUMMED: Final = 0.1
# A difference of squares that is so many times its rounding is right to a thousandth.
WITH_DIGITS: Final = 1000.0
# Both factors are needed as they are returned where the rounding of one is more than this part of what is left over.
ROUNDED_PART: Final = 0.2
# Bytes of a long factor up to which it is made whole for that, where the data are in files.
WHOLE_FACTOR: Final = 2**24
# Root mean square of rounding to nearest, in units, over numbers of all sizes.
TO_NEAREST: Final = 0.2
# From this share of all components on, all of them cost no more than some.
MANY: Final = 0.2
# LAPACK, or Lanczos with single columns, finds the leading eigenvalues of a Gram matrix up to this side: 2 ms for all
# of 200, block Lanczos 7 for ten of them; 14 ms for fifty of 500, 54 of 1000, block Lanczos 45 and 66.
LEADING_SIDE: Final = 1000
# Leading eigenvalues alone are quicker than all up to this part of them: 1.4 ms for ten of 200, 2.0 of 250.
PART_OF_ALL: Final = 0.15
# Lanczos on the Gram matrix is quicker than LAPACK from this side on, for at most this part of the eigenvalues: 5 ms
# for ten of 500, LAPACK 13. It has residuals of this part of the tolerance, is asked for them at OF_PAIRS columns of
# its basis for each vector and FIRST_COLUMNS more, then at a fourth more each time, and is given up at this part of n.
KRYLOV_SIDE, PART_OF_KRYLOV = 250, 0.125
RESIDUAL, OF_PAIRS, FIRST_COLUMNS, MOST_COLUMNS = 1e-2, 2, 20, 1 / 3
# A column that is shorter than this, relative to the largest values, shows that the basis spans an invariant space.
SPANNED: Final = 1e-10
# The level that the Cholesky factor proves is above the last Ritz value by this.
ABOVE: Final = 1e-6

# --- the choice of a solver: measure again with benchmarks.claims.small and benchmarks.claims.foreseen ----------------

# Seconds by the cost model below which nobody waits: the answer may as well have all its digits.
AT_ONCE: Final = 0.02
# Seconds by the cost model that squares have to save before they are tried instead.
SAVED: Final = 7e-5
# Short sides beyond which `Exact` and `Gram`, which hold n x n numbers, must be asked for by name.
EXACT_SIDE, GRAM_SIDE = 1000, 10_000
# `estimate(probe=True)` counts the passes of two parts of the rows, the larger of so many numbers, and of at least so
# many rows for each component. From half the rows to all of a part they grow by some; by 0.6 of that at each doubling.
COUNTED, ROWS_EACH, FLATTENS = 400_000, 4, 0.6

# --- matrices that are known to a norm only: measure again with benchmarks.claims.transforms -------------------------

# Share of the tolerance for what the matrix is off by.
APPROXIMATED: Final = 0.1
# Tolerances below this ask for rounding, which zeros of a transformed matrix have, too.
LEAST_APPROXIMATED: Final = 1e-11
