"""Evidence for components: neighbours that are safe, bounds without a row or a group, and standard errors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shiftsvd.algebra.generic import cancelled, matmat_in_double, rmatmat_in_double, shift_of
from shiftsvd.errors import plural
from shiftsvd.front import decompose
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TURNING
from shiftsvd.numerics.orth import inner, triangle
from shiftsvd.numerics.panels import Vector, lengths
from shiftsvd.operators import LowRank, Operator, Panel, Scaled
from shiftsvd.result import SVDResult
from shiftsvd.solvers.constants import EPS
from shiftsvd.solvers.factors import shift_rounding
from shiftsvd.solvers.subspace import Subspace, subspace

BLOCK: Final = 2**21  # numbers of a block of distances or of small matrices: 16 MB
# Largest length of the mean of the centred rows, over the first singular value of the mean of a row.
OFF_CENTRE: Final = 1e-6
# Relative accuracy of the singular values of refits. Angles are accurate to about its square root: 0.006 degrees.
OF_REFITS: Final = 1e-8
# Entries of all refits that settle which row turns a component most, and those that take the time of one small fit
# (7 ms on two cores): about 5 s at most.
SETTLING: Final = 2**25
SMALL: Final = 2**16


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Nearest neighbours in the space of the principal components; made by `PCA.neighbors`.

    Parameters
    ----------
    indices : array of int of shape (n_samples, n_neighbors)
        Neighbours of each row, nearest first, without the row itself.
    distances : array of shape (n_samples, n_neighbors)
        Euclidean distances of the scores, which are not whitened.
    safe : array of bool of shape (n_samples, n_neighbors)
        Whether the neighbour is also one of the `n_neighbors` nearest by the exact principal components.
    sine : float
        Bound of the sine of the largest angle between the components and the exact ones; 1 if no gap after the last
        component is proven, and then no edge is safe.

    See Also
    --------
    PCA.neighbors : Makes one.

    Examples
    --------
    See `PCA.neighbors`.
    """

    indices: NDArray[np.intp]
    distances: Vector
    safe: NDArray[np.bool_]
    sine: float


@dataclass(frozen=True, eq=False)
class Influence:
    """Bounds of the components without each row or group of rows; made by `PCA.influence`.

    Parameters
    ----------
    labels : array of shape (n,)
        The number of the row, or the label of the group, that is left out.
    singular_values : array of shape (n, n_components, 2)
        Lower and upper bound of the singular values of the other rows.
    angles : array of shape (n, n_components, 2)
        Lower and upper bound of the angle, in degrees, between each component of all rows and that of the other rows.
        0 and 90 where no gap between the values is proven, or where the errors of the fit hide the angle.
    subspace : array of shape (n, 2)
        Lower and upper bound of the largest angle, in degrees, between the spaces of the components.

    See Also
    --------
    PCA.influence : Makes one.

    Examples
    --------
    See `PCA.influence`.
    """

    labels: NDArray[Any]
    singular_values: Panel
    angles: Panel
    subspace: Panel


@dataclass(frozen=True, eq=False)
class Stability:
    """Standard errors of the loadings by resampling; made by `PCA.stability`.

    Parameters
    ----------
    standard_errors : array of shape (n_components, n_features)
        Standard error of each entry of `components_`.
    angles : array of shape (n_fits, n_components)
        Angle in degrees between each component and its counterpart in each resample.
    n_passes : int
        Passes over the data that the fits took together.

    See Also
    --------
    PCA.stability : Makes one.

    Examples
    --------
    See `PCA.stability`.
    """

    standard_errors: Panel
    angles: Panel
    n_passes: int


# ---- neighbours


def squared_rests(A: Operator, found: Subspace) -> Vector:
    squares = (A - LowRank(found.scores, found.V)).row_squares()
    if squares is None:
        raise ValueError(f"{A} does not provide the norms of its rows, which the bounds need. Pass an array or a file.")
    return np.asarray(squares, np.float64)


def neighbors(A: Operator, V: Panel, n_neighbors: int, rng: Generator) -> tuple[Neighbors, float]:
    """Search the nearest neighbours of each row among all rows, and mark those that no exact subspace can replace.

    Also return the share that would be safe if the components had rounding errors alone.

    For the difference z of two rows, d is the length of its part along V and b that of the rest. The exact length is at
    least ``d cos - b sin`` and at most ``d + b sin`` of the largest angle between the subspaces.
    """
    found = subspace(A, V, rng)
    m = A.shape[0]
    rests = np.sqrt(squared_rests(A, found))
    rounded = row_rounding(A, found, rests)
    turned, turned_least = (sine * (rests + rounded) + rounded for sine in (found.sine, found.rounding_sine))
    cosine = np.sqrt(max(1 - found.sine**2, 0.0))
    Y = found.scores - found.scores.mean(axis=0)
    indices, distances = np.empty((m, n_neighbors), np.intp), np.empty((m, n_neighbors))
    safe, attainable = np.zeros((m, n_neighbors), bool), 0
    for rows, nearest, d, others in nearest_rows(Y, n_neighbors):
        indices[rows], distances[rows] = nearest, d
        if found.sine < 1:
            first = np.min(cosine * others - turned, axis=1) - turned[rows]
            safe[rows] = d + turned[rows, None] + turned[nearest] < first[:, None]
            ends = others.min(axis=1) - turned_least.max()
            closer = d + 2 * turned_least[rows, None] + turned_least[nearest] < ends[:, None]
            attainable += int(np.count_nonzero(closer))
    return Neighbors(indices, distances, safe, found.sine), attainable / safe.size


def row_rounding(A: Operator, found: Subspace, rests: Vector) -> Vector:
    # A score is a sum of products with the entries of a row and of its shift, each of which is rounded.
    shift = shift_of(A)
    shifts = 0.0 if shift is None else lengths(triangle(shift.R) @ shift.L.T)
    unit = (bounds.ROUNDING + np.sqrt(A.shape[1])) * A.costs.gram_eps
    return np.asarray(unit * (np.hypot(lengths(found.scores.T), rests) + 2 * shifts + cancelled(A)))


def nearest_rows(Y: Panel, count: int) -> Iterator[tuple[slice, NDArray[np.intp], Vector, Panel]]:
    # Yield blocks of rows, their nearest rows, the distances of these, and lower bounds of the distances of all others.
    # Products give squared distances with rounding errors of a share of |y_i|^2 + |y_j|^2. Where these leave a doubt
    # about the nearest rows, their distances are computed again by differences.
    m, k = Y.shape
    squares = np.sum(Y**2, axis=1)
    step = max(BLOCK // m, 1)
    for lo in range(0, m, step):
        rows = slice(lo, min(lo + step, m))
        i = np.arange(rows.stop - lo)
        sums = squares[rows, None] + squares
        D = sums - 2 * (Y[rows] @ Y.T)
        D[i, i + lo] = np.inf
        nearest = np.argpartition(D, count - 1, axis=1)[:, :count]
        d = differences(Y, rows, nearest)
        others = np.sqrt(np.maximum(D - (2 * k + 16) * EPS * sums, 0))
        others[i[:, None], nearest] = np.inf
        for row in np.flatnonzero(others.min(axis=1) < d.max(axis=1)):
            exact = lengths((Y - Y[lo + row]).T)
            exact[lo + row] = np.inf
            nearest[row] = np.argsort(exact, kind="stable")[:count]
            d[row], others[row] = exact[nearest[row]], exact * (1 - (k + 8) * EPS)
            others[row, nearest[row]] = np.inf
        order = np.lexsort((nearest, d))
        nearest, d = np.take_along_axis(nearest, order, 1), np.take_along_axis(d, order, 1)
        yield rows, nearest, d, others


def differences(Y: Panel, rows: slice, nearest: NDArray[np.intp]) -> Vector:
    d = np.zeros(nearest.shape)
    for y in Y.T:  # column by column: no array of rows x neighbours x components
        d += (y[nearest] - y[rows, None]) ** 2
    return np.asarray(np.sqrt(d))


# ---- influence


def influence(
    A: Operator, V: Panel, rng: Generator, fits: "Refits", left_out: Any, widest: float, settle: bool = False
) -> tuple[Influence, NDArray[np.bool_], Panel]:
    """Bound values and angles of the components without each row, or without each group of rows.

    Refit if the bounds of an angle differ by more than `widest` (in radians), and with `settle`, for small data in
    memory, until it is known which row or group turns each component and the space most, and by how much. Also return
    the refitted ones, and bounds of the angles by which the components and the space are wrong, beside those of a fit
    that has rounding errors alone.
    """
    found = subspace(A, V, rng)
    m, centred = A.shape[0], fits.centred
    rests = squared_rests(A, found)
    moved = check_centred(A, found, float(np.sqrt(np.max(rests + lengths(found.scores.T) ** 2)))) if centred else 0.0
    full, ideal = (Changed.of(each, moved) for each in (found, replace(found, R=np.zeros_like(found.R))))
    own = np.stack([[*full.turned[0], np.arcsin(found.sine)], [*ideal.turned[0], np.arcsin(found.rounding_sine)]])
    if left_out is None:
        labels = of_row = np.arange(m)
        parts = without_rows(A, found, rests, m / (m - 1) if centred else 1.0)
    else:
        labels, of_row = np.unique(left_out, return_inverse=True)
        parts = without_groups(A, found, of_row, len(labels), centred)
    k, count, lo = len(found.theta), len(labels), 0
    values, angles, spaces = np.empty((count, k, 2)), np.empty((count, k, 2)), np.empty((count, 2))
    refitted, wide = np.zeros(count, bool), list[int]()

    def ends_of(changed: Changed) -> tuple[Panel, Panel, Panel]:
        between = np.stack((changed.lower, changed.upper), axis=-1)
        return between, changed.angles(full.turned), changed.spaces(found.sine)

    for part in parts:
        ends = ends_of(Changed.of(found, moved, part))
        values[lo : lo + len(part.M)], angles[lo : lo + len(part.M)], spaces[lo : lo + len(part.M)] = ends
        wide += (lo + np.flatnonzero(np.ptp(ends[1], axis=2).max(axis=1) > widest)).tolist()
        lo += len(part.M)

    def refit(at: int) -> None:
        found_there = ends_of(Changed.refitted(found, fits, of_row != at, moved, rng))
        for ends, new in zip((values, angles, spaces), found_there, strict=True):  # both bounds hold
            ends[at, ..., 0] = np.maximum(ends[at, ..., 0], new[0, ..., 0])
            ends[at, ..., 1] = np.maximum(np.minimum(ends[at, ..., 1], new[0, ..., 1]), ends[at, ..., 0])
        refitted[at] = True

    for at in wide:
        refit(at)
    left = SETTLING // (m * A.shape[1] + SMALL) if settle and not A.costs.file_bytes else 0
    for ends in (*angles.swapaxes(0, 1), spaces):
        while left and len(rivals := np.flatnonzero(rivals_of(ends) & ~refitted)):
            refit(int(rivals[ends[rivals, 1].argmax()]))
            left -= 1
        if left and not refitted[largest_turn(ends)]:
            refit(largest_turn(ends))
            left -= 1
    np.sqrt(values, out=values)
    found_all = Influence(labels, values, np.degrees(angles, out=angles), np.degrees(spaces, out=spaces))
    return found_all, refitted, np.degrees(own)


def influence_bytes(n_rows: int, n_left_out: int, k: int) -> int:
    # Numbers for each row: its scores, products and copies of both, at most for a group or a refit; norms, weights,
    # labels and temporary vectors. Results: lower and upper bounds of values, angles and spaces.
    return 8 * (n_rows * (4 * k + 16) + n_left_out * (4 * k + 2))


def largest_turn(ends: Panel) -> int:
    """Return the row with the largest lower bound; among ties, the row with the largest upper bound."""
    return int(np.lexsort((ends[:, 1], ends[:, 0]))[-1])


def rivals_of(ends: Panel) -> NDArray[np.bool_]:
    """Return the rows that may have the largest angle, by lower and upper bounds; none if the bounds leave one row."""
    first = largest_turn(ends)
    may_be: NDArray[np.bool_] = ends[:, 1] > ends[first, 0]
    may_be[first] = np.count_nonzero(np.delete(may_be, first)) > 0
    return may_be


def check_centred(A: Operator, found: Subspace, longest: float) -> float:
    # Return the error of the bounds by a mean of the rows that is not exactly 0.
    m, top = A.shape[0], float(np.sqrt(found.theta[0]))
    mean = float(np.linalg.norm(rmatmat_in_double(A, np.ones((m, 1))))) / m
    if mean * np.sqrt(m) > OFF_CENTRE * top + shift_rounding(A):
        raise ValueError("the mean of X differs from mean_. Pass the rows of the fit.")
    return m * mean**2 + 4 * longest * mean


@dataclass(frozen=True, eq=False)
class Part:
    """Matrices ``G - B^H B``, b at a time: compressions to V, and residuals ``E = (I - V V^H)(G - B^H B) V``."""

    M: Panel  # (b, k, k)
    N: Panel  # (b, k, k): E^H E
    rounded: Vector | float = 0.0  # bound of the rounding error of N
    less: "Less | None" = None
    floor: float = 0.0  # lower bound of the k-th eigenvalue


@dataclass(frozen=True, eq=False)
class Less:
    """The part of ``B = sqrt(rho) x^H`` outside of V, which lowers G there: z, with ``w = E^H z`` and ``|z|^2``."""

    rho: float
    w: Panel  # (b, k)
    squares: Vector


@dataclass(frozen=True, eq=False)
class Changed:
    """Bounds of the eigenvalues and vectors of matrices ``G - B^H B``, b at a time."""

    lower: Panel  # (b, k)
    upper: Panel
    off_axis: Panel  # angles between the Ritz vectors of G and those of G - B^H B
    apart: Panel  # lower bounds of the angles between the Ritz vectors of G and the exact vectors of G - B^H B
    turned: Panel  # bounds of the angles between the Ritz vectors and the exact ones
    space: Panel  # (b, 2): bounds of the sine of the angle between V and the leading space of G - B^H B

    @classmethod
    def of(cls, found: Subspace, moved: float, part: Part | None = None) -> Self:
        """Bound eigenvalues and angles, of G itself by default, given an error `moved` of the matrices.

        M bounds from below; ``M + N / (mu - level)`` bounds the first J values from above, with mu the J-th of M.
        """
        part = part or Part(np.diag(found.theta)[None], inner(found.R, found.R)[None])
        less = part.less
        noise, k = found.noise + moved, len(found.theta)
        level = found.level + moved
        theta, Y = np.linalg.eigh(part.M)
        theta, Y = theta[:, ::-1], Y[:, :, ::-1]
        N = Y.swapaxes(1, 2) @ part.N @ Y
        most = np.array([bounds.value_limit(found.ritz, j) for j in range(k)]) + moved
        # An error of E of the size `noise` changes the squares by this much.
        of_products = noise * (2 * np.sqrt(np.maximum(np.trace(part.N, axis1=1, axis2=2), 0)) + noise)
        rounded = (part.rounded + of_products)[:, None]
        lower, upper = np.maximum(theta - noise, 0), np.broadcast_to(most, theta.shape).copy()
        lower[:, -1] = np.maximum(lower[:, -1], part.floor - moved)
        for count in sorted({k, *(2**i for i in range(k.bit_length()) if 2**i < k)}):
            gap = theta[:, count - 1] - noise - level
            some = gap > 0
            grown = N[some] + rounded[some, :, None] * np.eye(k)
            if less is not None:
                w = (Y[some].swapaxes(1, 2) @ less.w[some, :, None])[:, :, 0]
                shrunk = less.rho / (gap[some] + less.rho * less.squares[some])
                grown = grown - shrunk[:, None, None] * w[:, :, None] * w[:, None, :]
            grown = grown / gap[some, None, None] + theta[some, :, None] * np.eye(k)
            of_eigenvalues = 8 * k * EPS * np.max(np.abs(grown), axis=(1, 2))[:, None]
            found_above = np.linalg.eigvalsh(grown)[:, ::-1][:, :count] + noise + of_eigenvalues
            upper[some, :count] = np.minimum(upper[some, :count], found_above)
        squares, turning = np.diagonal(N, axis1=1, axis2=2), TURNING * noise
        r = np.sqrt(np.maximum(squares, 0) + rounded) + turning
        outside = _sines(r, theta - noise - level)
        space = np.where(theta[:, -1] > noise + level, np.minimum(np.linalg.norm(outside, axis=1), 1), 1)
        ends = np.full((len(theta), 1), np.inf)
        gaps = np.minimum(np.hstack([ends, lower[:, :-1]]) - theta, theta - np.hstack([upper[:, 1:], -ends])) - noise
        inside = _sines(space[:, None] * r + turning, gaps)
        along = np.abs(np.diagonal(Y, axis1=1, axis2=2))
        across = np.sqrt(np.sum((Y * (1 - np.eye(k))) ** 2, axis=1))
        turned = np.arcsin(np.minimum(np.hypot(outside, inside), 1))
        least = np.sqrt(np.maximum(squares - rounded, 0)) - turning
        least = np.maximum(least, 0) / np.where(theta > 0, theta + noise, np.inf)
        # v_j has the quotient M_jj, which is at least ``lambda_j cos^2`` of its angle to the exact j-th vector.
        quotients = np.maximum(np.diagonal(part.M, axis1=1, axis2=2) + noise, 0)
        cosines = np.where(lower > 0, quotients / np.where(lower > 0, lower, 1), 1)
        apart = np.arccos(np.sqrt(np.minimum(cosines, 1)))
        of_last = np.where(lower[:, -1] > 0, quotients.min(axis=1) / np.where(lower[:, -1] > 0, lower[:, -1], 1), 1)
        least_space = np.maximum(np.sqrt(1 - space**2) * np.max(least, axis=1), np.sqrt(1 - np.minimum(of_last, 1)))
        spaces = np.stack([least_space, space], axis=-1)
        return cls(lower, upper, np.arctan2(across, along), apart, turned, spaces)

    @classmethod
    def refitted(cls, found: Subspace, fits: "Refits", kept: NDArray[np.bool_], moved: float, rng: Generator) -> Self:
        """Bound eigenvalues and angles by the components of the rows that are kept."""
        B = fits.weighted(kept.astype(np.float64))
        other = subspace(B, fits.of(B).Vh.T, rng)
        alone = cls.of(other, moved)
        of_space = float(np.linalg.norm(found.V - other.V @ inner(other.V, found.V), 2))
        space = np.stack((of_space - alone.space[:, 1], of_space + alone.space[:, 1]), axis=-1)
        return replace(alone, off_axis=angles_between(found.V, other.V)[None], apart=0 * alone.apart, space=space)

    def angles(self, first: Panel) -> Panel:
        between = first + self.turned
        least = np.maximum(np.maximum(self.off_axis - between, self.apart - first), 0)
        ends = least, np.minimum(self.off_axis + between, np.pi / 2)
        return np.stack(ends, axis=-1)

    def spaces(self, first: float) -> Panel:
        return np.arcsin(np.clip(self.space + first * np.array([-1.0, 1.0]), 0, 1))


def _sines(residuals: Panel, gaps: Panel) -> Panel:
    return np.where(gaps > 0, np.minimum(residuals / np.where(gaps > 0, gaps, 1), 1), 1)


def without_rows(A: Operator, found: Subspace, rests: Vector, rho: float) -> Iterator[Part]:
    # With x = V c + z, z orthogonal to V, the residual is E = R - rho z c^H, and R^H z = R^H x.
    k = len(found.theta)
    T, N = matmat_in_double(A, found.R), inner(found.R, found.R)
    step = max(BLOCK // (8 * k * k), 1)
    for lo in range(0, A.shape[0], step):
        c, t, squares = (F[lo : lo + step] for F in (found.scores, T, rests))
        C, cross = c[:, :, None] * c[:, None, :], t[:, :, None] * c[:, None, :]
        M = np.diag(found.theta) - rho * C
        E_squared = N - rho * (cross + cross.swapaxes(1, 2)) + rho**2 * squares[:, None, None] * C
        lengths_c = np.sum(c**2, axis=1)
        sizes = np.trace(N) + rho**2 * (squares + lengths_c) * lengths_c
        less = Less(rho, t - rho * squares[:, None] * c, squares)
        # A change of rank one moves no eigenvalue below the next one of G (Cauchy).
        yield Part(M, E_squared, 16 * k * EPS * sizes, less, found.following)


def without_groups(A: Operator, found: Subspace, of_row: NDArray[np.intp], count: int, centred: bool) -> Iterator[Part]:
    # The scatter of the other rows about their own mean is G - A_g^H A_g - A_g^H 1 1^H A_g / (m - m_g).
    m = A.shape[0]
    for group in range(count):
        mask = of_row == group
        Y = np.where(mask[:, None], found.scores, 0)
        W = Y + np.where(mask, 1 / (m - mask.sum()), 0)[:, None] * Y.sum(axis=0) if centred else Y
        B = rmatmat_in_double(A, W).astype(np.float64)
        M = np.diag(found.theta) - inner(Y, W)
        E = found.R - (B - found.V @ inner(found.V, B))
        yield Part(((M + M.T) / 2)[None], inner(E, E)[None])


# ---- refits, stability


@dataclass(frozen=True, eq=False)
class Refits:
    """Fits of weighted rows, centred again."""

    A: Operator
    k: int
    centred: bool
    rng: Generator
    memory_limit: int | str | None

    def weighted(self, weights: Vector) -> Operator:
        A = self.A
        if self.centred:
            means = rmatmat_in_double(A, weights[:, None]).astype(np.float64) / weights.sum()
            A = A - LowRank(np.ones((A.shape[0], 1)), means)
        return Scaled(A, np.sqrt(weights))

    def of(self, B: Operator) -> SVDResult:
        return decompose(B, self.k, "auto", OF_REFITS, self.rng, self.memory_limit)


def stability(fits: Refits, V: Panel, weights: Iterable[Vector], jackknife: bool) -> Stability:
    """Refit with each of the weights, and measure how far the aligned components scatter."""
    k, angles, n_passes = V.shape[1], [], 0
    sums, squares = np.zeros(V.shape), np.zeros(V.shape)
    for each in weights:
        if (n_rows := int(np.count_nonzero(each))) <= k:
            raise ValueError(
                f"A resample has {plural(n_rows, 'different row')}, too few for {plural(k, 'component')}. Pass more "
                "rows, or groups of more rows."
            )
        F = fits.of(fits.weighted(each))
        W = aligned(F.Vh.T.astype(np.float64), V)
        sums, squares = sums + (W - V), squares + (W - V) ** 2
        angles.append(angles_between(V, W))
        n_passes += F.info.n_passes + fits.centred
    count = len(angles)
    scatter = np.maximum(squares - sums**2 / count, 0)
    factor = (count - 1) / count if jackknife else 1 / (count - 1)
    return Stability(np.sqrt(factor * scatter).T, np.degrees(angles), n_passes)


def aligned(W: Panel, V: Panel) -> Panel:
    from scipy.optimize import linear_sum_assignment

    cosines = V.T @ W
    mine, theirs = linear_sum_assignment(-np.abs(cosines))
    return W[:, theirs] * np.where(cosines[mine, theirs] < 0, -1.0, 1.0)


def angles_between(V: Panel, W: Panel) -> Vector:
    cosines = np.sum(V * W, axis=0)
    return np.asarray(np.arctan2(lengths(W - V * cosines), np.abs(cosines)))


def bootstrap_weights(of_row: NDArray[np.intp], n_fits: int, rng: Generator) -> Iterator[Vector]:
    n_groups = int(of_row.max()) + 1
    for _ in range(n_fits):
        yield np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)[of_row].astype(np.float64)


def jackknife_weights(of_row: NDArray[np.intp]) -> Iterator[Vector]:
    for group in range(int(of_row.max()) + 1):
        yield (of_row != group).astype(np.float64)
