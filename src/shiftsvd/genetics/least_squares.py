"""Scores by least squares on the genotypes that a sample has, and how far those that it lacks could move them.

A sample x of all N variants, in units of the scale, has the scores ``V^T x``, with V the loadings, of orthonormal
columns. Of a sample that has the variants P alone, ``V_P^T x_P`` is too small by the share that is missing; least
squares gives

    b = G^-1 V_P^T x_P,    G = V_P^T V_P,

as EIGENSOFT does with ``lsqproject``. With residuals ``e_j = x_j - v_j^T V^T x`` that are independent of each other and
of which variants are missing, of variances s_j, the scores of all variants differ from b by

    (G^-1 - I) sum_P v_j e_j - sum_A v_j e_j,

A being the absent variants. The covariance of that is ``(G^-1 - I) M (G^-1 - I) + M_A``, where ``M = sum_P s_j v_j
v_j^T`` and M_A is the same sum over A, estimated from M by the share of each component that is absent. With equal
variances it is ``s (G^-1 - I)``: nothing where all variants are present. The squares of the residuals on P, over
``1 - k / n``, stand for the s_j (White 1980; MacKinnon & White 1985), since variants that tell populations apart vary
less within one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

# Eigenvalues of G below this share of the largest: the variants that are there do not tell all components apart.
_SINGULAR = 1e-10


@dataclass(frozen=True, eq=False)
class Solved:
    """Scores of samples on k components, and what their standard errors take.

    Attributes
    ----------
    scores : array of shape (m, k)
        NaN for samples with too few genotypes for so many components.
    inverse : array of shape (m, k, k)
        ``G^-1``.
    gram : array of shape (m, k, k)
        G.
    residual : array of shape (m,)
        Sum of squares of what the scores leave of the genotypes that are there.
    told : array of bool, of shape (m,)
        Which samples have scores.
    """

    scores: Panel
    inverse: Panel
    gram: Panel
    residual: Vector
    told: Mask


def solved(gram: Panel, products: Panel, squares: Vector, n_present: Vector) -> Solved:
    k = products.shape[1]
    values, vectors = np.linalg.eigh(gram)
    told = (values[:, 0] > _SINGULAR * np.maximum(values[:, -1], np.finfo(float).tiny)) & (n_present > k)
    values[~told] = 1
    inverse = (vectors / values[:, None, :]) @ vectors.swapaxes(1, 2)
    scores = np.einsum("mij,mj->mi", inverse, products)
    residual = np.maximum(squares - np.einsum("mk,mk->m", scores, products), 0)
    scores[~told] = np.nan
    return Solved(scores, inverse, gram, residual, told)


def covariances(found: Solved, spread: Panel, n_present: Vector) -> Panel:
    k = spread.shape[1]
    freedom = np.maximum(1 - k / np.maximum(n_present, 1), np.finfo(float).eps)
    spread = spread / freedom[:, None, None]
    excess = found.inverse - np.eye(k)
    there = np.clip(np.einsum("mii->mi", found.gram), np.finfo(float).tiny, 1)
    share = np.sqrt((1 - there) / there)
    covariance = excess @ spread @ excess + share[:, :, None] * spread * share[:, None, :]
    covariance[~found.told] = np.nan
    return np.asarray(covariance)


def packed(V: Panel) -> Panel:
    first, second = np.triu_indices(V.shape[1])
    return np.asarray(V[:, first] * V[:, second])


def unpacked(sums: Panel, k: int) -> Panel:
    first, second = np.triu_indices(k)
    out = np.empty((len(sums), k, k))
    out[:, first, second] = out[:, second, first] = sums
    return out
