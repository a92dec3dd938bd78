"""Tables as people have them: what is told of each, and that its components are those by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.decomposition import PCA

from shiftsvd.cli import main
from shiftsvd.io import open_matrix
from tests.support.people import PEOPLE, People, spelled

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    for each in PEOPLE:
        each.write(folder / each.name)
    return folder


@pytest.mark.one_in(3)
@pytest.mark.parametrize("each", PEOPLE, ids=lambda each: each.name)
def test_components_are_those_by_hand(each: People, folder: Path) -> None:
    path = folder / each.name
    frame = each.by_hand(pd, path)
    A, names = open_matrix(path, **each.options)
    np.testing.assert_array_equal(A.matmat(np.eye(A.shape[1], min(A.shape[1], 5))), frame.to_numpy()[:, :5])
    assert names.features.tolist() == [str(name) for name in frame.columns]
    if names.samples is not None:
        assert names.samples.tolist() == [str(name) for name in frame.index]
    result = CliRunner().invoke(main, ["fit", str(path), "-k", "2", "--json", *spelled(each.options)])
    assert result.exit_code == 0, result.output
    found, wanted = json.loads(result.stdout), PCA(2, svd_solver="full").fit(frame.to_numpy())
    np.testing.assert_allclose(found["singular_values"], wanted.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(found["explained_variance_ratio"], wanted.explained_variance_ratio_, rtol=1e-9)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("each", [each for each in PEOPLE if each.says], ids=lambda each: each.name)
def test_what_is_there_beside_numbers_is_named_with_the_option_that_helps(each: People, folder: Path) -> None:
    result = CliRunner().invoke(main, ["fit", str(folder / each.name), "-k", "2"])
    for part in each.says:
        assert part in result.stderr
    then = CliRunner().invoke(main, ["fit", str(folder / each.name), "-k", "2", *spelled(each.before)]).stderr
    assert all(part in then for part in each.then)
    assert result.exit_code == (0 if "is used for row names" in each.says[0] or each.says[0] == "warning:" else 1)
