"""scanpy's tutorial from counts to UMAP, with its own PCA and with ours: the same numbers, and the memory of each way.

Three ways, each in a process of its own that begins with the counts: sc.pp.scale and sc.pp.pca; the second swapped for
`shiftsvd.scanpy.pca`; both swapped for it (scale=True), so that no dense copy is made. COUNTS is cells x genes: a file
that scanpy reads, or an .npz of scipy.sparse. --max-value clips scaled values in all three. The environment is made on
first use.

Run: python -m benchmarks.peers.tutorial COUNTS [-k 50] [--max-value 10]
"""

import json
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import click
import numpy as np

from benchmarks.peers.companions import interpreter
from benchmarks.peers.worker import forget_peak, status

WAYS = {
    "scanpy": "sc.pp.scale, sc.pp.pca",
    "swapped": "sc.pp.scale, shiftsvd.scanpy.pca",
    "implicit": "shiftsvd.scanpy.pca(scale=True)",
}


def counted(file: str):
    """The counts as scanpy takes them, genes that are in less than three cells left out."""
    import scanpy as sc
    from anndata import AnnData
    from scipy.sparse import csr_matrix, load_npz

    adata = AnnData(csr_matrix(load_npz(file), dtype=np.float32)) if file.endswith(".npz") else sc.read(file)
    sc.pp.filter_genes(adata, min_cells=3)
    return adata


def prepared(adata):
    """Normalised, logarithms taken, half of the genes or 2000 marked as highly variable."""
    import scanpy as sc

    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=min(2000, adata.n_vars // 2))
    return adata


def reduced(adata, way: str, k: int, most: float | None) -> None:
    """The steps in which the ways differ."""
    import scanpy as sc

    import shiftsvd.scanpy as sv

    if way != "implicit":
        sc.pp.scale(adata, max_value=most)
    if way == "scanpy":
        sc.pp.pca(adata, n_comps=k)
    else:
        scale = way == "implicit"
        sv.pca(adata, n_comps=k, scale=scale, max_value=most if scale else None)


def follow(file: str, way: str, k: int, out: str, most: float | None) -> dict:
    """The tutorial from start to finish; results go to a file."""
    import scanpy as sc

    warnings.simplefilter("ignore")
    adata = prepared(counted(file))
    reduced(adata[:200].copy(), way, 3, most)  # imports what is imported late, and compiles
    forget_peak()
    before = status("VmRSS")
    reduced(adata, way, k, most)
    held = status("VmHWM") - before
    # Exact: NN-descent, the default for so many cells, differs in 2 % of the edges for scores that agree to 3e-7.
    sc.pp.neighbors(adata, transformer="sklearn")
    sc.tl.umap(adata)
    np.savez(
        out,
        variance=adata.uns["pca"]["variance"],
        scores=adata.obsm["X_pca"],
        edges=np.stack(adata.obsp["distances"].nonzero()),
    )
    marked = int(adata.var["highly_variable"].sum())
    return {
        "held": held / 1024,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "clipped": adata.uns["pca"]["params"].get("clipped_share"),
        "told": f"{adata.n_obs:,} cells x {adata.n_vars:,} genes, {marked} highly variable; scanpy {sc.__version__}",
    }


def compared(ours: dict, theirs: dict) -> str:
    """How far apart two results are."""
    variances = np.max(np.abs(ours["variance"].astype(float) / theirs["variance"] - 1))
    n = len(ours["scores"])
    shared = np.intersect1d(*(found["edges"][0] * n + found["edges"][1] for found in (ours, theirs)))
    share = len(shared) / theirs["edges"].shape[1]
    return f"{variances:>10.1e} {share:>10.3%}"


@click.command()
@click.argument("counts", type=click.Path(exists=True, path_type=Path))
@click.option("-k", "k", default=50, show_default=True)
@click.option("--max-value", "most", type=float)
@click.option("--way", type=click.Choice(list(WAYS)), hidden=True)
@click.option("--out", hidden=True)
def main(counts: Path, k: int, most: float | None, way: str | None, out: str | None) -> None:
    """Follow the tutorial three ways, and print how the results differ."""
    if way:
        print(json.dumps(follow(str(counts), way, k, str(out), most)))
        return
    with tempfile.TemporaryDirectory() as folder:
        told, found = {}, {}
        for name in WAYS:
            out = f"{folder}/{name}.npz"
            command = [
                interpreter("tutorial"),
                "-m",
                "benchmarks.peers.tutorial",
                str(counts.resolve()),
                "-k",
                str(k),
                "--way",
                name,
                *([] if most is None else ["--max-value", str(most)]),
            ]
            done = subprocess.run([*command, "--out", out], check=True, stdout=subprocess.PIPE, text=True)
            told[name] = json.loads(done.stdout.splitlines()[-1])
            found[name] = dict(np.load(out))
    print(f"{told['scanpy']['told']}; k = {k}")
    if most is not None:
        print(f"clipped at {most:g}: {told['implicit']['clipped']:.3%} of the scaled entries")
    print()
    print(f"{'':34}{'variances':>10} {'edges':>10} {'MB of the steps':>16} {'MB at the peak':>15}")
    for name, steps in WAYS.items():
        columns = " " * 21 if name == "scanpy" else compared(found[name], found["scanpy"])
        print(f"{steps:34}{columns} {told[name]['held']:>16.0f} {told[name]['peak']:>15.0f}")
    print(
        "\nvariances: largest relative difference to scanpy's; edges: share of its neighbours that are the same; "
        "MB of\nthe steps: what they took at their peak, beyond what the process held before"
    )


if __name__ == "__main__":
    sys.exit(main())
