"""Experiments of TileDB-SOMA: the same numbers as the AnnData they were made from."""

import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.io import convert, open_matrix
from shiftsvd.io.opening import read_file
from tests.support.chunked import CELLS, GENES, M, N, matrix
from tests.support.commands import done, invoke, told

QUERY = 'cell_type == "T cell"'


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    soma, ad, pd = (pytest.importorskip(name) for name in ("tiledbsoma", "anndata", "pandas"))
    pytest.importorskip("tiledbsoma.io")
    obs = pd.DataFrame({"cell_type": np.where(np.arange(M) % 3, "T cell", "B cell"), "depth": np.arange(M) / 2}, CELLS)
    var = pd.DataFrame({"gene_ids": [f"ENSG{j:011d}" for j in range(N)]}, GENES)
    made = ad.AnnData(matrix(), obs=obs, var=var, layers={"twice": matrix() * 2, "dense": matrix().toarray()})
    path = tmp_path_factory.mktemp("soma") / "cells"
    soma.io.from_anndata(str(path), made, measurement_name="RNA")
    return path


def values(path: Path, **how: object) -> np.ndarray:
    A, _ = open_matrix(path, **how)  # type: ignore[arg-type]
    return np.asarray(A.matmat(np.eye(N, dtype=np.float32)))


@pytest.mark.parametrize(("key", "factor"), [(None, 1), ("data", 1), ("X/twice", 2), ("dense", 1)])
@pytest.mark.parametrize("stream", [True, False])
def test_values_and_names_are_those_of_anndata(experiment: Path, key: str | None, factor: int, stream: bool) -> None:
    A, names = open_matrix(experiment, key=key, stream=stream)
    assert np.array_equal(A.matmat(np.eye(N)), factor * matrix().toarray())
    assert A.dtype == np.float32
    assert names.samples.tolist() == CELLS.tolist()
    assert names.features.tolist() == GENES.tolist()
    ids = open_matrix(experiment, var_names="gene_ids")[1].features
    assert ids.tolist() == [f"ENSG{j:011d}" for j in range(N)]


@pytest.mark.parametrize("key", [None, "dense"])
def test_a_query_reads_some_cells(experiment: Path, key: str | None) -> None:
    kept = np.flatnonzero(np.arange(M) % 3)
    A, names = open_matrix(experiment, obs_query=QUERY, key=key, stream=True)
    assert np.array_equal(A.matmat(np.eye(N)), matrix().toarray()[kept])
    assert names.samples.tolist() == CELLS[kept].tolist()
    assert np.array_equal(values(experiment, obs_query="depth < 3"), matrix().toarray()[:6])


def test_bits_do_not_depend_on_threads_blocks_or_the_process(experiment: Path) -> None:
    source = read_file(experiment, None, None, None, obs_query=QUERY, measurement=None).matrix
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint == source.fingerprint
    fits = [
        ss.PCA(3, random_state=0).fit(DiskRows(each, n_threads=threads, memory_limit="20MB"))
        for each, threads in ((source, 1), (again, 2), (source, 3), (source, 3))
    ]
    assert len({fit.components_.tobytes() for fit in fits}) == 1
    for lo, hi in ((0, 1), (3, 11), (0, source.shape[0])):
        assert np.array_equal(source.read(lo, hi).toarray(), again.read(0, source.shape[0]).toarray()[lo:hi])
    edges = source.edges(300)
    assert len(edges) > 3
    assert edges[0] == 0
    assert edges[-1] == source.shape[0]


def test_places_follow_soma_joinid(tmp_path: Path) -> None:
    soma, pa = pytest.importorskip("tiledbsoma"), pytest.importorskip("pyarrow")
    rng, cells, genes = np.random.default_rng(1), np.array([90, 3, 17, 4, 55, 60, 61, 62]), np.array([40, 2, 9])
    X = rng.integers(0, 3, (100, 50))
    names = pa.array([f"type {cell % 2}" for cell in cells], pa.large_string())
    with soma.Experiment.create(str(tmp_path / "x")) as made:
        columns = {"soma_joinid": pa.array(cells), "kind": names}
        table = pa.table(columns)
        made.add_new_dataframe("obs", schema=table.schema, domain=[(0, 99)]).write(table)
        measured = made.add_new_collection("ms").add_new_collection("proteins", soma.Measurement)
        table = pa.table({"soma_joinid": pa.array(genes), "var_id": pa.array(map(str, genes), pa.large_string())})
        measured.add_new_dataframe("var", schema=table.schema, domain=[(0, 49)]).write(table)
        array = measured.add_new_collection("X").add_new_sparse_ndarray("data", type=pa.int32(), shape=X.shape)
        for part in np.array_split(rng.permutation(np.argwhere(X)), 3):
            places = {"soma_dim_0": part[:, 0], "soma_dim_1": part[:, 1]}
            array.write(pa.table({**places, "soma_data": pa.array(X[part[:, 0], part[:, 1]], pa.int32())}))
    for query, kept in ((None, np.sort(cells)), ('kind == "type 0"', np.sort(cells[cells % 2 == 0]))):
        A, found = open_matrix(tmp_path / "x", obs_query=query, stream=True)
        assert np.array_equal(A.matmat(np.eye(3)), X[np.ix_(kept, np.sort(genes))])
        assert found.samples.tolist() == list(map(str, kept))
        assert found.features.tolist() == ["2", "9", "40"]


def test_every_pass_reads_the_experiment_as_it_was_opened(experiment: Path, tmp_path: Path) -> None:
    soma = pytest.importorskip("tiledbsoma")
    pa = pytest.importorskip("pyarrow")
    path = Path(shutil.copytree(experiment, tmp_path / "cells"))
    A, _ = open_matrix(path, stream=True)
    before = A.matmat(np.eye(N))
    with soma.open(str(path / "ms" / "RNA" / "X" / "data"), "w") as array:
        coordinates = {"soma_dim_0": [0, 1], "soma_dim_1": [0, 0]}
        array.write(pa.table({**coordinates, "soma_data": pa.array([50, 60], pa.float32())}))
    assert np.array_equal(A.matmat(np.eye(N)), before)
    assert np.array_equal(values(path)[:2, 0], [50, 60])
    assert open_matrix(path, stream=True)[0].source.fingerprint != A.source.fingerprint


def test_commands_read_experiments(experiment: Path, tmp_path: Path) -> None:
    facts = told("info", experiment)
    assert (facts["format"], facts["samples"], facts["features"]) == ("soma", M, N)
    query = ("--obs-query", QUERY)
    done("fit", experiment, *query, "-k", 3, "-o", tmp_path / "out", "--groups", "cell_type", "--measurement", "RNA")
    done("fit", experiment, "-k", 3, "-o", tmp_path / "labels", "--label-column", "cell_type", "--scores", "csv")
    done("transform", tmp_path / "labels" / "model.safetensors", experiment, *query, "-o", tmp_path / "scores.csv")
    scores = (tmp_path / "scores.csv").read_text().splitlines()
    kept = set(CELLS[np.arange(M) % 3 > 0].tolist())
    assert scores[1:] == [
        line for line in (tmp_path / "labels" / "scores.csv").read_text().splitlines() if line.split(",")[0] in kept
    ]
    done("convert", experiment, tmp_path / "X.h5ad", *query)
    assert np.array_equal(values(tmp_path / "X.h5ad"), values(experiment, obs_query=QUERY))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--obs-query", "cell_typ == 'T'"), "cell_typ does not exist in schema"),
        (("--obs-query", "cell_type == "), "Could not parse"),
        (("--obs-query", "cell_type == 'none'"), "no cells that satisfy --obs-query"),
        (("--obs-query", "depth == 'none'"), "--obs-query"),
        (("--obs-query", "__import__('os').system('touch /tmp/run')"), "--obs-query"),
        (("--measurement", "ATAC"), "no measurement 'ATAC'. Choose one of 'RNA' by --measurement"),
        (("--key", "raw"), "no layer 'raw' in X of 'RNA'. Choose one of 'data', 'dense', 'twice' by --key"),
    ],
)
def test_wrong_selections_are_errors_of_one_line(experiment: Path, words: tuple[str, ...], said: str) -> None:
    result = invoke("fit", experiment, "-k", 2, *words)
    assert result.exit_code == 1
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1, result.output


def test_a_measurement_without_matrices_is_named(experiment: Path, tmp_path: Path) -> None:
    soma = pytest.importorskip("tiledbsoma")
    shutil.copytree(experiment, tmp_path / "cells")
    with soma.Experiment.open(str(tmp_path / "cells"), "w") as opened:
        opened.ms.add_new_collection("ATAC", soma.Measurement)
    with pytest.raises(ValueError, match=r"has no matrix in 'ATAC'\. Choose another measurement by measurement"):
        open_matrix(tmp_path / "cells", measurement="ATAC")


def test_a_damaged_experiment_is_an_error_of_one_line(experiment: Path, tmp_path: Path) -> None:
    for part in ("ms/RNA/X/data/__fragments", "obs/__schema", "ms/RNA/var", "ms", "ms/RNA/X/data/**/d0.tdb"):
        path = Path(shutil.copytree(experiment, tmp_path / part.replace("/", "-").replace("*", "")))
        for file in [each for each in path.glob(part) if each.is_file()]:
            file.unlink()  # the number of entries is read from it
        for file in [each for each in (path / part).rglob("*") if each.is_file()]:
            file.write_bytes(file.read_bytes()[:-9])
        for words in (("fit", path, "-k", 2), ("info", path)):
            result = invoke(*words)
            assert result.exit_code == 1, (part, words, result.output)
            assert len(result.output.strip().splitlines()) == 1, result.output
            assert str(path) in result.output


def test_a_selection_of_another_format_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match=r'is no TileDB-SOMA experiment. Remove obs_query="a == 1"'):
        open_matrix(tmp_path / "X.npy", obs_query="a == 1")
    with pytest.raises(ValueError, match="is no TileDB-SOMA experiment"):
        convert(tmp_path / "X.npy", tmp_path / "X.h5ad", measurement="RNA")


def test_without_the_package_a_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiledbsoma", None)
    (tmp_path / "cells" / "__group").mkdir(parents=True)
    for path in (tmp_path / "cells", "soma://workspace/cells"):
        result = invoke("fit", path, "-k", 2)
        assert result.exit_code == 1
        remedy = "Install it with: pip install 'shiftsvd[soma]'"
        assert result.output.strip() == f"Error: The package tiledbsoma is needed but not installed. {remedy}"
