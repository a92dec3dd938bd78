"""Scan for variants that differ more along the components than the rest of the genome (pcadapt's statistic)."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, chdtri

from shiftsvd.extend.operators import Panel
from shiftsvd.extend.running import Resources
from shiftsvd.genetics.files import Calls, Fileset, over_blocks

Vector = npt.NDArray[np.float64]

# Maronna & Zamar (2002), section 3: the cutoffs c1 and c2 of the tau scale, and E[min(z^2, c2^2)] of a normal z.
_WEIGHT_CUTOFF, _SCALE_CUTOFF, _EXPECTED = 4.5, 3.0, 0.92471539217613152
_ROUNDS: Final = 2  # of orthogonalization: a second round makes the estimate nearly equivariant
_CORE: Final = 0.9  # probability of a chi-squared distribution: the final covariance uses the points within


class SelectionScan(NamedTuple):
    """Selection scan: test how far each variant is from the rest of the genome along the components.

    Parameters
    ----------
    z_scores : array of shape (n_variants, k)
        Z scores of the regression of each variant on the components; NaN for unused variants.
    statistics : array of shape (n_variants,)
        Squared robust Mahalanobis distances of the z scores.
    inflation : float
        Genomic inflation factor: the median statistic divided by the median of the chi-squared distribution with k
        degrees of freedom.
    p_values : array of shape (n_variants,)
        Right tails of that chi-squared distribution at ``statistics / inflation``. Correct them for multiple testing,
        for example by controlling the false discovery rate.

    See Also
    --------
    genetics.pca : Run the scan with ``scan=True``.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> G = np.random.default_rng(0).integers(0, 3, (20, 50)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     scan = shiftsvd.genetics.pca(f"{folder}/a.bed", 2, scan=True).scan
    >>> scan.z_scores.shape, scan.p_values.shape
    ((50, 2), (50,))
    """

    z_scores: Panel
    statistics: Vector
    inflation: float
    p_values: Vector


def selection_scan(files: Fileset, U: Panel, resources: Resources) -> SelectionScan:
    # Luu, Bazin & Blum (2017), "pcadapt: an R package to perform genome scans for selection based on principal
    # component analysis", Mol. Ecol. Resources 17, 67-77, as in version 4 of the package: z scores of a linear model on
    # the samples with known genotypes, distances by the orthogonalized Gnanadesikan-Kettenring estimate (one component:
    # squared distances from the median), p values of the statistics divided by the inflation. One read.
    z = np.concatenate(list(over_blocks(files, lambda G: _t_statistics(G, U), resources, 8)))
    statistics = robust_distances(z)
    k = z.shape[1]
    inflation = float(np.median(statistics) / chdtri(k, 0.5))
    return SelectionScan(z, statistics, inflation, chdtrc(k, statistics / inflation))


def _t_statistics(G: Calls, U: Panel) -> Panel:
    known = G >= 0
    centre = np.where(known, G, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    X = np.where(known, G - centre[:, None], 0)
    slopes = X @ U
    lengths = known.astype(np.float64) @ U**2
    fitted = slopes @ U.T
    squares = (np.where(known, X - fitted, 0) ** 2).sum(axis=1)
    freedom = known.sum(axis=1) - U.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        z: Panel = slopes / np.sqrt(lengths * (squares / freedom)[:, None])
    return z


def robust_distances(X: Panel) -> Vector:
    # Squared Mahalanobis distances of the rows with a robust covariance: Maronna & Zamar (2002), "Robust estimates of
    # location and dispersion for high-dimensional datasets", Technometrics 44, 307-317. Estimate the covariance of two
    # columns from the tau scales of their sum and difference, and make the matrix positive definite along its
    # eigenvectors, twice. Then use the mean and covariance of the rows within the 90 % quantile. For one column, use
    # the distance from the median.
    if X.shape[1] == 1:
        centred: Vector = (X[:, 0] - np.median(X[:, 0])) ** 2
        return centred
    Z = X
    for _ in range(_ROUNDS):
        Z = _orthogonalized(Z)
    location, scale = _tau_scale(Z)
    distances = (((Z - location) / scale) ** 2).sum(axis=1)
    k = X.shape[1]
    inside = X[distances < np.median(distances) / chdtri(k, 0.5) * chdtri(k, 1 - _CORE)]
    centre = inside.mean(axis=0)
    covariance = (inside - centre).T @ (inside - centre) / len(inside)
    found: Vector = ((X - centre) @ np.linalg.inv(covariance) * (X - centre)).sum(axis=1)
    return found


def _orthogonalized(X: Panel) -> Panel:
    Y = X / _tau_scale(X)[1]
    k = Y.shape[1]
    correlations = np.eye(k)
    for j in range(1, k):
        sums, differences = (_tau_scale(Y[:, j, None] + sign * Y[:, :j])[1] for sign in (1, -1))
        correlations[j, :j] = correlations[:j, j] = (sums**2 - differences**2) / 4
    along: Panel = Y @ np.linalg.eigh(correlations)[1][:, ::-1]
    return along


def _tau_scale(X: Panel) -> tuple[Vector, Vector]:
    centred = np.abs(X - np.median(X, axis=0))
    spread = np.median(centred, axis=0)
    weights = np.maximum(1 - (centred / (_WEIGHT_CUTOFF * spread)) ** 2, 0) ** 2
    location = (weights * X).sum(axis=0) / weights.sum(axis=0)
    bounded = np.minimum(((X - location) / spread) ** 2, _SCALE_CUTOFF**2).sum(axis=0)
    return location, spread * np.sqrt(bounded / (len(X) * _EXPECTED))
