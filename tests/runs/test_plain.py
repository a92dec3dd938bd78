"""What comes out of files is shown on terminals and pages, and steers none."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from shiftsvd.cli import main
from shiftsvd.commands.tables import is_formula
from shiftsvd.errors import plain, plain_lines
from shiftsvd.io import open_matrix

EVIL = "\x1b]0;title\x07\x9b31m\u202etxt"


def test_what_steers_a_terminal_is_written_out() -> None:
    assert plain("a\x1b[31m\n\x7f\x9b\u202e\ud800 ü 漢 עברית") == "a\\x1b[31m\\n\\x7f\\x9b\\u202e\\ud800 ü 漢 עברית"
    assert plain_lines("a\tb\n\rc") == "a\tb\n\\rc"


def test_errors_that_quote_a_file_are_plain(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id,x,{EVIL}\n" + "".join(f"s{i},{i},{EVIL}{i}\n" for i in range(5)))
    with pytest.raises(ValueError) as caught:
        open_matrix(path, columns=["x", EVIL])
    assert str(caught.value) == plain_lines(str(caught.value))
    found = CliRunner().invoke(main, ["info", str(path)])
    assert found.stderr == plain_lines(found.stderr)
    assert found.stdout == plain_lines(found.stdout)


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\uff1d1+1"])
def test_texts_that_spreadsheets_calculate_are_formulas(text: str) -> None:
    assert is_formula(text)


@pytest.mark.parametrize("text", ["-1.5", "+7", "-", "gene", "a=b", "", "-inf", "1+1"])
def test_numbers_and_names_are_no_formulas(text: str) -> None:
    assert not is_formula(text)


def test_formulas_in_tables_are_told_and_defused_where_that_is_asked_for(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out"
    rows = np.random.default_rng(0).normal(size=(6, 3))
    lines = [",".join([f"=HYPERLINK({i})", *map(str, row)]) for i, row in enumerate(rows)]
    path.write_text("id,@gene,plain,-cmd|x\n" + "\n".join(lines) + "\n")
    told = CliRunner().invoke(main, ["fit", str(path), "-k", "2", "-o", str(out), "--scores", "csv", "--no-report"])
    assert told.exit_code == 0, told.stderr
    assert "A spreadsheet would run 6 names of samples as formulas, such as '=HYPERLINK(0)'. Use --spre" in told.stderr
    assert "2 names of features" in told.stderr
    assert "\n=HYPERLINK(1)," in (out / "scores.csv").read_text()
    safe = ["transform", str(out / "model.safetensors"), str(path), "--spreadsheet-safe", "-o", str(out / "safe.csv")]
    found = CliRunner().invoke(main, safe)
    assert (found.exit_code, "as formulas" in found.stderr) == (0, False)
    assert "\n'=HYPERLINK(1)," in (out / "safe.csv").read_text()
