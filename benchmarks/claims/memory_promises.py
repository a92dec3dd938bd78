"""Memory that was said and that was taken: every reader in a process of its own, over shapes and limits.

Run: python -m benchmarks.claims.memory_promises files | program [--only WORD] [--limit 100M]
"""

import gzip
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse
from scipy.io import mmwrite

from shiftsvd.runs.memory import parse_bytes
from tests.support.meter import Measured, measured

SHAPES = {"tall": (150_000, 40), "wide": (40, 150_000), "near square": (2400, 2500)}
LIMITS = ("50M", "100M", "1G")
PROGRAM = 150e6  # bytes of the command before it has data, with the packages of its format


def dense(shape: tuple[int, int]) -> Any:
    """Numbers of few digits."""
    return np.random.default_rng(0).integers(-99, 100, shape) / 8


def counts(shape: tuple[int, int]) -> Any:
    """A tenth of the entries."""
    X = sparse.random_array(shape, density=0.1, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    X.data[:] = np.ceil(X.data * 9)
    return X


def csv(path: Path, X: Any) -> None:
    """A text with a header and names."""
    sep = "\t" if ".tsv" in path.name else ","
    with gzip.open(path, "wt", 1) if path.suffix == ".gz" else path.open("w") as file:
        file.write(sep.join(["cell", *(f"g{j}" for j in range(X.shape[1]))]) + "\n")
        for i, row in enumerate(X.tolist()):
            file.write(f"s{i}{sep}" + sep.join(map(repr, row)) + "\n")


def npz(path: Path, X: Any) -> None:
    """Of SciPy, or of NumPy."""
    if sparse.issparse(X):
        sparse.save_npz(path, X)
    else:
        np.savez_compressed(path, X=X)


def mtx(path: Path, X: Any) -> None:
    """Of MatrixMarket, packed or not."""
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        mmwrite(file, sparse.coo_array(X) if sparse.issparse(X) else X)


def svmlight(path: Path, X: Any) -> None:
    """Of svmlight."""
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(X, np.zeros(X.shape[0]), str(path))


def frame(path: Path, X: Any) -> None:
    """A table of Arrow, in groups of rows."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    table = pa.table({f"g{j}": X[:, j] for j in range(X.shape[1])})
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=50_000, compression="snappy", use_dictionary=False)
    else:
        feather.write_feather(table, str(path), chunksize=50_000)


def anndata(path: Path, X: Any) -> None:
    """AnnData in HDF5 or Zarr."""
    import anndata as ad

    with_warnings = ad.AnnData(X)
    with_warnings.obs_names = [f"s{i}" for i in range(X.shape[0])]
    with_warnings.var_names = [f"g{j}" for j in range(X.shape[1])]
    if path.suffix == ".zarr":
        with_warnings.write_zarr(path)
    else:
        with_warnings.write_h5ad(path)


def hdf5(path: Path, X: Any) -> None:
    """One dataset, or one group."""
    import h5py

    with h5py.File(path, "w") as file:
        if sparse.issparse(X):
            group = file.create_group("X")
            group.attrs["shape"], group.attrs["encoding-type"] = X.shape, f"{X.format}_matrix"
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(X, name)
        else:
            file.create_dataset("X", data=X, chunks=True, compression="gzip", compression_opts=1)


def tenx_h5(path: Path, X: Any) -> None:
    """As CellRanger writes it."""
    import h5py

    with h5py.File(path, "w") as file:
        group = file.create_group("matrix")
        group["data"], group["indices"], group["indptr"] = X.data.astype(np.int32), X.indices, X.indptr
        group["shape"] = X.shape[::-1]
        group["barcodes"] = np.array([f"s{i}" for i in range(X.shape[0])], "S")
        names = np.array([f"g{j}" for j in range(X.shape[1])], "S")
        group["features/id"], group["features/name"] = names, names
        group["features/feature_type"] = np.full(len(names), b"Gene Expression")


def tenx(path: Path, X: Any) -> None:
    """A folder of CellRanger."""
    path.mkdir()
    mtx(path / "matrix.mtx.gz", X.T.tocoo())
    with gzip.open(path / "barcodes.tsv.gz", "wt") as file:
        file.writelines(f"s{i}\n" for i in range(X.shape[0]))
    with gzip.open(path / "features.tsv.gz", "wt") as file:
        file.writelines(f"ENS{j}\tg{j}\tGene Expression\n" for j in range(X.shape[1]))


def netcdf(path: Path, X: Any) -> None:
    """One variable."""
    import xarray

    xarray.Dataset({"X": (("time", "place"), X)}).to_netcdf(
        path, engine="h5netcdf" if path.suffix == ".nc" else "scipy"
    )


def bed(path: Path, X: Any) -> None:
    """Genotypes."""
    from tests.support.genotypes import genotypes, write

    write(path, genotypes(*X.shape))


def pgen(path: Path, X: Any) -> None:
    """Genotypes of PLINK 2."""
    from tests.io.test_pgen import pgen as write

    bed(path.with_suffix(".bed"), X)
    write(path, path.with_suffix(".bed"))
    path.with_suffix(".bed").unlink()


Writer = Callable[[Path, Any], None]
DENSE: dict[str, Writer] = {
    ".npy": lambda path, X: np.save(path, X),
    ".npz": npz,
    ".csv": csv,
    ".tsv.gz": csv,
    ".mtx": mtx,
    ".parquet": frame,
    ".arrow": frame,
    ".h5": hdf5,
    ".h5ad": anndata,
    ".zarr": anndata,
    ".nc": netcdf,
    ".cdf": netcdf,
    ".bed": bed,
    ".pgen": pgen,
}
SPARSE: dict[str, Writer] = {
    ".npz": npz,
    ".mtx.gz": mtx,
    ".svmlight": svmlight,
    ".h5": hdf5,
    ".10x.h5": tenx_h5,
    ".10x": tenx,
    ".h5ad": anndata,
    "-csc.h5ad": lambda path, X: anndata(path, X.tocsc()),
    ".zarr": anndata,
}


def told(what: str, said: float, found: Measured) -> None:
    """One line of the table."""
    ratio = found.peak / said
    verdict = "refused" if found.refused else "BROKEN" if found.code or ratio > 1.1 else "kept"
    words = found.err.strip().splitlines()[-1][:150] if found.code else ""
    print(
        f"{what:52} said {said / 1e6:7.0f} MB  took {found.peak / 1e6:7.0f}  {ratio:5.2f}  {verdict} {words}",
        flush=True,
    )


def files(folder: Path, only: str, limits: Sequence[str]) -> None:
    """Every reader, by the command: what the program takes, and --memory."""
    for kind, formats, make in (("dense", DENSE, dense), ("sparse", SPARSE, counts)):
        for shape, size in SHAPES.items():
            X = make(size)
            for suffix, write in formats.items():
                if only not in f"{kind} {shape} {suffix}":
                    continue
                path = folder / f"X{suffix}"
                write(path, X[:, :10_000] if write is frame else X)  # a column of a frame takes kilobytes
                for limit in limits:
                    line = [
                        Path(sys.executable).with_name("shiftsvd"),
                        "fit",
                        path,
                        "-k",
                        5,
                        "--memory",
                        limit,
                        "--quiet",
                    ]
                    found = measured(line, stop=4 * 10**9)
                    told(f"{kind} {shape} {suffix} {limit}", PROGRAM + parse_bytes(limit), found)
                for left in folder.iterdir():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()


def program(folder: Path, only: str, limits: Sequence[str]) -> None:
    """What the command takes of data that are next to nothing: without a report, and with one."""
    for suffix in (".npy", ".csv", ".h5ad", ".parquet"):
        path = folder / f"X{suffix}"
        DENSE[suffix](path, dense((300, 20)))
        for words in ([], ["-o", folder / f"out{suffix}"]):
            line = [Path(sys.executable).with_name("shiftsvd"), "fit", path, "-k", 3, "-q", *words]
            told(f"program {suffix} {'with a report' if words else ''}", PROGRAM, measured(line))


@click.command()
@click.argument("what", type=click.Choice(["files", "program"]))
@click.option("--only", default="", help="Lines that have this word.")
@click.option("--limit", "limits", multiple=True, default=LIMITS, show_default=True, help="Of --memory.")
def main(what: str, only: str, limits: tuple[str, ...]) -> None:
    """Print a line for each case."""
    with tempfile.TemporaryDirectory() as folder:
        {"files": files, "program": program}[what](Path(folder), only, limits)


if __name__ == "__main__":
    main()
