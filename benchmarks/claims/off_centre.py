"""Data far from the origin, float32: error of the ten leading singular values, ours and scikit-learn's defaults.

The reference is a float64 SVD of the stored values, centred in float64. Run: python -m benchmarks.claims.off_centre
"""

import warnings

import numpy as np
from scipy.sparse import issparse
from sklearn import decomposition

import shiftsvd as ss
from benchmarks.data import nearly_full, off_centre


def error(S: np.ndarray, X: np.ndarray) -> float:
    """Largest relative error of ten singular values."""
    X = (X.toarray() if issparse(X) else X).astype(np.float64)
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:10]
    return float(np.max(np.abs(S[:10] - exact) / exact))


def main() -> None:
    """Print the table of the README."""
    print("| float32 data | mean / sd | `shiftsvd.PCA` | `sklearn.decomposition.PCA` |")
    print("|---|---|---|---|")
    for name, shape in (("dense, 20 000 x 200", (20_000, 200)), ("dense, 500 x 3 000", (500, 3_000))):
        for ratio in (1e0, 1e3, 1e5):
            row(name, f"{ratio:.0e}", off_centre(*shape, ratio))
    for fill in (0.5, 0.99, 0.999):
        row(f"CSR, {fill:.1%} full, 20 000 x 200", "1e+05", nearly_full(20_000, 200, fill, 1e5))


def row(name: str, ratio: str, X: np.ndarray) -> None:
    """One line of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = decomposition.PCA(10, random_state=0) if issparse(X) else decomposition.PCA()
        errors = [error(model.fit(X).singular_values_, X) for model in (ss.PCA(10), theirs)]
    print(f"| {name} | {ratio} | " + " | ".join(f"{e:.0e}" for e in errors) + " |")


if __name__ == "__main__":
    main()
