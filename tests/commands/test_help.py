"""Help answers at once, and every example in it runs as it stands."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import io, sparse

from shiftsvd.cli import main
from shiftsvd.commands.options import HEADINGS
from tests.support.commands import verbs
from tests.support.fields import monthly

LIGHT = """
import sys
sys.argv = ["shiftsvd", *{words}, "--help"]
from shiftsvd.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
heavy = {{"numpy", "scipy", "sklearn", "rich", "h5py", "pyarrow", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
"""


def help_of(*words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    return result.stdout


def examples(*words: str) -> list[str]:
    """The lines below "Example:" or "Examples:"."""
    _, _, after = re.split(r"^  (Examples?):$", help_of(*words), flags=re.MULTILINE)
    return [line.strip() for line in after.splitlines() if line.strip()]


@pytest.mark.parametrize("word", ["", "fit"])
def test_help_loads_nothing_heavy(word: str) -> None:
    code = LIGHT.format(words=[word] if word else [])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("word", sorted(verbs()))
def test_every_subcommand_ends_its_help_with_examples_and_names_its_options(word: str) -> None:
    assert examples(word)
    command = verbs()[word]
    assert (command.help or "").strip().partition("\n")[0].endswith(".")
    unsaid = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert not set(unsaid) - {"solvers"}


def test_a_long_help_lists_every_option_under_its_heading() -> None:
    command, text = verbs()["fit"], help_of("fit").partition("\n  Examples:\n")[0]
    sections = re.findall(r"^([A-Z][a-z ]+):\n((?:  .*\n)+)", text, re.MULTILINE)
    ours = [heading for heading, _ in sections if heading in HEADINGS]
    assert ours == [name for name in HEADINGS if f"\n{name}:\n" in text]
    options = [each for each in command.params if isinstance(each, click.Option)]
    for option in options:
        assert hasattr(option, "heading"), (
            f"{option.opts[0]} has no heading: declare it with group_options(heading, ...)"
        )
        listed = [
            name for name, lines in sections if re.search(rf"^  (-\w, )?{option.opts[-1]}\b(?!-)", lines, re.MULTILINE)
        ]
        assert listed == [option.heading], option.opts[0]


def test_a_short_help_has_no_headings() -> None:
    assert "\nOptions:\n" in help_of("report")


def test_subcommands_are_listed_in_the_order_of_their_use() -> None:
    listed = re.findall(r"^  (\w+) {2,}", help_of().partition("Commands:")[2], flags=re.MULTILINE)
    assert listed == [
        "fit",
        "transform",
        "influence",
        "inverse",
        "info",
        "estimate",
        "convert",
        "report",
        "embed",
        "diffmap",
        "contrast",
        "bench",
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples speak of, and a model."""
    folder = tmp_path_factory.mktemp("examples")
    X = sparse.random_array((120, 40), density=0.3, format="csr", rng=0)
    X.data = np.ceil(9 * X.data)
    for name in ("counts.npz", "ratings.npz"):
        sparse.save_npz(folder / name, X)
    for name in ("counts.mtx", "new.mtx"):
        io.mmwrite(folder / name, X)
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    rows = (",".join([f"r{i}", *map(str, row)]) for i, row in enumerate(np.random.default_rng(0).random((20, 4))))
    (folder / "table.csv").write_text("\n".join(["id,a,b,c,d", *rows]) + "\n", encoding="utf-8")
    shutil.copy(folder / "table.csv", folder / "controls.csv")
    answers = (f"{i},{i % 7},{i * i % 11},{'xyz'[i % 3]},{'ab'[i % 2]}" for i in range(24))
    (folder / "survey.csv").write_text("\n".join(["id,age,income,job,country", *answers]) + "\n", encoding="utf-8")
    W = X @ X.T
    sparse.save_npz(folder / "graph.npz", W)
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(X, obsp={"connectivities": W}).write_h5ad(folder / "cells.h5ad")
    if find_spec("bed_reader"):
        to_bed, rng = import_module("bed_reader").to_bed, np.random.default_rng(0)
        for name in ("cohort", "array"):
            places = {"chromosome": ["1"] * 90, "bp_position": list(range(1, 91))}
            to_bed(folder / f"{name}.bed", rng.integers(0, 3, (30, 90)), properties=places)
        for number in ("1", "2"):
            variants = {"chromosome": [number] * 90, "sid": [f"rs{number}{j}" for j in range(90)]}
            to_bed(folder / f"chr{number}.bed", rng.integers(0, 3, (30, 90)), properties=variants)
    pytest.importorskip("h5py")
    pytest.importorskip("pyarrow")
    monthly().fillna(290.0).to_netcdf(folder / "sst.nc")
    before = Path.cwd()
    os.chdir(folder)
    try:
        Path("donors").mkdir()
        for line in (
            "convert counts.npz counts.h5ad",
            "convert counts.npz donors/a.h5ad",
            "convert counts.npz donors/b.h5ad",
            "fit counts.npz -k 10 -o out",
            *(["fit cohort.bed -k 3 -o reference"] if find_spec("bed_reader") else []),
        ):
            assert CliRunner().invoke(main, line.split()).exit_code == 0
    finally:
        os.chdir(before)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "line"), [(word, line) for word in ["", *sorted(verbs())] for line in examples(*word.split())]
)
def test_examples_of_the_help_run_as_they_stand(word: str, line: str, folder: Path, tmp_path: Path) -> None:
    needed = {
        "--only digits": "matplotlib",
        "report": "jinja2",
        ".zarr": "zarr",
        ".bed": "bed_reader",
        "--workers": "distributed",
    }
    for part, package in needed.items():
        if part in line:
            pytest.importorskip(package)
    shutil.copytree(folder, tmp_path / "here")
    if " -o out/" in line:
        shutil.rmtree(tmp_path / "here" / "out")
    if "| " in line:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=tmp_path / "here",
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout
        return
    before = Path.cwd()
    os.chdir(tmp_path / "here")
    try:
        words = [name for word in line.split()[1:] for name in (sorted(map(str, Path().glob(word))) or [word])]
        result = CliRunner().invoke(main, words)
    finally:
        os.chdir(before)
    assert result.exit_code == 0, result.output
    assert line.split()[0] == "shiftsvd"


def test_completion_is_that_of_click() -> None:
    environment = {"_SHIFTSVD_COMPLETE": "bash_complete", "COMP_WORDS": "shiftsvd tr", "COMP_CWORD": "1"}
    result = CliRunner().invoke(main, [], env=environment, prog_name="shiftsvd")
    assert "transform" in result.stdout
