"""Bounds of eigenvalues and vectors against exact ones: clusters, coupling, levels, both sides."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shiftsvd.numerics.bounds import (
    HALVINGS,
    NEIGHBOURS,
    Ritz,
    at_most,
    combined_sines,
    groups,
    growth_bounds,
    leading_bounds,
    next_bound,
    relative_errors,
    rounding_bounds,
    value_bounds,
    vector_bounds,
    worst_of_group,
)
from tests.support.matrices import EPS, Array

EXAMPLES = settings(deadline=None, derandomize=True)


class Projected(NamedTuple):
    """A Hermitian G with its Ritz vectors V: what is exact, and what is known from V."""

    G: Array
    exact: Array
    X: Array  # eigenvectors
    theta: Array
    V: Array
    R: Array  # residuals: coordinates in the standard basis
    below: float  # the largest eigenvalue of G orthogonal to V

    @property
    def squares(self) -> Array:
        return np.sum(np.abs(self.R) ** 2, axis=0)


def orthogonal(n: int, rng: np.random.Generator, dtype: type = float) -> Array:
    M = rng.standard_normal((n, n))
    return np.linalg.qr(M if dtype is float else M + 1j * rng.standard_normal((n, n)))[0]


def projected(G: Array, V: Array) -> Projected:
    """The Ritz values of G in the span of V, and everything that is exact."""
    exact, X = np.linalg.eigh(G)
    theta, w = np.linalg.eigh(V.conj().T @ G @ V)
    V, theta = V @ w[:, ::-1], theta[::-1]
    R = G @ V - V * theta
    W = np.linalg.qr(V, "complete")[0][:, V.shape[1] :]
    below = float(np.linalg.eigvalsh(W.conj().T @ G @ W)[-1]) if W.shape[1] else -np.inf
    return Projected(G, exact[::-1], X[:, ::-1], theta, V, R, below)


def near(exact: Array, size: int, off: Array | float, rng: np.random.Generator, dtype: type = float) -> Projected:
    """Ritz vectors off the leading eigenvectors by so much, each by its own amount."""
    X = orthogonal(len(exact), rng, dtype)
    V = np.linalg.qr(X[:, :size] + off * orthogonal(len(exact), rng, dtype)[:, :size])[0]
    G = (X * exact) @ X.conj().T
    return projected((G + G.conj().T) / 2, V)


@st.composite
def clustered(draw: st.DrawFn) -> Projected:
    """Matrices with clusters of any width, bases that know their leading vectors to any number of digits."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 7), min_size=2, max_size=5))
    width = 10.0 ** draw(st.integers(-9, -1))
    centres = np.linspace(3, 1, len(sizes)) * draw(st.sampled_from([1.0, 1e-6, 1e8]))
    head = np.concatenate([c * (1 + width * rng.random(s)) for c, s in zip(centres, sizes, strict=True)])
    low = draw(st.sampled_from([0.0, -1.0]))  # the rest may be indefinite
    exact = np.sort(np.concatenate([head, centres[-1] * rng.uniform(low, 0.9, 15)]))[::-1]
    size = draw(st.integers(1, len(head)))
    least = draw(st.integers(-9, -1))
    off = 10.0 ** rng.uniform(least, draw(st.integers(least, -1)), size)
    return near(exact, size, off, rng, draw(st.sampled_from([float, complex])))


def rounding(P: Projected) -> float:
    """What rounding does to a value of a matrix of this size."""
    return 100 * EPS * float(np.abs(P.exact).max())


# --- groups and values ----------------------------------------------------------------------------------------


def test_two_equal_values_share_the_residual_of_both() -> None:
    # Each by its own residual, the first would be right to 1e-6: its eigenvalue is 0.1 away.
    p = np.array([1e-3, 0.3])
    P = projected(np.array([[1, 0, p[0]], [0, 1, p[1]], [*p, 0.2]]), np.eye(3)[:, :2])
    error = np.abs(P.exact[:2] - P.theta)
    assert error.max() > 0.09
    for beyond in (P.exact[2], 0.2, np.inf):
        found = value_bounds(P.theta, P.squares, 2, float(beyond))
        assert np.all(error <= found + 10 * EPS)
        assert np.all(found <= np.linalg.norm(p) * (1 + 10 * EPS))


def test_groups_are_joined_until_their_intervals_are_apart() -> None:
    theta, r = np.array([9.0, 4.0, 3.9, 1.0]), np.array([0.1, 0.08, 0.03, 0.3])
    starts, radii = groups(theta, r**2)
    assert starts.tolist() == [0, 1, 3]
    np.testing.assert_allclose(radii, [0.1, np.hypot(0.08, 0.03), 0.3], rtol=10 * EPS)
    # Joined, two can reach a third that neither reached alone.
    for r, want in (([0.4, 0.08, 0.01], [0, 1]), ([0.4, 0.08, 0.08], [0])):
        assert groups(np.array([3.0, 2.5, 2.49]), np.square(r))[0].tolist() == want


@EXAMPLES
@given(clustered())
def test_groups_are_apart_and_cover_all_values(P: Projected) -> None:
    starts, radii = groups(P.theta, P.squares)
    assert starts[0] == 0
    assert np.all(np.diff(starts) > 0)
    ends = np.append(starts[1:], len(P.theta))
    np.testing.assert_allclose(radii**2, [P.squares[a:b].sum() for a, b in zip(starts, ends, strict=True)], rtol=1e-12)
    assert np.all((P.theta[ends - 1] - radii)[:-1] > (P.theta[starts] + radii)[1:])
    # So that as many eigenvalues lie within the radius of its values as it has.
    for a, b, radius in zip(starts, ends, radii, strict=True):
        inside = (P.exact >= P.theta[b - 1] - radius - rounding(P)) & (P.exact <= P.theta[a] + radius + rounding(P))
        assert inside.sum() >= b - a


@EXAMPLES
@given(clustered(), st.data())
def test_values_are_within_their_bounds_where_none_is_missed(P: Projected, data: st.DataObject) -> None:
    # Kahan: all Ritz values have partners within ||R||, which are the leading ones if the next one is lower than that.
    after = np.append(P.exact, -np.inf)[len(P.theta)]
    assume(P.theta[-1] - np.linalg.norm(P.R, 2) > after + rounding(P))
    k = data.draw(st.integers(1, len(P.theta)))
    error = np.abs(P.exact[:k] - P.theta[:k])
    for beyond in (np.append(P.exact, -np.inf)[k], np.inf):
        assert np.all(error <= value_bounds(P.theta, P.squares, k, float(beyond)) + rounding(P))


def test_bounds_of_single_values_are_quadratic_in_their_residuals() -> None:
    theta, r = np.array([9.0, 4.0, 1.0]), np.array([0.1, 0.2, 0.3])
    # Below 9 all are at most 4.2, below 4 at most 1.3; below 1 at most 0.5, if anything is known.
    squares = np.array([0.01, 0.04, 0.09])
    np.testing.assert_allclose(value_bounds(theta, r**2, 3, 0.5), squares / [4.8, 2.7, 0.5], rtol=100 * EPS)
    np.testing.assert_allclose(value_bounds(theta, r**2, 3), [*(squares[:2] / [4.8, 2.7]), 0.3], rtol=100 * EPS)
    # What follows the k-th counts where it is lower than what is known of it otherwise.
    np.testing.assert_allclose(value_bounds(theta, r**2, 2, 0.5), squares[:2] / [4.8, 3.5], rtol=100 * EPS)


# --- growth ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("gap", [1e-4, 0.1, 3.0])
@pytest.mark.parametrize("depth", [None, 13])
def test_eigenvalues_lie_above_ritz_values_by_at_most_what_couples_them_to_the_rest(seed, gap, depth) -> None:
    rng = np.random.default_rng(seed)
    exact = np.concatenate([np.linspace(1 + gap, 1, 12), np.linspace(0.9, 0.1, 28)])
    P = near(exact, 15, 1e-2, rng)
    for k in (1, 6, 12):
        with_rounding = P.exact[:k] - P.theta[:k]
        bounds = growth_bounds(P.theta, P.R, P.below, k, depth)
        assert np.all(with_rounding <= bounds + rounding(P))
        higher = growth_bounds(P.theta, P.R, (P.below + P.theta[k - 1]) / 2, k, depth)
        assert np.all(bounds <= higher + rounding(P))
    if gap < 1:  # Neighbours of the k-th that are as good as it is do not count: the bound is of the size of the error.
        assert np.max(bounds) <= 10 * np.max(with_rounding)


@EXAMPLES
@given(clustered(), st.data())
def test_growth_is_bounded_whatever_was_missed_below_the_last_value(P: Projected, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(P.theta)))
    depth = data.draw(st.integers(k, len(P.theta)))
    bounds = growth_bounds(P.theta, P.R, P.below + rounding(P), k, depth)
    assert np.all(P.exact[:k] - P.theta[:k] <= bounds + rounding(P))


@EXAMPLES
@given(clustered(), st.data())
def test_leading_values_are_bounded_by_a_level_that_the_last_ones_do_not_exceed(
    P: Projected, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(P.theta)))
    level = max(P.below, float(data.draw(st.sampled_from(P.theta.tolist()))))
    ritz = Ritz(P.theta, P.R, k, rounding(P), level)
    for j, mu in leading_bounds(ritz):
        assert P.exact[j] <= mu
    for unknown in (np.inf, -np.inf):
        assert not leading_bounds(replace(ritz, level=unknown))


@pytest.mark.parametrize("seed", range(5))
def test_values_far_above_the_level_are_bounded_as_closely_as_their_residuals_allow(seed) -> None:
    exact = np.concatenate([[9.0, 5.0, 3.0], np.linspace(1.001, 1, 12), np.linspace(0.999, 0.1, 28)])
    P = near(exact, 15, 1e-5, np.random.default_rng(seed))
    found = dict(leading_bounds(Ritz(P.theta, P.R, 10, rounding(P), level=float(P.theta[4]))))
    assert list(found) == [0, 1, 2]
    assert all(P.exact[j] <= mu <= P.theta[j] + 2 * P.squares[j] + 2 * rounding(P) for j, mu in found.items())


def test_growth_along_one_direction_is_known_exactly_by_its_own_level() -> None:
    # Two by two, with mu = theta_1: the bound is e^2 / (theta - below), what second order perturbation says.
    bounds = growth_bounds(np.array([2.0]), np.array([[0.1]]), 1.0, 1)
    assert bounds == pytest.approx(0.01, rel=10 * EPS)


def test_values_that_are_eliminated_count_by_their_coupling_to_the_rest() -> None:
    theta, E = np.array([2.0, 1.9]), np.array([[0.1, 0.2]])
    growth = np.linalg.eigvalsh(np.block([[np.diag(theta), E.T], [E, np.eye(1)]]))[-1] - theta[0]
    for depth in (1, 2):
        assert growth <= growth_bounds(theta, E, 1.0, 1, depth)[0] <= 1.2 * growth


def test_without_a_gap_nothing_is_known_of_growth() -> None:
    for below in (1.0, 1.5, np.inf, np.nan):
        assert np.array_equal(growth_bounds(np.array([2.0, 1.0]), np.eye(2), below, 2), [np.inf, np.inf])


# --- what can have been missed --------------------------------------------------------------------------------


@EXAMPLES
@given(clustered(), st.data())
def test_the_level_is_never_below_the_first_value_that_is_not_wanted(P: Projected, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(P.theta)))
    noise = rounding(P)
    for more in (0.0, 0.1, 10.0):
        below = P.below + noise + more * abs(P.below)
        mu = next_bound(P.theta, P.R, below, k)
        assert np.append(P.exact, -np.inf)[k] <= mu + noise
        assert mu >= below - noise
    for mu in np.append(P.exact, P.theta) + 1e-3 * abs(P.exact[0]):
        if at_most(P.theta, P.R, P.below + noise, k, float(mu)):
            assert np.count_nonzero(P.exact > mu + noise) <= k


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.integers(0, 6))
def test_the_level_is_the_next_value_where_all_the_rest_is_as_large_as_it_may_be(seed, size, rank, k) -> None:
    rng = np.random.default_rng(seed)
    theta = np.sort(rng.uniform(0.5, 3, size))[::-1]
    E, below = rng.standard_normal((rank, size)) * 10 ** rng.uniform(-3, 0), rng.uniform(-1, 2)
    G = np.block([[np.diag(theta), E.T], [E, below * np.eye(rank)]])
    exact = np.linalg.eigvalsh(G)[::-1]
    want = max(exact[min(k, len(exact) - 1)], below)  # orthogonal to all of these, below may be met by any number
    k = min(k, len(exact) - 1)
    slack = 2.0**-HALVINGS * np.linalg.norm(E) + 100 * EPS * np.abs(exact).max()
    assert next_bound(theta, E, below, k) == pytest.approx(want, abs=slack)
    for mu in (exact[:-1] + exact[1:]) / 2:
        if mu > below and np.abs(exact - mu).min() > 1e-9 and np.abs(theta - mu).min() > 1e-9:
            for count in range(len(exact)):
                assert at_most(theta, E, below, count, mu) == (np.count_nonzero(exact > mu) <= count)


def test_levels_of_exact_vectors_need_no_search() -> None:
    theta, E = np.array([3.0, 2.0, 1.0]), np.zeros((4, 3))
    for below, k, want in ((0.5, 1, 2.0), (0.5, 3, 0.5), (2.5, 1, 2.5), (1.5, 2, 1.5), (-np.inf, 2, 1.0)):
        assert next_bound(theta, E, below, k) == pytest.approx(want, rel=10 * EPS)
    assert next_bound(theta, E, -np.inf, 3) == -np.inf
    assert next_bound(theta, E, np.inf, 1) == np.inf
    # With nothing beside the basis, only its own values count.
    for k, mu in ((3, 0.5 * theta[2]), (2, 0.5 * (theta[1] + theta[2]))):
        assert at_most(theta, E, -np.inf, k, mu)
        assert not at_most(theta, E, -np.inf, k - 1, mu)
    assert next_bound(theta, np.zeros((0, 3)), 0.5, 3) == pytest.approx(0.5, rel=10 * EPS)


# --- vectors --------------------------------------------------------------------------------------------------


def sines(V: Array, X: Array) -> Array:
    """Of the angles of the columns of V to the span of the orthonormal X."""
    return np.linalg.norm(V - X @ (X.conj().T @ V), axis=0)


def spaces(P: Projected, k: int) -> list[tuple[int, int]]:
    """Of each of the k first vectors: the places of the values of its group."""
    depth = min(k + NEIGHBOURS, len(P.theta))
    starts = groups(P.theta[:depth], P.squares[:depth])[0]
    at = np.searchsorted(starts, np.arange(k), side="right")
    return [(int(starts[i - 1]), int(np.append(starts, depth)[i])) for i in at]


@EXAMPLES
@given(clustered(), st.data())
def test_vectors_of_both_sides_are_within_their_bounds(P: Projected, data: st.DataObject) -> None:
    assume(P.exact[-1] >= 0)  # those of A^H A
    after = np.append(P.exact, -np.inf)[len(P.theta)]
    assume(P.theta[-1] - np.linalg.norm(P.R, 2) > after + rounding(P))
    k = data.draw(st.integers(1, len(P.theta)))
    bounds = vector_bounds(P.theta, P.squares, k, float(np.append(P.exact, -np.inf)[k]))
    U = np.sqrt(P.exact)[:, None] * (P.X.conj().T @ P.V)  # A = diag(S) X^H: its left vectors are the standard basis
    U = U[:, :k] / np.linalg.norm(U[:, :k], axis=0)
    for j, (lo, hi) in enumerate(spaces(P, k)):
        # Eigenvectors of the reference are off by rounding over the gap around the group.
        others = np.delete(P.exact, range(lo, hi))
        own = rounding(P) / np.abs(others[:, None] - P.exact[lo:hi]).min(initial=np.inf)
        lean = np.sqrt(P.exact[0] / P.exact[k - 1])
        assert sines(P.V[:, [j]], P.X[:, lo:hi])[0] <= bounds[j] + own + 100 * EPS
        assert sines(U[:, [j]], np.eye(len(P.exact))[:, lo:hi])[0] <= bounds[j] + lean * own + 100 * EPS


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_single_vectors_are_of_the_size_of_the_angles(seed: int) -> None:
    P = near(np.r_[5.0, 4.0, 3.0, 2.0, np.linspace(1, 0.1, 26)], 4, 1e-4, np.random.default_rng(seed))
    bounds = vector_bounds(P.theta, P.squares, 4, float(P.exact[4]))
    for j in range(4):
        right = sines(P.V[:, [j]], P.X[:, [j]])[0]
        assert right <= bounds[j] <= 20 * right


def test_a_left_vector_leans_to_a_larger_value_by_more_than_the_right_one() -> None:
    exact, sine = np.array([2.0, 1.0]), 1e-6
    v = np.array([sine, np.sqrt(1 - sine**2)])  # A = diag(S)
    theta = float(exact @ v**2)
    square = float(np.sum((exact * v - theta * v) ** 2))
    u = np.sqrt(exact / theta) * v
    found = vector_bounds(np.array([2.0, theta]), np.array([0.0, square]), 2, 0.0)[1]
    assert v[0] < u[0] <= found <= 1.01 * u[0]


def test_a_cluster_that_goes_on_past_what_is_known_has_no_bound() -> None:
    theta = np.r_[3.0, 1 + 1e-9 * np.arange(20)[::-1]]
    squares = np.full(21, 1e-12)
    for k in (2, 8, 16):
        bounds = vector_bounds(theta, squares, k)
        assert bounds[0] < 1e-5
        assert np.all(bounds[1:] == 1)
    # Nothing is known after the last value; or the next one is as large as this.
    assert vector_bounds(theta[:2], squares[:2], 2)[1] == 1
    assert vector_bounds(theta[:2], squares[:2], 2, 1.0)[1] == 1
    assert vector_bounds(theta[:2], squares[:2], 2, 0.5)[1] < 1e-5


def test_rounding_turns_vectors_as_residuals_of_its_size_do() -> None:
    theta, r = np.array([3.0, 1.0]), np.array([1e-4, 2e-4])
    by_rounding = vector_bounds(theta, np.zeros(2), 2, 0.5, rounding=1e-4)
    np.testing.assert_allclose(by_rounding, vector_bounds(theta, np.full(2, 1e-8), 2, 0.5), rtol=1e-3)
    both = vector_bounds(theta, r**2, 2, 0.5, rounding=1e-4)
    np.testing.assert_allclose(both, vector_bounds(theta, (r + 1e-4) ** 2, 2, 0.5), rtol=1e-3)


def test_vectors_that_only_rounding_groups_have_no_bound() -> None:
    theta = np.array([3.0, 1 + 1e-15, 1.0, 0.5])
    for r, sure in ((1e-15, False), (1e-9, True)):  # residuals of rounding might tell them apart at another time
        found = vector_bounds(theta, np.full(4, r**2), 3, 0.5, rounding=1e-14)
        assert found[0] < 1e-8
        assert np.all((found[1:] < 1e-7) == sure)


@pytest.mark.long
@EXAMPLES
@given(clustered(), st.data())
def test_vectors_are_within_their_bounds_whatever_was_missed(P: Projected, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(P.theta)))
    least, below = np.append(P.theta, -np.inf), P.below + rounding(P)
    limits = lambda j: max(next_bound(P.theta, P.R, below, j), least[j])  # noqa: E731
    bounds = vector_bounds(P.theta, P.squares, k, limits(k), rounding(P), limits)
    for j, (lo, hi) in enumerate(spaces(P, k)):
        others = np.delete(P.exact, range(lo, hi))
        own = rounding(P) / np.abs(others[:, None] - P.exact[lo:hi]).min(initial=np.inf)
        assert sines(P.V[:, [j]], P.X[:, lo:hi])[0] <= bounds[j] + own + 100 * EPS


@EXAMPLES
@given(clustered(), st.data())
def test_combinations_lean_out_of_the_space_of_their_group_as_their_parts_do(P: Projected, data: st.DataObject) -> None:
    k = len(P.theta)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    C = np.linalg.qr(np.eye(k) + 10 ** rng.uniform(-6, 1) * rng.standard_normal((k, k)))[0]
    first = groups(P.theta, P.squares)[0]
    ends = np.append(first[1:], k)
    own = [np.searchsorted(first, j, side="right") - 1 for j in range(k)]
    X = [P.X[:, first[i] : ends[i]] for i in own]
    each = np.array([sines(P.V[:, [j]], X[j])[0] for j in range(k)])
    bounds = combined_sines(each, first, C)
    for j in range(k):
        assert sines(P.V @ C[:, [j]], X[j])[0] <= bounds[j] + 100 * EPS


def test_vectors_of_zeros_may_be_any() -> None:
    bounds = vector_bounds(np.array([1.0, 0.0, 0.0]), np.zeros(3), 3, -np.inf)
    assert bounds[0] == 0
    assert np.all((bounds >= 0) & (bounds <= 1))


# --- relative errors ------------------------------------------------------------------------------------------

positive = st.floats(1e-8, 1e8)


@EXAMPLES
@given(positive, st.floats(0, 4), st.floats(0, 1e3), st.floats(0, 1))
def test_relative_errors_bound_both_directions(S: float, quotient: float, share: float, place: float) -> None:
    # Exact values lie between the Ritz value and what its bound adds; what is returned may lie on either side.
    rho, bound = quotient * S**2, share * S**2
    found = relative_errors(np.array([S]), np.array([rho]), np.array([bound]), 0.0)[0]
    exact = np.sqrt(rho + place * bound)
    assert np.isfinite(found) == (rho > 0)  # an exact value of 0 allows no relative error
    assert rho == 0 or abs(S - exact) <= found * min(S, exact) * (1 + 10 * EPS) + 10 * EPS * S


def test_relative_errors_are_half_of_those_of_squares() -> None:
    S = np.array([3.0, 2.0])
    np.testing.assert_allclose(relative_errors(S, S**2, np.array([0.09, 0.004]), 0.0), [0.005, 0.0005], rtol=10 * EPS)
    # A value above its quotient is off by 0.4, which is more of the exact one.
    found = relative_errors(np.array([1.0]), np.array([0.36]), np.array([0.0]), 0.0)
    assert found[0] == pytest.approx(0.4 / 0.6, rel=10 * EPS)


def test_a_value_changes_with_its_square_by_the_most_that_is_possible() -> None:
    S, squares = np.array([1.0, 1.0, 1.0, 0.1, 0.0]), np.array([1e-9, 0.5, 0.99, 1.0, 1.0])
    down, up = S - np.sqrt(np.maximum(S**2 - squares, 0)), np.sqrt(S**2 + squares) - S
    for columns in (0.0, 0.01):
        found = rounding_bounds(S, columns, squares)
        assert np.all(found >= np.maximum(down, up) + columns - 10 * EPS)
        np.testing.assert_allclose(found[:3], down[:3] + columns, rtol=1e-6)


def test_zeros_are_right_where_what_is_left_of_them_is_rounding() -> None:
    S, rho = np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1e-17, 1e-17, 1e-3])
    found = relative_errors(S, rho, np.array([0.0, 1e-16, 1e-3, 0.0]), 1e-12)
    assert found[:2].tolist() == [0, 0]
    assert np.all(found[2:] == np.inf)


def test_the_worst_residual_of_a_value_is_that_of_its_own_group() -> None:
    ritz = Ritz(np.array([9.0, 5.0, 4.9, 1.0]), np.diag([0.2, 0.1, 0.3, 0.0]), 3, 0.0)
    np.testing.assert_array_equal(worst_of_group(ritz), [0.2, 0.3, 0.3])
