"""Several files as one matrix: the answer is that of the one file, whatever they are, and what does not fit says so."""

import re
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import HeldRows, OnTop, SideBySide
from shiftsvd.io import open_matrix
from shiftsvd.io.opening import read_file
from shiftsvd.missing.opening import open_with_gaps
from shiftsvd.operators import LowRank
from shiftsvd.runs.checkpoints import DIGEST
from shiftsvd.testing import check_operator
from tests.support.places import needs
from tests.support.sampling import in_turn

M, N = 440, 66
SETTINGS: dict[str, Any] = {"n_components": 5, "random_state": 0, "solver": "lanczos"}


def dense() -> Any:
    rng = np.random.default_rng(3)
    return rng.standard_normal((M, 6)) @ rng.standard_normal((6, N)) + 0.1 * rng.standard_normal((M, N)) + 2


def counts() -> Any:
    rng = np.random.default_rng(4)
    return sparse.csr_array(rng.poisson(rng.gamma(0.3, 1.0, (6, N))[rng.integers(0, 6, M)]).astype(np.float64))


def named(start: str, lo: int, hi: int) -> Any:
    return np.array([f"{start}{i}" for i in range(lo, hi)])


def write(path: Path, X: Any, rows: Any = None, columns: Any = None) -> Path:
    """A file of the kind that its name says."""
    if path.suffix == ".npy":
        np.save(path, X.toarray() if sparse.issparse(X) else X)
    elif path.suffix == ".npz":
        told = {} if rows is None else {"row_names": rows, "column_names": columns}
        np.savez(path, X=X, **told) if not sparse.issparse(X) else sparse.save_npz(path, X)
    else:
        anndata = pytest.importorskip("anndata")
        adata = anndata.AnnData(X)
        if rows is not None:
            adata.obs_names, adata.var_names = rows, columns
        adata.write_h5ad(path)
    return path


def cut(X: Any, n: int, axis: int, folder: Path, suffix: str) -> tuple[list[Path], Path]:
    """A matrix in n files of different sizes along an axis, and in one."""
    edges = np.unique(np.linspace(0, 1, n + 1) ** 1.3 * X.shape[axis]).astype(int)
    edges[-1] = X.shape[axis]
    rows, columns = named("s", 0, X.shape[0]), named("f", 0, X.shape[1])
    paths = []
    for i, (lo, hi) in enumerate(pairwise(edges)):
        here = (slice(lo, hi), slice(None)) if axis == 0 else (slice(None), slice(lo, hi))
        paths.append(write(folder / f"{i}{suffix}", X[here], rows[here[0]], columns[here[1]]))
    return paths, write(folder / f"one{suffix}", X, rows, columns)


def small_blocks(monkeypatch: pytest.MonkeyPatch, n_bytes: int = 2**13) -> None:
    monkeypatch.setattr("shiftsvd.backends.files.LEAST_BLOCK", n_bytes)
    monkeypatch.setattr("shiftsvd.backends.files.BLOCK", n_bytes)


def same(found: Any, want: Any, bits: bool = False) -> None:
    if bits:
        np.testing.assert_array_equal(found.singular_values_, want.singular_values_)
        np.testing.assert_array_equal(found.components_, want.components_)
        np.testing.assert_array_equal(found.mean_, want.mean_)
        return
    np.testing.assert_allclose(found.singular_values_, want.singular_values_, rtol=1e-9)
    signs = np.sign(np.sum(found.components_ * want.components_, axis=1))[:, None]
    np.testing.assert_allclose(signs * found.components_, want.components_, atol=1e-3)  # tol of the values, squared
    np.testing.assert_allclose(found.mean_, want.mean_, rtol=1e-12, atol=1e-14)


KINDS = [(".npy", dense), (".npz", dense), (".npz", counts), (".h5ad", dense), (".h5ad", counts)]
WAYS = [("rows", 10), ("columns", 22)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("stack", "n"), WAYS)
@pytest.mark.parametrize(("suffix", "make"), KINDS)
def test_files_in_memory_are_the_one_matrix_bit_by_bit(
    suffix: str, make: Callable[[], Any], stack: Any, n: int, tmp_path: Path
) -> None:
    paths, one = cut(make(), n, stack == "columns", tmp_path, suffix)
    assert len(paths) == n
    (A, names), (B, want) = open_matrix(paths, stack=stack), open_matrix(one)
    assert A.shape == B.shape == (M, N)
    assert type(A) is type(B)
    for found, known in zip(names, want, strict=True):
        np.testing.assert_array_equal(found, known) if known is not None else None
    same(*(ss.PCA(**SETTINGS).fit(C) for C in (A, B)), bits=True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("kind", "way"), in_turn([kind for kind in KINDS if kind[0] != ".npz"], WAYS, 1))
def test_streamed_files_are_the_one_matrix(
    kind: tuple[str, Callable[[], Any]], way: tuple[Any, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (suffix, make), (stack, n) = kind, way
    small_blocks(monkeypatch)
    X = make()
    paths, one = cut(X, n, stack == "columns", tmp_path, suffix)
    A, _ = open_matrix(paths, stack=stack, stream=True)
    assert isinstance(A, DiskRows)
    assert len(A.blocks()) > 3
    shift = LowRank(np.ones(M), np.asarray(X.mean(axis=0)).ravel())
    check_operator(A - shift)
    np.testing.assert_allclose((A - shift) @ np.eye(N), X - shift.rows(0, M), atol=1e-12)
    same(*(ss.PCA(**SETTINGS, scale=True).fit(C) for C in (A, open_matrix(one, stream=True)[0])))


@pytest.mark.parametrize("make", [dense, counts])
def test_files_that_end_where_blocks_do_give_the_bits_of_the_one_file(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 44 * 8 * N)
    X = make().toarray() if make is counts else make()
    paths = [write(tmp_path / f"{i}.npy", X[lo : lo + 44]) for i, lo in enumerate(range(0, M, 44))]
    (A, _), (B, _) = (
        open_matrix(paths, stack="rows", stream=True),
        open_matrix(write(tmp_path / "X.npy", X), stream=True),
    )
    assert A.blocks() == B.blocks()
    same(*(ss.PCA(**SETTINGS).fit(C) for C in (A, B)), bits=True)


class Dying(OnTop):
    """Is interrupted at a given read of a block."""

    n_reads, last = 0, 10**9

    def read(self, lo: int, hi: int) -> Any:
        self.n_reads += 1
        if self.n_reads > self.last:
            raise KeyboardInterrupt
        return super().read(lo, hi)


@pytest.mark.parametrize("solver", ["lanczos", "gram"])
def test_killed_in_each_pass_and_resumed_gives_the_same_bits(solver: str, tmp_path: Path) -> None:
    paths, _ = cut(dense(), 10, 0, tmp_path, ".npy")
    parts = [read_file(path, None, None, None).matrix for path in paths]
    settings = SETTINGS | {"solver": solver}
    whole = Dying(parts)
    want = ss.PCA(**settings).fit(DiskRows(whole, n_threads=1))
    for last in range(5, whole.n_reads, 20):
        folder = tmp_path / f"kept{last}"
        dying, again = Dying(parts), Dying(parts)
        dying.last = last
        with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
            ss.PCA(**settings).fit(DiskRows(dying, n_threads=1))
        records = [str(np.load(BytesIO(file.read_bytes()[DIGEST:]))["what"]) for file in folder.glob("read-*.npz")]
        assert len(records) == last // 10
        assert all(str(path.resolve()) in record for path in paths for record in records)
        with ss.checkpoint(folder):
            found = ss.PCA(**settings).fit(DiskRows(again, n_threads=1))
        assert again.n_reads <= whole.n_reads - 10 * (last // 10)
        same(found, want, bits=True)


def test_a_file_that_has_changed_is_another_run(tmp_path: Path) -> None:
    paths, _ = cut(dense(), 3, 0, tmp_path, ".npy")

    def fit(end: Callable[[], None]) -> None:
        with ss.checkpoint(tmp_path / "kept"):
            ss.PCA(**SETTINGS).fit(open_matrix(paths, stack="rows", stream=True)[0])
            end()

    with pytest.raises(KeyboardInterrupt):
        fit(interrupted)
    write(paths[1], np.load(paths[1]) + 1)
    with pytest.raises(ValueError, match="another run"):
        fit(lambda: None)


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stack", ["rows", "columns"])
def test_one_gram_reads_every_file_once(stack: Any, tmp_path: Path) -> None:
    paths, _ = cut(counts(), 4, stack == "columns", tmp_path, ".npy")
    A, _ = open_matrix(paths, stack=stack, stream=True)
    assert A.costs.gram_reads == 1
    assert isinstance(A, DiskRows)
    seen: list[int] = []
    for i, part in enumerate(A.source.source.parts):  # type: ignore[attr-defined]

        def read(lo: int, hi: int, i: int = i, read: Any = part.read) -> Any:
            seen.append(i)
            return read(lo, hi)

        object.__setattr__(part, "read", read)
    A.gram(np.ones((N, 2)))
    assert sorted(seen) == [0, 1, 2, 3]


def test_formats_and_kinds_may_be_mixed(tmp_path: Path) -> None:
    D, S = dense().astype(np.float32), counts()
    paths = [write(tmp_path / "D.npy", D), write(tmp_path / "S.npz", S), write(tmp_path / "S.h5ad", S)]
    for how in ({}, {"memory_limit": "100kB"}):
        A, names = open_matrix(paths, stack="columns", **how)
        assert isinstance(A, DiskRows) is bool(how)
        assert names.features is None, "not all files have names"
        assert A.dtype == np.float64
        np.testing.assert_array_equal(A @ np.eye(3 * N), np.hstack([D, S.toarray(), S.toarray()]))


def test_what_is_read_whole_is_counted_in_one_limit(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.npz", dense()) for i in range(4)]
    size = M * N * 8
    open_matrix(paths, stack="rows", memory_limit=int(4.2 * size))
    with pytest.raises(ValueError, match=r"^\S+3.npz would take about"):
        open_matrix(paths, stack="rows", memory_limit=int(3.5 * size))
    with pytest.raises(ValueError, match=r"0.npz cannot be read in blocks"):
        open_matrix(paths, stack="rows", stream=True)


@pytest.mark.parametrize("make", [dense, counts])
def test_names_decide_and_not_positions(make: Callable[[], Any], tmp_path: Path) -> None:
    needs("scanpy")
    X, order = make(), np.random.default_rng(0).permutation(N)
    f = named("f", 0, N)
    a = write(tmp_path / "a.h5ad", X[:200], named("s", 0, 200), f)
    b = write(tmp_path / "b.h5ad", X[200:][:, order], named("s", 200, M), f[order])
    for stream in (True, False):
        A, names = open_matrix([a, b], stack="rows", stream=stream)
        np.testing.assert_array_equal(A @ np.eye(N), X.toarray() if sparse.issparse(X) else X)
        np.testing.assert_array_equal(names.features, f)
        np.testing.assert_array_equal(names.samples, named("s", 0, M))
    # Rows that a file stores in another order cannot be read in order.
    c = write(tmp_path / "c.h5ad", X[::-1], named("s", 0, M)[::-1], named("g", 0, N))
    whole = write(tmp_path / "whole.h5ad", X, named("s", 0, M), f)
    with pytest.raises(ValueError, match=r"^\S*c.h5ad has the samples of \S*whole.h5ad in another order"):
        open_matrix([whole, c], stack="columns")


def faults(folder: Path) -> dict[str, tuple[Sequence[Path], str, str]]:
    X, s, f = dense(), named("s", 0, M), named("f", 0, N)
    a = write(folder / "a.npz", X, s, f)
    file = lambda name, Y, rows, columns: write(folder / f"{name}.npz", Y, rows, columns)  # noqa: E731
    other = np.where(f == "f7", "g7", f)
    return {
        "missing": ([a, folder / "none.npz"], "rows", r"none.npz does not exist$"),
        "other names": (
            [a, file("b", X, s, other)],
            "rows",
            r'b.npz must have the features of .*a.npz, but lacks f7\. Use join="inner" to keep the common features\.$',
        ),
        "more names": (
            [a, file("c", np.hstack([X, X[:, :4]]), s, np.append(f, named("h", 0, 4)))],
            "rows",
            r'c.npz must have the features of .*, but has h0, h1, h2 and 1 more\. Use join="inner"',
        ),
        "other samples": (
            [a, file("d", X, named("t", 0, M), named("g", 0, N))],
            "columns",
            r"d.npz must have the samples of .*a.npz, but lacks s0, s1, s2 and 437 more\. Keep the samples that all ",
        ),
        "other size": (
            [a, write(folder / "e.npy", X[:, 1:])],
            "rows",
            r"e.npy must have the 66 features of .*, got 65\.$",
        ),
        "twice": (
            [a, file("g", X, s, other)],
            "columns",
            r"g.npz must have other features than .* but both have f0, f1, f10 ",
        ),
        "no way": ([a, a], "", "need stack="),
        "damaged": ([a, folder / "a.xyz"], "rows", r"a.xyz has an unknown format"),
    }


@pytest.mark.parametrize(
    "fault", ["missing", "other names", "more names", "other samples", "other size", "twice", "no way", "damaged"]
)
def test_what_does_not_fit_says_so_in_a_line(fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("?")
    paths, stack, message = faults(tmp_path)[fault]
    with pytest.raises((ValueError, OSError), match=message) as caught:
        open_matrix(paths, stack=stack or None)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(paths[-1])) or fault == "no way"


@pytest.mark.parametrize("stack", ["rows", "columns"])
def test_a_file_that_is_given_twice_is_refused_however_it_is_called(stack: Any, tmp_path: Path) -> None:
    a, b = (write(tmp_path / name, dense()) for name in ("a.npy", "b.npy"))
    (tmp_path / "link.npy").symlink_to(a)
    for again in (a, tmp_path / ".." / tmp_path.name / "a.npy", tmp_path / "link.npy"):
        with pytest.raises(
            ValueError, match=f"^{re.escape(str(again))} and .* are the same file. Pass each file once.$"
        ):
            open_matrix([a, b, again], stack=stack)
    A, _ = open_matrix([a, b], stack=stack)  # files of the same content are two
    assert A.shape == ((2 * M, N) if stack == "rows" else (M, 2 * N))


def test_samples_of_the_same_name_are_samples_of_different_files(tmp_path: Path) -> None:
    X, s, f = dense(), named("s", 0, M), named("f", 0, N)
    paths = [write(tmp_path / f"{i}.npz", X, s, f) for i in range(2)]
    A, names = open_matrix(paths, stack="rows")
    assert A.shape == (2 * M, N)
    np.testing.assert_array_equal(names.samples, np.tile(s, 2))


def test_nan_is_told_by_its_file_and_row(tmp_path: Path) -> None:
    X = dense()
    a, b = write(tmp_path / "a.npy", X), write(tmp_path / "b.npy", np.where(X == X[7, 3], np.nan, X))
    A, _ = open_matrix([a, b], stack="rows", stream=True)
    with pytest.raises(ValueError, match=r"b.npy, rows 0 to 440: "):
        A.moments()
    gaps, _ = open_with_gaps([a, b], stack="rows")
    want = ss.PCA(3, missing="mean").fit(np.vstack([X, np.where(X == X[7, 3], np.nan, X)]))
    np.testing.assert_allclose(ss.PCA(3, missing="mean").fit(gaps).singular_values_, want.singular_values_, rtol=1e-9)


def test_indices_that_leave_their_file_do_not_reach_the_next(tmp_path: Path) -> None:
    X = counts()
    bad = sparse.csr_array((X.data, np.where(X.indices == N - 1, N, X.indices), X.indptr), shape=(M, N + 1))
    bad = HeldRows(bad, "bad")
    bad.shape = (M, N)
    A = DiskRows(SideBySide([bad, HeldRows(X, "good")]))
    with pytest.raises(ValueError, match=r"bad: (column indices|rows 0 to)"):
        A.gram(np.ones((2 * N, 1)))


def test_blocks_side_by_side_keep_to_the_bytes_that_are_asked_for(tmp_path: Path) -> None:
    # One file is full above, the other below: equal numbers of rows would be blocks of very different sizes.
    rng = np.random.default_rng(0)
    above, below = (np.zeros((4000, 50)) for _ in range(2))
    above[:400], below[3600:] = rng.standard_normal((400, 50)), rng.standard_normal((400, 50))
    parts = [HeldRows(sparse.csr_array(D), "held") for D in (above, below)]
    parts[0].edges = parts[1].edges = None  # type: ignore[assignment,method-assign]
    for part in parts:
        ends = np.searchsorted(part.X.indptr, np.arange(0, part.stored, part.stored // 20))
        part.edges = lambda _, ends=ends: [0, *np.unique(ends[ends > 0]).tolist(), 4000]  # type: ignore[method-assign]
    source = SideBySide(parts)
    edges = source.edges(2**14)
    assert edges[0] == 0
    assert edges[-1] == 4000
    sizes = [source.read(lo, hi).nnz for lo, hi in pairwise(edges)]
    assert max(sizes) <= 2 * 2 * 1001 + 50


@pytest.mark.parametrize("stack", ["sideways", 0, ["rows"]])
def test_an_unknown_way_to_stack_is_refused_for_one_file_too(stack: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", dense())
    with pytest.raises(ValueError, match=r'^stack must be "rows" \(different samples\) or "columns"'):
        open_matrix([path], stack=stack)


@pytest.fixture(scope="module", params=[dense, counts])
def hundreds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Path]]:
    """A matrix, and files of two of its rows each."""
    X, folder = request.param(), tmp_path_factory.mktemp("hundreds")
    return X, [write(folder / f"{lo}.h5ad", X[lo : lo + 2]) for lo in range(0, M, 2)]


@pytest.mark.long
@pytest.mark.parametrize("stream", [False, True])
def test_hundreds_of_files_need_few_open_ones(
    hundreds: tuple[Any, list[Path]], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    if not Path("/proc/self/fd").exists():
        pytest.skip("open files are counted in /proc")
    monkeypatch.setattr("shiftsvd.io.storage.hdf5.MOST_OPEN", 8)
    X, paths = hundreds
    open_matrix(paths[0], stream=stream)  # which imports what it needs
    used, before = len(list(Path("/proc/self/fd").iterdir())), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, before[1]))
    try:
        A, _ = open_matrix(paths, stack="rows", stream=stream)
        found = [A @ np.eye(N) for _ in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for Y in found:
        np.testing.assert_array_equal(Y, X.toarray() if sparse.issparse(X) else X)


@pytest.mark.parametrize("stack", ["rows", "columns"])
def test_half_precision_lies_beside_sparse_files(stack: Any, tmp_path: Path) -> None:
    S = counts()
    paths = [write(tmp_path / "half.npy", S.toarray().astype(np.float16)), write(tmp_path / "S.npz", S.astype(np.int8))]
    A, _ = open_matrix(paths, stack=stack)
    join = np.vstack if stack == "rows" else np.hstack
    np.testing.assert_array_equal(A @ np.eye(A.shape[1]), join([S.toarray()] * 2))
    assert A.dtype == np.float32
