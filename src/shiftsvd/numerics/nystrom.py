"""Nystrom approximations of positive semidefinite matrices, and Krylov bases for them."""

from collections.abc import Callable

import numpy as np
from scipy import linalg

from shiftsvd.numerics.orth import inner, qr
from shiftsvd.numerics.panels import Panel, Vector


# Return the eigenpairs of Y (Omega^T Y)^+ Y^T, which are at most those of S, given Y = S Omega (Tropp et al. 2017), and
# a bound of what their rounding adds. `rounding` is the size of the rounding error of a column of Y.
def nystrom(Y: Panel, Omega: Panel, rounding: float) -> tuple[Vector, Panel, float]:
    Q, R = qr(Omega)
    Y = linalg.solve_triangular(R, Y.T, trans="T", check_finite=False).T  # S Q
    # A shift as large as the rounding error of S Q keeps the core definite; subtract it from the values at the end. A
    # smaller shift would amplify the error, if S has a lower rank than Omega.
    error = np.sqrt(len(Y)) * rounding / float(np.linalg.norm(R, -2))
    nu = error or 1.0
    Y = Y + nu * Q
    core = Q.T @ Y
    w, Z = np.linalg.eigh((core + core.T) / 2)
    w = np.maximum(w, nu)
    P = (Y @ Z) / w  # errors of Y and of the core change P w P^T by at most `error (1 + ||P||)^2`
    V, S, _ = linalg.svd(P * np.sqrt(w), full_matrices=False, check_finite=False)
    excess = error * (1 + np.sqrt(np.linalg.norm(inner(P, P), 2))) ** 2
    return np.maximum(S**2 - nu, 0), np.asarray(V), float(excess)


def krylov(times: Callable[[Panel], Panel], start: Panel, columns: int) -> tuple[Panel, Panel]:
    W = qr(start)[0][:, :columns]
    TW = new = times(W)
    while W.shape[1] < columns:
        # Use Householder QR: new columns may vanish, and Householder returns orthonormal columns even then.
        Q = qr(np.hstack([W, new]))[0][:, W.shape[1] : columns]
        new = times(Q)
        W, TW = np.hstack([W, Q]), np.hstack([TW, new])
    return TW, W
