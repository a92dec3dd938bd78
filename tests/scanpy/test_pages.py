"""The pages on single cells run as they are printed."""

import shlex
from pathlib import Path
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest
from click.testing import CliRunner

from shiftsvd.cli import main
from tests.support.cells import annotated, counts, written
from tests.support.pages import command_lines, python_of
from tests.support.places import ROOT
from tests.support.tenx import write_folder

PAGES = ROOT / "src" / "shiftsvd" / "scanpy" / "docs"


@pytest.mark.long
def test_commands_and_code_on_single_cells_run_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, cells, seed in (("cells", 90, 0), ("new", 20, 1), ("donor1", 40, 2), ("donor2", 30, 3)):
        adata = annotated(counts(cells, seed=seed), seed=seed)
        adata.obs["donor"] = name
        written(Path(f"{name}.h5ad"), adata)
    write_folder(Path("filtered_feature_bc_matrix"))
    page = PAGES / "cells.rst"
    lines = [line for line in command_lines(page) if "experiment/" not in line]  # see test_soma.py
    assert len(lines) == 10
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        result = CliRunner().invoke(main, [*words, *(["--no-report"] if " fit " in line else [])])
        assert result.exit_code == 0, f"{line}: {result.output}"
    assert len(Path("new.csv").read_text().splitlines()) == 21
    with catch_warnings():
        simplefilter("ignore")  # of anndata
        code = python_of(page, but="scanpy as sc").partition('A, names = open_matrix("experiment/"')[0]
        exec(compile(code, str(page), "exec"), scope := {})
    scores = np.loadtxt("new.csv", delimiter=",", skiprows=1, usecols=range(1, 11))
    size = np.abs(scores).max()
    np.testing.assert_allclose(scope["new"].obsm["X_pca"], scores, atol=1e-4 * size)


def test_code_on_highly_variable_genes_runs_as_it_is_printed() -> None:
    pytest.importorskip("anndata")
    adata = annotated(counts(90), seed=0)
    adata.layers["counts"] = adata.X.copy()
    adata.obs["donor"] = np.repeat(["d1", "d2", "d3"], 30)
    code = python_of(PAGES / "genes.rst", but="scanpy as sc").replace("2000", str(wanted := adata.n_vars // 2))
    exec(compile(code, "genes.rst", "exec"), {"adata": adata})
    assert adata.var["highly_variable"].sum() == wanted
    assert adata.uns["pca"]["variance"].shape == adata.obsm["X_pca"].shape[1:]
