"""Residuals of null models, which predict a count from the sums of its row and its column."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.errors import Refused, Setting
from shiftsvd.numerics.entrywise import Quantities, Terms
from shiftsvd.numerics.moments import weight_of_zeros, weight_parts
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms.base import Fitted, OfCounts, SumsOf, Transform, margins, require, shares
from shiftsvd.transforms.smooth import Smooth, SmoothName

THETA = 100.0  # default of the overdispersion (Lause et al. 2021)
LINEAR = 1e-17  # log(1 + y) rounds to y for smaller y
DevianceName = Literal["poisson", "binomial", "nb"]


@dataclass(frozen=True, eq=False)
class NullModel(OfCounts):
    """Base class for residuals of counts from ``mu_ij = r_i q_j``.

    The last entry of `known` is the predicted share of the counts of a row in the present columns.
    """

    keeps_zeros: ClassVar[bool] = False

    def quantities(self, sums: Panel, fitted: Fitted) -> Panel:
        return np.asarray(sums / fitted.known[-1])

    def of_some(self, known: Vector, columns: Panel, places: Vector) -> Vector:
        rates = columns[:, 0]
        held = rates[places].sum()
        if not held > 0:
            without = "their columns had no counts in the training data. Fit on data with counts in these columns."
            raise ValueError(f"{self} cannot transform these data: {without}")
        return np.append(known[:-1], known[-1] * held / rates.sum())

    def left(self, R: Panel, fitted: Fitted) -> Panel:
        return np.sqrt(R)


@dataclass(frozen=True, eq=False)
class PearsonResiduals(NullModel):
    """Analytic Pearson residuals, ``clip((x - mu) / sqrt(mu + mu^2 / theta))`` with ``mu_ij = r_i c_j / T``.

    Parameters
    ----------
    theta : float, inf, array of shape (n,), or "estimate"
        Overdispersion of the negative binomial model: a number, inf for the Poisson model, or a vector with one number
        for each column. "estimate" uses the method of moments, ``1 / theta_j = sum_i ((x - mu)^2 - mu) / sum_i mu^2``,
        or inf if that is not positive.
    clip : float, optional
        Clip residuals at plus and minus this value. Default: sqrt(m), as in scanpy; inf does not clip.
    log_rates : array of shape (n,), optional
        Values beta_j to use instead of ``log(c_j / T)``, as in the offset model of sctransform: ``mu_ij = r_i
        exp(beta_j)``.

    See Also
    --------
    DevianceResiduals : Deviance residuals of the same null model.
    LogNormalize : Logarithms of scaled counts.

    Notes
    -----
    A stored x becomes ``x / sqrt(mu + mu^2 / theta) + f(mu)`` (clipped), and a zero becomes ``f(mu) = -sqrt(mu) /
    sqrt(1 + mu / theta)``. As a function of ``log r_i + log c_j``, f has rank 1 for the Poisson model, and low rank to
    the accuracy of the fit otherwise. No zero is clipped if ``clip >= sqrt(theta)``, because ``|f| < sqrt(theta)``.
    Otherwise clipped zeros are stored as entries, and ValueError is raised if these are more than a quarter of the
    stored entries. Entries of rows and columns without counts become 0, also those of new rows in columns without
    training counts. The variance has no lower limit. One read, or two for "estimate".

    References
    ----------
    Lause, Berens & Kobak (2021), Analytic Pearson residuals for normalization of single-cell RNA-seq UMI data;
    Choudhary & Satija (2022), Comparison and evaluation of statistical error models for scRNA-seq.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> counts = np.random.default_rng(0).poisson(1.0, (100, 20))
    >>> ss.svd(counts, 3, preprocess=ss.PearsonResiduals()).S.shape
    (3,)
    """

    learns: ClassVar[tuple[int, int]] = (3, 2)
    stored_zeros: ClassVar[tuple[int, int]] = (0, 2)
    theta: float | Vector | Literal["estimate"] = THETA
    clip: float | None = None
    log_rates: Vector | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.theta, str) and self.theta == "estimate"):
            _own_positive(self, "theta", 'be a number above 0, inf, a vector of such numbers, or "estimate"')
        if self.log_rates is not None:
            object.__setattr__(self, "log_rates", _own(unmasked("log_rates", self.log_rates)))
        if self.clip is not None:
            _own_positive(self, "clip", "be a number above 0, or None")

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        found = margins(self, A, weights)
        r, rates = found.rows, shares(found.columns)
        if self.log_rates is not None:
            rates = np.exp(of_columns("log_rates", self.log_rates, rates))
        theta = self._theta(A, r, rates, weights)
        clip = np.sqrt(weights.sum()) if self.clip is None else self.clip
        with np.errstate(divide="ignore"):
            # A zero is clipped if mu exceeds clip^2 / (1 - clip^2 / theta).
            beyond = rates * np.maximum(1 / clip**2 - 1 / theta, 0)
        fitted = _null_model(self, "pearson", np.stack([rates, 1 / theta, beyond], axis=1), r, tol)
        return replace(fitted, known=np.array([clip, 1.0])), r[:, None]

    def _theta(self, A: Operator, r: Vector, rates: Vector, weights: Vector) -> Vector:
        if not isinstance(self.theta, str):
            return of_columns("theta", self.theta, rates)
        parts = weight_parts(weights * r**2)
        R = np.hstack([r[:, None], weights[:, None], parts])
        sums = generic.entry_sums(A, Terms(_scatter, R, rates[:, None]))[1]
        stored, squares, absent = sums[:, 0], float(weights @ r**2), weight_of_zeros(parts, len(r), sums[:, 1:])
        excess = stored + rates**2 * absent - rates * (weights @ r)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(excess > 0, rates**2 * squares / excess, np.inf))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        mu, clip = r[0] * c[0], known[0]
        deviation = np.sqrt(mu) * np.sqrt(1 + mu * c[1])  # the product avoids an overflow of mu^2
        with np.errstate(divide="ignore", invalid="ignore"):
            change = x / deviation  # no difference, and so no cancellation, if nothing is clipped
            cut = np.abs(x - mu) > clip * deviation
            if cut.any():
                change = np.where(cut, np.copysign(clip, x - mu) + mu / deviation, change)
        return change if mu.all() else np.where(mu > 0, change, 0)


def _scatter(x: Vector, r: Quantities, c: Quantities) -> SumsOf:
    row, weight, *parts = r
    return (), (weight * (x - row * c[0]) ** 2, *parts)


@dataclass(frozen=True, eq=False)
class DevianceResiduals(NullModel):
    """Deviance residuals: signed square root of the deviance of each count from ``mu_ij = r_i c_j / T``.

    Parameters
    ----------
    model : "poisson", "binomial" or "nb"
        Null model. "binomial": x of the ``r_i`` counts of a row, each with probability ``p_j = c_j / T``. "nb":
        negative binomial.
    theta : float, inf, or array of shape (n,), optional
        Overdispersion, for "nb" only; default 100.

    See Also
    --------
    PearsonResiduals : Pearson residuals of the same null model.

    Notes
    -----
    A zero becomes ``-sqrt(2 mu)`` (Poisson) or ``-sqrt(-2 r_i log(1 - p_j))`` (binomial), a matrix of rank 1, or
    ``-sqrt(2 theta log(1 + mu / theta))`` (negative binomial), of low rank to the accuracy of the fit. Rows and columns
    without counts become 0. For "binomial", a column that holds all counts (``p_j = 1``) raises ValueError, because all
    residuals would be 0. One read.

    References
    ----------
    Townes, Hicks, Aryee & Irizarry (2019), Feature selection and dimension reduction for single-cell RNA-Seq based on a
    multinomial model.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> counts = np.random.default_rng(0).poisson(1.0, (100, 20))
    >>> ss.svd(counts, 3, preprocess=ss.DevianceResiduals("binomial")).S.shape
    (3,)
    """

    learns: ClassVar[tuple[int, int]] = (2, 1)
    model: DevianceName = "poisson"
    theta: float | Vector | None = None

    def __post_init__(self) -> None:
        require(self.model in get_args(DevianceName), "model", 'be "poisson", "binomial" or "nb"', self.model)
        if self.theta is not None:
            if self.model != "nb":
                raise Refused(Setting("theta"), " requires ", Setting("model", "nb"), f", got model={self.model!r}")
            _own_positive(self, "theta", "be a number above 0, inf, or a vector of such numbers")

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        found = margins(self, A, weights)
        r, rates = found.rows, shares(found.columns)
        if self.model == "binomial":
            others = _of_others(found.columns)
            if rates.any() and not others.all():
                raise ValueError(
                    "One column holds all counts, so all residuals of a binomial model are zero. Pass data with counts "
                    "in at least two columns."
                )
            right = -np.sqrt(-2 * _log_of_rest(rates, others))
            return Fitted(self, np.stack([rates, others], axis=1), np.ones(1), right[:, None]), r[:, None]
        overdispersion = THETA if self.theta is None else self.theta
        theta = of_columns("theta", overdispersion if self.model == "nb" else np.inf, rates)
        return _null_model(self, "deviance", np.stack([rates, 1 / theta], axis=1), r, tol), r[:, None]

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        mu = r[0] * c[0]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            d, half, zero = self._binomial(x, mu, r, c) if self.model == "binomial" else _counts(x, mu, c[1])
            root = np.copysign(np.sqrt(2 * np.maximum(half, 0)), d)
        return np.where(mu > 0, root + np.sqrt(2 * zero), 0)

    def _binomial(self, x: Vector, mu: Vector, r: Quantities, c: Quantities) -> tuple[Vector, Vector, Vector]:
        others = np.where(c[1] > 0, c[1], 1 - c[0])  # files of older versions lack these values
        rest, expected = np.maximum(r[0] - x, 0), r[0] * others
        d = np.where(c[0] > 0.5, expected - rest, x - mu)  # use the smaller numbers, which have smaller rounding errors
        return d, loss(x, mu, d) + loss(rest, expected, -d), -r[0] * _log_of_rest(c[0], others)


def _counts(x: Vector, mu: Vector, inverse: Vector) -> tuple[Vector, Vector, Vector]:
    d = x - mu
    return d, loss(x, mu, d, inverse), _over_log(mu * inverse, mu, inverse)


def loss(x: Vector, mu: Vector, d: Vector, inverse: Vector | float = 0.0) -> Vector:
    # Return x log(x / mu) - (x + theta) log((x + theta) / (mu + theta)), or x log(x / mu) - (x - mu) for infinite
    # theta, accurately for any x, mu and theta: x P - theta Q for x above mu, else its negative, where P is the
    # difference of both logarithms and Q the second one. The error of the root is at most the
    # rounding error of the root of a zero (test_many_digits.py).
    low, size = np.minimum(x, mu), np.abs(d)
    P = np.log1p(np.where(x > 0, size / low / (1 + np.maximum(x, mu) * inverse), 0))
    part = size / (1 + low * inverse)
    return np.asarray(np.copysign(1.0, d) * (x * P - _over_log(part * inverse, part, inverse)))


def _over_log(y: Vector, linear: Vector, inverse: Vector | float) -> Vector:
    return np.where(y > LINEAR, np.log1p(y) / inverse, linear)


def _of_others(c: Vector) -> Vector:
    before, after = np.cumsum(np.r_[0, c[:-1]]), np.cumsum(np.r_[0, c[:0:-1]])[::-1]
    total = c.sum()
    return (before + after) / total if total > 0 else np.ones(len(c))


def _log_of_rest(rates: Vector, others: Vector) -> Vector:
    return np.where(rates > 0.5, np.log(np.where(others > 0, others, 1)), np.log1p(-np.minimum(rates, 0.5)))


def _null_model(how: Transform, name: SmoothName, columns: Panel, r: Vector, tol: float) -> Fitted:
    rates, inverse = columns[:, 0], columns[:, 1]
    poisson = inverse == 0
    right = np.where(poisson, -np.sqrt(rates * (2 if name == "deviance" else 1)), 0)[:, None]
    with np.errstate(divide="ignore"):
        offsets = np.where(poisson, -np.inf, np.log(rates) + np.log(inverse))
    smooth = None
    if np.isfinite(offsets).any():
        scale = np.where(poisson, 0, 1 / np.sqrt(np.where(poisson, 1, inverse)))
        smooth = Smooth(name, offsets, scale, float(max(r.max(), 1)), tol)
    return Fitted(how, columns, np.ones(1), right, smooth)


def _own_positive(how: Transform, name: str, rule: str) -> None:
    value = getattr(how, name)
    numbers = np.asarray(unmasked(name, value))
    require(numbers.dtype.kind in "fiu" and bool(np.all(numbers > 0)), name, rule, value)
    object.__setattr__(how, name, _own(value))


def _own(value: Any) -> float | Vector:
    return np.array(value, np.float64) if np.ndim(value) else float(value)


def of_columns(name: str, value: Any, like: Vector) -> Vector:
    numbers = np.asarray(value, np.float64)
    if numbers.ndim and numbers.shape != like.shape:
        rule = f" must be a number, or one for each of the {len(like):,} columns, got shape {numbers.shape}"
        raise Refused(Setting(name), rule)
    return np.array(np.broadcast_to(numbers, like.shape))
