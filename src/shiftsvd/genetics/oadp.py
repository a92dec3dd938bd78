"""Online augmentation, decomposition and Procrustes: new samples without the shrinkage of more variants than samples.

Components fit the noise of their own samples, which new samples do not share: with many more variants than samples
these come out nearer to 0. So each new sample is added to the training samples, the components of all are found, and
these are turned and scaled back onto the old ones (Zhang, Dey & Lee 2020; Privé, Luu, Blum, McGrath & Vilhjálmsson
2020).
"""

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

_STEP = 1e-4  # of the differences that derivatives are made of, as a share of what they are taken of


def augmented(B: Panel, squares: Vector, lengths: Vector) -> Panel:
    """Scores of new samples, each beside the training samples alone.

    Parameters
    ----------
    B : array of shape (m, k)
        Coordinates of the new samples along the loadings.
    squares : array of shape (m,)
        Sums of squares of the new samples over all variants, what is along no loading included.
    lengths : array of shape (k,)
        Singular values of the training samples, all positive.

    Notes
    -----
    Training samples and a new one are ``diag(U, 1) [[D, 0], [b^T, h]]`` in an orthonormal system of k + 1 columns, with
    ``h^2 = squares - b^T b``. The scores of all along k new components are ``diag(U, 1) W L^(1/2)``, with the
    eigenvalues L and eigenvectors W of the square of the inner matrix. Procrustes takes those of the training samples,
    ``U W_1 L^(1/2)``, back onto ``U D`` by the rotation R and the factor rho; the new sample goes along.
    """
    m, k = B.shape
    inner = np.zeros((m, k + 1, k + 1))
    inner[:, np.arange(k), np.arange(k)] = lengths**2
    inner[:, k, :k] = inner[:, :k, k] = lengths * B
    inner[:, k, k] = squares
    values, vectors = np.linalg.eigh(inner)
    scores = (vectors * np.sqrt(np.maximum(values, 0))[:, None, :])[:, :, :0:-1]  # the k largest
    training, new = scores[:, :k], scores[:, k]
    left, overlaps, right = np.linalg.svd(lengths[:, None] * training)
    rotated = np.einsum("mi,mai,mja->mj", new, right, left, optimize=True)
    factor = overlaps.sum(axis=1) / np.einsum("mij,mij->m", training, training)
    return np.asarray(factor[:, None] * rotated)


def derivatives(B: Panel, squares: Vector, lengths: Vector) -> Panel:
    rest = squares - np.einsum("mk,mk->m", B, B)
    step = _STEP * np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    out = np.empty((*B.shape, B.shape[1]))
    for j in range(B.shape[1]):
        moved = [B + sign * step[:, None] * (np.arange(B.shape[1]) == j) for sign in (1, -1)]
        ahead, behind = (augmented(C, rest + np.einsum("mk,mk->m", C, C), lengths) for C in moved)
        out[:, :, j] = (ahead - behind) / (2 * step[:, None])
    return out
