"""Leading eigenvectors of ``A - alpha B`` for many alphas, from one basis and shared products."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import linalg

from shiftsvd.numerics.bounds import BEYOND, NEIGHBOURS, TINY, CountBound, Ritz, proves, value_bounds
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, orth, qr, r_factor, subtract_product, times
from shiftsvd.operators import Panel
from shiftsvd.solvers.constants import EPS, EXACT_SIDE, LEAST_COLUMNS, PROBABILITY, PROBES, REPEAT_BELOW, USUAL_BLOCK
from shiftsvd.solvers.hermitian import VectorLanczos
from shiftsvd.solvers.probe import Chain, Proven, proves_all
from shiftsvd.solvers.problem import most_passes

TOGETHER = 4  # blocks of which the widest product of the basis consists
AT_ONCE = 8  # probes whose products share a pass
SHARED = 8  # alphas by which the basis is sized, at most: neighbouring alphas share most of their vectors
LOST = 0.01  # directions of all vectors below this part of the tolerance are lost in a restart
SERIES = 6 / np.pi**2  # the sum of 1 / j^2 over all probes, inverted
FURTHER = 1e-3  # weight of vectors that a restart keeps as far as there is room
WEAK = 0.3  # directions of residuals below this part of the largest wait for a later product

Pair = Callable[[Panel], tuple[Panel, Panel]]  # V -> A V, B V
Noise = Callable[[int, Vector], float]  # number of an alpha, Ritz values -> rounding error of a residual


class Member(NamedTuple):
    """Leading eigenpairs of one ``A - alpha B``."""

    values: Vector  # descending
    vectors: Panel
    forms: Panel  # of shape (2, k): v^T A v and v^T B v
    value_errors: Vector  # absolute
    sines: Vector
    converged: bool
    n_passes: int  # of all members together


def leading_of_all(
    pair: Pair,
    n: int,
    k: int,
    alphas: Vector,
    noise: Noise,
    tol: float,
    max_passes: int | None,
    rng: Generator,
) -> list[Member]:
    """Compute the k leading eigenpairs of ``A - alpha B`` for each alpha; `pair` multiplies A and B of side n.

    `noise` bounds the rounding errors of products of unit vectors with ``A - alpha B``; `tol` bounds the sines of
    vectors.
    """
    criterion = VectorLanczos(tol)
    b = criterion.block(n)
    most = max(max_passes or most_passes(n, b), -(-k // b))
    return Family(pair, n, k, alphas, noise, criterion, rng, most).solve()


def family_bytes(k: int, n: int, tol: float, n_alphas: int) -> int:
    """Predict the memory of `leading_of_all`: the basis, twice while it is copied, products, and the vectors."""
    b = TOGETHER * USUAL_BLOCK if n_alphas > 1 else USUAL_BLOCK
    copies = 8 if n_alphas > 1 and n <= EXACT_SIDE else 2  # `multiply_all` has both matrices three times
    return 8 * n * (copies * columns_of(VectorLanczos(tol), k, n, n_alphas) + 4 * b + (n_alphas + 3) * k)


@dataclass(eq=False)
class Basis:
    """``M_i Q = Q H_i + S C_i`` for the matrices M_i, with orthonormal columns of Q and S; S has the residuals.

    A product with columns of S moves them to Q. The matrices of `mix` times (A, B) are the M_i: both, or ``A - alpha
    B`` alone for one alpha, whose residuals span one block as in block Lanczos.
    """

    mix: Panel  # of shape (matrices, 2)
    V: Panel  # the columns of Q, those of S, of which it has none but S at first, and room for more
    outside: Panel  # orthonormal columns that are projected out of all products
    size: int = 0  # columns of Q
    end: int = field(init=False)  # columns of Q and S
    H: Panel = field(init=False)  # of shape (2, N, N): A and B projected
    C: Panel = field(init=False)  # of shape (matrices, width of S, N)

    def __post_init__(self) -> None:
        self.V, self.end, self.H = np.asfortranarray(self.V), self.V.shape[1], np.zeros((2, 0, 0))
        self.C = np.zeros((len(self.mix), self.end, 0))

    @property
    def Q(self) -> Panel:
        return self.V[:, : self.size]

    @property
    def S(self) -> Panel:
        return self.V[:, self.size : self.end]

    @property
    def all(self) -> Panel:
        return self.V[:, : self.end]

    def turn(self, G: Panel) -> None:
        """Let the first columns of S span the orthonormal columns of ``S G``, by a reflector ``I - Y K Y^T``."""
        b = G.shape[1]
        P, s, Zh = linalg.svd(G[:b])
        Y = G @ (P @ Zh).T
        Y[:b] += np.eye(b)
        K = P / (1 + s) @ P.T
        subtract_product(self.S, times(self.S, Y @ K), Y.T)
        self.C -= Y @ (K @ (Y.T @ self.C))

    def extend(self, products: Sequence[Panel]) -> None:
        """Move the first columns of S to Q, given the products of A and B with them."""
        b, old = products[0].shape[1], self.size
        self.size += b
        forms = np.stack([inner(self.all, product) for product in products])
        self.H = np.pad(self.H, ((0, 0), (0, b), (0, b)))
        self.H[:, :, old:] = forms[:, : self.size]
        self.H[:, old:] = self.H[:, :, old:].swapaxes(1, 2)
        self.H[:, old:, old:] = (forms[:, old : self.size] + self.H[:, old:, old:]) / 2
        W = [weights[0] * products[0] + weights[1] * products[1] for weights in self.mix]
        # Powers of two: target and background may differ by orders of magnitude.
        scales = np.exp2(np.frexp([np.sqrt(np.max(np.sum(X * X, axis=0), initial=0)) for X in W])[1])
        all_scales = np.repeat(scales, b)
        G = np.hstack([*np.tensordot(self.mix, forms, 1)]) / all_scales
        W = np.hstack(W) / all_scales
        inside = self._project(W, G)
        C = np.vstack([inside, self._append(W)]) * all_scales
        before, self.C = self.C[:, b:], np.zeros((len(self.mix), len(C), self.size))
        self.C[:, : before.shape[1], :old] = before
        self.C[:, :, old:] = C.reshape(len(C), len(self.mix), b).swapaxes(0, 1)

    def _project(self, W: Panel, first: Panel | None = None) -> Panel:
        """Project W orthogonally to Q, S and `outside`, and return its coefficients along S.

        `first` are the coefficients of W along Q and S.
        """
        total = np.zeros((self.end, W.shape[1]))
        for G in (first, None):
            subtract_product(W, self.outside, inner(self.outside, W))
            G = inner(self.all, W) if G is None else G
            subtract_product(W, self.all, G)
            total += G
        return total[self.size :]

    def _append(self, W: Panel) -> Panel:
        """Append X of ``W = X R`` to S, without columns that are rounding errors of columns of length 1; return R."""
        X, R = qr(W)
        Z, R, order = linalg.qr(R, pivoting=True)
        lengths, R = np.abs(np.diagonal(R)), R[:, np.argsort(order)]
        count = min(int(np.count_nonzero(lengths > 4 * EPS)), self._free())
        strong = min(int(np.count_nonzero(lengths >= REPEAT_BELOW)), count)
        self._store(times(X, Z[:, :strong]))
        if strong < count:
            # Short columns have lost digits of their orthogonality.
            X = times(X, Z[:, strong:count])
            self._project(X)
            X, again = qr(X)
            self._store(X)
            R[strong:count] = again @ R[strong:count]
        return R[:count]

    def _store(self, X: Panel) -> None:
        before, self.end = self.end, self.end + X.shape[1]
        if self.end > self.V.shape[1]:
            V = np.empty((len(self.V), 2 * self.end), order="F")  # the system provides memory when it is written
            V[:, :before] = self.V[:, :before]
            self.V = V
        self.V[:, before : self.end] = X

    def _free(self) -> int:
        return len(self.V) - self.end - int(self.outside.shape[1])

    def adopt(self, X: Panel) -> int:
        """Put the part of X that is orthogonal to the basis at the front of S, and return its rank."""
        X = np.array(X, order="F")
        self._project(X)
        found = len(self._append(X))
        self.S[:] = np.roll(self.S, found, axis=1)
        self.C = np.pad(self.C, ((0, 0), (found, 0), (0, 0)))
        return found

    def restart(self, Z: Panel) -> None:
        """Keep the columns of ``Q Z``; the rest of Q remains in S as far as residuals need it."""
        kept = Z.shape[1]
        X = linalg.qr(Z)[0]
        projected = X.T @ self.H @ X
        parts = [
            np.vstack([(w @ projected.reshape(2, -1)).reshape(len(X), -1)[kept:, :kept], C @ X[:, :kept]])
            for w, C in zip(self.mix, self.C, strict=True)
        ]
        # Rounding errors are relative to each matrix; target and background may differ by orders of magnitude.
        scales = np.maximum(np.abs(self.mix) @ np.abs(projected).max(axis=(1, 2)), TINY)
        scaled = np.hstack([G / scale for G, scale in zip(parts, scales, strict=True)])
        K, R, _ = linalg.qr(scaled, mode="economic", pivoting=True)
        K = K[:, : np.count_nonzero(np.abs(np.diagonal(R)) > 8 * len(X) * EPS)]
        S = times(self.all, np.vstack([X[:, kept:] @ K[: len(X) - kept], K[len(X) - kept :]]))
        self.V[:, :kept] = times(self.Q, X[:, :kept])
        self.size, self.end = kept, kept
        self._store(S)
        self.H, self.C = projected[:, :kept, :kept], np.stack([K.T @ G for G in parts])


class Plan(NamedTuple):
    """Vectors Q Z, with the Ritz values and the needs of the members, of which `alpha` is the least."""

    alpha: float
    Z: Panel
    members: dict[int, tuple[Ritz, list[CountBound]]]


@dataclass(eq=False)
class ProbeChain:
    """Probe of ``A - alpha B`` outside of the vectors of a plan.

    Its level bounds the eigenvalues there for larger alphas, too, because B is positive semidefinite.
    """

    plan: Plan
    basis: Basis
    chain: Chain
    noise: float
    level: float = np.inf

    @classmethod
    def of(cls, plan: Plan, V: Panel, Omega: Panel, probability: float) -> "ProbeChain":
        X = np.array(Omega, order="F")
        for _ in range(2):
            subtract_product(X, V, inner(V, X))
            X = orth(X)
        noise = max(ritz.noise for ritz, _ in plan.members.values())
        return cls(plan, Basis(np.array([[1.0, -plan.alpha]]), X, V), Chain(inner(X, Omega), probability), noise)

    def add(self, products: Sequence[Panel]) -> None:
        """Add the products of A and B with S."""
        old, basis = self.basis.size, self.basis
        basis.extend(products)
        self.chain.add(self.projected[old:, old:], basis.C[0][:, old:])
        self.level = self.chain.bound(self.noise)

    @property
    def projected(self) -> Panel:
        return np.asarray(self.basis.H[0] - self.plan.alpha * self.basis.H[1])

    def possible(self, level: float) -> list[bool]:
        return [proves_all(ritz, needs, level) for ritz, needs in self.plan.members.values()]

    def may_go_on(self) -> bool:
        return bool(self.basis.S.shape[1] and any(self.possible(self.chain.top)) and not all(self.possible(self.level)))

    def missed(self) -> Panel:
        """Return Ritz vectors of values that are too large for the needs, at most as many as the probe has columns."""
        theta, Z = np.linalg.eigh(self.projected)
        least = min((mu for _, needs in self.plan.members.values() for _, mu in needs), default=np.inf)
        first = max(np.searchsorted(theta, least), len(theta) - len(self.chain.R))
        return np.asarray(self.basis.Q @ Z[:, first:])


@dataclass(eq=False)
class Family:
    """The run: the shared basis, and bounds that were proven for each alpha."""

    pair: Pair
    n: int
    k: int
    alphas: Vector
    noise: Noise
    criterion: VectorLanczos
    rng: Generator
    max_passes: int
    n_passes: int = 0
    n_probes: int = 0
    counts: list[tuple[CountBound, ...]] = field(init=False)  # proven for each alpha
    basis: Basis = field(init=False)
    active: list[int] = field(default_factory=list)  # alphas whose residuals are multiplied
    found: dict[int, tuple[Ritz, Panel]] = field(default_factory=dict)  # Ritz pairs of the present basis and counts

    def __post_init__(self) -> None:
        self.counts = [()] * len(self.alphas)
        self.block = self.criterion.block(self.n)
        start = orth(self.rng.standard_normal((self.n, self.block)))
        mix = np.array([[1.0, -self.alphas[0]]]) if len(self.alphas) == 1 else np.eye(2)
        self.basis = Basis(mix, start, start[:, :0])
        self.columns = columns_of(self.criterion, self.k, self.n, len(self.alphas))

    def solve(self) -> list[Member]:
        every = list(range(len(self.alphas)))
        width = AT_ONCE * self.block
        if len(every) > 1 and self.n <= EXACT_SIDE and -(-self.n // width) <= self.max_passes:
            self.multiply_all(width)
        while True:
            self.converge()
            unproven = [i for i in every if not self.is_proven(i)]
            if not unproven or self.cannot_step or self.n_probes >= PROBES * len(every):
                return [self.member(i) for i in every]
            self.prove(unproven)

    @property
    def cannot_step(self) -> bool:
        return self.n_passes >= self.max_passes or self.basis.size == self.n

    def multiply_all(self, width: int) -> None:
        """Multiply all unit vectors, which takes fewer passes than the bases of most families."""
        identity = np.eye(self.n)
        products = [self.multiply(identity[:, lo : lo + width]) for lo in range(0, self.n, width)]
        H = np.stack([np.hstack(each) for each in zip(*products, strict=True)])
        basis = self.basis = Basis(self.basis.mix, identity, identity[:, :0], self.n)
        basis.H, basis.C = (H + H.swapaxes(1, 2)) / 2, np.zeros((len(basis.mix), 0, self.n))

    # --- Ritz values --------------------------------------------------------------------------------------------------

    def H(self, i: int) -> Panel:
        return np.asarray(self.basis.H[0] - self.alphas[i] * self.basis.H[1])

    def C(self, i: int) -> Panel:
        C = self.basis.C
        return C[0] if len(C) == 1 else np.asarray(C[0] - self.alphas[i] * C[1])

    def ritz(self, i: int) -> tuple[Ritz, Panel]:
        if i not in self.found:
            self.found[i] = self._ritz(i)
        return self.found[i]

    def _ritz(self, i: int) -> tuple[Ritz, Panel]:
        H, N = self.H(i), self.basis.size
        if N < self.n:
            theta, Z = np.linalg.eigh(H)
            least, level = theta[0], np.inf
        else:  # the pairs are exact
            theta, Z = linalg.eigh(H, subset_by_index=[max(N - 2 * self.k - BEYOND, 0), N - 1], check_finite=False)
            least, level = -np.linalg.norm(H), -np.inf
        theta, Z = theta[::-1], Z[:, ::-1]
        noise = self.noise(i, np.append(theta, least))
        return Ritz(theta, self.C(i) @ Z, self.k, noise, level, self.proven(i).limit(self.k)), Z

    def proven(self, i: int) -> Proven:
        seen = self.block * (1 + self.n_probes)
        return Proven(seen, count_bounds=self.counts[i], n_probes=min(self.n_probes, 1))

    def needs(self, i: int, ritz: Ritz) -> list[CountBound]:
        needs, proven = self.criterion.needs(ritz, self.proven(i)), self.proven(i)
        return [(count, mu) for count, mu in needs if not proven.limit(count) <= mu]

    def is_proven(self, i: int) -> bool:
        return self.basis.size == self.n or (self.basis.size >= self.k and not self.needs(i, self.ritz(i)[0]))

    # --- steps --------------------------------------------------------------------------------------------------------

    def converge(self) -> None:
        """Extend the basis until all vectors are within the tolerance; look at few alphas until these are."""
        every, few = list(range(len(self.alphas))), spread(range(len(self.alphas)))
        while not self.cannot_step:
            missing = self.block - self.basis.S.shape[1]
            if self.basis.size < self.k and missing > 0:
                self.basis.adopt(self.rng.standard_normal((self.n, missing)))
            directions = [self.residuals(i) for i in few]
            few = [i for i, each in zip(few, directions, strict=True) if each.shape[1]]
            self.active = few
            if not few:
                few = spread([i for i in every if self.residuals(i).shape[1]])
                if not few:
                    return
                continue
            self.step(np.hstack(directions))

    def residuals(self, i: int) -> Panel:
        """Return coordinates of residuals that are too large, longer where more digits are missing."""
        basis, k = self.basis, self.k
        if basis.size < k or not basis.size:
            return np.eye(basis.S.shape[1])
        ritz, _ = self.ritz(i)
        errors = self.criterion.errors(ritz, self.proven(i))
        short = basis.S.shape[1] > 0 and basis.size <= k
        if not short and self.criterion.converged(ritz, errors) and (not self.needs(i, ritz) or self.plan([i])):
            return ritz.E[:, :0]
        if not short and not basis.S.shape[1]:
            return ritz.E[:, :0]
        count = min(max(k + NEIGHBOURS, self.block), len(ritz.theta))
        weights = np.append(errors, np.full(count - k, errors.max()))
        return ritz.E[:, :count] * (weights / np.maximum(ritz.r[:count], ritz.noise))

    def step(self, directions: Panel) -> None:
        basis, b = self.basis, self.block
        if basis.S.shape[1] > b:
            U, s = left_vectors(directions, False)
            b = int(np.clip(np.count_nonzero(s > WEAK * s[0]), b, TOGETHER * b))
            basis.turn(U[:, :b])
        b = min(b, basis.S.shape[1])
        if self.columns < self.n and basis.size + basis.S.shape[1] + len(basis.mix) * b > self.columns:
            self.restart()
        self.extend(b)

    def extend(self, columns: int) -> None:
        self.basis.extend(self.multiply(self.basis.S[:, :columns]))
        self.found.clear()

    def restart(self) -> None:
        keep = max(self.k + self.block, self.columns // (2 if len(self.basis.mix) == 1 else 8))
        pairs = [self.ritz(i)[1] for i in range(len(self.alphas))]
        needed = self.union([Z[:, : self.k + NEIGHBOURS] for Z in pairs])[1]
        # Vectors beyond the wanted ones speed up the convergence of alphas that have not converged.
        more = max(self.k + NEIGHBOURS, keep // max(len(self.active), 1))
        further = [FURTHER * pairs[i][:, :more] for i in self.active]
        U, found = self.union([*(Z[:, : self.k + NEIGHBOURS] for Z in pairs), *further])
        if needed > keep:
            self.columns = min(self.n, 2 * self.columns)
        if (kept := max(needed, min(keep, found))) < self.basis.size:
            self.basis.restart(U[:, :kept])
            self.found.clear()

    def multiply(self, V: Panel) -> tuple[Panel, Panel]:
        self.n_passes += 1
        return self.pair(V)

    # --- proofs -------------------------------------------------------------------------------------------------------

    def prove(self, unproven: list[int]) -> None:
        """Prove the needs of all alphas by levels of few probes, whose products share passes."""
        order = sorted(unproven, key=lambda i: float(self.alphas[i]))
        for some in batches(self.plans(order), AT_ONCE):
            probes = active = [self.probe(plan) for plan in some]
            while active and self.n_passes < self.max_passes:
                self.multiply_together(active)
                active = [probe for probe in active if probe.may_go_on()]
            for probe in probes:
                self.record(probe)
            for probe in probes:
                if not self.cannot_step:
                    self.include(probe.missed())

    def multiply_together(self, probes: list[ProbeChain]) -> None:
        widths = np.cumsum([probe.basis.S.shape[1] for probe in probes])[:-1]
        products = self.multiply(np.hstack([probe.basis.S for probe in probes]))
        for probe, A, B in zip(probes, *(np.split(X, widths, axis=1) for X in products), strict=True):
            probe.add((A, B))

    def record(self, probe: ProbeChain) -> None:
        for i, (ritz, needs) in probe.plan.members.items():
            shown = (each for each in needs if proves(ritz, each, probe.level))
            self.counts[i] = (*self.counts[i], *shown)
            self.found.pop(i, None)

    def plans(self, members: list[int]) -> list[Plan]:
        plan = self.plan(members)
        if plan is None and len(members) > 1:
            half = len(members) // 2
            return self.plans(members[:half]) + self.plans(members[half:])
        return [] if plan is None else [plan]

    def plan(self, members: list[int]) -> Plan | None:
        """Return vectors such that a level of the least alpha on their complement can prove the needs of all members.

        More vectors lower the level, but vectors of other alphas have large residuals.
        """
        pairs, k = {i: self.ritz(i) for i in members}, self.k
        needs = {i: self.needs(i, pairs[i][0]) for i in members}
        end = max((count for each in needs.values() for count, _ in each), default=k)
        for count in (self.basis.size, 2 * k + BEYOND, end + BEYOND, end):
            U, kept = self.union([Z[:, :count] for _, Z in pairs.values()])
            rest = U[:, kept:].T @ self.H(members[0]) @ U[:, kept:]
            whole, Z = kept == self.basis.size, U[:, :kept]
            shown = np.linalg.eigvalsh(rest) if len(rest) else pairs[members[0]][0].theta[: k + BEYOND]
            least, own = float(shown[-1]), {}
            for i in reversed(members):  # the last, whose needs are farthest from the level, fails first
                own[i] = (pairs[i][0] if whole else self.restricted(i, Z), needs[i])
                if not all(proves(own[i][0], (wanted, mu), (mu + min(mu, least)) / 2) for wanted, mu in needs[i]):
                    break
            else:
                return Plan(float(self.alphas[members[0]]), Z, own)
        return None

    def union(self, Z: list[Panel]) -> tuple[Panel, int]:
        """Return an orthogonal matrix and the number of its first columns that span all columns of Z."""
        N = self.basis.size
        if Z[0].shape[1] == N:
            return np.eye(N), N
        U, s = left_vectors(np.hstack(Z), len(Z) * Z[0].shape[1] < N)
        return U, int(np.count_nonzero(s > LOST * self.criterion.tol))

    def restricted(self, i: int, Z: Panel) -> Ritz:
        """Return the Ritz values of the vectors ``Q Z``."""
        H, C = self.H(i), self.C(i)
        theta, Y = np.linalg.eigh(Z.T @ H @ Z)
        theta, V = theta[::-1], Z @ Y[:, ::-1]
        R = H @ V
        R -= Z @ (Z.T @ R)
        noise = self.noise(i, self.ritz(i)[0].theta)
        # Bounds need the products of residuals alone, which a triangle has, too.
        E = r_factor(np.vstack([R, C @ V]))
        return Ritz(theta, E, min(self.k, len(theta)), noise)

    def probe(self, plan: Plan) -> ProbeChain:
        self.n_probes += 1
        probability = PROBABILITY * SERIES / self.n_probes**2
        columns = min(max(self.block, LEAST_COLUMNS), self.n - plan.Z.shape[1])
        Omega = self.rng.standard_normal((self.n, columns))
        # Earlier probes may have extended the basis since the plan was made.
        V = times(self.basis.Q[:, : len(plan.Z)], plan.Z)
        return ProbeChain.of(plan, V, Omega, probability)

    def include(self, X: Panel) -> None:
        """Extend the basis by X."""
        if X.shape[1] and (found := self.basis.adopt(X)):
            self.extend(found)

    def member(self, i: int) -> Member:
        ritz, Z = self.ritz(i)
        k, proven = self.k, self.proven(i)
        sines = self.criterion.errors(ritz, proven)
        squares = (ritz.r[:k] + ritz.noise) ** 2
        limit = -np.inf if self.basis.size == self.n == k else proven.limit(k)
        errors = value_bounds(ritz.theta[:k], squares, k, limit) + ritz.noise
        forms = np.sum(Z[:, :k] * (self.basis.H @ Z[:, :k]), axis=1)
        converged = self.is_proven(i) and bool(np.all(sines <= self.criterion.tol))
        V = times(self.basis.Q, Z[:, :k])
        return Member(ritz.theta[:k].copy(), V, forms, errors, sines, converged, self.n_passes)


def left_vectors(X: Panel, full: bool) -> tuple[Panel, Vector]:
    """Return left singular vectors and singular values."""
    try:
        U, s, _ = np.linalg.svd(X, full_matrices=full)
    except np.linalg.LinAlgError:
        # Divide and conquer (dgesdd) fails for some finite matrices, also in OpenBLAS 0.3.31.
        U, s, _ = linalg.svd(X, full_matrices=full, lapack_driver="gesvd")
    return U, s


def batches(items: Sequence[Plan], size: int) -> list[Sequence[Plan]]:
    return [items[lo : lo + size] for lo in range(0, len(items), size)]


def spread(items: Sequence[int]) -> list[int]:
    """Return at most TOGETHER of the items, evenly spaced, with the first and the last."""
    places = np.linspace(0, len(items) - 1, min(TOGETHER, len(items))).round().astype(int)
    return [items[j] for j in dict.fromkeys(places.tolist())]


def columns_of(criterion: VectorLanczos, k: int, n: int, n_alphas: int) -> int:
    """Return the columns of the basis, with those that its residuals take, before a restart."""
    if n <= EXACT_SIDE:  # no restart: small gaps, as for large alphas, end at the exact eigenvectors
        return n
    if n_alphas == 1:
        return criterion.basis_columns(k, n)
    return min(3 * criterion.basis_columns(k * min(n_alphas, SHARED), n) // 2, n)
