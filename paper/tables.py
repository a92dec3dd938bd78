"""Table 1: digits, faces and words, with both t-tests and win rates; and the picture of reconstructions."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy.sparse import load_npz

import shiftsvd as ss
from paper import published as pub
from paper.metrics import Vector, column_errors, exact_sample, paired_p, squared_norm, win_rate

LARGEST_GRAM: Final = 5000  # short sides beyond this have no deterministic column: too long to wait for
STRIP: Final = 50  # columns of the Gram matrix made at a time


@dataclass(frozen=True)
class Dataset:
    """One column of the table: the first `rows` rows of a matrix in a file, and the rank to keep."""

    experiment: str
    x: int | str
    path: Path
    rows: int
    k: int

    def rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng([seed, crc32(f"{self.experiment} {self.x}".encode())])


@lru_cache(maxsize=1)
def load(data: Dataset) -> tuple[ss.Operator, ss.Operator]:
    A = ss.as_operator(_matrix(data))
    return A, ss.centered(A)


def _matrix(data: Dataset) -> Any:
    X: Any = load_npz(data.path) if data.path.suffix == ".npz" else np.load(data.path, mmap_mode="r")
    return X[: data.rows]


def measure(data: Dataset, seed: int) -> pub.Values:
    A, centred = load(data)
    printed = ss.ShiftedRandomizedSVD()
    shifted = column_errors(centred, printed(centred, data.k, data.rng(seed)).Vh)
    plain = column_errors(A, printed(A, data.k, data.rng(seed)).Vh)
    rate = win_rate(shifted, plain)
    values = {
        pub.MSE_SHIFTED: float(shifted.mean()),
        pub.MSE_PLAIN: float(plain.mean()),
        pub.MSE_EXACT: exact_sample(centred, data.k, 0, data.rng(seed)),
        pub.P2: paired_p(shifted, plain),
        pub.WR_SHIFTED: rate,
        pub.WR_PLAIN: 1 - rate,
    }
    return {(data.experiment, row, data.x): value for row, value in values.items()}


def deterministic(data: Dataset) -> pub.Values:
    plain, centred = load(data)
    if min(plain.shape) > LARGEST_GRAM:
        return {}
    return {
        (data.experiment, pub.MSE_SVD, data.x): _smallest(centred, data.k),
        (data.experiment, pub.MSE_SVD_PLAIN, data.x): _smallest(plain, data.k),
    }


def _smallest(A: ss.Operator, k: int) -> float:
    short = A if A.shape[0] >= A.shape[1] else A.H
    n = short.shape[1]
    # In strips: all of A at once would be a panel as tall as the data and as wide as the matrix.
    C = np.hstack([short.gram(np.eye(n, min(STRIP, n - j), -j)) for j in range(0, n, STRIP)])
    squares = np.linalg.eigvalsh(C)
    return (squared_norm(A) - float(squares[-k:].sum())) / A.shape[0]


@dataclass(frozen=True, eq=False)
class Picture:
    """The first images, their two reconstructions, and the errors of these."""

    experiment: str
    rows: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]  # originals, S-RSVD, RSVD
    errors: tuple[Vector, Vector]
    height: int


def picture(data: Dataset, height: int, count: int = 10) -> Picture:
    first = _matrix(data)[:count].astype(np.float64)
    A, centred = load(data)
    mean = A.moments().mean
    printed = ss.ShiftedRandomizedSVD()
    Vs, Vr = (printed(B, data.k, data.rng(0)).Vh for B in (centred, A))
    shifted = mean + ((first - mean) @ Vs.T) @ Vs
    plain = (first @ Vr.T) @ Vr
    errors = tuple(((first - rebuilt) ** 2).sum(axis=1) for rebuilt in (shifted, plain))
    return Picture(data.experiment, (first, shifted, plain), (errors[0], errors[1]), height)
