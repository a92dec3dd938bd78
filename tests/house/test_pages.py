"""What the pages for those who come from elsewhere print is what they show, and each of them is in the index."""

import doctest
import re
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.io import mmwrite
from scipy.sparse import csr_matrix, random_array

import shiftsvd
from shiftsvd.cli import main
from tests.support.pages import commands_of, python_of
from tests.support.people import PEOPLE
from tests.support.places import DOCS, OF_EXTENSIONS, needs, pages

PAGES = sorted((DOCS / "migrate").glob("*.rst"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "page", [*PAGES, *(page for folder in OF_EXTENSIONS for page in folder.glob("*.rst"))], ids=lambda path: path.stem
)
def test_examples_of_a_guide_print_what_it_shows(page: Path) -> None:
    failed, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0


def test_every_guide_is_in_the_index() -> None:
    index = next(page for page in PAGES if page.stem == "index").read_text(encoding="utf-8").split()
    assert {page.stem for page in PAGES} - set(index) == {"index"}


@pytest.mark.long
def test_guide_from_irlba_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = random_array(
        (80, 60), density=0.2, rng=0, data_sampler=lambda size: np.random.default_rng(0).poisson(3, size) + 1
    )
    mmwrite(tmp_path / "counts.mtx", X)
    code = python_of(DOCS / "migrate" / "from_irlba.rst", but="scranpy")
    assert "ss.io.open_matrix" in code
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "__main__"})


@pytest.mark.long
def test_commands_from_raw_counts_run_as_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("scanpy")
    anndata = pytest.importorskip("anndata")
    monkeypatch.chdir(tmp_path)
    for name, cells in (("counts.h5ad", 90), ("new.h5ad", 20)):
        X = csr_matrix(np.random.default_rng(cells).poisson(0.5, (cells, 40)).astype(np.float32))
        with catch_warnings():
            simplefilter("ignore")  # of anndata, about names of rows that are numbers
            anndata.AnnData(X, layers={"spliced": X}).write_h5ad(name)
    lines = commands_of(DOCS / "guide" / "counts.rst")
    assert [line[1] for line in lines] == ["fit", "transform", "fit", "fit", "estimate"]
    for line in lines:
        result = CliRunner().invoke(main, line[1:])
        assert result.exit_code == 0, result.output
    assert len(Path("scores.csv").read_text().splitlines()) == 21


@pytest.mark.long
def test_commands_on_tables_run_as_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    for each in PEOPLE:
        if each.name == "latin.csv":
            each.write(Path("windows.csv"))
    sales = "Sales\n2024\n\nshop,a,b,c\nX,1,2,3\nY,4,4,5\nZ,2,9,1\nTotal,7,15,9\nSource: till\nNote: X moved\n"
    Path("sales.csv").write_text(sales)
    Path("plots.csv").write_text("plot,Poa,Bellis,Rumex\nP1,1,2,3\nP2,4,4,5\nP3,2,9,1\nP4,7,1,0\n")
    for name, m in (("patients.csv", 30), ("new.csv", 4)):
        ages = np.random.default_rng(m).normal(50, 9, (m, 2)).round(1)
        lines = [f"{17 + 3 * i},2024-01-{i + 1:02},{a},{b},{'FM'[i % 2]},g{i % 3}" for i, (a, b) in enumerate(ages)]
        Path(name).write_text("\n".join(["patient_id,date,age,weight,sex,group", *lines]) + "\n")
    people = [f"{20 + 7 * i % 40},{'abc'[i % 3]},{'xy'[i % 2]},{30 + i * i % 11}" for i in range(24)]
    Path("survey.csv").write_text("\n".join(["age,pet,country,income", *people]) + "\n")
    page = DOCS / "guide" / "tables.rst"
    lines = commands_of(page)
    assert [line[1] for line in lines] == ["fit", "fit", "info", "fit", "fit", "transform", "fit", "fit"]
    for line in lines:
        result = CliRunner().invoke(main, line[1:])
        assert result.exit_code == 0, result.output
    assert len(Path("scores.csv").read_text().splitlines()) == 5
    result = CliRunner().invoke(main, ["fit", "patients.csv"])
    assert all(option in result.stderr for option in ("--one-hot sex", "--ids date", "--drop date"))
    shown: dict[str, Any] = {}
    exec(python_of(page, but="pandas"), shown)
    assert shown["names"].features.tolist() == ["age", "weight", "sex=F", "sex=M"]


def test_oldest_versions_on_the_page_are_those_of_the_package() -> None:
    page = (DOCS / "stability.rst").read_text(encoding="utf-8").replace("\n", " ")
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    for package, name in (("numpy", "NumPy"), ("scipy", "SciPy"), ("scikit-learn", "scikit-learn")):
        oldest = re.search(rf'^    "{package}>=([\d.]+)', project, re.MULTILINE)
        assert oldest is not None
        assert f"{name} {oldest[1]}" in page


SHOWN = [*pages(), *(DOCS / "gallery").glob("*.py"), DOCS.parent / "README.md"]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_every_name_of_the_package_that_a_page_shows_is_there(page: Path) -> None:
    for names in re.findall(r"\bss((?:\.[A-Za-z]\w*)+)", page.read_text(encoding="utf-8")):
        value = shiftsvd
        for name in names.split(".")[1:]:
            value = getattr(value, name)
            if not isinstance(value, (type(shiftsvd), type)):
                break  # what a call returns is not looked at
