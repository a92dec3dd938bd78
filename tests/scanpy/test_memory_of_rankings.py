"""Rankings and what follows them keep to the memory they are given, or are refused before anything is read."""

import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.entries import group_moments, some_columns
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import InMemory
from shiftsvd.cli import main
from shiftsvd.numerics.entrywise import Grouped
from shiftsvd.scanpy.ranking import Batches, HighlyVariable, _raw_counts, rank

COUNTS = partial(_raw_counts, "seurat_v3")
X = sparse.csr_array(sparse.random_array((3000, 700), density=0.05, rng=np.random.default_rng(0), dtype=np.float32))


def streamed(memory_limit: str | None = "20MB", n_threads: int = 2) -> DiskRows:
    """The matrix as if it were read from a file."""
    return DiskRows(InMemory(X), n_threads=n_threads, memory_limit=memory_limit)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some dozen kB, as small as the matrix is."""
    monkeypatch.setattr("shiftsvd.backends.files.LEAST_BLOCK", 2**15)
    monkeypatch.setattr("shiftsvd.backends.files.BLOCK", 2**15)


def peak_of(run: object) -> int:
    """Bytes of the arrays that a call has at most."""
    tracemalloc.start()
    try:
        run()  # type: ignore[operator]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.usefixtures("small_blocks")
def test_a_gram_matrix_of_a_file_takes_no_more_than_was_said() -> None:
    A = ss.centered(streamed(None))
    assert peak_of(lambda: ss.Gram()(A, 5, 0)) <= 1.1 * ss.Gram().peak_bytes(A, 5)


def test_a_formed_gram_matrix_of_shifted_sparse_rows_is_that_of_the_dense_matrix() -> None:
    shift = ss.LowRank(np.ones((3000, 1)), np.random.default_rng(2).normal(size=(700, 1)))
    D = X.toarray().astype(np.float64) - np.asarray(shift.L @ shift.R.T)
    A = streamed().with_shift(shift)
    assert np.allclose(A.gram_matrix(), D.T @ D, rtol=0, atol=1e-10 * np.abs(D.T @ D).max())


def test_columns_of_a_file_that_are_held_count_as_memory() -> None:
    A = streamed("100MB")
    group_moments(A, Grouped(COUNTS, np.zeros(3000, int), np.zeros((3000, 0)), np.zeros((700, 1, 0)), 1))
    places = np.arange(0, 700, 2)
    held = some_columns(A, places)
    assert not isinstance(held, DiskRows)
    assert held.costs.working_bytes >= X[:, places].nnz * 16


def test_columns_are_held_only_where_a_solver_has_room_beside_them() -> None:
    A = streamed("5MB")
    group_moments(A, Grouped(COUNTS, np.zeros(3000, int), np.zeros((3000, 0)), np.zeros((700, 1, 0)), 1))
    assert isinstance(some_columns(A, np.arange(500)), DiskRows)
    assert not isinstance(some_columns(A, np.arange(100)), DiskRows)


def test_many_batches_are_refused_before_a_read_where_their_moments_take_too_much() -> None:
    A = streamed()
    labels = np.arange(3000) % 1500
    with pytest.raises(ValueError, match=r"ranking 700 features in 1,500 batches needs about .* fewer batches"):
        rank(A, HighlyVariable(100, "seurat_v3"), batches=Batches.of(labels, 3000), memory_limit="20MB")
    assert not A.memo


def test_a_column_that_is_no_batch_is_named() -> None:
    labels = np.r_[np.arange(2000.0), np.zeros(1000)]
    with pytest.raises(ValueError, match=r"batch must have at least 2 rows .* 1,999 of its 2,000 labels occur once"):
        Batches.of(labels, 3000)


@pytest.mark.long
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("batches", [1, 200])
def test_moments_of_groups_take_no_more_than_is_foreseen(batches: int) -> None:
    from shiftsvd.backends.entries import group_bytes

    A, codes = streamed(None), np.arange(3000) % batches
    look = Grouped(COUNTS, codes, np.zeros((3000, 0)), np.zeros((700, batches, 0)), batches)
    assert peak_of(lambda: group_moments(A, look)) <= group_bytes(A, batches, 1)


def test_components_that_do_not_fit_are_refused_before_features_are_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftsvd.scanpy.commands.rank", lambda *_, **__: pytest.fail("ranked"))
    sparse.save_npz(tmp_path / "X.npz", sparse.csr_matrix(X))
    line = ["fit", str(tmp_path / "X.npz"), "--preprocess", "log-normalize", "--top-features", "600", "-k", "500"]
    done = CliRunner().invoke(main, [*line, "--memory", "3M"])
    assert done.exit_code == 1
    assert "x 600 matrix needs about" in done.stderr
    assert "--memory" in done.stderr
