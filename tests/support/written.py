"""Files of every format that is read as a whole, written by the tests themselves."""

import bz2
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from scipy.io import mmwrite
from sklearn.datasets import dump_svmlight_file

from tests.support.places import needs

ROWS = [f"sample {i}" for i in range(30)]


COLUMNS = [f"gene.{j}" for j in range(12)]


def truth() -> npt.NDArray[np.float64]:
    """Halves, which every format holds exactly; no row, no column and no corner is empty."""
    rng = np.random.default_rng(7)
    D = rng.integers(-6, 7, (len(ROWS), len(COLUMNS))) / 2.0
    D[rng.random(D.shape) < 0.6] = 0
    D[:, 0], D[-1] = 1.5, 2.5
    return D


def pack(path: Path) -> Path:
    """Packed as the suffix says."""
    packer = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix)
    if packer:
        path.write_bytes(packer(path.read_bytes()))
    return path


def frame() -> Any:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    return pd.DataFrame(truth(), ROWS, COLUMNS)


def write_npz(path: Path, kind: str) -> Path:
    if kind == "dense":
        np.savez(path, other=np.ones(3), X=truth(), row_names=ROWS, column_names=COLUMNS)
    else:
        sparse.save_npz(path, sparse.csr_array(truth()).asformat(kind))
    return path


def write_mtx(path: Path, X: Any = None) -> Path:
    with path.open("wb") as file:
        mmwrite(file, sparse.coo_array(truth()) if X is None else X, comment="two\nlines")
    return pack(path)


def write_10x(path: Path, suffix: str, prefix: str = "") -> Path:
    needs("scanpy")
    path.mkdir()
    write_mtx(path / f"{prefix}matrix.mtx{suffix}", sparse.coo_array(truth().T))
    write_text(path / f"{prefix}barcodes.tsv{suffix}", "".join(f"{name}\n" for name in ROWS))
    genes = "genes" if suffix == "" else "features"
    text = "".join(f"ENS{j}\t{name}\tGene Expression\n" for j, name in enumerate(COLUMNS))
    write_text(path / f"{prefix}{genes}.tsv{suffix}", text)
    return path


def write_bpcells(path: Path) -> Path:
    """Counts, which are packed; and a chunk that is not the last."""
    from shiftsvd.io import convert

    needs("scanpy")
    source = path.with_name("source.npz")
    np.savez(source, X=np.abs(2 * truth()), row_names=ROWS, column_names=COLUMNS)
    convert(source, path)
    source.unlink()
    return path


def write_text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return pack(path)


def write_svmlight(path: Path, *, zero_based: bool) -> Path:
    dump_svmlight_file(truth(), np.arange(len(ROWS)) % 3, str(path), zero_based=zero_based, comment="made here")
    return pack(path)


def write_csv(path: Path, **settings: Any) -> Path:
    frame().to_csv(path, **settings)
    return path


def with_names_first() -> Any:
    return frame().reset_index(names="cell")


def triplets(*, named: bool) -> Any:
    """The triplets of the truth, each name used first in the order of the matrix."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    D = truth().copy()
    D[0] = np.where(D[0] == 0, 9, D[0])  # else the names of the columns would come in another order
    i, j = np.nonzero(D)
    values = D[i, j].copy()
    values[values == 9] = 0
    rows, columns = (np.array(ROWS)[i], np.array(COLUMNS)[j]) if named else (i, j)
    return pd.DataFrame({"row": rows, "column": columns, "value": values})
