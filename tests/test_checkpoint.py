"""A run that is broken off in any of its reads goes on where it stopped, and ends with the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from helpers import Held
from shiftsvd.backends.disk import DiskRows
from test_disk import sparse_rows

ROWS = 1000  # three blocks


class Dying(Held):
    """Is interrupted at a given read of a block."""

    def __init__(self, X: Any, last: int) -> None:
        super().__init__(X, ROWS)
        self.last = last

    def read(self, lo: int, hi: int) -> Any:
        if self.n_reads >= self.last:
            raise KeyboardInterrupt
        return super().read(lo, hi)


def settings(solver: str) -> dict[str, Any]:
    return {"n_components": 6, "random_state": 3, "solver": solver}


@pytest.mark.parametrize("solver", ["lanczos", "gram", "randomized", "exact"])
def test_killed_in_each_pass_in_turn_and_resumed_gives_the_same_bits(solver: str, tmp_path: Path) -> None:
    X = sparse_rows()
    whole = Held(X, ROWS)
    want = ss.PCA(**settings(solver)).fit(DiskRows(whole, n_threads=1))
    for last in range(1, whole.n_reads, 3):
        folder = tmp_path / str(last)
        dying, again = Dying(X, last), Held(X, ROWS)
        with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
            ss.PCA(**settings(solver)).fit(DiskRows(dying, n_threads=1))
        assert len(list(folder.glob("read-*"))) == last // 3 or solver == "randomized"
        with ss.checkpoint(folder):
            found = ss.PCA(**settings(solver)).fit(DiskRows(again, n_threads=1))
        # What was read in whole passes is not read again.
        assert again.n_reads <= whole.n_reads - 3 * (last // 3) or solver == "randomized"
        for name in ("components_", "singular_values_", "explained_variance_ratio_", "mean_"):
            np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
        assert found.info_.n_passes == want.info_.n_passes
        assert not folder.exists()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.filterwarnings("ignore:.*columns have no variance")
def test_exact_on_a_file_is_not_read_again_where_it_was_read(wide: bool, scale: str | None, tmp_path: Path) -> None:
    X = sparse_rows(40, 120) if wide else sparse_rows()
    how: dict[str, Any] = {"shift": "mean", "scale": scale, "solver": "exact"}
    source = lambda: Held(X, 20 if wide else ROWS)  # noqa: E731
    blocks = len(source().edges(0)) - 1
    want = ss.svd(DiskRows(source()), 4, **how)
    folder = tmp_path / "broken"

    def killed() -> None:
        with ss.checkpoint(folder):
            ss.svd(DiskRows(source()), 4, **how)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    again = source()
    with ss.checkpoint(folder):
        found = ss.svd(DiskRows(again), 4, **how)
        assert again.n_reads == 0 or again.n_reads == blocks, "at most the long factor, which is not kept"
    for part, whole in zip(found, want, strict=True):
        np.testing.assert_array_equal(part, whole)


def broken_off(folder: Path, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
        ss.PCA(**settings("lanczos") | changes).fit(DiskRows(Dying(sparse_rows(), 8), n_threads=1))


@pytest.mark.parametrize("changes", [{"random_state": 4}, {"solver": "gram"}, {"scale": True}])
def test_checkpoint_of_another_run_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    broken_off(folder)
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(folder):
        ss.PCA(**settings("lanczos") | changes).fit(DiskRows(Held(sparse_rows(), ROWS)))
    assert list(folder.glob("read-*")), "what was there is kept"


def test_checkpoint_of_another_name_or_version_is_refused(tmp_path: Path) -> None:
    broken_off(tmp_path / "run")
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path / "run", "other settings"):
        pass
    (tmp_path / "run" / "run.json").write_text('{"shiftsvd checkpoint": 99, "run": ""}')
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path / "run"):
        pass


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"), ss.checkpoint(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("damage", [b"", b"PK", b"\0" * 300])
def test_damaged_record_is_refused(damage: bytes, tmp_path: Path) -> None:
    broken_off(tmp_path / "run")
    (tmp_path / "run" / "read-00001.npz").write_bytes(damage)
    with pytest.raises(ValueError, match="damaged"), ss.checkpoint(tmp_path / "run"):
        ss.PCA(**settings("lanczos")).fit(DiskRows(Held(sparse_rows(), ROWS)))


# ---- transformations

RAW = sparse_rows()
HOW = {
    "pearson": ss.PearsonResiduals(10),
    "composed": [ss.LogNormalize(), ss.CLR()],
    "two reads": ss.TfIdf(),
    "ranks": ss.Ranks(),
}


@pytest.mark.parametrize("name", HOW)
def test_a_broken_run_of_a_transformed_file_goes_on_with_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = Held(RAW, ROWS)
    how = settings("lanczos") | {"preprocess": HOW[name]}
    want = ss.PCA(**how).fit(DiskRows(whole, n_threads=1))
    for last in (1, 4, 7, whole.n_reads - 4):
        folder = tmp_path / str(last)
        with pytest.raises(KeyboardInterrupt), ss.checkpoint(folder):
            ss.PCA(**how).fit(DiskRows(Dying(RAW, last), n_threads=1))
        with ss.checkpoint(folder):
            found = ss.PCA(**how).fit(DiskRows(again := Held(RAW, ROWS), n_threads=1))
        assert again.n_reads <= whole.n_reads - last // 3 * 3 + 3 * (len(want.preprocess_) - 1)
        for attribute in ("components_", "singular_values_", "mean_"):
            np.testing.assert_array_equal(getattr(found, attribute), getattr(want, attribute))


@pytest.mark.parametrize(
    "other", [None, ss.PearsonResiduals(11), ss.PearsonResiduals(10, clip=3), ss.DevianceResiduals("nb", 10), ss.Sqrt()]
)
@pytest.mark.parametrize("last", [1, 3, 5])
def test_reads_of_another_transformation_are_refused(other: Any, last: int, tmp_path: Path) -> None:
    first = settings("lanczos") | {"preprocess": ss.PearsonResiduals(10)}
    with pytest.raises(KeyboardInterrupt), ss.checkpoint(tmp_path):
        ss.PCA(**first).fit(DiskRows(Dying(RAW, 3 * last), n_threads=1))
    with pytest.raises(ValueError, match="another run"), ss.checkpoint(tmp_path):
        ss.PCA(**settings("lanczos") | {"preprocess": other}).fit(DiskRows(Held(RAW, ROWS), n_threads=1))
