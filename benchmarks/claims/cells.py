"""The command, `shiftsvd.scanpy.pca` and scanpy on real cells: by mask, batch, covariates and kind of file.

Prints the largest relative difference of a variance, and the largest difference of a score over the largest score, to
what scanpy finds in double precision. Where there is no scanpy, an environment with it is made, once. Needs
SHIFTSVD_TEST_DATA. Run: python -m benchmarks.claims.cells
"""

import gzip
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import anndata
import h5py
import numpy as np
import pandas as pd
from click.testing import CliRunner
from scipy import sparse
from scipy.io import mmwrite

from benchmarks.peers.companions import interpreter
from benchmarks.places import ROOT
from shiftsvd.cli import main
from shiftsvd.scanpy import pca

K, TOP, TOL = 10, 500, 1e-8
SETS = ("pbmc10k", "bladder")


class Way(NamedTuple):
    """What is asked for, in the words of each."""

    options: dict[str, Any]  # of shiftsvd.scanpy.pca
    line: list[str]  # of the command
    regressed: tuple[str, ...] = ()  # columns of obs, one-hot for scanpy
    scale: bool = False
    masked: bool = True


WAYS = {
    "all genes": Way({"mask_var": None}, ["--mask", "none"], masked=False),
    "highly variable": Way({}, []),
    "another mask": Way({"mask_var": "mine"}, ["--mask", "mine"]),
    "scaled": Way({"scale": True}, ["--scale"], scale=True),
    "less batch": Way({"groups": "batch"}, ["--groups", "batch"], ("batch",)),
    "less covariates, scaled": Way(
        {"covariates": ["pct", "phase"], "groups": ["batch"], "scale": True},
        ["--covariates", "pct,phase", "--groups", "batch", "--scale"],
        ("pct", "phase", "batch"),
        scale=True,
    ),
}


def cells(name: str) -> Any:
    """Counts with what is known of cells and genes; empty cells, whose logs scanpy cannot make, are left out."""
    import scanpy as sc

    X = sparse.csr_matrix(sparse.load_npz(Path(os.environ["SHIFTSVD_TEST_DATA"]) / f"{name}_counts.npz"))
    X = X[np.asarray(X.sum(axis=1)).ravel() > 0]
    m, n = X.shape
    rng = np.random.default_rng(0)
    obs = pd.DataFrame(index=[f"cell{i}" for i in range(m)])
    obs["pct"] = np.asarray(X[:, :50].sum(axis=1)).ravel() / np.asarray(X.sum(axis=1)).ravel()
    obs["phase"] = pd.Categorical(np.array(["G1", "S", "G2M"])[rng.integers(0, 3, m)])
    obs["batch"] = rng.integers(0, 4, m)
    adata = anndata.AnnData(X, obs, pd.DataFrame(index=[f"gene{j}" for j in range(n)]))
    logs = adata.copy()
    sc.pp.normalize_total(logs, target_sum=1e4)
    sc.pp.log1p(logs)
    sc.pp.highly_variable_genes(logs, n_top_genes=TOP)
    adata.var["highly_variable"] = logs.var["highly_variable"]
    adata.var["mine"] = np.arange(n) % 3 == 0
    return adata


def by_scanpy(adata: Any, way: Way) -> tuple[np.ndarray, np.ndarray]:
    """Variances and scores: normalize_total, log1p, regress_out, scale, pca."""
    import scanpy as sc

    D = adata.copy()
    D.X = D.X.astype(np.float64)
    sc.pp.normalize_total(D, target_sum=1e4)
    sc.pp.log1p(D)
    if way.masked:
        D = D[:, D.var[way.options.get("mask_var", "highly_variable")]].copy()
    if way.regressed:
        for name in way.regressed:  # a column for each label but one, as scanpy takes several
            if name != "pct":
                dummies = pd.get_dummies(D.obs.pop(name), prefix=name, drop_first=True).astype(float)
                D.obs[dummies.columns] = dummies
        D.X = D.X.toarray()
        sc.pp.regress_out(D, list(D.obs.columns.difference({"pct", "phase", "batch"} - set(way.regressed))))
    if way.scale:
        D.X = D.X if isinstance(D.X, np.ndarray) else D.X.toarray()
        sc.pp.scale(D)
    sc.pp.pca(D, n_comps=K, svd_solver="arpack", mask_var=None, dtype="float64")
    return D.uns["pca"]["variance"], D.obsm["X_pca"]


def by_command(path: Path, line: list[str], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The same of a file."""
    out = Path(tempfile.mkdtemp(dir=folder))
    usual = ["-k", str(K), "--tol", str(TOL), "--preprocess", "log-normalize", "--no-report", "--scores", "npy"]
    done = CliRunner().invoke(main, ["fit", str(path), *usual, *line, "--dtype", "float64", "-o", str(out)])
    if done.exit_code:
        raise RuntimeError(done.output)
    return pd.read_csv(out / "variances.csv")["explained_variance"].to_numpy(), np.load(out / "scores.npy")


def by_pca(adata: Any, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The same of an object."""
    pca(adata, K, preprocess="log-normalize", tol=TOL, dtype="float64", **options)
    return adata.uns["pca"]["variance"], adata.obsm["X_pca"]


def write_folder(folder: Path, adata: Any) -> Path:
    """As CellRanger writes it, with antibodies that are to be left out."""
    folder.mkdir()
    X = sparse.csc_matrix(sparse.hstack([adata.X, adata.X[:, :5] * 100]).T).astype(int)
    genes = [*adata.var_names, *(f"antibody{j}" for j in range(5))]
    types = ["Gene Expression"] * adata.n_vars + ["Antibody Capture"] * 5
    with gzip.open(folder / "matrix.mtx.gz", "wb") as file:
        mmwrite(file, X)
    for name, lines in {
        "barcodes": adata.obs_names,
        "features": [f"id-{gene}\t{gene}\t{kind}" for gene, kind in zip(genes, types, strict=True)],
    }.items():
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.writelines(f"{line}\n" for line in lines)
    with h5py.File(folder.with_suffix(".h5"), "w") as root:
        group = root.create_group("matrix")
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(X, part))
        group.create_dataset("shape", data=X.shape)
        group.create_dataset("barcodes", data=np.array(adata.obs_names, "S"))
        for part, values in {"id": genes, "name": genes, "feature_type": types}.items():
            group.create_dataset(f"features/{part}", data=np.array(values, "S"))
    return folder


def found(adata: Any, name: str, way: Way, folder: Path) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """What each route finds."""
    yield "pca, in memory", by_pca(adata.copy(), way.options)
    backed = anndata.read_h5ad(folder / "X.h5ad", backed="r")
    yield "pca, backed", by_pca(backed, {**way.options, "memory_limit": "100MB"})
    backed.file.close()
    for suffix in ("h5ad", "zarr"):
        yield f"command, .{suffix}", by_command(folder / f"X.{suffix}", way.line, folder)
    yield "command, .h5ad in blocks", by_command(folder / "X.h5ad", [*way.line, "--memory", "100M"], folder)
    if not way.masked:  # 10x tells nothing of cells and genes
        for path in ("mtx", "mtx/matrix.mtx.gz", "mtx.h5"):
            yield f"command, 10x {path}", by_command(folder / path, [], folder)


def differences(got: tuple[np.ndarray, np.ndarray], want: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Of variances, relative, and of scores, over the largest one; signs are free."""
    signs = np.sign(np.sum(got[1] * want[1], axis=0))
    scores = np.abs(got[1] * signs - want[1]).max() / np.abs(want[1]).max()
    return float(np.abs(got[0] / want[0] - 1).max()), float(scores)


def compare() -> None:
    """Print how far what each route finds is from what scanpy finds."""
    warnings.simplefilter("ignore")
    print(f"{'data':9} {'what':24} {'route':32} variance    score")
    for name in SETS:
        with tempfile.TemporaryDirectory() as where:
            folder, adata = Path(where), cells(name)
            adata.write_h5ad(folder / "X.h5ad")
            adata.write_zarr(folder / "X.zarr")
            write_folder(folder / "mtx", adata)
            for title, way in WAYS.items():
                want = by_scanpy(adata, way)
                for route, got in found(adata, name, way, folder):
                    variance, score = differences(got, want)
                    print(f"{name:9} {title:24} {route:32} {variance:8.0e} {score:8.0e}", flush=True)


if __name__ == "__main__":
    if find_spec("scanpy") is None:
        command = [interpreter("tutorial"), "-m", "benchmarks.claims.cells"]
        sys.exit(subprocess.run(command, cwd=ROOT).returncode)
    compare()
