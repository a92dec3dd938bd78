"""A named file, and every file that belongs to it, may be a link: workflow managers link all their inputs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.io import convert, open_matrix
from tests.support import tenx
from tests.support.commands import done
from tests.support.places import needs, readable_of

X = np.random.default_rng(0).poisson(2.0, (20, 8)).astype(float)


def npy(folder: Path) -> str:
    np.save(folder / "X.npy", X)
    return "X.npy"


def csv(folder: Path) -> str:
    np.savetxt(folder / "X.csv", X, delimiter=",")
    return "X.csv"


def npz(folder: Path) -> str:
    from scipy.sparse import csr_array, save_npz

    save_npz(folder / "X.npz", csr_array(X))
    return "X.npz"


def parquet(folder: Path) -> str:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"c{j}": X[:, j] for j in range(8)}), folder / "X.parquet")
    return "X.parquet"


def h5ad(folder: Path) -> str:
    pytest.importorskip("h5py")
    convert(folder / npy(folder), folder / "X.h5ad")
    (folder / "X.npy").unlink()
    return "X.h5ad"


def zarr(folder: Path) -> str:
    pytest.importorskip("zarr")
    convert(folder / npy(folder), folder / "X.zarr")
    (folder / "X.npy").unlink()
    return "X.zarr"


def netcdf(folder: Path, kind: str = "NETCDF4", engine: str = "h5netcdf") -> str:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip(engine)
    da = xarray.DataArray(X.reshape(20, 2, 4), dims=("time", "lat", "lon"), name="t")
    da.to_dataset().to_netcdf(folder / "X.nc", format=kind, engine=engine)
    return "X.nc"


def classic(folder: Path) -> str:
    return netcdf(folder, "NETCDF3_64BIT", "scipy")


def mtx(folder: Path) -> str:
    from scipy.io import mmwrite
    from scipy.sparse import coo_array

    mmwrite(folder / "X.mtx", coo_array(X))
    return "X.mtx"


def folder_of_10x(folder: Path) -> str:
    needs("scanpy")
    tenx.write_folder(folder / "X")
    return "X"


def matrix_of_10x(folder: Path) -> str:
    needs("scanpy")
    tenx.write_folder(folder)
    return next(path.name for path in folder.iterdir() if "matrix" in path.name)


def bed(folder: Path) -> str:
    bits = np.random.default_rng(1).integers(0, 256, (30, 5), np.uint8)
    (folder / "X.bed").write_bytes(b"\x6c\x1b\x01" + np.where(bits & 3 == 1, bits ^ 1, bits).tobytes())
    (folder / "X.bim").write_text("".join(f"{1 + j // 10}\tv{j}\t0\t{j + 1}\tA\tC\n" for j in range(30)))
    (folder / "X.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(20)))
    return "X.bed"


MADE: dict[str, Callable[[Path], str]] = {
    made.__name__: made for made in (npy, csv, npz, parquet, h5ad, zarr, netcdf, classic, mtx, bed)
} | {"folder of 10x": folder_of_10x, "matrix of 10x": matrix_of_10x}
MADE = readable_of(MADE)


@pytest.mark.filterwarnings("ignore::shiftsvd.runs.messages.Notice")
@pytest.mark.parametrize("kind", MADE)
def test_files_and_those_that_belong_to_them_may_be_links(kind: str, tmp_path: Path) -> None:
    made, linked, hashed = (tmp_path / name for name in ("made", "linked", "store"))
    for folder in (made, linked, hashed):
        folder.mkdir()
    name = MADE[kind](made)
    A, names = open_matrix(made / name)
    for number, path in enumerate(sorted(made.iterdir())):  # named by nothing in the store, as managers do
        shutil.move(path, hashed / f"{number:x}")
        (tmp_path / f"way{number}").symlink_to(hashed / f"{number:x}")
        (linked / path.name).symlink_to(tmp_path / f"way{number}")
    if kind == "folder of 10x":
        inner = tmp_path / "inner"
        inner.mkdir()
        for path in (hashed / "0").iterdir():
            (inner / path.name).symlink_to(path)
        (linked / name).unlink()
        (linked / name).symlink_to(inner)
    B, others = open_matrix(linked / name)
    np.testing.assert_array_equal(A.matmat(np.eye(A.shape[1])), B.matmat(np.eye(A.shape[1])))
    for one, other in zip(names, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_lists_of_samples_and_a_checkpoint_may_be_links(tmp_path: Path) -> None:
    needs("genetics")
    (tmp_path / "store").mkdir()
    bed(tmp_path / "store")
    (tmp_path / "store" / "keep").write_text("".join(f"f s{i}\n" for i in range(15)))
    for path in list((tmp_path / "store").iterdir()):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "kept").symlink_to(tmp_path / "reads")
    (tmp_path / "reads").mkdir()
    line = (
        "fit",
        tmp_path / "X.bed",
        "-k",
        2,
        "-q",
        "--no-report",
        "--keep",
        tmp_path / "keep",
        "-o",
        tmp_path / "out",
    )
    done(*line, "--checkpoint", tmp_path / "kept")
    assert (tmp_path / "kept").is_symlink()
    (tmp_path / "model").symlink_to(tmp_path / "out" / "model.safetensors")
    assert ss.load_model(tmp_path / "model").n_components_ == 2
    done("transform", tmp_path / "model", tmp_path / "X.bed", "-o", tmp_path / "scores.csv", "-q")
