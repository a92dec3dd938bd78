"""Highly variable genes and components of a raw .h5ad larger than the memory it may take, beside scanpy in memory.

Makes counts of cells of several kinds from three donors, then by flavor: `shiftsvd fit --preprocess log-normalize
--top-features`, in the memory that is given; the bytes that it reads over those of the file, seconds, peak. With
--scanpy, an interpreter that has scanpy, scikit-misc and click, the same by `normalize_total`, `log1p`,
`highly_variable_genes` and `pca`: how many genes are the same, the largest relative error of a variance, the largest
angle of a component. With --kill, runs that are killed after each read that they keep go on, and have to end with the
same bits.

Run: python -m benchmarks.claims.genes [--gigabytes 3.1] [--memory 1G] [--scanpy PYTHON] [--kill]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

GENES, POOL, KINDS, TOP, K = 18_000, 12_000, 12, 2_000, 50
AT_ONCE = 20_000  # cells that are made at a time
FLAVORS = ("seurat", "cell_ranger", "seurat_v3", "pearson_residuals")

# The command, which says at its end how much it has read; killed after so many reads that it keeps, if any.
COMMAND = """
import os, signal, sys
from pathlib import Path
from shiftsvd.runs import checkpoints
keep, kept = checkpoints._Reads.keep, []
def dying(self, what, record):
    keep(self, what, record)
    kept.append(what)
    if len(kept) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
checkpoints._Reads.keep = dying
from shiftsvd.cli import main
try:
    main(sys.argv[2:])
finally:
    print(Path("/proc/self/io").read_text().split()[1], file=sys.stderr)
"""


def pool(rng: np.random.Generator):
    """Counts of cells of several kinds: CSR, some 1 900 genes each."""
    from scipy.sparse import csr_array, vstack

    base = rng.gamma(0.3, 1.0, GENES)
    rates = base * rng.lognormal(0, 0.8, (KINDS, GENES))
    rates /= rates.sum(axis=1, keepdims=True)
    parts = []
    for _ in range(POOL // 500):
        kind, size = rng.integers(0, KINDS, 500), rng.lognormal(8.3, 0.4, (500, 1))
        parts.append(csr_array(rng.poisson(rates[kind] * size).astype(np.float32)))
    return csr_array(vstack(parts, format="csr"))


def make(file: Path, gigabytes: float) -> None:
    """Write the file: rows of the pool, each with a part of its counts."""
    import h5py

    rng = np.random.default_rng(7)
    cells = pool(rng)
    # Of each count a part is taken, by which some three of ten entries are lost.
    rows = int(gigabytes * 1e9 / (8 * 0.72 * cells.nnz / POOL))
    ends, donors = [np.zeros(1, np.int64)], rng.choice(["d1", "d2", "d3"], rows, p=[0.5, 0.3, 0.2])
    with h5py.File(file, "w") as out:
        out.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        X = out.create_group("X")
        X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (rows, GENES)})
        kinds = (("data", "f4"), ("indices", "i4"))
        parts = [X.create_dataset(name, (0,), kind, chunks=(2**18,), maxshape=(None,)) for name, kind in kinds]
        for lo in range(0, rows, AT_ONCE):
            block = cells[rng.integers(0, POOL, min(AT_ONCE, rows - lo))]
            share = np.repeat(rng.uniform(0.4, 0.8, block.shape[0]), np.diff(block.indptr))
            block.data = rng.binomial(block.data.astype(np.int64), share).astype(np.float32)
            block.eliminate_zeros()
            end = int(ends[-1][-1])
            for part, values in zip(parts, (block.data, block.indices), strict=True):
                part.resize((end + block.nnz,))
                part[end:] = values
            ends.append(end + block.indptr[1:].astype(np.int64))
        X.create_dataset("indptr", data=np.concatenate(ends))
        text = h5py.string_dtype()
        for frame, labels in (("obs", [f"c{i}" for i in range(rows)]), ("var", [f"g{j:05}" for j in range(GENES)])):
            node = out.create_group(frame)
            node.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
            node.attrs["column-order"] = ["donor"] if frame == "obs" else np.empty(0, float)
            columns = {"_index": labels} | ({"donor": donors.tolist()} if frame == "obs" else {})
            for name, values in columns.items():
                node.create_dataset(name, data=values, dtype=text)
                node[name].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        for name in ("layers", "obsm", "varm", "obsp", "varp", "uns"):
            out.create_group(name).attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})


def fit(file: Path, flavor: str, memory: str, out: Path, batch: bool, kill: int = 0, reads: Path | None = None) -> dict:
    """One run of the command in a process of its own, and what it says."""
    line = ["fit", file, "-k", K, "--preprocess", "log-normalize", "--top-features", TOP, "--flavor", flavor]
    line += ["--memory", memory, "-o", out, "--no-report", "--scores", "npy", "--json", "--force", "--quiet"]
    line += ["--tol", 1e-6, *(["--batch", "donor"] if batch else []), *(["--checkpoint", reads] if reads else [])]
    started = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", COMMAND, str(kill), *map(str, line)], capture_output=True, text=True)
    if kill:
        return {"killed": run.returncode == -signal.SIGKILL}
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    told["read"] = int(run.stderr.split()[-1]) / file.stat().st_size
    return told | {"wall": time.perf_counter() - started}


def of_scanpy(file: str, flavor: str, out: str, batch: bool) -> None:
    """The same by scanpy, in memory; run by the interpreter that has it."""
    import scanpy as sc

    started, key = time.perf_counter(), "donor" if batch else None
    adata = sc.read_h5ad(file)
    ranked = {"n_top_genes": TOP, "flavor": flavor, "batch_key": key}
    if flavor == "seurat_v3":
        sc.pp.highly_variable_genes(adata, **ranked)
    if flavor == "pearson_residuals":
        sc.experimental.pp.highly_variable_genes(adata, **ranked)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    if flavor in ("seurat", "cell_ranger"):
        sc.pp.highly_variable_genes(adata, **ranked)
    mask = adata.var["highly_variable"].to_numpy()
    adata = adata[:, mask].copy()
    sc.pp.pca(adata, n_comps=K, svd_solver="arpack", mask_var=None)
    peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    np.savez(
        out,
        mask=mask,
        variance=adata.uns["pca"]["variance"],
        components=adata.varm["PCs"].T,
        seconds=time.perf_counter() - started,
        peak=int(peak) * 1024,
    )


def compared(out: Path, theirs: Path) -> str:
    """How many genes are the same, and how far values and components are apart."""
    import shiftsvd as ss

    model, known = ss.load_model(out / "model.safetensors"), np.load(theirs)
    mask = np.zeros(GENES, bool)
    mask[model.preprocess_[-1].kept] = True
    same = int((mask & known["mask"]).sum())
    text = f"scanpy {float(known['seconds']):.0f} s, peak {int(known['peak']) / 1e6:.0f} MB; the same genes: {same} of "
    text += f"{int(known['mask'].sum())}"
    if same < mask.sum():
        return text
    error = np.abs(model.explained_variance_ / known["variance"] - 1).max()
    apart = 1 - np.abs(np.sum(model.components_ * known["components"], axis=1))
    return f"{text}; largest error of a variance {error:.0e}, of a component 1 - |cos| {apart.max():.0e}"


def killed(file: Path, flavor: str, memory: str, home: Path, whole: Path, batch: bool) -> None:
    """Kill after each read that is kept, until a run ends by itself; then go on."""
    for n_reads in range(1, 20):
        out, reads = home / f"killed-{n_reads}", home / f"reads-{n_reads}"
        if not fit(file, flavor, memory, out, batch, n_reads, reads)["killed"]:
            return
        told = fit(file, flavor, memory, out, batch, 0, reads)
        names = ("scores.npy", "features.csv", "components.csv")
        same = all((out / name).read_bytes() == (whole / name).read_bytes() for name in names)
        print(f"{flavor}: killed after {n_reads} reads, went on with {told['read']:.1f}; same bits: {same}", flush=True)


@click.command()
@click.option("--gigabytes", default=3.1, show_default=True)
@click.option("--memory", default="1G", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the file is kept.  [default: a temporary one]")
@click.option("--scanpy", help="An interpreter that has scanpy and scikit-misc.")
@click.option("--flavor", "flavors", multiple=True, default=FLAVORS, type=click.Choice(FLAVORS))
@click.option("--batch", is_flag=True, help="Rank genes in each donor.")
@click.option("--kill", is_flag=True, help="Also kill runs after each read, and go on.")
@click.option("--job", hidden=True)
def main(
    gigabytes: float,
    memory: str,
    folder: Path | None,
    scanpy: str | None,
    flavors: tuple[str, ...],
    batch: bool,
    kill: bool,
    job: str | None,
) -> None:
    if job:
        of_scanpy(*json.loads(job))
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = folder or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        file = home / f"genes-{gigabytes:g}.h5ad"
        if not file.exists():
            make(file, gigabytes)
        print(f"{file.stat().st_size / 1e9:.2f} GB, of which runs may take {memory}", flush=True)
        for flavor in flavors:
            out = home / f"out-{flavor}"
            told = fit(file, flavor, memory, out, batch)
            peak = told["peak_bytes"] / 1e6
            print(
                f"{flavor}: {told['read']:.1f} reads of the file ({told['features']['reads']:g} to rank), "
                f"{told['wall']:.0f} s, peak {peak:.0f} MB; {told['solver']}, {told['n_passes']} passes",
                flush=True,
            )
            theirs = home / f"scanpy-{flavor}{'-batch' * batch}.npz"
            if scanpy and not theirs.exists():
                line = [
                    scanpy,
                    "-m",
                    "benchmarks.claims.genes",
                    "--job",
                    json.dumps([str(file), flavor, str(theirs), batch]),
                ]
                done = subprocess.run(
                    line, capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}
                )
                if done.returncode:
                    print(f"  scanpy failed: {(done.stderr.strip() or 'killed').splitlines()[-1]}", flush=True)
            if theirs.exists():
                print(f"  {compared(out, theirs)}", flush=True)
            if kill:
                killed(file, flavor, memory, home, out, batch)


if __name__ == "__main__":
    main()
