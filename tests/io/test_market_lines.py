"""Lines of MatrixMarket: read as their header promises, or refused with their number."""

from pathlib import Path

import numpy as np
import pytest

from shiftsvd.io import open_matrix

HEAD = "%%MatrixMarket matrix {} {} general\n% a line\n\n"


def written(folder: Path, text: str, field: str = "real", kind: str = "coordinate") -> Path:
    path = folder / "a.mtx"
    path.write_text(HEAD.format(kind, field) + text)
    return path


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1.0D+05", 1e5), ("-2d-3", -2e-3), ("1.d0", 1.0), (".5D1", 5.0), ("+7", 7.0), ("1E2", 100.0), ("3.", 3.0)],
)
def test_numbers_as_fortran_writes_them_are_those_numbers(tmp_path: Path, cell: str, value: float) -> None:
    A, _ = open_matrix(written(tmp_path, f"2 2 2\n1 1 {cell}\n2\t2  {cell}"))
    np.testing.assert_array_equal(A.matmat(np.eye(2)), np.diag([value, value]))
    A, _ = open_matrix(written(tmp_path, f"2 1\n{cell}\n {cell} \r\n", kind="array"))
    np.testing.assert_array_equal(A.matmat(np.eye(1)), [[value], [value]])


CELLS = ["0x10", "1,5", "1.5abc", "1e", "1_000", "--1", "1.2.3", "", "1 2", "1.5 %", "٣", "1e+-5", "\x00", "1D", "+-1"]


@pytest.mark.parametrize("cell", CELLS)
def test_cells_that_are_no_numbers_are_refused_by_their_line(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ValueError, match=r"a\.mtx cannot be read: line 7 does not have the numbers"):
        open_matrix(written(tmp_path, f"3 2 4\n1 1 1\n2 1 2\n3 1 {cell}\n3 2 1\n"))


@pytest.mark.parametrize("place", ["1.9", "1e0", "-1", "0x1", "1.", "+1"])
def test_places_that_are_no_whole_numbers_are_refused_by_their_line(tmp_path: Path, place: str) -> None:
    for line in (f"{place} 1 5", f"1 {place} 5"):
        with pytest.raises(ValueError, match="line 6 does not have the numbers"):
            open_matrix(written(tmp_path, f"3 2 2\n1 1 1\n{line}\n"))


@pytest.mark.parametrize(
    ("text", "field"), [("2 2 1\n1 1 1.5\n", "integer"), ("2 2 1\n1 1 1\n", "pattern"), ("2 2 1\n1 1 1\n", "complex")]
)
def test_cells_of_another_field_are_refused(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ValueError, match="line 5 does not have the numbers"):
        open_matrix(written(tmp_path, text, field))


@pytest.mark.parametrize("text", ["2 2 2\n1 1 1\n", "2 2 1\n1 1 1\n2 2 2\n", "2 2 1\n0 1 1\n", "2 2 1\n1 3 1\n"])
def test_lines_that_the_header_does_not_count_or_place_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"a\.mtx cannot be read: (Truncated file|Line \d+)"):
        open_matrix(written(tmp_path, text))


def test_lines_are_the_same_wherever_pieces_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f"{i} {j} {i}.{j}D0\n" for i in range(1, 30) for j in range(1, 9))
    path = written(tmp_path, f"29 8 {29 * 8}\n{lines}")
    (tmp_path / "other").mkdir()
    wrong = written(tmp_path / "other", f"29 8 {29 * 8}\n{lines[:-1]}x\n")
    X = open_matrix(path)[0].matmat(np.eye(8))
    for piece in (17, 64, 1000):
        monkeypatch.setattr("shiftsvd.io.formats.market._PIECE", piece)
        np.testing.assert_array_equal(open_matrix(path)[0].matmat(np.eye(8)), X)
        with pytest.raises(ValueError, match=f"line {4 + 29 * 8} does not have the numbers"):
            open_matrix(wrong)
