"""The example of the page for irlba's users, both ways: how far variances and scores differ.

Counts of cells of 15 kinds, 1,000 genes, z-scored, 50 components: R's `prcomp_irlba(center = TRUE, scale. = TRUE)` and
`shiftsvd.PCA(50, scale=True, scale_ddof=1)`, both to 1e-9.

Run: python -m benchmarks.peers.irlba    (Rscript with Matrix and irlba: apt-get install r-cran-irlba)
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.io import mmwrite

import shiftsvd as ss
from benchmarks import data

K, ROWS, COLUMNS, TOL = 50, 5_000, 1_000, 1e-9
R = f"""
suppressMessages({{library(Matrix); library(irlba)}})
X <- as(readMM("counts.mtx"), "CsparseMatrix")
set.seed(1)
p <- prcomp_irlba(X, n = {K}, center = TRUE, scale. = TRUE, tol = {TOL})
write.table(p$sdev^2, "variances.txt", row.names = FALSE, col.names = FALSE)
write.table(p$x, "scores.txt", row.names = FALSE, col.names = FALSE)
cat(sprintf("R %s, irlba %s\\n", getRversion(), packageVersion("irlba")))
"""


def main() -> None:
    """Prints the largest differences."""
    if shutil.which("Rscript") is None:
        sys.exit("Rscript is needed: apt-get install r-cran-irlba")
    X = data.counts(ROWS, COLUMNS).astype(np.float64)
    X = X[:, np.asarray(X.sum(axis=0)).ravel() > 0]
    with tempfile.TemporaryDirectory() as folder:
        mmwrite(Path(folder) / "counts.mtx", X)
        told = subprocess.run(["Rscript", "-e", R], cwd=folder, check=True, capture_output=True, text=True).stdout
        variances = np.loadtxt(Path(folder) / "variances.txt")
        theirs = np.loadtxt(Path(folder) / "scores.txt")
    pca = ss.PCA(K, scale=True, scale_ddof=1, tol=TOL, random_state=0)
    ours = pca.fit_transform(X)
    ours *= np.sign(np.sum(ours * theirs, axis=0))
    off = np.abs(ours - theirs).max(axis=0) / np.abs(theirs).max(axis=0)
    print(told.splitlines()[-1])
    print(f"{X.shape[0]:,} x {X.shape[1]:,}, {K} components, largest relative differences")
    print(f"variances {np.max(np.abs(pca.explained_variance_ / variances - 1)):.0e}")
    print(f"scores of the first ten components {off[:10].max():.0e}, of all {off.max():.0e}")


if __name__ == "__main__":
    main()
