"""Some of what `benchmarks/endurance` does for minutes: kills, damage, races and full disks of real processes."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="processes are forked")

from benchmarks.endurance import damage, kills, races, soak


def right(found: Counter[str], *there: str) -> None:
    wrong = {what for what in found if what.startswith("WRONG") and found[what]}
    assert not wrong | {what for what in ("tracebacks", "hidden files left", "checkpoints left") if found[what]}
    assert all(found[what] for what in there), found


@pytest.mark.long
def test_fits_that_are_killed_at_random_moments_end_with_the_same_bits() -> None:
    right(kills.main(4), "killed", "same bits")


@pytest.mark.long
def test_damaged_checkpoints_of_every_class_end_with_the_same_bits_or_in_a_line() -> None:
    right(damage.main(len(damage.CLASSES)), "same bits", "refused in a line", "records named as damaged")


@pytest.mark.long
def test_of_two_commands_in_one_folder_each_ends_whole_or_is_refused() -> None:
    right(races.main(len(races.KINDS)), "losers with a clear line")


@pytest.mark.long
@pytest.mark.parametrize("n_bytes", [5_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_full_disk_is_named_and_the_fit_ends_where_there_is_room(n_bytes: int, tmp_path: Path) -> None:
    line = soak.data(tmp_path / "data")["streamed"]
    want, _ = soak.whole(line, tmp_path / "one")
    (tmp_path / "two").mkdir()
    right(soak.filled(line, tmp_path / "two", want, n_bytes), "disks that were full", "same bits")
