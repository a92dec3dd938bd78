"""Transformations as sparse minus low rank: rank and error of what zeros become, files far larger dense, and cost.

``table``: rank and error of the low-rank part of Pearson and deviance residuals over a range of margins, and of new
rows beyond it. ``file``: components of Pearson residuals of a matrix of counts that is made in a file, 3 % of it
nonzero, in a memory limit, against those of the rows that it is made of, in memory, with their frequencies as weights;
``--peer`` also scanpy's own function on some of its rows, where scanpy is installed. ``cost``: a product with
transformed entries over one with the counts, by CPU time, in memory and from a file.

Run: python -m benchmarks.claims.transforms table | file [--rows 1000000] [--memory 2G] | cost
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import h5py
import numpy as np
from scipy import sparse

import shiftsvd as ss
from shiftsvd.io import open_matrix
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.transforms.smooth import OF_ZERO, Smooth

COLUMNS, POOL, GROUPS, K = 20_000, 20_000, 40, 50
AT_ONCE = 20_000  # rows that are written at a time


@click.group()
def main() -> None:
    """What transformations cost, and how accurate they are."""


# --- rank and error of what zeros become ----------------------------------------------------------------------------


@main.command()
def table() -> None:
    """Rank and error of the low-rank part, and the bound that is told of it."""
    for least, most in ((1e-6, 1e4), (1e-3, 1e2)):
        _table(np.geomspace(least, most, 1000), np.geomspace(least, most, 2000))


def _table(r: np.ndarray, c: np.ndarray) -> None:
    """For these margins of rows and columns."""
    print(f"\nmargins of rows and of columns from {r[0]:g} to {r[-1]:g}, those of new rows from 1e-14 to 1e10")
    heads = f"{'model':9} {'theta':>8} {'tol':>6} {'nodes':>6} {'rank':>5}"
    print(f"{heads} {'error':>8} {'of new rows':>12} {'bound / true':>13}")
    vector = np.random.default_rng(0).permutation(np.geomspace(0.1, 1e4, len(c)))
    for name in ("pearson", "deviance"):
        print(f"{name:9} {'inf':>8} {'any':>6} {'-':>6} {1:5} {0:8} {0:12} {'exact':>13}")
        for told, theta in (("1", 1.0), ("10", 10.0), ("100", 100.0), ("a vector", vector)):
            for tol in (1e-4, 1e-8):
                _row(name, told, np.broadcast_to(theta, c.shape), c, r, tol)


def _row(name: str, told: str, theta: np.ndarray, c: np.ndarray, r: np.ndarray, tol: float) -> None:
    """One line of the table."""
    S = Smooth(name, np.log(c / theta), np.sqrt(theta), float(r.max()), tol)  # type: ignore[arg-type]
    E, beyond = _error(S, theta, c, r), np.geomspace(1e-14, 1e10, 1000)
    new = np.abs(_error(S.reaching(beyond), theta, c, beyond)).max()
    nodes, mix = S.basis
    ratio = np.linalg.norm(S.errors(r, None)) / np.linalg.norm(E)
    sizes = f"{name:9} {told:>8} {tol:6.0e} {len(nodes):6} {mix.shape[1]:5}"
    print(f"{sizes} {np.abs(E).max():8.1e} {new:12.1e} {ratio:13.2f}")


def _error(S: Smooth, theta: np.ndarray, c: np.ndarray, r: np.ndarray) -> np.ndarray:
    """What the low-rank part errs by."""
    exact = np.sqrt(theta) * OF_ZERO[S.name](np.log(r)[:, None] + np.log(c / theta))
    return S.left(r) @ S.right.T - exact


# --- a file ---------------------------------------------------------------------------------------------------------


def pool(rows: int = POOL, columns: int = COLUMNS, density: float = 0.03, seed: int = 0) -> sparse.csr_array:
    """Counts of rows in groups and of unequal sizes, so many of them nonzero."""
    rng = np.random.default_rng(seed)
    base = rng.gamma(0.4, 1.0, columns)
    profiles = base * rng.gamma(2.0, 0.5, (GROUPS, columns))
    profiles /= profiles.sum(axis=1, keepdims=True)
    blocks = []
    for lo in range(0, rows, 1000):
        count = min(1000, rows - lo)
        size = rng.lognormal(np.log(density * columns * 1.25), 0.4, count)
        rates = profiles[rng.integers(0, GROUPS, count)] * size[:, None]
        blocks.append(sparse.csr_array(rng.poisson(rates).astype(np.float32)))
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def make(file: Path, rows: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows of the pool, drawn at random, as AnnData lies in HDF5; the pool, and how often each row was drawn."""
    P, rng = pool(), np.random.default_rng(1)
    drawn = rng.integers(0, P.shape[0], rows)
    settings = {"chunks": (2**18,), "maxshape": (None,)}
    with h5py.File(file, "w") as out:
        X = out.create_group("X")
        X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (rows, P.shape[1])})
        parts = [X.create_dataset(*part, **settings) for part in (("data", (0,), "f4"), ("indices", (0,), "i4"))]
        ends = [np.zeros(1, np.int64)]
        for lo in range(0, rows, AT_ONCE):
            block, end = P[drawn[lo : lo + AT_ONCE]], int(ends[-1][-1])
            for part, values in zip(parts, (block.data, block.indices), strict=True):
                part.resize((end + block.nnz,))
                part[end:] = values
            ends.append(end + block.indptr[1:].astype(np.int64))
        X.create_dataset("indptr", data=np.concatenate(ends))
        for name in ("obs", "var"):
            frame = out.create_group(name)
            frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        out.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    return P, np.bincount(drawn, minlength=P.shape[0])


@main.command("file")
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--memory", default="2G", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the file is made.  [default: a temporary one]")
@click.option("--peer", default=0, help="Also scanpy's function, on so many rows of it.")
@click.option("--job", hidden=True)
def of_file(rows: int, memory: str, folder: Path | None, peer: int, job: str | None) -> None:
    """Components of Pearson residuals of counts in a file."""
    if job:
        print(json.dumps(_job(**json.loads(job))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        file, started = (folder or Path(scratch)) / "counts.h5ad", time.perf_counter()
        P, frequency = make(file, rows)
        print(
            f"{rows} x {COLUMNS} counts, {100 * P.nnz / np.prod(P.shape):.1f} % nonzero: a file of "
            f"{file.stat().st_size / 1e9:.1f} GB, made in {time.perf_counter() - started:.0f} s; dense residuals take "
            f"{8 * rows * COLUMNS / 1e9:.0f} GB",
            flush=True,
        )
        found = _apart(file=str(file), memory=memory)
        print(
            f"50 components in {memory}: {found['seconds']:.0f} s, {found['reads']} reads, peak "
            f"{found['peak'] / 1e9:.2f} GB, converged {found['converged']}, errors bounded by {found['bound']:.1e}",
            flush=True,
        )
        exact = ss.PCA(K, preprocess=ss.PearsonResiduals(), solver="lanczos", tol=1e-8, random_state=0)
        exact.fit(P.astype(np.float64), sample_weight=frequency)
        error = np.max(np.abs(np.array(found["values"]) / exact.singular_values_ - 1))
        print(f"largest error against the weighted pool, in memory to 1e-8: {error:.1e}", flush=True)
        if peer:
            ours, theirs = (_apart(file=str(file), memory=memory, rows=peer, name=name) for name in ("ours", "scanpy"))
            error = np.max(np.abs(np.array(ours["values"]) / theirs["values"] - 1))
            for name, found in (("ours", ours), ("scanpy", theirs)):
                print(f"{name} on {peer} rows: {found['seconds']:.0f} s, peak {found['peak'] / 1e9:.2f} GB", flush=True)
            print(f"largest difference: {error:.1e}")


def _apart(**what: object) -> dict:
    """A job in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.claims.transforms", "file", "--job", json.dumps(what)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _job(file: str, memory: str, rows: int = 0, name: str = "") -> dict:
    """What that process does."""
    started = time.perf_counter()
    A, _ = open_matrix(file, memory_limit=memory, stream=True)
    if rows:
        X = A.source.read(0, rows)
        X = X[:, np.flatnonzero(X.sum(axis=0))]  # scanpy makes NaN of columns without counts
        if name == "scanpy":
            return _by_scanpy(X, started)
        A = ss.as_operator(X)
    pca = ss.PCA(K, preprocess=ss.PearsonResiduals(), random_state=0, memory_limit=memory).fit(A)
    info = pca.info_
    return _told(started, pca.singular_values_) | {
        "reads": info.n_passes + 2,  # and the margins, and the means with the variances
        "converged": info.converged,
        "bound": float(info.value_errors.max()),
    }


def _by_scanpy(X: sparse.csr_array, started: float) -> dict:
    """The same by scanpy: residuals that are dense."""
    import anndata
    import scanpy

    adata = anndata.AnnData(sparse.csr_matrix(X))
    scanpy.experimental.pp.normalize_pearson_residuals(adata)
    scanpy.pp.pca(adata, K, random_state=0)
    return _told(started, np.sqrt(adata.uns["pca"]["variance"] * (adata.n_obs - 1)))


def _told(started: float, values: np.ndarray) -> dict:
    """What is told of a job."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return {"seconds": time.perf_counter() - started, "peak": peak, "values": np.asarray(values, float).tolist()}


# --- cost -----------------------------------------------------------------------------------------------------------


HOW = {
    "LogNormalize": ss.LogNormalize(),
    "PearsonResiduals, theta 100": ss.PearsonResiduals(),
    "PearsonResiduals, theta 1": ss.PearsonResiduals(1.0),
    "PearsonResiduals, theta inf": ss.PearsonResiduals(np.inf),
    "DevianceResiduals": ss.DevianceResiduals(),
    "DevianceResiduals, nb": ss.DevianceResiduals("nb"),
    "PMI": ss.PMI(),
    "TfIdf": ss.TfIdf(),
    "BM25": ss.BM25(),
    "CLR": ss.CLR(),
    "Sqrt": ss.Sqrt(),
    "Ranks": ss.Ranks(),
}


@main.command()
@click.option("--rows", default=60_000, show_default=True)
@click.option("--columns", default=20_000, show_default=True)
@click.option("--density", default=0.0065, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def cost(rows: int, columns: int, density: float, rounds: int) -> None:
    """CPU time of a product with transformed entries over that of one with counts; alternating, least of the rounds."""
    X = pool(rows, columns, density)
    print(f"{rows} x {columns}, {X.nnz / rows:.0f} nonzeros a row; a product and the mean, over that of the counts")
    V = np.random.default_rng(0).standard_normal((columns, 64)).astype(np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        ratios = {"in memory, 16 columns": _ratios(ss.as_operator(X), V[:, :16], rounds)}
        for kind in (None, "gzip"):
            file = Path(scratch) / f"{kind}.h5ad"
            _write(file, X, kind)
            A, _ = open_matrix(file, stream=True, memory_limit="1GB")
            for b in (32, 64):
                ratios[f"file, {kind or 'plain'}, {b} columns"] = _ratios(A, V[:, :b], rounds)
    print(f"{'':28}", *(f"{name:>26}" for name in ratios))
    for name in HOW:
        print(f"{name:28}", *(f"{ratio[name]:26.2f}" for ratio in ratios.values()))


def _ratios(A: ss.Operator, V: np.ndarray, rounds: int) -> dict[str, float]:
    """Of each transformation."""
    prepared = {name: Preparation("mean", entries=(how,)).learn(A).of(A) for name, how in HOW.items()}
    prepared["counts"] = Preparation("mean").learn(A).of(A)
    least = dict.fromkeys(prepared, np.inf)
    for _ in range(rounds):
        for name, B in prepared.items():
            started = time.process_time()
            B.gram(V)
            least[name] = min(least[name], time.process_time() - started)
    return {name: seconds / least["counts"] for name, seconds in least.items()}


def _write(file: Path, X: sparse.csr_array, compression: str | None) -> None:
    """As AnnData lies in HDF5."""
    import anndata

    anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(file, compression=compression)


if __name__ == "__main__":
    main()
