"""Small stores of every kind that is read: what writes them, and what reads them besides the reader of the package."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy import io, sparse

from tests.support import chunked, genotypes, workbooks

RNG = np.random.default_rng(0)
D = RNG.poisson(RNG.gamma(0.5, 1.5, (37, 11)) * np.linspace(4, 1, 11)).astype(np.int32)
G = np.nan_to_num(genotypes.genotypes(37, 50), nan=1)


class Kind(NamedTuple):
    """The name of a file, what writes it from a dense array or from parts of a CSR, and what else reads it."""

    name: str
    write: Callable[[Path, Any], object]
    read: Callable[[Path], Any]
    sparse: bool = False


def parts(X: Any) -> Any:
    """Return the parts of a CSR, which may contradict each other; readers may get them in this form too."""
    if isinstance(X, SimpleNamespace):
        return X
    C = sparse.csr_array(X)
    return SimpleNamespace(data=C.data, indices=C.indices, indptr=C.indptr, shape=list(C.shape), format="csr")


def dense(data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    """Return the array of a CSR whose structure is sound."""
    C = sparse.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
    C.check_format(full_check=True)
    assert C.nnz == len(C.data) == len(C.indices)
    return C.toarray()


def labels(n: int, what: str = "gene") -> list[str]:
    return [f"{what}{i}" for i in range(min(n, 1000))]


def frame(X: Any) -> Any:
    return import_module("pandas").DataFrame(X, labels(X.shape[0], "cell"), labels(X.shape[1]))


def write_bpcells(path: Path, X: Any) -> None:
    P, form = parts(X), {"<u4": b"UINT32v1", "<u8": b"UINT64v1", "<f4": b"FLOATSv1"}
    path.mkdir()
    arrays = {"shape": (P.shape[::-1], "<u4"), "idxptr": (P.indptr, "<u8"), "index": (P.indices, "<u4")}
    integers = P.data.dtype.kind in "iu"
    for name, (numbers, kind) in (arrays | {"val": (P.data, "<u4" if integers else "<f4")}).items():
        signed = np.asarray(numbers).astype("i8" if kind[1] == "u" else kind)
        (path / name).write_bytes(form[kind] + signed.astype(kind).tobytes())
    (path / "version").write_text(f"unpacked-{'uint' if integers else 'float'}-matrix-v2\n")
    (path / "storage_order").write_text("col\n")
    for name, names in {"row_names": labels(P.shape[1]), "col_names": labels(P.shape[0], "cell")}.items():
        (path / name).write_text("".join(f"{each}\n" for each in names))


def write_packed(path: Path, X: Any) -> None:
    np.savez(path.with_suffix(".npz"), X=X, row_names=labels(len(X), "cell"), column_names=labels(X.shape[1]))
    import_module("shiftsvd.io").convert(path.with_suffix(".npz"), path)
    path.with_suffix(".npz").unlink()


def read_bpcells(path: Path) -> Any:
    def take(name: str, kind: str = "<u4") -> Any:
        return np.fromfile(path / name, kind, offset=8)

    def unpacked(name: str, starts: Any) -> Any:
        edges = take(f"{name}_idx").astype(np.int64)
        out, twin = np.empty(int(indptr[-1]), np.uint32), import_module("shiftsvd.kernels.twin")
        unpack = twin.unpack_counts if starts is None else partial(twin.unpack_differences, starts=starts)
        unpack(take(f"{name}_data"), edges, first=0, out=out)
        return out

    version, indptr, shape = (path / "version").read_text(), take("idxptr", "<u8").astype(np.int64), take("shape")
    if "unpacked" in version:
        return dense(take("val", "<f4" if "float" in version else "<u4"), take("index"), indptr, shape[::-1])
    return dense(unpacked("val", None), unpacked("index", take("index_starts")), indptr, shape[::-1])


def write_soma(path: Path, X: Any) -> None:
    ad, names = import_module("anndata"), frame(X)
    made = ad.AnnData(sparse.csr_matrix(X), obs=names[[]], var=names.T[[]])
    import_module("tiledbsoma.io").from_anndata(str(path), made, measurement_name="RNA")


def read_soma(path: Path) -> Any:
    with import_module("tiledbsoma").open(str(path)) as E:
        sizes = (len(frame.read(column_names=["soma_joinid"]).concat()) for frame in (E.obs, E.ms["RNA"].var))
        table, X = E.ms["RNA"].X["data"].read().tables().concat(), np.zeros(tuple(sizes))
        X[tuple(table.column(f"soma_dim_{axis}").to_numpy() for axis in (0, 1))] = table.column("soma_data").to_numpy()
        return X


def write_zarr(**how: Any) -> Callable[[Path, Any], object]:
    return lambda path, X: import_module("zarr").create_array(str(path), data=X, **how) and None


def write_anndata(root: Any, X: Any) -> None:
    P = parts(X)
    root.attrs["encoding-type"] = "anndata"
    chunked.frame(root, "obs", np.array(labels(P.shape[0], "cell")))
    chunked.frame(root, "var", np.array(labels(P.shape[1])))
    chunked.sparse(root.create_group("X"), P, chunks=(20,), compression="gzip")


def write_h5ad(path: Path, X: Any) -> None:
    with import_module("h5py").File(path, "w") as root:
        write_anndata(root, X)


def write_anndata_zarr(path: Path, X: Any) -> None:
    write_anndata(import_module("zarr").open_group(str(path), mode="w"), X)


def write_tenx(path: Path, X: Any) -> None:
    P = parts(X)
    with import_module("h5py").File(path, "w") as root:
        group = root.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(P, name), chunks=(20,), compression="gzip")
        group["shape"] = P.shape[::-1]
        chunked.texts(group, "barcodes", np.array(labels(P.shape[0], "cell")))
        for name in ("id", "name"):
            chunked.texts(group.require_group("features"), name, np.array(labels(P.shape[1])))


def read_group(root: Any, shape: Any) -> Any:
    return dense(root["data"][:], root["indices"][:], root["indptr"][:], shape)


def read_h5(path: Path) -> Any:
    with import_module("h5py").File(path) as root:
        if "matrix" in root:
            return read_group(root["matrix"], root["matrix/shape"][:][::-1])
        return read_group(root["X"], root["X"].attrs["shape"])


def read_zarr(path: Path) -> Any:
    root = import_module("zarr").open(str(path), mode="r")
    return root[:] if hasattr(root, "dtype") else read_group(root["X"], root["X"].attrs["shape"])


def write_mtx(path: Path, X: Any, turned: bool = False) -> None:
    P = parts(X)
    m, n = P.shape[::-1] if turned else P.shape
    rows = np.repeat(np.arange(len(P.indptr) - 1), np.maximum(np.diff(P.indptr), 0))
    triplets = zip(rows, P.indices, P.data, strict=False)
    lines = [f"{j + 1} {i + 1} {x}\n" if turned else f"{i + 1} {j + 1} {x}\n" for i, j, x in triplets]
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n{m} {n} {P.indptr[-1]}\n" + "".join(lines))


def write_folder(path: Path, X: Any) -> None:
    path.mkdir()
    write_mtx(path / "matrix.mtx", X, turned=True)
    (path / "barcodes.tsv").write_text("".join(f"{name}\n" for name in labels(parts(X).shape[0], "cell")))
    (path / "genes.tsv").write_text("".join(f"id{name}\t{name}\n" for name in labels(parts(X).shape[1])))


def read_npz(path: Path) -> Any:
    with np.load(path) as file:
        return read_group(file, file["shape"])


def read_frame(path: Path) -> Any:
    pd = import_module("pandas")
    return (pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, index_col=0)).to_numpy()


def write_bed(path: Path, X: Any) -> None:
    genotypes.write(path, X)


def read_bed(path: Path) -> Any:
    m, n = (len(path.with_suffix(f".{part}").read_bytes().splitlines()) for part in ("fam", "bim"))
    codes = np.fromfile(path, np.uint8, offset=3).reshape(n, -(-m // 4))
    codes = (codes[..., None] >> np.array([0, 2, 4, 6]) & 3).reshape(n, -1)[:, :m]
    return np.array([2, np.nan, 1, 0], np.float32)[codes.T]


def write_pgen(path: Path, X: Any) -> None:
    with import_module("pgenlib").PgenWriter(bytes(path), len(X), variant_ct=X.shape[1], nonref_flags=False) as file:
        for column in X.T:
            file.append_biallelic(np.ascontiguousarray(np.nan_to_num(column, nan=-9), np.int8))
    lines = [f"1\t{j}\trs{j}\tG\tA\n" for j in range(X.shape[1])]
    path.with_suffix(".pvar").write_text("#CHROM\tPOS\tID\tREF\tALT\n" + "".join(lines))
    path.with_suffix(".psam").write_text("#IID\n" + "".join(f"{name}\n" for name in labels(len(X), "person")))


def read_pgen(path: Path) -> Any:
    m = len(path.with_suffix(".psam").read_text().splitlines()) - 1
    with import_module("pgenlib").PgenReader(bytes(path), raw_sample_ct=m) as file:
        X = np.empty((file.get_variant_ct(), m), np.int8)
        file.read_range(0, len(X), X)
    return np.where(X == -9, np.nan, X).T.astype(np.float32)


def write_grid(path: Path, X: Any) -> None:
    rows = [["name", *labels(X.shape[1])], *([f"cell{i}", *row] for i, row in enumerate(X.tolist()))]
    if path.suffix == ".xlsx":
        workbooks.write_xlsx(path, {"S": rows})
        return
    columns = ", ".join(f"{name} DOUBLE" for name in rows[0][1:])
    values = ", ".join(f"({', '.join(map(repr, row))})" for row in rows[1:])
    query = f"CREATE TABLE t (name VARCHAR, {columns}); INSERT INTO t VALUES {values};"
    (workbooks.in_sqlite if path.suffix == ".sqlite" else workbooks.in_duckdb)(path, query)


def read_xlsx(path: Path) -> Any:
    sheet = import_module("python_calamine").CalamineWorkbook.from_path(path).get_sheet_by_index(0)
    return np.array([row[1:] for row in sheet.to_python()[1:]], np.float64)


def read_table(path: Path) -> Any:
    library = sqlite3 if path.suffix == ".sqlite" else import_module("duckdb")
    with closing(library.connect(str(path))) as base:
        rows = [row[1:] for row in base.execute("SELECT * FROM t").fetchall()]
        return np.array([row for row in rows if any(cell is not None for cell in row)], np.float64)


def write_netcdf(path: Path, X: Any) -> None:
    field = import_module("xarray").DataArray(X, dims=("time", "space"), name="field")
    field.to_netcdf(path, engine="h5netcdf", encoding={"field": {"chunksizes": (10, X.shape[1]), "zlib": True}})


def read_netcdf(path: Path) -> Any:
    with import_module("xarray").open_dataset(path, engine="h5netcdf") as file:
        return file["field"].to_numpy()


KINDS = {
    "BPCells": Kind("a.bpcells", write_bpcells, read_bpcells, True),
    "BPCells, packed": Kind("b.bpcells", write_packed, read_bpcells),
    "TileDB-SOMA": Kind("soma", write_soma, read_soma),
    "Zarr 2": Kind("a.zarr", write_zarr(zarr_format=2, chunks=(10, 11)), read_zarr),
    "Zarr 3": Kind("b.zarr", write_zarr(zarr_format=3, chunks=(10, 6)), read_zarr),
    "Zarr 3, sharded": Kind("c.zarr", write_zarr(zarr_format=3, chunks=(5, 11), shards=(20, 11)), read_zarr),
    "AnnData .h5ad": Kind("a.h5ad", write_h5ad, read_h5, True),
    "AnnData .zarr": Kind("d.zarr", write_anndata_zarr, read_zarr, True),
    "10x .h5": Kind("a.h5", write_tenx, read_h5, True),
    "10x folder": Kind("10x", write_folder, lambda path: io.mmread(path / "matrix.mtx").toarray().T, True),
    "Matrix Market": Kind("a.mtx", write_mtx, lambda path: io.mmread(path).toarray(), True),
    "npz": Kind("a.npz", lambda path, X: np.savez_compressed(path, **vars(parts(X))), read_npz, True),
    "npy": Kind("a.npy", np.save, np.load),
    "bed": Kind("a.bed", write_bed, read_bed),
    "pgen": Kind("a.pgen", write_pgen, read_pgen),
    "Parquet": Kind("a.parquet", lambda path, X: frame(X).to_parquet(path, row_group_size=10), read_frame),
    "CSV": Kind("a.csv", lambda path, X: frame(X).to_csv(path), read_frame),
    "SQLite": Kind("a.sqlite", write_grid, read_table),
    "DuckDB": Kind("a.duckdb", write_grid, read_table),
    "xlsx": Kind("a.xlsx", write_grid, read_xlsx),
    "NetCDF": Kind("a.nc", write_netcdf, read_netcdf),
}
