"""Data on servers: the same values as from the disk, and one line for each wrong answer."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import shiftsvd as ss
from shiftsvd.backends import blocked
from shiftsvd.backends.files import DiskRows
from shiftsvd.cli import main
from shiftsvd.io import location, open_matrix, servers
from shiftsvd.io.location import located
from shiftsvd.io.opening import read_file
from shiftsvd.io.sniff import split_element
from shiftsvd.runs import messages
from tests.io.test_streaming import CASES
from tests.support.chunked import CHUNKED, N, matrix, write_h5ad, write_npy, write_zarr
from tests.support.server import FolderServer, serving

pytest.importorskip("requests")
pytest.importorskip("fsspec")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderServer]:
    monkeypatch.setattr(servers, "_PAUSES", (0.001, 0.001, 0.001))
    gc.disable()  # in the thread of the server, a collection would wait for h5py's lock, and its holder for the server
    try:
        with serving(tmp_path) as made:
            yield made
    finally:
        gc.enable()


def in_memory(file: Path, address: str) -> str:
    """Copy a file or folder into the memory of fsspec."""
    files = pytest.importorskip("fsspec").filesystem("memory")
    for each in (file, *file.rglob("*")) if file.is_dir() else (file,):
        if each.is_file():
            files.pipe_file(f"/{address}/{each.relative_to(file.parent)}", each.read_bytes())
    return f"memory://{address}/{file.name}"


def consolidated(file: Path) -> Path:
    if file.suffix == ".zarr":
        pytest.importorskip("zarr").consolidate_metadata(str(file))
    return file


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("store", ["http", "memory"])
def test_values_are_those_of_the_file(name: str, store: str, server: FolderServer, tmp_path: Path) -> None:
    file = CASES[name].write(tmp_path)
    if store == "http":
        consolidated(file)
    address = f"{server.address}/{file.name}" if store == "http" else in_memory(file, f"{name}/b")
    expected, names = open_matrix(file, stream=True, n_threads=2)
    A, found = open_matrix(address, stream=True, n_threads=2)
    assert isinstance(getattr(A, "A", A), DiskRows) == isinstance(getattr(expected, "A", expected), DiskRows)
    V = np.random.default_rng(0).standard_normal((A.shape[1], 3))
    assert np.array_equal(A.matmat(V), expected.matmat(V))
    for own, other in zip(found, names, strict=True):
        assert (own is None and other is None) or np.array_equal(own, other)


WRONG = (
    *("401", "403", "404", "410", "418", "429", "500", "502", "503", "504", "hang", "drip", "drip headers", "reset"),
    *("redirect", "elsewhere", "whole", "whole, no length", "packed", "etag", "range", "total", "unknown", "nonsense"),
    *("backwards", "negative", "huge", "none", "short", "shorter", "long", "length", "chunked long", "chunked short"),
)
HARMLESS = ("whole", "whole, no length", "packed", "etag", "long", "shorter", "total")  # for some requests
WRITTEN: dict[str, Callable[[Path], Path]] = {
    "h5ad": lambda path: write_h5ad(path, matrix(density=0.9), **CHUNKED),
    "zarr": lambda path: consolidated(write_zarr(path, chunks=(20,))),
    "npy": write_npy,
}


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("when", ["at once", "later"])
@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("kind", ["h5ad", "zarr", pytest.param("npy", marks=pytest.mark.long)])
def test_wrong_answers_are_errors_of_one_line(
    kind: str, fault: str, when: str, server: FolderServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level(messages.NOTICE, "shiftsvd")
    monkeypatch.setenv("SHIFTSVD_TIMEOUT", "0.2")
    monkeypatch.setattr(location, "_BLOCK", 64)
    monkeypatch.setattr(location, "_KEPT", 2)
    file = WRITTEN[kind](tmp_path)
    address, expected = f"{server.address}/{file.name}", open_matrix(file)[0].matmat(np.eye(N))
    server.fault = fault
    server.after = {"at once": 0, "later": {"h5ad": 30, "zarr": 14, "npy": 6}[kind]}[when]
    try:
        A, _ = open_matrix(f"{address}?signature=SECRET", stream=True, n_threads=2)
        found = A.matmat(np.eye(N))
    except (OSError, ValueError) as error:
        text = str(error)
        assert text.startswith(address), text
        assert "\n" not in text
        assert "SECRET" not in text
        assert text.count(address) == 1, text
    else:  # an answer that holds what was asked for
        if kind == "zarr" and fault in ("404", "410"):  # absent chunks count as never written
            assert "no chunk" in caplog.text
            return
        assert server.n_faults == 0 or fault in HARMLESS
        assert np.array_equal(found, expected)


def opened(address: str) -> Any:
    return open_matrix(address, stream=True, n_threads=2, memory_limit="20MB")[0]


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("store", ["ETag", "Last-Modified", "memory"])
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_a_change_between_passes_is_an_error(
    store: str, kind: str, server: FolderServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_BLOCK", 64)
    monkeypatch.setattr(location, "_KEPT", 2)
    file = WRITTEN[kind](tmp_path)
    server.tags = (store,)
    address = in_memory(file, f"change {kind}") if store == "memory" else f"{server.address}/{file.name}"
    A = opened(address)
    before = A.matmat(np.eye(N))
    assert np.array_equal(A.matmat(np.eye(N)), before)
    for each in (file, *file.rglob("*")) if file.is_dir() else (file,):
        if each.is_file():
            each.write_bytes(each.read_bytes()[:-1] + b"x")
            os.utime(each, (2e9, 2e9))
    if store == "memory":
        in_memory(file, f"change {kind}")
    with pytest.raises(OSError, match=r"was changed on the server while it was read. Start again\.") as caught:
        A.matmat(np.eye(N))
    assert str(caught.value).startswith(address)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_bits_do_not_depend_on_threads_or_failures_that_pass(
    kind: str, server: FolderServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_BLOCK", 64)
    file = WRITTEN[kind](tmp_path)
    fits = [ss.PCA(3, random_state=0).fit(open_matrix(file, stream=True)[0])]
    server.once = True
    for threads, fault in ((1, ""), (2, "503"), (3, "reset"), (3, "short")):
        server.fault, server.failed = fault, set()
        A, _ = open_matrix(f"{server.address}/{file.name}", stream=True, n_threads=threads)
        fits.append(ss.PCA(3, random_state=0).fit(A))
        assert server.n_faults or not fault
    assert len({fit.components_.tobytes() for fit in fits}) == 1
    assert len({fit.singular_values_.tobytes() for fit in fits}) == 1


def test_a_fit_that_ends_early_continues_from_its_checkpoint(
    server: FolderServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_BLOCK", 64)
    monkeypatch.setattr(location, "_KEPT", 2)
    file, folder = write_h5ad(tmp_path, **CHUNKED), tmp_path / "run"
    address = f"{server.address}/{file.name}?token=SECRET"
    A = opened(address)
    n_opening = server.n_answers
    expected = ss.PCA(3, random_state=0, solver="lanczos").fit(A)
    server.after = n_opening + 3 * (server.n_answers - n_opening) // 4
    n_ended = 0
    while n_ended < 20:
        server.n_answers, server.fault = 0, "500"
        try:
            with ss.checkpoint(folder):
                pca = ss.PCA(3, random_state=0, solver="lanczos").fit(opened(address))
            break
        except OSError:
            n_ended += 1
            found = [each for each in folder.rglob("*") if each.is_file()]
            assert found
            assert not any(b"SECRET" in each.read_bytes() for each in found)
    assert 0 < n_ended < 20
    assert np.array_equal(pca.components_, expected.components_)


@pytest.mark.long
def test_a_checkpoint_of_the_command_holds_no_secret_and_is_continued_with_another(
    server: FolderServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_BLOCK", 64)
    monkeypatch.setattr(location, "_KEPT", 2)
    monkeypatch.setattr(blocked, "WORTH", -1e9)
    folder, file = tmp_path / "run", write_h5ad(tmp_path, **CHUNKED).name
    command = ("-k", "3", "--solver", "lanczos", "--memory", "3M", "--checkpoint", str(folder))
    address = server.address.replace("://", "://user:SECRET@")
    whole = CliRunner().invoke(main, ("fit", f"{address}/{file}", *command))
    assert whole.exit_code == 0, whole.output
    server.fault, server.after = "404", server.n_answers * 3 // 4
    for secret in ("SECRET", "'SECRET"):
        server.n_answers = 0
        ended = CliRunner().invoke(main, ("fit", f"{address}/{file}?signature={secret}", *command))
        assert ended.exit_code == 1, ended.output
        assert "another run" not in ended.output
        found = [each for each in folder.rglob("*") if each.is_file()]
        assert found
        assert not any(b"SECRET" in each.read_bytes() for each in found)


def test_a_folder_without_lists_or_consolidated_metadata_is_read_by_its_parts(
    server: FolderServer, tmp_path: Path
) -> None:
    file = write_zarr(tmp_path)
    with pytest.raises(OSError, match="has no consolidated metadata"):
        open_matrix(f"{server.address}/{file.name}")
    A, _ = open_matrix(f"{server.address}/{file.name}/X")
    assert np.array_equal(A.matmat(np.eye(N)), matrix().toarray())


def test_shards_are_read_in_parts(server: FolderServer, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    X = np.arange(4000.0).reshape(400, 10)
    root = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, dtype=X.dtype, chunks=(10, 10), shards=(200, 10))
    root[:] = X
    for path in (tmp_path / "X.zarr", f"{server.address}/X.zarr", in_memory(tmp_path / "X.zarr", "shards")):
        opened = read_file(located(path), None, None, None).matrix
        assert np.array_equal(opened.read(195, 205), X[195:205])
        fits = [ss.PCA(2, random_state=0).fit(DiskRows(opened, n_threads=n)).components_ for n in (1, 3)]
        assert np.array_equal(*fits)
    assert server.n_answers > 10


COMMANDS = {
    "fit {url} -k 2 -o {out}/fit": 0,
    "fit {url} {url} --stack columns -k 2 --json": 1,  # the same file twice
    "fit {url} -k 2 --checkpoint {out}/run --memory 3M --threads 2 --json": 0,
    "info {url}": 0,
    "info {url} --json": 0,
    "estimate {url} -k 2": 0,
    "contrast {url} --background {url} -k 2 -o {out}/contrast": 0,
    "convert {url} {out}/X.zarr --force": 0,
    "fit {table} -k 2 -o {out}/table": 0,
    "info {table}": 0,
    "fit {url} -k 2 -o {remote}": 2,
    "fit {absent} -k 2": 1,
    "fit {url} -k 2 --groups donor": 1,
    "transform {remote} {url}": 2,
    "convert {url} {remote}.zarr": 2,
    "fit {url} -k 2 --checkpoint {remote}": 2,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("line", COMMANDS)
def test_credentials_of_an_address_are_neither_printed_nor_written(
    line: str, server: FolderServer, tmp_path: Path
) -> None:
    write_h5ad(tmp_path, **CHUNKED)
    np.savetxt(tmp_path / "X.csv", matrix().toarray() + np.arange(N), delimiter=",")
    out = tmp_path / "out"
    out.mkdir()
    base = server.address.replace("://", "://user:SECRET@")
    files = {"url": "X.h5ad", "table": "X.csv", "absent": "Y.h5ad"}
    places = {name: f"{base}/{file}?signature=SECRET" for name, file in files.items()}
    words = line.format(out=out, remote="s3://user:SECRET@bucket/x?SECRET", **places).split()
    done = CliRunner().invoke(main, words)
    assert done.exit_code == COMMANDS[line], done.output
    assert "SECRET" not in done.output
    assert not [each for each in out.rglob("*") if each.is_file() and b"SECRET" in each.read_bytes()]


def test_a_refused_connection_is_not_called_a_timeout(server: FolderServer) -> None:
    server.server_close()
    with pytest.raises(OSError, match=r"/X.npy cannot be read: Connection refused \(4 attempts\)\. Try again later\."):
        open_matrix(f"{server.address}/X.npy")


def test_headers_have_one_deadline(server: FolderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTSVD_TIMEOUT", "0.2")
    server.fault, began = "drip headers", time.monotonic()
    with pytest.raises(OSError, match=r"sent no complete answer for 0\.2 s"):
        open_matrix(f"{server.address}/X.npy")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("word", ["SEC'RET", "SEC RET", "?SECRET"])
def test_secrets_with_quotes_and_spaces_are_neither_printed_nor_written(
    word: str, server: FolderServer, tmp_path: Path
) -> None:
    write_npy(tmp_path).rename(tmp_path / "it's X.npy")
    password = "" if word[0] in "?#" else word  # these end the name of the server
    address = f"{server.address.replace('://', f'://user:{password}@')}/it's X.npy?signature={word}"
    for words in (
        ("fit", address, "-k", "2", "-o", str(tmp_path / "out")),
        ("fit", address, "-k", "2", "--checkpoint", str(tmp_path / "out" / "run")),
        ("info", address),
        ("info", address.replace("X.npy", "Y.npy")),
        ("fit", "X.npy", "-k", "2", "-o", address),
    ):
        done = CliRunner().invoke(main, words)
        assert (done.exit_code == 0) == (words[1] == address), done.output
        assert not any(part in done.output for part in ("SEC", "RET")), done.output
    written = [each.read_bytes() for each in (tmp_path / "out").rglob("*") if each.is_file()]
    assert len(written) > 3
    assert not any(part in each for each in written for part in (b"SECRET", b"SEC'", b"'RET", b'SEC"', b"SEC RET"))


@pytest.mark.parametrize("place", ["elsewhere", "data"])
def test_files_of_other_machines_are_refused(place: str) -> None:
    with pytest.raises(ValueError, match=r"must be a file of this machine: file:///FOLDER/FILE, with three slashes\."):
        located(f"file://{place}/X.npy")


def test_an_address_of_a_folder_without_zarr_names_what_to_do(server: FolderServer, tmp_path: Path) -> None:
    (tmp_path / "X.bpcells").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"does not exist, or is a folder that is not Zarr\. Download other folders"
    ):
        open_matrix(f"{server.address}/X.bpcells")


@pytest.mark.parametrize("host", ["data.org", "[::1]:80"])
@pytest.mark.parametrize("text", ["b.xlsx::Sheet 2?sig=SECRET", "b.xlsx?sig=SECRET::Sheet 2"])
def test_the_name_of_a_table_does_not_hold_the_query(host: str, text: str) -> None:
    file, element = split_element(located(f"https://{host}/{text}"))
    assert (str(file), element) == (f"https://{host}/b.xlsx", "Sheet 2")
    assert file.address == f"https://{host}/b.xlsx?sig=SECRET"
