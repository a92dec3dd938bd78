"""Weight counts by sums of rows and columns: normalised counts, text, co-occurrence, log ratios."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.errors import Refused, Setting
from shiftsvd.numerics.entrywise import Quantities, Terms
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms.base import EPS, Fitted, OfCounts, SumsOf, margins, require, shares

ClrName = Literal["clr", "robust", "seurat"]
NOTHING = np.zeros(0)
# Squares of numbers between SMALL and LARGE are summed directly. Smaller numbers are multiplied and larger ones divided
# by UNIT first, so that sums of 2^50 squares neither overflow nor lose digits.
SMALL, LARGE, UNIT = 2.0**-480, 2.0**480, 2.0**600


@dataclass(frozen=True, eq=False)
class LogNormalize(OfCounts):
    """Scale each row to the sum t and take logarithms, ``log(1 + x t / r_i)``.

    Parameters
    ----------
    target_sum : float, optional
        The sum t of each row after scaling. None: the median of the nonzero sums of rows.
    exclude_highly_expressed : bool
        Exclude from the sums each column with more than `max_fraction` of the counts of any row.
    max_fraction : float
        Largest share of a column in the counts of a row, for ``exclude_highly_expressed``.
    size_factors : array of shape (m,), optional
        Size factors to use instead of ``r_i / t``. New rows have no size factors and cannot be transformed.

    See Also
    --------
    PearsonResiduals : Residuals of a null model.
    CLR : Centred log ratios of compositions.

    Notes
    -----
    The result is that of ``scanpy.pp.normalize_total`` and ``log1p``. Zeros stay zeros, and rows with sum 0 are not
    scaled. One read, or three with ``exclude_highly_expressed``.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(np.array([[1.0, 3.0], [0.0, 5.0]]), ss.LogNormalize(4.0)) @ np.eye(2)
    array([[0.69314718, 1.38629436],
           [0.        , 1.60943791]])
    """

    learns: ClassVar[tuple[int, int]] = (1, 1)
    target_sum: float | None = 1e4
    exclude_highly_expressed: bool = False
    max_fraction: float = 0.05
    size_factors: Vector | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        target = self.target_sum
        require(target is None or 0 < target < np.inf, "target_sum", "be a finite number above 0, or None", target)
        require(0 < self.max_fraction < 1, "max_fraction", "be between 0 and 1", self.max_fraction)
        if self.size_factors is not None:
            object.__setattr__(self, "size_factors", np.array(unmasked("size_factors", self.size_factors), np.float64))

    def terms(self, x: Vector, c: Quantities) -> tuple[Vector, ...]:
        return (x * c[0],)

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        if self.size_factors is not None:
            rule = " must be None to transform new rows: given size factors are those of the training rows."
            raise Refused(Setting("size_factors"), rule)
        return _over(fitted.known[0], sums)

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        counted = np.ones((A.shape[1], 1))
        if self.size_factors is not None:
            s = self.size_factors
            if s.shape != (A.shape[0],) or not np.all(s > 0):
                got = f"got shape {s.shape} and the smallest value {np.min(s, initial=np.inf):g}"
                rule = f" must hold a number above 0 for each of the {A.shape[0]:,} rows, {got}"
                raise Refused(Setting("size_factors"), rule)
            return Fitted(self, counted, np.ones(1)), 1 / s[:, None]
        r = margins(self, A, weights).rows
        if self.exclude_highly_expressed:
            most = np.where(weights > 0, self.max_fraction * r, np.inf)
            high = generic.entry_sums(A, Terms(_above, most[:, None], counted))[1]
            counted = np.where(high == 0, 1.0, 0.0)
            r = margins(self, A, weights, counted).rows
        there = (r > 0) & (weights > 0)
        target = self.target_sum if self.target_sum is not None else _median(r[there], weights[there])
        return Fitted(self, counted, np.array([target])), _over(target, r[:, None])

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return np.asarray(np.log1p(x * r[0]))


def _above(x: Vector, r: Quantities, c: Quantities) -> SumsOf:
    return (), ((x > r[0]).astype(np.float64),)


@dataclass(frozen=True, eq=False)
class TfIdf(OfCounts):
    """Term frequency times inverse document frequency, as in scikit-learn's `TfidfTransformer`.

    Parameters
    ----------
    norm : "l2", "l1" or None
        Norm to which each row is scaled; None does not scale rows.
    use_idf, smooth_idf, sublinear_tf : bool
        As in scikit-learn. `use_idf`: multiply by ``idf_j = log((1 + m) / (1 + df_j)) + 1``; if `smooth_idf` is False,
        by ``log(m / df_j) + 1``. `sublinear_tf`: replace x by ``1 + log(x)``.

    See Also
    --------
    BM25 : Weights that saturate with the count.
    LSA : Latent semantic analysis of texts.

    Notes
    -----
    Zeros stay zeros. Without `smooth_idf`, a term that occurs in no training document has weight 0. Fitting takes two
    reads, transforming new rows one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(
    ...     np.array([[1.0, 1.0], [0.0, 2.0]]), ss.TfIdf(norm=None, use_idf=False)
    ... ) @ np.eye(2)
    array([[1., 1.],
           [0., 2.]])
    """

    learns: ClassVar[tuple[int, int]] = (1, 0)
    norm: Literal["l1", "l2"] | None = "l2"
    use_idf: bool = True
    smooth_idf: bool = True
    sublinear_tf: bool = False

    def __post_init__(self) -> None:
        require(self.norm in ("l1", "l2", None), "norm", 'be "l1", "l2" or None', self.norm)

    def terms(self, x: Vector, c: Quantities) -> tuple[Vector, ...]:
        if self.norm is None:
            return ()
        weight = self._weight(x, c)
        return squares_by_size(weight) if self.norm == "l2" else (np.abs(weight),)

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        return _over(1.0, length_by_size(sums) if self.norm == "l2" else sums)

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        df, plus = margins(self, A, weights).present, float(self.smooth_idf)
        some = np.where(df + plus > 0, df + plus, 1)
        idf = np.where(df + plus > 0, np.log((weights.sum() + plus) / some) + 1, 0)
        idf = idf if self.use_idf else np.ones(len(df))
        fitted = Fitted(self, idf[:, None], NOTHING)
        return fitted, fitted.rows(A)

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        weight = self._weight(x, c)
        return weight * r[0] if r else weight

    def _weight(self, x: Vector, c: Quantities) -> Vector:
        with np.errstate(divide="ignore", invalid="ignore"):
            tf = np.where(x > 0, 1 + np.log(x), 0) if self.sublinear_tf else x
            return np.asarray(np.where(x > 0, tf * c[0], 0))


@dataclass(frozen=True, eq=False)
class BM25(OfCounts):
    """BM25 relevance of a term to a text, ``idf_j x (k1 + 1) / (x + k1 (1 - b + b r_i / average))``.

    Parameters
    ----------
    k1 : float
        Saturation: the smaller k1, the less repeated terms add.
    b : float in [0, 1]
        Strength of the correction for the length of a text.

    See Also
    --------
    TfIdf : Weights that do not saturate with the count.

    Notes
    -----
    ``idf_j = log(1 + (m - df_j + 1/2) / (df_j + 1/2))``, as in Lucene. Zeros stay zeros. One read.

    References
    ----------
    Robertson & Zaragoza (2009), The probabilistic relevance framework: BM25 and beyond.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(np.array([[1.0, 1.0], [0.0, 2.0]]), ss.BM25(b=0)).shape
    (2, 2)
    """

    learns: ClassVar[tuple[int, int]] = (1, 1)
    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        require(0 < self.k1 < np.inf, "k1", "be a finite number above 0", self.k1)
        require(0 <= self.b <= 1, "b", "be in [0, 1]", self.b)

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        return np.asarray(self.k1 * (1 - self.b + self.b * sums / fitted.known[0]))

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        found = margins(self, A, weights)
        r, average = found.rows, weights @ found.rows / weights.sum()
        idf = np.log1p((found.absent + 0.5) / (found.present + 0.5))
        fitted = Fitted(self, idf[:, None], np.array([average if average > 0 else 1.0]))
        return fitted, self.quantities(r[:, None], fitted)

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        return np.asarray(c[0] * (self.k1 + 1) * (x / np.where(x > 0, x + r[0], 1)))


@dataclass(frozen=True, eq=False)
class PMI(OfCounts):
    """Pointwise mutual information of rows and columns, ``log((x + a) / (r'_i p_j))``.

    Parameters
    ----------
    smoothing : float
        Pseudocount a, added to every entry including zeros: ``r'_i = r_i + a n``, and ``p_j`` is proportional to
        ``(c_j + a m)^context_power``. With 0, zeros stay zeros.
    context_power : float
        Exponent of the column shares; values below 1 increase the shares of rare columns (Levy, Goldberg & Dagan 2015).
    positive : bool
        Replace negative values by 0. Requires ``smoothing=0``, because clipped smoothed zeros do not have low rank.

    See Also
    --------
    TfIdf : Weights of terms in documents.

    Notes
    -----
    A zero becomes ``log a - log r'_i - log p_j``, a matrix of rank 2. One read.

    References
    ----------
    Levy & Goldberg (2014), Neural word embedding as implicit matrix factorization; Levy, Goldberg & Dagan (2015).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(
    ...     np.array([[3.0, 0.0], [1.0, 4.0]]), ss.PMI(smoothing=0, context_power=1)
    ... ) @ np.eye(2)
    array([[ 0.69314718,  0.        ],
           [-0.91629073,  0.47000363]])
    """

    learns: ClassVar[tuple[int, int]] = (1, 0)
    smoothing: float = 1.0
    context_power: float = 0.75
    positive: bool = False

    def __post_init__(self) -> None:
        for name, value in (("smoothing", self.smoothing), ("context_power", self.context_power)):
            require(0 <= value < np.inf, name, "be a finite number of at least 0", value)
        if self.positive and self.smoothing:
            raise Refused(Setting("positive", True), " requires ", Setting("smoothing", 0), f", got {self.smoothing!r}")

    @property
    def keeps_zeros(self) -> bool:  # type: ignore[override]
        return self.smoothing == 0

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        r = sums + self.smoothing * len(fitted.columns)
        return np.where(r > 0, r, 1)

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        found = margins(self, A, weights)
        r = found.rows
        smoothed = shares(found.columns + self.smoothing * weights.sum()) ** self.context_power
        with np.errstate(divide="ignore"):
            log_p = np.log(shares(smoothed))
        right = None if self.keeps_zeros else np.stack([np.ones(len(log_p)), -log_p], axis=1)
        fitted = Fitted(self, np.where(np.isfinite(log_p), log_p, np.inf)[:, None], NOTHING, right)
        return fitted, self.quantities(r[:, None], fitted)

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        if self.smoothing:
            return np.log1p(x / self.smoothing)
        with np.errstate(divide="ignore"):
            value = np.where((x > 0) & np.isfinite(c[0]), np.log(x / r[0]) - c[0], 0)
        return np.maximum(value, 0) if self.positive else value

    def rounded_at(self, R: Panel, fitted: Fitted) -> tuple[Panel, Panel]:
        if self.smoothing:
            return super().rounded_at(R, fitted)
        log_p = fitted.columns
        return np.ones_like(R), np.where(np.isfinite(log_p), 1 + np.abs(log_p), 0)

    def left(self, R: Panel, fitted: Fitted) -> Panel:
        return np.hstack([np.log(self.smoothing) - np.log(R), np.ones_like(R)])


@dataclass(frozen=True, eq=False)
class CLR(OfCounts):
    """Centred log ratio of compositions, ``log(x + c)`` minus its mean over the row, or one of two variants.

    Parameters
    ----------
    pseudocount : float
        The pseudocount c, for "clr": ``log(1 + x / c) - mean_j log(1 + x_ij / c)``, in which log c cancels.
    kind : "clr", "robust" or "seurat"
        "robust": ``log(x)`` minus its mean over the nonzero entries of the row; zeros stay zeros (Martino et al. 2019).
        "seurat": ``log(1 + x / exp(mean_j log(1 + x_ij)))``, as Seurat normalises proteins; zeros stay zeros.

    See Also
    --------
    LogNormalize : Logarithms of scaled counts.

    Notes
    -----
    Means are over all columns, including zeros, except for "robust". Transformed zeros of "clr" have rank 1. One read.

    References
    ----------
    Aitchison (1986), The statistical analysis of compositional data; Martino et al. (2019), A novel sparse
    compositional technique reveals microbial perturbations.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(np.array([[1.0, 0.0], [7.0, 1.0]]), ss.CLR()) @ np.eye(2)
    array([[ 0.34657359, -0.34657359],
           [ 0.69314718, -0.69314718]])
    """

    pseudocount: float = 1.0
    kind: ClrName = "clr"

    def __post_init__(self) -> None:
        require(0 < self.pseudocount < np.inf, "pseudocount", "be a finite number above 0", self.pseudocount)
        require(self.kind in get_args(ClrName), "kind", 'be "clr", "robust" or "seurat"', self.kind)

    @property
    def keeps_zeros(self) -> bool:  # type: ignore[override]
        return self.kind != "clr"

    def terms(self, x: Vector, c: Quantities) -> tuple[Vector, ...]:
        return (self._log(x), (x > 0).astype(np.float64))

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        count = np.maximum(sums[:, 1:], 1) if self.kind == "robust" else len(fitted.columns)
        mean = sums[:, :1] / count
        return np.exp(-mean) if self.kind == "seurat" else mean

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        n = A.shape[1]
        fitted = Fitted(self, np.zeros((n, 0)), np.zeros(0), np.ones((n, 1)) if self.kind == "clr" else None)
        return fitted, fitted.rows(A)

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        if self.kind == "seurat":
            return np.asarray(np.log1p(x * r[0]))
        return np.where(x > 0, self._log(x) - r[0], 0) if self.kind == "robust" else self._log(x)

    def _log(self, x: Vector) -> Vector:
        if self.kind != "robust":
            return np.log1p(x / (self.pseudocount if self.kind == "clr" else 1))
        with np.errstate(divide="ignore"):
            return np.where(x > 0, np.log(x), 0)

    def rounded_at(self, R: Panel, fitted: Fitted) -> tuple[Panel, Panel]:
        mean = -np.log(R) if self.kind == "seurat" else R
        return mean, np.ones((len(fitted.columns), 1))

    def left(self, R: Panel, fitted: Fitted) -> Panel:
        return np.negative(R)


def squares_by_size(x: Vector) -> tuple[Vector, Vector, Vector]:
    size = np.abs(x)
    small, large = size < SMALL, size > LARGE
    medium = ~(small | large)
    return (np.where(small, x, 0) * UNIT) ** 2, np.where(medium, x, 0) ** 2, (np.where(large, x, 0) / UNIT) ** 2


def length_by_size(sums: Panel) -> Panel:
    small, medium, large = np.sqrt(sums).T
    return np.asarray(np.hypot(np.hypot(small / UNIT, medium), UNIT * large)[:, None])


def _over(target: float, sums: Panel) -> Panel:
    return np.where(sums > 0, target / np.where(sums > 0, sums, 1), 1)


def _median(values: Vector, weights: Vector) -> float:
    if not len(values):
        return 1.0
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    half, rounding = total[-1] / 2, 1 + len(total) * EPS
    places = np.searchsorted(total, half / rounding, "left"), np.searchsorted(total, half * rounding, "right")
    return float(np.mean([values[order[min(place, len(values) - 1)]] for place in places]))
