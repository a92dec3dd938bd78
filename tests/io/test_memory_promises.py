"""Readers and fits keep to the memory that was said, measured from outside, or refuse before they take it."""

import gzip
import re
import sys
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows, bytes_in_memory, left_beside
from shiftsvd.io import open_matrix
from shiftsvd.io.formats.text import block_bytes
from tests.support.containers import Held
from tests.support.meter import measured_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")

OPENED = """
from shiftsvd.io import open_matrix
open_matrix(sys.argv[2])
ready()
try:
    A, names = open_matrix(sys.argv[1], memory_limit=sys.argv[3])
    print(A.shape)
except ValueError as error:
    print("refused:", error)
"""


def text(path: Path, rows: int, columns: int) -> Path:
    numbers = np.random.default_rng(0).integers(-99, 100, (rows, columns))
    np.savetxt(path, numbers, fmt="%d", delimiter=",", header=",".join(f"g{j}" for j in range(columns)), comments="")
    return path


@pytest.mark.long
def test_a_text_takes_its_matrix_and_a_part_of_the_limit(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    small, large = text(tmp_path / "small.csv", 10, 3), text(tmp_path / "large.csv", 80_000, 40)
    found = measured_python(OPENED, large, small, "60MB", stop=2 * 10**9)
    assert found.out.startswith("(80000, 40)"), found.err
    assert found.growth < 1.1 * 60e6


@pytest.mark.long
@pytest.mark.parametrize("name", ["line.mtx.gz", "line.csv.gz", "latin.csv.gz", "cell.csv", "header.csv"])
def test_one_enormous_line_is_refused_before_it_is_held(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    small, path = text(tmp_path / "small.csv", 10, 3), tmp_path / name
    size = 120_000_000
    begin = {
        "line.mtx.gz": b"%%MatrixMarket matrix coordinate real general\n4 4 3\n1 1 ",
        "line.csv.gz": b"a,b\n1,",
        "latin.csv.gz": b"# said\na,b\n1,",
        "cell.csv": b'a,b\n1,2\n3,"',
        "header.csv": b"",
    }[name]
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(begin)
        for _ in range(size // 10**6):
            file.write((b"g," if name == "header.csv" else b"11") * 500_000)
    found = measured_python(OPENED, path, small, "60MB", stop=10**9)
    assert found.out.startswith(f"refused: {path}"), found.out + found.err
    assert found.growth < 1.1 * 60e6


@pytest.mark.long
def test_columns_of_a_text_are_counted_before_they_are_cut_apart(tmp_path: Path) -> None:
    path = text(tmp_path / "wide.csv", 2, 20_000)
    with pytest.raises(ValueError, match=r"20,000 columns would take about .* transposed"):
        open_matrix(path, memory_limit="4MB")


def test_columns_of_parquet_are_counted_before_any_is_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "wide.parquet"
    parquet.write_table(pa.table({f"g{j}": [1.0, 2.0] for j in range(300)}), path)
    for limit, what in (("0.5MB", "its footer"), ("3.5MB", "300 columns")):
        with pytest.raises(ValueError, match=rf"{what} would take about .* transposed"):
            open_matrix(path, memory_limit=limit)
    open_matrix(path, memory_limit="4MB")


def test_blocks_of_a_text_are_a_part_of_the_limit() -> None:
    assert 25 * block_bytes("1GB") < 1e9 / 8
    assert (block_bytes("1kB"), block_bytes("1TB")) == (2**16, 2**22)


@pytest.mark.long
def test_what_is_held_counts_each_array_once_and_no_file(tmp_path: Path) -> None:
    X = np.ones((300, 20))
    np.save(tmp_path / "X.npy", X)
    S = sparse.csr_array(np.eye(50))
    assert bytes_in_memory(ss.as_operator(X)) == bytes_in_memory(ss.as_operator(X.T)) == X.nbytes
    assert bytes_in_memory(ss.as_operator(S)) <= 2 * (S.data.nbytes + S.indices.nbytes + S.indptr.nbytes)
    assert bytes_in_memory(open_matrix(tmp_path / "X.npy", stream=True)[0]) < X.nbytes / 10
    assert left_beside(ss.as_operator(X), 10**6) == 10**6 - X.nbytes
    assert left_beside(ss.as_operator(X), None) is None
    assert left_beside(ss.as_operator(X), 1000) == 1


@pytest.mark.long
def test_the_solver_that_is_chosen_keeps_to_the_limit_where_one_does() -> None:
    X = np.random.default_rng(0).standard_normal((40_000, 40))
    free = ss.estimate(X, 5, "exact").peak_bytes
    asked = ss.estimate(X, 5, memory_limit=free // 2)
    assert asked.peak_bytes <= free // 2
    assert ss.estimate(X, 5, memory_limit=10**12).solver == ss.estimate(X, 5).solver


FITTED = """
import numpy as np, shiftsvd as ss
from scipy import sparse
dtype, limit = np.dtype(sys.argv[1]), float(sys.argv[2])
X = sparse.random_array((6000, 25_000), density=0.02, format="csr", rng=np.random.default_rng(0))
X.data = np.ceil(9 * X.data).astype(dtype)
ss.PCA(2, solver="lanczos").fit(sparse.csr_array(np.arange(900.0).reshape(30, 30) % 7))
free = ss.estimate(X.T, 10, "lanczos").peak_bytes
given = int(limit * free) if limit else None
said = ss.estimate(X.T, 10, "lanczos", memory_limit=given).peak_bytes
ready()
try:
    ss.PCA(10, solver="lanczos", random_state=0, memory_limit=given).fit(X.T)
    print(said)
except ValueError as error:
    print("refused:", error)
"""


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "limit"), [("i8", 0), ("i8", 0.6)])
def test_a_transposed_matrix_of_counts_takes_what_was_said(dtype: str, limit: float) -> None:
    found = measured_python(FITTED, dtype, limit)
    assert found.code == 0, found.err
    assert found.out.startswith("refused") or found.growth <= 1.1 * int(found.out)


STREAMED = """
import numpy as np, shiftsvd as ss
from shiftsvd.io import open_matrix
path, limit, solver, settings = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4])
ss.svd(np.random.default_rng(0).random((300, 40)), 3, solver=solver, rng=0, **settings)
ready()
try:
    A, _ = open_matrix(path, memory_limit=limit, stream=True, n_threads=2)
    said = ss.estimate(A, 5, solver, memory_limit=limit).peak_bytes
    F = ss.svd(A, 5, solver=solver, rng=0, n_threads=2, memory_limit=limit, **settings)
    print(said)
except ValueError as error:
    print("refused:", error)
"""
LIMIT = 40e6  # of files that are larger


def wide(path: Path, kind: str) -> Path:
    """Rows on the short side: 60 x 150,000."""
    rng = np.random.default_rng(0)
    if kind == "sparse":
        h5py = pytest.importorskip("h5py")
        X = sparse.random_array((60, 150_000), density=0.3, format="csr", rng=rng, dtype=np.float32)
        with h5py.File(path.with_suffix(".h5"), "w") as file:
            group = file.create_group("X")
            group.attrs["shape"], group.attrs["encoding-type"] = X.shape, "csr_matrix"
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(X, name)
        return path.with_suffix(".h5")
    scores = rng.standard_normal((60, 6)) * [30, 20, 15, 12, 10, 8]
    np.save(path, (scores @ rng.standard_normal((6, 150_000)) + rng.standard_normal((60, 150_000))).astype(kind))
    return path


COSINES = """
import numpy as np, shiftsvd as ss
from shiftsvd.io import open_matrix
path, limit = sys.argv[1], int(sys.argv[2])
ss.SpectralEmbedding(2, affinity="cosine", random_state=0).fit(np.random.default_rng(0).random((300, 40)))
ready()
try:
    A, _ = open_matrix(path, memory_limit=limit, stream=True, n_threads=2)
    fit = ss.SpectralEmbedding(3, affinity="cosine", tol=0.01, random_state=0, n_threads=2, memory_limit=limit).fit(A)
    print(fit.converged_)
except ValueError as error:
    print("refused:", error)
"""


GRAPH = """
import numpy as np, scipy.sparse as sp, shiftsvd as ss
ss.SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(np.ones((50, 50)))
i = np.arange(60_000).reshape(600, 100)  # a grid
ends = [(i[1:], i[:-1]), (i[:, 1:], i[:, :-1])]
j, k = (np.concatenate([pair[end].ravel() for pair in ends]) for end in (0, 1))
W = sp.csr_array((np.random.default_rng(0).uniform(0.5, 1.5, len(j)), (j, k)), shape=(i.size, i.size))
W, limit = W + W.T, int(sys.argv[1])
ready()
try:
    fit = ss.SpectralEmbedding(10, affinity="precomputed", tol=1e-2, random_state=0, memory_limit=limit).fit(W)
    print(fit.converged_, fit.n_products_ > 100)
except ValueError as error:
    print("refused:", error)
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_graphs_with_small_gaps_take_what_is_predicted() -> None:
    refusal = measured_python(GRAPH, 10_000_000).out
    assert refusal.startswith("refused: finding 10 coordinates of 60,000 nodes needs about ")
    limit = round(float(re.search(r"about ([0-9.]+) MB", refusal)[1]) * 1.01e6)
    found = measured_python(GRAPH, limit)
    assert found.out == "True True\n", found.out + found.err
    assert found.growth <= 1.1 * limit


@pytest.mark.long
def test_cosines_of_a_file_take_less_than_the_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    X = sparse.random_array((8000, 3000), density=0.3, format="csr", rng=rng)
    X.data *= rng.choice([1, 30], p=[0.9, 0.1], size=(20, 3000))[
        np.repeat(np.arange(8000) % 20, np.diff(X.indptr)), X.indices
    ]
    with h5py.File(tmp_path / "X.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["shape"], group.attrs["encoding-type"] = X.shape, "csr_matrix"
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(X, name)
    limit = 60_000_000
    assert X.data.nbytes > limit * 0.95
    found = measured_python(COSINES, tmp_path / "X.h5", limit)
    assert found.out == "True\n", found.out + found.err
    assert found.growth <= 1.1 * limit
    assert measured_python(COSINES, tmp_path / "X.h5", 20_000_000).out.startswith("refused: finding 3 coordinates")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["f4", "f8", "sparse"])
@pytest.mark.parametrize(
    ("solver", "settings"),
    [
        ("lanczos", "dict(shift='mean')"),
        ("gram", "dict(shift='mean')"),
        ("exact", "dict(shift='mean')"),
        ("randomized", "dict(shift='mean')"),
        ("lanczos", "dict(shift='mean', scale='std', certify=True)"),
        ("gram", "dict(shift='both')"),
    ],
)
def test_a_file_with_rows_on_the_short_side_takes_what_was_said(
    solver: str, settings: str, kind: str, tmp_path: Path
) -> None:
    path = wide(tmp_path / "X.npy", kind)
    roomy = measured_python(STREAMED, path, "2GB", solver, settings)
    assert roomy.code == 0, roomy.err
    assert not roomy.out.startswith("refused"), roomy.out
    assert roomy.growth <= 1.1 * int(roomy.out)
    tight = measured_python(STREAMED, path, str(int(LIMIT)), solver, settings)
    assert tight.code == 0, tight.err
    assert tight.growth <= 1.1 * LIMIT or "or store the file the other way round" in tight.out


@pytest.mark.long
def test_parts_of_such_a_product_are_let_go_before_others_are_made(tmp_path: Path) -> None:
    path = wide(tmp_path / "X.npy", "f8")
    A, _ = open_matrix(path, memory_limit="200MB", stream=True, n_threads=2)
    W = np.random.default_rng(0).standard_normal((60, 32))
    A = ss.as_operator(A, n_threads=2)
    part = 8 * A.shape[1] * W.shape[1]
    A.rmatmat(W)
    tracemalloc.start()
    try:
        Z = A.rmatmat(W)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert Z.nbytes == part
    # Three threads read and multiply, one part waits or is added, and the sum; each block stands in memory twice.
    assert peak <= 5 * part + 8 * A.costs.block_bytes + 2**20


@pytest.mark.long
def test_auto_takes_no_more_of_such_a_file_than_it_may(tmp_path: Path) -> None:
    path = wide(tmp_path / "X.npy", "f4")
    for limit in (60e6, 120e6, 240e6, 480e6):
        found = measured_python(STREAMED, path, str(int(limit)), "auto", "dict(shift='mean')")
        assert found.code == 0, found.err
        assert found.growth <= 1.1 * limit
    assert not found.out.startswith("refused")


@pytest.mark.long
def test_pages_of_parquet_that_would_not_fit_are_refused_at_once(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    numbers = np.random.default_rng(0).standard_normal((40, 50_000))
    table = pa.table({f"g{j}": column for j, column in enumerate(numbers)})
    parquet.write_table(table, tmp_path / "X.parquet", use_dictionary=False)
    with pytest.raises(ValueError, match=r"a page of each column would take about .* smaller row groups"):
        open_matrix(tmp_path / "X.parquet", memory_limit="12MB")
    parquet.write_table(table, tmp_path / "X.parquet", use_dictionary=False, row_group_size=5000)
    A, _ = open_matrix(tmp_path / "X.parquet", memory_limit="12MB", stream=True)
    assert A.shape == (50_000, 40)


@pytest.mark.long
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_what_would_not_fit_is_refused_before_the_file_is_read(kind: Any) -> None:
    source = Held(kind(np.random.default_rng(0).random((30, 50_000))))
    A = DiskRows(source, n_threads=2, memory_limit="10MB")
    for fit in (
        lambda: ss.svd(A, 5, shift="both", scale="std", memory_limit="10MB"),
        lambda: ss.svd(A, 0.9, shift="mean", solver="gram", memory_limit="10MB"),
        lambda: ss.svd(A, 5, sample_weight=np.arange(30.0), memory_limit="10MB"),
        lambda: ss.PCA(5, memory_limit="10MB").fit(A),
        lambda: ss.TruncatedSVD(5, memory_limit="10MB").fit(A),
    ):
        with pytest.raises(ValueError, match=r"needs about .* more than the limit of 10 MB"):
            fit()
        assert source.n_reads == 0


@pytest.mark.long
@pytest.mark.parametrize("n_threads", [1, 16, 64])
def test_what_is_needed_does_not_change_with_the_threads(n_threads: int) -> None:
    A = DiskRows(Held(np.random.default_rng(0).random((60_000, 60)), 1000), n_threads=n_threads)
    said = []
    for limit in ("5MB", "1MB"):
        with pytest.raises(ValueError, match="more than the limit") as error:
            ss.svd(A, 2, memory_limit=limit)
        said.append(str(error.value).partition(", more")[0])
    assert said == ["finding 2 components of a 60,000 x 60 matrix needs about 12.2 MB"] * 2
    assert ss.svd(A, 2, memory_limit="12.2MB").S[0] > 0


@pytest.mark.long
@pytest.mark.parametrize("n_threads", [1, 16])
def test_moments_of_wide_counts_take_no_more_with_more_threads(n_threads: int) -> None:
    code = """
import numpy as np, shiftsvd as ss
from scipy import sparse
X = sparse.random_array((60, 300_000), density=0.1, rng=np.random.default_rng(0), format="csr")
A = ss.as_operator(X, n_threads=int(sys.argv[1]))
ready()
A.moments()
"""
    assert measured_python(code, n_threads).growth < 256 * 300_000


OF_LIMIT = """
import h5py, numpy as np, shiftsvd as ss
from shiftsvd.io import open_matrix
path, limit, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
ss.svd(np.random.default_rng(0).random((300, 40)), 3, solver="lanczos", rng=0)
ready()
try:
    A, _ = open_matrix(path, memory_limit=limit, stream=True, n_threads=2)
    ss.svd(A, k, shift="mean", solver="lanczos", rng=0, n_threads=2, memory_limit=limit)
except ValueError as error:
    print("refused:", error)
"""


@pytest.mark.long
@pytest.mark.parametrize("k", [3, 12])
def test_all_components_of_a_tall_file_take_no_more_than_some(k: int, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((1_500_000, 12), np.float32))
    found = measured_python(OF_LIMIT, tmp_path / "X.npy", "60MB", str(k))
    assert found.code == 0, found.err
    assert not found.out
    assert found.growth <= 1.1 * 60e6


@pytest.mark.long
@pytest.mark.parametrize("limit", [45e6, 200e6])
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_chunks_that_are_inflated_count(kind: str, limit: float, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    rng, packed = np.random.default_rng(0), {"compression": "gzip", "compression_opts": 1}
    with h5py.File(tmp_path / "X.h5", "w") as file:
        if kind == "dense":
            X = rng.standard_normal((4000, 1000), np.float32)
            file.create_dataset("X", data=X, chunks=(4000, 500), **packed)
        else:
            S = sparse.random_array((4000, 1000), density=0.5, format="csr", rng=rng, dtype=np.float32)
            group = file.create_group("X")
            group.attrs["shape"], group.attrs["encoding-type"] = S.shape, "csr_matrix"
            for name in ("data", "indices", "indptr"):
                part = getattr(S, name)
                group.create_dataset(name, data=part, chunks=part.shape, **packed)
    found = measured_python(OF_LIMIT, tmp_path / "X.h5", str(int(limit)), "3")
    assert found.code == 0, found.err
    assert found.growth <= 1.1 * limit
    assert bool(found.out) == (limit < 1e8)


@pytest.mark.parametrize(("n", "helps"), [(4096, False), (40_000, True)])
def test_storing_the_transposed_matrix_is_advised_only_where_it_helps(n: int, helps: bool, tmp_path: Path) -> None:
    X = np.zeros((500, n), np.float32)
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "columns.npy", np.ascontiguousarray(X.T))
    limit = "40MB" if helps else "18MB"
    A, _ = open_matrix(tmp_path / "rows.npy", memory_limit=limit, stream=True)
    with pytest.raises(ValueError, match="needs about") as refused:
        ss.svd(A, 20, memory_limit=limit)
    assert ("or store the transposed matrix." in str(refused.value)) == helps
    A, _ = open_matrix(tmp_path / "columns.npy", memory_limit=limit, stream=True, orient="columns")
    with nullcontext() if helps else pytest.raises(ValueError, match="needs about"):
        ss.svd(A, 20, memory_limit=limit)


CONVERTED = """
import numpy as np
from shiftsvd.io import convert
np.save(sys.argv[2] + ".npy", np.ones((30, 3), bool))
convert(sys.argv[2] + ".npy", sys.argv[2], memory_limit="20MB")
ready()
convert(sys.argv[1], sys.argv[2], memory_limit="40MB", force=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_names_of_a_tall_file_are_not_held_while_it_is_converted(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip({".h5ad": "h5py", ".zarr": "zarr"}[suffix])
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((1_000_000, 41), np.float32) < 0.5)
    found = measured_python(CONVERTED, tmp_path / "X.npy", tmp_path / f"out{suffix}")
    assert found.code == 0, found.err
    assert found.growth <= 1.1 * 40e6
    _, names = open_matrix(tmp_path / f"out{suffix}")
    assert names.samples is not None
    assert list(names.samples[[0, 65_535, 65_536, -1]]) == ["0", "65535", "65536", "999999"]


def test_a_tall_matrix_that_is_stored_by_columns_takes_no_more_than_one_by_rows(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((200_000, 6)) * [9, 5, 1, 1, 1, 1]
    found = []
    for name, order in (("rows", "C"), ("columns", "F")):
        np.save(tmp_path / f"{name}.npy", np.asarray(X, order=order))
        A, _ = open_matrix(tmp_path / f"{name}.npy", memory_limit="30MB", stream=True)
        found.append(ss.PCA(2, memory_limit="30MB", random_state=0).fit(A).singular_values_)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
