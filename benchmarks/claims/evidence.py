"""Neighbours that are safe and influence of samples on real counts, beside exact decompositions in double precision.

Run: python -m benchmarks.claims.evidence [--data /path/to/data] [--refits 500]
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, load_npz

import shiftsvd as ss

TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)


def log_counts(file: Path, rows: int | None = None) -> csr_array:
    X = csr_array(load_npz(file)[:rows]).astype(np.float64)
    X.data = np.log1p(X.data * np.repeat(1e4 / np.maximum(X.sum(axis=1), 1), np.diff(X.indptr)))
    return X


def inner_products(X: csr_array) -> np.ndarray:
    A = X.toarray()
    A -= A.mean(axis=0)
    return np.asarray(A @ A.T)


def exact(K: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and left singular vectors of centred rows, given their inner products."""
    values, U = np.linalg.eigh(K)
    return np.sqrt(np.maximum(values[::-1][:k], 0)), U[:, ::-1][:, :k]


def edges(name: str, X: csr_array, k: int, n_neighbors: int) -> None:
    S, U = exact(inner_products(X), k)
    Y = U * S
    D = np.linalg.norm(Y[:, None] - Y, axis=2)
    np.fill_diagonal(D, np.inf)
    nearest = np.argsort(D, axis=1)[:, :n_neighbors]
    for tol in TOLERANCES:
        found = ss.PCA(k, solver=ss.BlockLanczos(tol), random_state=0).fit(X).neighbors(X, n_neighbors)
        known = np.array([np.isin(row, row_of) for row, row_of in zip(found.indices, nearest, strict=True)])
        print(
            f"{name}, tol={tol:g}: {found.safe.size:,} edges, {found.safe.mean():.2%} safe, of which "
            f"{np.count_nonzero(found.safe & ~known):,} differ; {np.count_nonzero(~known):,} of all differ; sine at "
            f"most {found.sine:.0e}"
        )


def influence(name: str, X: csr_array, k: int, refits: int) -> None:
    pca = ss.PCA(k, random_state=0).fit(X)
    K, m = inner_products(X), X.shape[0]
    U = exact(K, k)[1]
    rows = np.random.default_rng(0).choice(m, min(refits, m), replace=False)
    started = time.process_time()
    exactly = [without(K, U, row, k) for row in rows]
    explicit = time.process_time() - started
    for widest in (90.0, 5.0):
        started = time.process_time()
        found = pca.influence(X, widest=widest)
        seconds = time.process_time() - started
        outside = sum(
            not np.all((lo * (1 - 1e-10) <= S) & (S <= hi * (1 + 1e-10)))
            or not np.all((least - 1e-4 <= angles) & (angles <= most + 1e-4))
            for (S, angles), (lo, hi), (least, most) in zip(
                exactly, found.singular_values[rows].swapaxes(1, 2), found.angles[rows].swapaxes(1, 2), strict=True
            )
        )
        widths = np.ptp(found.angles, axis=2).max(axis=1)
        values = np.ptp(found.singular_values, axis=2) / found.singular_values[:, :, 1]
        print(
            f"{name}, widest={widest:g}: {len(rows)} rows refitted, {outside} outside; relative width of values: "
            f"median {np.median(values):.0e}, largest {values.max():.0e}; degrees of the widest angle of a row: median "
            f"{np.median(widths):.2g}, 95 % {np.quantile(widths, 0.95):.2g}, over 5: {np.mean(widths > 5):.1%}; "
            f"{seconds:.1f} s for all {m:,} rows, {explicit / len(rows) * m:.1f} s by dense decompositions"
        )


def without(K: np.ndarray, U: np.ndarray, row: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Singular values of the other rows, and the angles of their right singular vectors to those of all rows."""
    kept = np.arange(len(K)) != row
    C = K[np.ix_(kept, kept)]
    C = C - C.mean(axis=0) - C.mean(axis=1)[:, None] + C.mean()
    S, W = exact(C, k)
    # v = A^T u / s: inner products of right vectors follow from those of the rows.
    left = np.zeros(U.shape)
    left[kept] = (W - W.mean(axis=0)) / S
    all_values = np.sqrt(np.sum(U * (K @ U), axis=0))
    cosines = np.abs(np.sum((U / all_values) * (K @ left), axis=0))
    return S, np.degrees(np.arccos(np.minimum(cosines, 1)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SHIFTSVD_TEST_DATA", ".")))
    parser.add_argument("--refits", type=int, default=500)
    args = parser.parse_args()
    bladder: Any = log_counts(args.data / "bladder_counts.npz")
    edges("bladder", bladder, 20, 48)
    influence("700 cells of bladder", log_counts(args.data / "bladder_counts.npz", 700), 10, args.refits)


if __name__ == "__main__":
    main()
