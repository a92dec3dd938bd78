"""Every command that writes, in folders full of files of a user: what was not named as an output stays as it was."""

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import shiftsvd as ss
from benchmarks.endurance.decoys import Tree, lost, plant, tree
from shiftsvd.runs.checkpoints import LOCK
from shiftsvd.runs.outputs import BEFORE, Outputs, lock_of, stage_of
from tests.support.commands import invoke, verbs

pytest.importorskip("fcntl", reason="pipes with names")

# Options that write files, or add to those that are written, by command; a case below has every one of them.
WRITES = {
    "fit": "out checkpoint cache scores components contributions supplementary anndata report top_features tracy_widom "
    "scan unrelated",
    "transform": "out",
    "influence": "out",
    "inverse": "out",
    "convert": "out",
    "report": "out",
    "embed": "out scores report",
    "diffmap": "out scores report",
    "contrast": "out scores report",
}
WRITES["estimate"] = WRITES["fit"]  # which it takes, and writes nothing
# All others. A new option goes here, or above and into a case.
OTHERS = """
    files file model stack join k format key orient feature_types var_names measurement obs_query max_value
    allow_external ids drop columns one_hot sep decimal thousands encoding comment skip na censored keep_total
    label_column mixed chromosomes autosome extract exclude extract_range exclude_range exclude_long_range keep
    remove mind geno hwe hwe_midp maf indep_pairwise indep_order preprocess labels scores_scale flavor batch mask
    covariates groups shift scale missing unobserved penalty max_iter solver solvers tol certify seed threads memory
    device devices scheduler workers dtype json_out force spreadsheet_safe progress quiet verbose max_absent project
    match trust_ambiguous trust_order top_features trust_values weights compression rounds ridge alpha alphas background
    leave_out widest affinity choose n_neighbors t drop_first max_products max_passes cache_size
"""


def test_every_option_is_known_to_write_or_not_to() -> None:
    for verb, subcommand in verbs().items():
        writes, others = WRITES.get(verb, "").split(), OTHERS.split()
        for parameter in subcommand.params:
            new_path = isinstance(parameter.type, click.Path) and not parameter.type.exists
            assert parameter.name in (writes if new_path else writes + others), (verb, parameter.name)


def test_every_option_that_writes_is_in_a_case() -> None:
    for verb, names in WRITES.items():
        words = {word for case in CASES.values() for word in case.words if case.words[0] == verb}
        for parameter in verbs()[verb].params:
            if parameter.name in names.split():
                assert words & {*parameter.opts, "OUT"}, (verb, parameter.name)


FOLDERS = (".zarr", ".bpcells")  # outputs that are folders


@dataclass(frozen=True)
class Case:
    """A command: its words, where OUT is its output and IN the folder of its data, and modules that it needs."""

    line: str
    out: str = ""
    needs: str = "numpy"
    forced: bool = True  # it knows --force

    @property
    def words(self) -> list[str]:
        return self.line.split()

    def run(self, home: Path, *more: str) -> int:
        line = [word.replace("IN/", f"{home}/in/").replace("HERE/", f"{home}/") for word in self.words]
        result = invoke(*(str(home / self.out) if word == "OUT" else word for word in line), *more)
        assert result.exit_code in (0, 1), result.output
        assert result.exit_code == 0 or result.stderr.count("\n") == 1, result.stderr
        assert "Traceback" not in result.output
        return result.exit_code


CASES = {
    "fit": Case("fit IN/X.npy -k 2 -q --no-report --scores csv --components csv -o OUT", "out"),
    "fit into parents": Case("fit IN/X.npy -k 2 -q --no-report --scores npy -o OUT", "a/b/out"),
    "fit with a checkpoint": Case("fit IN/X.npy -k 2 -q --no-report --scores npy -o OUT --checkpoint HERE/kept", "out"),
    "fit with copies": Case("fit IN/X.npy -k 2 -q --no-report --scores npy -o OUT --cache HERE/copies", "out"),
    "fit with all files": Case(
        "fit IN/X.npy -k 2 -q --report --anndata --preprocess log-normalize --top-features 5 --scores parquet "
        "--components parquet -o OUT",
        "out",
        "matplotlib jinja2 h5py pyarrow anndata",
    ),
    "fit of genotypes": Case(
        "fit IN/X.bed -k 2 -q --no-report --tracy-widom --scan --unrelated 0.2 -o OUT", "out", "bed_reader"
    ),
    "fit of a survey": Case(
        "fit IN/survey.csv -k 2 -q --no-report --mixed --supplementary town --contributions -o OUT", "out", "pyarrow"
    ),
    "transform": Case("transform IN/model.safetensors IN/X.npy -q -o OUT", "scores.csv"),
    "transform to a new folder": Case("transform IN/model.safetensors IN/X.npy -q -o OUT", "new/scores.npy"),
    "influence": Case("influence IN/model.safetensors IN/X.npy -q -o OUT", "influence.csv"),
    "inverse": Case("inverse IN/model.safetensors IN/scores.npy -q -o OUT", "restored.npy"),
    "report": Case("report IN/model.safetensors IN/scores.npy -q -o OUT", "report.html", "matplotlib jinja2"),
    "convert to HDF5": Case("convert IN/X.npy OUT -q", "X.h5ad", "h5py"),
    "convert to Zarr": Case("convert IN/X.npy OUT -q", "X.zarr", "zarr"),
    "convert to BPCells": Case("convert IN/X.npy OUT -q", "X.bpcells", "shiftsvd.scanpy.bpcells"),
    "convert by columns": Case("convert IN/long.npy OUT -q --orient columns --memory 1M", "X.h5ad", "h5py"),
    "info": Case("info IN/X.npy", forced=False),
    "estimate": Case(
        "estimate IN/X.npy -k 2 --report --anndata --preprocess log-normalize --top-features 5 --scores csv "
        "--components csv --checkpoint HERE/kept --cache HERE/copies -o HERE/out",
        "",
        "matplotlib jinja2 h5py anndata",
        forced=False,
    ),
    "estimate of a survey": Case(
        "estimate IN/survey.csv -k 2 --mixed --supplementary town --contributions -o HERE/out", "", "pyarrow", False
    ),
    "estimate of genotypes": Case(
        "estimate IN/X.bed -k 2 --tracy-widom --scan --unrelated 0.2 -o HERE/out", "", "bed_reader", False
    ),
    "embed": Case("embed IN/X.npy -k 2 -q --scores csv -o OUT", "out"),
    "diffmap": Case("diffmap IN/W.npy -k 2 -q --scores npy -o OUT", "out"),
    "contrast": Case(
        "contrast IN/X.npy --background IN/X.npy --alpha 0.5 --alpha 0 -k 2 -q --scores npy -o OUT", "out"
    ),
    "bench": Case("bench IN/X.npy -k 2 --rounds 1 --solver gram", forced=False),
}
WRITING = [name for name, case in CASES.items() if case.out]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of all cases."""
    folder = tmp_path_factory.mktemp("data")
    X = np.random.default_rng(0).poisson(3.0, (40, 12)).astype(float)
    pca = ss.PCA(2, random_state=0).fit(X)
    pca.save(folder / "model.safetensors")
    np.save(folder / "X.npy", X)
    np.save(folder / "W.npy", X @ X.T)
    np.save(folder / "scores.npy", pca.transform(X))
    np.save(folder / "long.npy", np.random.default_rng(0).standard_normal((3000, 100)))
    rows = "".join(f"{x:.0f},{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i, x in enumerate(X[:, 0]))
    (folder / "survey.csv").write_text(f"visits,kind,town\n{rows}")
    bits = np.random.default_rng(1).integers(0, 256, (30, 10), np.uint8)
    (folder / "X.bed").write_bytes(b"\x6c\x1b\x01" + np.where(bits & 3 == 1, bits ^ 1, bits).tobytes())
    (folder / "X.bim").write_text("".join(f"{1 + j // 10}\tv{j}\t0\t{j + 1}\tA\tC\n" for j in range(30)))
    (folder / "X.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(40)))
    return folder


def once(work: Callable[..., Any]) -> Callable[..., Any]:
    """What it gave when it was first called."""
    found: list[Any] = []

    def known(*given: Any) -> Any:
        if not found:
            found.append(work(*given))
        return found[0]

    return known


Made = Callable[[str], tuple[Case, Path, set[str]]]
_written: dict[str, Tree] = {}


@pytest.fixture
def made(data: Path, tmp_path: Path) -> Made:
    """A case, a folder with its data and with decoys, and what it writes where nothing else is."""

    def make(name: str) -> tuple[Case, Path, set[str]]:
        case = CASES[name]
        for module in case.needs.split():
            pytest.importorskip(module)
        if name not in _written:
            shutil.copytree(data, tmp_path / "clean" / "in")
            before = tree(tmp_path / "clean")
            assert case.run(tmp_path / "clean") == 0
            after = tree(tmp_path / "clean")
            assert not lost(before, after)
            _written[name] = {path: what for path, what in after.items() if path not in before}
        home = tmp_path / "home"
        shutil.copytree(data, home / "in")
        plant(home, *{path.split("/")[0] for path in _written[name]})
        plant(home / "in", "X.npy")
        return case, home, set(_written[name])

    return make


def files_of(home: Path, outputs: set[str], name: str) -> list[Path]:
    """Outputs that are files, as they were in the clean folder."""
    return [home / path for path in sorted(outputs) if stat.S_ISREG(_written[name][path][0])]


@pytest.mark.parametrize("name", CASES)
def test_a_command_writes_its_outputs_and_touches_nothing_else(name: str, made: Made) -> None:
    case, home, outputs = made(name)
    before = tree(home)
    assert case.run(home) == 0
    after = tree(home)
    assert not lost(before, after)
    assert set(after) - set(before) == outputs
    if not case.out:
        return
    assert case.run(home) == 1, "they are there"
    assert tree(home) == after
    for folder in {path.parent for path in files_of(home, outputs, name)} - {home, home / "in"}:
        if not any(suffix in str(folder) for suffix in FOLDERS):
            plant(folder, *(path.name for path in files_of(home, outputs, name) if path.parent == folder))
    before = {path: what for path, what in tree(home).items() if path not in outputs}
    assert case.run(home, "--force") == 0
    after = tree(home)
    assert not lost(before, after)
    assert set(after) - set(before) == outputs


class Killed(BaseException):
    """What ends a run before anything is cleaned up."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", WRITING)
def test_what_a_killed_run_left_is_removed_and_nothing_else(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, home, outputs = made(name)
    before = tree(home)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Outputs, "_publish", killed)
        patched.setattr(Outputs, "_undo", lambda self: self._locks.close())
        with pytest.raises(Killed):
            case.run(home)
    left = set(tree(home)) - set(before)
    assert any(".shiftsvd-" in path for path in left)
    for stage in {path.rsplit(".shiftsvd-", 1)[0] for path in left if ".shiftsvd-" in path.rsplit("/", 1)[-1]}:
        place = home / stage
        lock_of(place.with_name(place.name.removeprefix("."))).write_text(json.dumps({"pid": 2**22}))
    if (home / "kept").is_dir():
        (home / "kept" / LOCK).touch()
        stage_of(home / "kept" / "run.json").write_bytes(b"{")
        (home / "kept" / "read-0001.npz").write_bytes(b"mine")
        outputs |= {"kept", "kept/read-0001.npz"}
    assert not lost(before, tree(home))
    assert case.run(home) == 0
    after = tree(home)
    assert not lost(before, after)
    assert set(after) - set(before) == outputs


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", WRITING)
def test_force_replaces_links_and_never_what_they_lead_to(name: str, made: Made) -> None:
    case, home, outputs = made(name)
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "thesis.txt").write_bytes(b"mine")
    targets = ("thesis.txt", "nothing", ".")
    places = [home / case.out] if case.out.endswith(FOLDERS) else files_of(home, outputs, name)
    for number, place in enumerate(places):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(home / "elsewhere" / targets[number % 3])
    before = tree(home)
    assert case.run(home) == 1
    assert tree(home) == before
    assert case.run(home, "--force") == 0
    after = tree(home)
    assert not lost({path: what for path, what in before.items() if path not in outputs}, after)
    assert not any(place.is_symlink() for place in places)
    assert set(after) == set(before) | outputs


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_pipes_sockets_and_folders_of_others_are_never_replaced(
    name: str, kind: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, home, outputs = made(name)
    place = home / case.out if case.out.endswith(FOLDERS) else files_of(home, outputs, name)[-1]
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        plant(place.parent if place.exists() else _folder(place))
    else:
        monkeypatch.chdir(place.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as it:
            it.bind(place.name)
    before = tree(home)
    for more in ((), ("--force",)):
        assert case.run(home, *more) == 1
        assert tree(home) == before


def _folder(place: Path) -> Path:
    place.mkdir()
    return place


@pytest.mark.parametrize("link", ["to a folder", "to nothing"])
@pytest.mark.parametrize("name", ["fit", "transform to a new folder", "convert to Zarr"])
def test_an_output_folder_may_be_a_link(name: str, link: str, made: Made) -> None:
    case, home, _ = made(name)
    place = home / case.out.split("/")[0]
    (home / "elsewhere").mkdir()
    plant(home / "elsewhere", "scores.csv", "scores.npy")
    place.symlink_to(home / ("elsewhere" if link == "to a folder" else "nowhere"))
    before = tree(home)
    replaced = link == "to nothing" or place.suffix in FOLDERS
    if replaced:
        assert case.run(home) == 1
        assert tree(home) == before
    assert case.run(home, "--force") == 0
    assert lost(before, tree(home)) == [place.name] * replaced
    assert place.is_dir()


@pytest.mark.parametrize("content", ["nothing", "noise", "mine"])
def test_a_checkpoint_in_a_folder_of_somebody_else_is_refused_before_anything_is_touched(
    content: str, made: Made
) -> None:
    case, home, _ = made("fit with a checkpoint")
    (home / "kept").mkdir()
    plant(home / "kept")
    if content != "nothing":
        (home / "kept" / "run.json").write_text("{" if content == "noise" else '{"run": "mine"}')
    before = tree(home)
    for more in ((), ("--force",)):
        assert case.run(home, *more) == 1
        assert tree(home) == before


def test_an_empty_folder_of_a_checkpoint_stays(made: Made) -> None:
    case, home, outputs = made("fit with a checkpoint")
    (home / "kept").mkdir()
    before = tree(home)
    assert case.run(home) == 0
    assert not lost(before, tree(home))
    assert set(tree(home)) - set(before) == outputs


@pytest.mark.parametrize("more", [(), ("--force",)])
@pytest.mark.parametrize(
    "name", ["fit", "fit of genotypes", "transform", "convert to HDF5", "convert to Zarr", "convert to BPCells"]
)
def test_a_command_that_fails_leaves_everything_as_it_was(name: str, more: tuple[str, ...], made: Made) -> None:
    case, home, _ = made(name)
    if more:
        assert case.run(home) == 0
    for file in (home / "in" / "X.npy", home / "in" / "X.bed"):
        file.write_bytes(file.read_bytes()[:-7])
    before = tree(home)
    assert case.run(home, *more) == 1
    assert tree(home) == before


@pytest.mark.parametrize("change", ["a file more", "a file of another name", "another attribute", "a link", "a pipe"])
def test_a_folder_of_zarr_that_is_not_all_ours_is_not_replaced(change: str, made: Made) -> None:
    case, home, _ = made("convert to Zarr")
    assert case.run(home) == 0
    folder = home / case.out
    if change == "another attribute":
        (folder / ".zattrs").write_text('{"encoding-type": "anndata"}')
    elif change == "a link":
        (folder / "X" / "7.0").symlink_to(folder / "X" / ".zarray")
    elif change == "a pipe":
        os.mkfifo(folder / "X" / "7.0")
    else:
        (folder / ("0" if change == "a file more" else "obs/thesis.txt")).write_bytes(b"mine")
        if change == "a file more":
            (folder / "notes").mkdir()
    before = tree(home)
    assert case.run(home, "--force") == 1
    assert tree(home) == before


def test_the_data_of_a_fit_are_never_its_output(made: Made) -> None:
    _, home, _ = made("fit into parents")
    (home / "in" / "X.npy").rename(home / "in" / "scores.npy")
    before = tree(home)
    line = ["fit", str(home / "in" / "scores.npy"), "-k", "2", "--scores", "npy", "--no-report", "-o", str(home / "in")]
    assert invoke(*line, "--force").exit_code == 1
    assert tree(home) == before


@pytest.mark.parametrize("kind", ["text", "folder", "link", "pipe"])
def test_what_has_the_name_of_a_lock_and_is_none_is_left_and_named(kind: str, made: Made) -> None:
    case, home, _ = made("transform")
    lock = lock_of(home / case.out)
    if kind == "text":
        lock.write_bytes(b"mine")
    elif kind == "folder":
        lock.mkdir()
    elif kind == "link":
        lock.symlink_to(home / "in" / "X.npy")
    else:
        os.mkfifo(lock)
    before = tree(home)
    assert case.run(home) == 1
    assert tree(home) == before


def test_a_folder_that_was_about_to_be_replaced_is_put_back(made: Made) -> None:
    case, home, _ = made("convert to Zarr")
    assert case.run(home) == 0
    before, folder = tree(home), home / case.out
    stage = stage_of(folder)
    stage.mkdir()
    folder.rename(stage / f"{folder.name}{BEFORE}")  # as a kill between the two renames leaves it
    assert case.run(home) == 1
    assert tree(home) == before
