"""What the command says to people: the option that helps, columns by their names, sizes and broken files in words."""

import errno
import os
import re
import subprocess
import sys
from io import TextIOWrapper
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import io, sparse

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.commands.settings import TRANSFORMS
from shiftsvd.io.sniff import formats
from shiftsvd.runs.memory import beyond, shown_bytes
from tests.support.commands import done, invoke
from tests.support.places import needs

NAMES = ["age", "pulse", "height", "weight"]


def refused(*line: object, code: int = 1) -> str:
    """The one line that a refusal is."""
    result = invoke(*line)
    assert result.exit_code == code, result.output
    *_, last = result.stderr.splitlines()
    assert last.startswith("Error: ")
    return last


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((30, 4)) + 1


def table(path: Path, X: np.ndarray, names: list[str] = NAMES) -> Path:
    """A text of named rows and columns, its gaps empty."""
    rows = [",".join([f"p{i}", *("" if np.isnan(x) else repr(float(x)) for x in row)]) for i, row in enumerate(X)]
    path.write_text("\n".join([",".join(["who", *names]), *rows]) + "\n")
    return path


def stored(folder: Path, X: np.ndarray, kind: str) -> Path:
    """X in a file of this kind."""
    path = folder / f"X.{kind}"
    if kind == "csv":
        return table(path, X)
    if kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        sparse.save_npz(path, sparse.csr_array(X))
    elif kind == "mtx":
        io.mmwrite(path, sparse.coo_array(X))
    else:
        anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
        obs, var = pd.DataFrame(index=[f"p{i}" for i in range(len(X))]), pd.DataFrame(index=NAMES)
        anndata.AnnData(sparse.csr_matrix(X), obs, var).write_h5ad(path)
    return path


# --- values that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "npy", "npz", "mtx", "h5ad"])
def test_missing_entries_are_told_by_column_with_the_option_that_helps(kind: str, tmp_path: Path, X) -> None:
    X[3, 2] = X[4, 2] = X[5, 1] = np.nan
    path = stored(tmp_path, X, kind)
    columns = "'pulse' (1), 'height' (2)" if kind in ("csv", "h5ad") else "column 2 (1), column 3 (2)"
    said = refused("fit", path, "-k", 2)
    assert f"{path}: 3 entries are missing (NaN), in {columns}. Use --missing mean to replace missing values" in said
    assert "cannot be read" not in said
    assert ("--drop pulse,height to exclude these columns" in said) == (kind == "csv")
    assert invoke("fit", path, "-k", 2, "--missing", "mean").exit_code == 0


def test_rows_of_a_file_that_is_read_in_blocks_are_told_with_its_names(tmp_path: Path) -> None:
    needs("scanpy")
    h5py = pytest.importorskip("h5py")
    X = np.random.default_rng(0).standard_normal((90_000, 40)).astype(np.float32)
    X[89_000, 7] = np.nan
    ss.io.convert(_named(tmp_path, X), tmp_path / "X.h5ad")
    with h5py.File(tmp_path / "X.h5ad") as file:
        assert file["X"].shape == X.shape
    said = refused("fit", tmp_path / "X.h5ad", "-k", 2, "--memory", "25M")
    assert re.search(r"rows \d+ to 90000: 1 entry is missing \(NaN\), in column 'gene 7'\. Use --missing mean", said), (
        said
    )


def _named(folder: Path, X: np.ndarray) -> Path:
    """X with names of its columns."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({f"gene {j}": X[:, j] for j in range(X.shape[1])}), folder / "X.parquet")
    return folder / "X.parquet"


def test_files_whose_rows_are_features_name_the_features(tmp_path: Path, X) -> None:
    X[3, 2] = np.nan
    np.save(tmp_path / "T.npy", X.T)
    assert "in column 3. Use --missing" in refused("fit", tmp_path / "T.npy", "--orient", "columns", "-k", 2)
    sparse.save_npz(tmp_path / "T.npz", sparse.csr_array(X.T))
    assert "in column 3. Use --missing" in refused("fit", tmp_path / "T.npz", "--orient", "columns", "-k", 2)


def test_each_subcommand_says_what_it_can_do_about_them(tmp_path: Path, X) -> None:
    assert invoke("fit", table(tmp_path / "X.csv", X), "-k", 2, "-o", tmp_path / "out", "--no-report").exit_code == 0
    X[3, 2] = np.nan
    path, model = table(tmp_path / "gaps.csv", X), tmp_path / "out" / "model.safetensors"
    said = refused("transform", model, path, "-o", tmp_path / "Z.csv")
    assert "repeat the fit with --missing mean or" in said
    assert "--drop" not in said
    assert "column 'height'. Use --missing mean to replace missing values by the mean" in refused(
        "estimate", path, "-k", 2
    )
    assert "column 'height'. Fill missing values in the file, because --preprocess" in refused(
        "fit", path, "-k", 2, "--preprocess", "sqrt"
    )
    said = refused("bench", path, "-k", 2)
    assert "column 'height'. Fill missing values in the file" in said
    assert "--missing" not in said
    X[3, 2] = np.inf
    np.save(tmp_path / "inf.npy", X)
    for more, got in (((), "1 inf"), (("--missing", "mean"), "1 infinite value")):
        said = refused("fit", tmp_path / "inf.npy", "-k", 2, *more)
        assert f"got {got} in column 3. Replace the infinite" in said


def test_an_infinite_value_in_a_table_is_not_called_a_missing_value(tmp_path: Path) -> None:
    rows = "".join(f"{i}.5,{i % 7}\n" for i in range(20))
    path = tmp_path / "inf.csv"
    path.write_text("a,b\n" + rows + "1.5,inf\n", encoding="utf-8")
    said = refused("fit", path, "-k", 1, "--missing", "mean")
    assert "the matrix must be finite or NaN, got 1 infinite value in column 'b'. Replace" in said
    assert said.rstrip().endswith("Use --drop b to exclude this column.")
    assert "warning" not in said


# --- arguments and options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (
            ["fit", "X.csv", "--tol", "2"],
            2,
            "Invalid value for '--tol': --tol must be at least 0 and less than 1",
        ),
        (["fit", "X.csv", "--tol", "nan"], 2, "Invalid value for '--tol'"),
        (["bench", "X.csv", "--tol", "1"], 2, "Invalid value for '--tol'"),
        (["fit", "X.csv", "--decimal", "xx"], 2, "--decimal must be one character, got 'xx'"),
        (["fit", "X.csv", "--encoding", "klingon"], 2, "--encoding must be an encoding of Python"),
        (
            ["fit", "X.csv", "--drop", "age", "--ids", "age"],
            2,
            "column 'age' must have one use, but is in --ids and in --drop",
        ),
        (
            ["fit", "X.csv", "--drop", "agee"],
            1,
            "X.csv: the table has no column 'agee', got --drop agee. Did you mean 'age'",
        ),
        (
            ["fit", "X.csv", "--label-column", "agee", "-o", "o"],
            1,
            "no column 'agee', got --label-column agee. Did you",
        ),
        (
            ["fit", "X.npy", "--missing", "mean", "--unobserved"],
            1,
            "--unobserved requires a sparse matrix",
        ),
        (["fit", "X.npy", "--preprocess", "pearson"], 1, "--preprocess pearson requires counts of at least 0, got -"),
        (
            ["fit", "X.npy", "--top-features", "2", "--flavor", "seurat_v3", "-k", "1"],
            1,
            "--flavor seurat_v3 requires counts",
        ),
        (["fit", "X.npy", "--feature-types", "Genes"], 1, "Remove --feature-types Genes"),
        (["fit", "X.npy", "--ids", "age"], 1, "X.npy: --ids age applies to tables of numbers only, not to npy"),
        (["fit", "X.npy", "--format", "xls"], 2, "Invalid value for '--format'"),
        (["fit", "X.csv", "--memory", "1k"], 1, "more than the limit of 1 kB of memory. Raise --memory, or"),
        (["fit", "X.npy", "-k", "3", "--memory", "9k"], 1, "more than the limit of 9 kB. Raise --memory."),
        (
            ["fit", "two.npz", "-k", "2"],
            1,
            "must hold exactly one 2-D array of numbers, got a, b. Select one with --key.",
        ),
        (
            ["fit", "X.unknown", "-k", "2"],
            1,
            "has an unknown format, judged by its name and content. Set --format to one of",
        ),
        (
            ["transform", "m.safetensors", "X.npy", "-o", "there/"],
            2,
            "there/ is a folder. Name a file in it, such as there/scores.csv",
        ),
        (
            ["transform", "m.safetensors", "X.npy", "-o", "here"],
            2,
            "here is a folder. Name a file in it, such as here/scores.csv",
        ),
        (["transform", "m.safetensors", "X.npy", "-o", "X.csv"], 1, "X.csv exists. Use --force to replace it"),
        (
            ["convert", "X.npy", "there/X.h5ad"],
            1,
            "there/X.h5ad cannot be written: the folder there does not exist. Create it first",
        ),
        (
            ["bench", "X.npy", "-k", "9"],
            2,
            "Invalid value for '-k': must be at most 4, as X.npy has 30 samples and 4 features, got 9",
        ),
    ],
)
def test_refusals_name_the_option_that_helps(
    line: list[str], code: int, said: str, tmp_path: Path, X, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--flavor" in said:
        needs("scanpy")
    monkeypatch.chdir(tmp_path)
    table(Path("X.csv"), X)
    np.save("X.npy", X)
    np.savez("two.npz", a=X, b=X)
    Path("X.unknown").write_bytes(b"\x01\x02")
    Path("here").mkdir()
    ss.PCA(2).fit(X).save("m.safetensors")
    assert said in refused(*line, code=code)


def test_python_is_told_of_arguments(tmp_path: Path, X) -> None:
    ss.PCA(2).fit(X).save(tmp_path / "m.safetensors")
    with pytest.raises(FileExistsError, match="Use force=True to replace it"):
        ss.PCA(2).fit(X).save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"tol must be at least 0 and less than 1, got 2. Pass a relative accuracy"):
        ss.svd(X, 2, tol=2)
    with pytest.raises(ValueError, match=r"more than the limit of 1 kB. Raise memory_limit\.$"):
        ss.svd(X, 2, memory_limit="1kB")
    with pytest.raises(
        ValueError, match=r'gaps.csv: 1 entry is missing .NaN., in column .pulse.\. .*\. Use drop="pulse"'
    ):
        ss.svd(ss.io.open_matrix(table(tmp_path / "gaps.csv", np.where(X == X[2, 1], np.nan, X)))[0], 2)


def test_names_that_repeat_are_told_with_what_tells_them_apart(tmp_path: Path, X) -> None:
    table(tmp_path / "X.csv", X, ["age", "pulse", "age", "weight"])
    said = invoke("fit", tmp_path / "X.csv", "-k", 2).stderr
    assert (
        "2 columns have repeated names: 'age'. All of them are used. Rename them, or use --drop age to exclude all"
        in said
    )
    text = table(tmp_path / "Y.csv", X).read_text().replace("p7,", "p3,")
    (tmp_path / "Y.csv").write_text(text)
    said = invoke("fit", tmp_path / "Y.csv", "-k", 2, "--ids", "who").stderr
    assert (
        "2 rows have repeated names: 'p3'. All of them are used. To distinguish them, use another column for row names "
        "(--ids)" in said
    )


# --- files, sizes, pipes ----------------------------------------------------------------------------------------------


def test_a_model_that_was_cut_off_is_told_in_words(tmp_path: Path, X) -> None:
    path, cut = tmp_path / "m.safetensors", tmp_path / "cut.safetensors"
    ss.PCA(2).fit(X).save(path)
    whole = path.read_bytes()
    for size in (1, 7, 8, 9, 500, len(whole) - 1):
        cut.write_bytes(whole[:size])
        assert f"truncated to {size:,} of at least" in refused("info", cut)
    cut.write_bytes(b"")
    assert "the file is empty" in refused("info", cut)
    cut.write_bytes(b"\x10" + bytes(7) + b"\xff" * 40)
    assert "damaged, or not a model file. Pass a file that" in refused("info", cut)


def test_sizes_are_told_in_units_that_people_use() -> None:
    sizes = {7: "7 bytes", 1000: "1 kB", 1256: "1.26 kB", 30_300_000: "30.3 MB", 2.5e9: "2.5 GB", 25.6e12: "25.6 TB"}
    assert {size: shown_bytes(size) for size in sizes} == sizes
    assert shown_bytes(999_999) == "1,000 kB"
    assert beyond(1_000_400_000, 10**9) == "1.01 GB, more than the limit of 1 GB"


def test_an_error_of_the_system_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, X) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "X.npy")

    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr("shiftsvd.commands.fitting.opened", denied)
    assert refused("fit", tmp_path / "X.npy") == "Error: X.npy: Permission denied"


@pytest.mark.long
def test_whoever_reads_no_further_ends_the_command_as_cat_ends(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((20_000, 4))
    np.save(tmp_path / "X.npy", X)
    ss.PCA(4).fit(X[:99]).save(tmp_path / "m.safetensors")
    command = [sys.executable, "-c", "from shiftsvd.cli import main; main()"]
    line = [*command, "transform", str(tmp_path / "m.safetensors"), str(tmp_path / "X.npy"), "-o", "-"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"PC1,PC2,PC3,PC4\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141  # what a shell tells of `cat`


@pytest.mark.skipif(os.name == "nt", reason="needs a shell of Unix")
def test_closed_standard_streams_do_not_end_the_command(tmp_path: Path, X) -> None:
    np.save(tmp_path / "X.npy", X)
    ss.PCA(2).fit(X).save(tmp_path / "m.safetensors")
    command = f'"{sys.executable}" -c "from shiftsvd.cli import main; main()"'
    line = f"{command} transform m.safetensors X.npy -o Z.npy <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], cwd=tmp_path, check=False).returncode == 0
    assert np.load(tmp_path / "Z.npy").shape == (30, 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("line", [["--help"], ["--version"], ["fit", "--help"], ["info", "m.safetensors"]])
def test_a_full_standard_output_is_named(line: list[str], tmp_path: Path, X, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    ss.PCA(2).fit(X).save("m.safetensors")
    with Path("/dev/full").open("wb", buffering=0) as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", TextIOWrapper(full, write_through=True))
        with pytest.raises(SystemExit) as ended:
            main(line)
        sys.stdout.detach()
    assert ended.value.code == 1
    said = "Error: Standard output or a temporary file cannot be written: No space left on device. Free disk space.\n"
    assert capsys.readouterr().err == said


def test_a_full_folder_for_copies_of_standard_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> bytes:  # raises the error of the write that follows the read
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read=full)))
    said = f"standard input cannot be copied to {tmp_path}: No space left on device. Free disk space, or set TMPDIR"
    with pytest.raises(OSError, match=re.escape(said)):
        ss.io.open_matrix("-", format="npy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "begun", "found"), [("--format", "", formats()), ("--preprocess", "", TRANSFORMS)])
def test_what_is_one_of_a_few_is_completed(option: str, begun: str, found: list[str]) -> None:
    words = {"COMP_WORDS": f"shiftsvd fit X.npy {option} {begun}", "COMP_CWORD": "4"}
    told = CliRunner().invoke(main, [], env={"_SHIFTSVD_COMPLETE": "bash_complete", **words}, prog_name="shiftsvd")
    assert [line.partition(",")[2] for line in told.stdout.split()] == list(found)
    assert os.environ.get("_SHIFTSVD_COMPLETE") is None


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_the_worst_error_is_told_first_however_narrow_the_terminal(columns: int, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((4000, 60)) * np.geomspace(1, 30, 60)
    np.save(tmp_path / "X.npy", X)
    line = ["fit", str(tmp_path / "X.npy"), "-k", "5", "--solver", "lanczos", "--progress", "always"]
    told = CliRunner().invoke(main, line, env={"COLUMNS": str(columns), "TERM": "xterm-256color"}).stderr
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", told).replace("\r", "\n").splitlines()
    bars = [each for each in lines if "worst" in each]
    assert all(re.match(r"passes +worst error \de-\d\d +\d+(\.\d)?/\d+ ", bar) for bar in bars), bars
    assert bars
    assert max(map(len, lines)) <= columns


def test_info_of_a_model_of_a_table_and_a_table_asks_for_one_model(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("a,b\n" + "".join(f"{i}.5,{i % 7}\n" for i in range(20)), encoding="utf-8")
    done("fit", table, "-k", 1, "-o", tmp_path / "out", "-q")
    said = refused("info", tmp_path / "out/model.safetensors", table, code=2)
    assert "`info` describes one model at a time. Remove the other files." in said


@pytest.mark.parametrize("length", [227, 245, 300])
def test_a_name_that_is_too_long_for_its_temporary_files_is_refused_before_work(length: int, tmp_path: Path) -> None:
    (tmp_path / "broken.npy").write_bytes(b"not read")
    for option in ("-o", "--checkpoint") if length > 255 else ("-o",):
        told = invoke("fit", tmp_path / "broken.npy", "-k", 1, option, tmp_path / ("a" * length) / "b")
        assert told.exit_code == 1
        assert len(told.stderr.splitlines()) == 1
        assert "too long" in told.stderr


@pytest.mark.parametrize("length", [226, 245])
def test_a_name_that_is_as_long_as_can_be_is_written(length: int, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((9, 4)))
    folder = tmp_path / ("a" * length)
    if length > 226:
        folder.mkdir()
    assert invoke("fit", tmp_path / "X.npy", "-k", 1, "-o", folder, "--no-report").exit_code == 0
    assert (folder / "model.safetensors").exists()
