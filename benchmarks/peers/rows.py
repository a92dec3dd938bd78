"""The rows of the benchmark: what each matrix is, and its files with a tight reference, made once."""

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.io import mmread
from scipy.sparse import csr_array, issparse, load_npz, save_npz

from benchmarks import data, text
from benchmarks.claims import middle
from benchmarks.peers.contestants import Case
from benchmarks.peers.errors import load, make_reference

QUICK = 0.1  # share of the rows of a matrix
# A version of what is made here: files of another one are made again.
VERSION = 1


@dataclass(frozen=True)
class Row:
    """How many components, what it is, and a function (share of the rows, folder, text) that makes it."""

    k: int
    about: str
    make: Callable[[float, Path, Path | None], np.ndarray | csr_array]
    of_text: bool = False


def _digits(share: float, folder: Path, corpus: Path | None) -> np.ndarray:
    """1 797 images of 8 x 8 digits."""
    from sklearn.datasets import load_digits

    return load_digits().data


def _words(share: float, folder: Path, corpus: Path | None) -> csr_array:
    """Word x context."""
    return text.words(text.find_text(corpus, folder)[0], folder, share)


def _words_t(share: float, folder: Path, corpus: Path | None) -> csr_array:
    """Its transpose, from the file if it is there."""
    file = folder / f"words{'' if share == 1 else '-quick'}" / "X.npz"
    return csr_array((load(file) if file.exists() else _words(share, folder, corpus)).T)


def _tfidf(share: float, folder: Path, corpus: Path | None) -> csr_array:
    """Document x term."""
    return text.tfidf(text.find_text(corpus, folder)[0], share)


ROWS = {
    "counts": Row(50, "gamma-Poisson counts, log-normalised", lambda s, *_: data.counts(round(60_000 * s))),
    "atlas": Row(50, "such counts, many rows", lambda s, *_: data.counts(round(300_000 * s), seed=1, level=0.213)),
    "genes": Row(
        50, "such counts, many columns", lambda s, *_: data.counts(round(60_000 * s), 30_000, seed=2, level=0.0722)
    ),
    "words": Row(100, "word x context probabilities", _words, True),
    "words_t": Row(100, "context x word probabilities", _words_t, True),
    "tfidf": Row(100, "document x term, tf-idf", _tfidf, True),
    "pixels": Row(50, "images, mean / sd = 30", lambda s, *_: data.pixels(round(20_000 * s))),
    "flat": Row(50, "singular values j^-0.1", lambda s, *_: data.flat(round(20_000 * s))),
    "wide": Row(100, "uniform nonzeros", lambda s, *_: data.uniform(round(330 * s), 2_000_000, round(6_600_000 * s))),
    "digits": Row(10, "8 x 8 images of digits", _digits),
    "digits64": Row(64, "8 x 8 images of digits, all components", _digits),
    # Those of medium size, whole: a tenth of them would be small.
    **{name: Row(k, "of medium size", lambda *_, make=make: make()) for name, (k, make) in middle.available().items()},
}


def prepared(name: str, quick: bool, folder: Path, corpus: Path | None) -> Case:
    """A row of the set, made if it is not there; in a process of its own, for it may need much memory."""
    return _apart(_prepare, name, quick, folder, corpus)


def from_file(file: Path, k: int, folder: Path) -> Case:
    """A row on a file of the user's."""
    return _apart(_prepare_file, file, k, folder)


def _apart(function: Callable[..., Case], *args: object) -> Case:
    """Call it in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def _prepare(name: str, quick: bool, folder: Path, corpus: Path | None) -> Case:
    """Make a row of the set."""
    row = ROWS[name]
    source = f"; {text.find_text(corpus, folder)[1]}" if row.of_text else ""
    home = folder / (f"{name}-quick" if quick else name)
    known = {"version": VERSION, "about": row.about + source}
    return _kept(home, known, row.k, lambda: row.make(QUICK if quick else 1.0, folder, corpus))


def _prepare_file(file: Path, k: int, folder: Path) -> Case:
    """Take a row from a file; another file of the same name is another matrix."""
    state = file.stat()
    known = {"version": VERSION, "about": f"{file.name}, {state.st_size} bytes, {state.st_mtime_ns}"}
    return _kept(folder / f"file-{file.stem}-k{k}", known, k, lambda: _read(file))


def _kept(home: Path, known: dict, k: int, make: Callable[[], np.ndarray | csr_array]) -> Case:
    """The case in a folder, which is made if it is not there, or not of this kind."""
    meta = home / "case.json"
    if meta.exists():
        kept = json.loads(meta.read_text())
        if kept["known"] == known:
            return Case(**kept["case"])
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("*"):
        old.unlink()
    X = make()
    k = min(k, min(X.shape) if min(X.shape) < 100 and not issparse(X) else min(X.shape) // 3)
    stored = X.nnz if issparse(X) else X.size
    case = Case(home.name, k, *X.shape, int(stored), str(X.dtype), issparse(X), known["about"])
    file = home / ("X.npz" if issparse(X) else "X.npy")
    if issparse(X):
        save_npz(file, X, compressed=False)
    else:
        np.save(file, X)
    make_reference(file, k, home)
    meta.write_text(json.dumps({"known": known, "case": asdict(case)}))
    return case


def _read(file: Path) -> np.ndarray | csr_array:
    """A matrix of the user's: .npz (SciPy's, or NumPy's with one array), .npy, .mtx."""
    if file.suffix == ".npy":
        return _floating(np.load(file))
    if file.name.endswith((".mtx", ".mtx.gz")):
        X = mmread(file)
        return _floating(csr_array(X) if issparse(X) else X)
    if file.suffix != ".npz":
        raise ValueError(f"{file} must be .npz, .npy or .mtx")
    with np.load(file) as arrays:
        names = arrays.files
        dense = arrays[names[0]] if len(names) == 1 else None
    return _floating(csr_array(load_npz(file)) if dense is None else dense)


def _floating(X: np.ndarray | csr_array) -> np.ndarray | csr_array:
    """Integers as float32 where that is exact enough for counts; floats as they are."""
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float32 if X.dtype.itemsize < 4 else np.float64)


def matrix_file(home: Path) -> Path:
    """The file that holds the matrix of a case."""
    return next(home.glob("X.np*"))
