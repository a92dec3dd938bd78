"""The demonstration: a row of the paper's table, and PCA of words in texts of several sizes beside scikit-learn's."""

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import click
import numpy as np
import numpy.typing as npt
import sklearn.decomposition
from scipy.linalg import eigvalsh
from scipy.sparse import csr_array, load_npz, random_array, save_npz

import shiftsvd as ss
from paper import DataError, images
from paper.published import ALL, MSE_PLAIN, MSE_SHIFTED, WR_SHIFTED, published
from paper.tables import Dataset, measure, picture
from shiftsvd.names import TOL
from shiftsvd.runs.memory import MemoryWatch
from shiftsvd.runs.outputs import refuse, write_all

SEEDS: Final = 30
COMPONENTS: Final = 20
SIZES: Final = (10_000, 50_000, 200_000)  # rows
COLUMNS: Final = 1000  # words of the resampled texts
JOINED: Final = 3  # paragraphs in each of their rows

Solver = Literal["shiftsvd", "arpack", "covariance_eigh"]  # ours, and those of scikit-learn that take sparse matrices
ERROR: Final = "largest relative error of a singular value"
NAMES: Final[dict[Solver, str]] = {
    "shiftsvd": "shiftsvd, PCA()",
    "arpack": "scikit-learn, PCA(arpack)",
    "covariance_eigh": "scikit-learn, PCA(covariance_eigh)",
}


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-out"), show_default=True)
@click.option("--force", is_flag=True, help="Replace outputs that exist.")
def demo(out: Path, force: bool) -> None:
    """Show the point on real data: digits as in the paper's table, and words of Wikipedia beside scikit-learn."""
    files = [out / "digits.png", out / "words.png"]
    try:
        refuse(files, force)
        with tempfile.TemporaryDirectory() as scratch:
            figures = [digits(Path(scratch))]
            counts, names = paragraphs()
            figures.append(words(counts, names, Path(scratch)))
            sizes(counts, Path(scratch))
        write_all(dict(zip(files, figures, strict=True)))
    except (DataError, OSError) as error:
        raise click.ClickException(str(error)) from None
    print(f"\nFigures: {files[0]}  {files[1]}")
    print("Every table and figure of the paper: make paper")


def digits(scratch: Path) -> bytes:
    from paper.figures import reconstructions, rendered

    X = images.digits()
    np.save(scratch / "digits.npy", X.pixels)
    data = Dataset("digits", ALL, scratch / "digits.npy", len(X.pixels), 10)
    runs = [measure(data, seed) for seed in range(SEEDS)]
    paper = {number.place: number.value for number in published()}
    print(f"Table 1: handwritten digits, {X.pixels.shape[1]} x {len(X.pixels)}, 10 components, {SEEDS} seeds")
    print(f"  {'':40}{'published':>10}{'measured':>18}")
    names = {
        MSE_SHIFTED: "mean squared error, shifted (S-RSVD)",
        MSE_PLAIN: "mean squared error, not shifted (RSVD)",
        WR_SHIFTED: "images that the shift reconstructs better",
    }
    for row, name in names.items():
        values = np.array([run["digits", row, ALL] for run in runs])
        unit, decimals = (100, 0) if row == WR_SHIFTED else (1, 1)
        mean, sd = values.mean() * unit, values.std(ddof=1) * unit
        print(f"  {name:40}{paper['digits', row, ALL] * unit:10.{decimals}f}{mean:10.{decimals}f} +- {sd:.{decimals}f}")
    return rendered(reconstructions(picture(data, X.height)), "png")


class Race(NamedTuple):
    """What a fit took and found; `grown`: the bytes by which its process grew, None where the system does not tell."""

    seconds: float
    grown: int | None
    values: npt.NDArray[np.float64]
    components: npt.NDArray[np.float64]


def paragraphs() -> tuple[csr_array, npt.NDArray[np.str_]]:
    from sklearn.feature_extraction.text import CountVectorizer

    from paper.corpus import gensim_sample, lines

    sample = gensim_sample()
    if sample is None:
        raise DataError("the text sample is missing; install the dependency group `paper`")
    count = CountVectorizer(min_df=5, max_df=0.05, token_pattern="[a-z]{3,}")
    counts = count.fit_transform([line for line in lines(sample) if line.count(" ") >= 20])
    return csr_array(counts, dtype=np.float64), count.get_feature_names_out()


def words(counts: csr_array, names: npt.NDArray[np.str_], scratch: Path) -> bytes:
    from sklearn.feature_extraction.text import TfidfTransformer

    X = csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts), dtype=np.float32)
    save_npz(scratch / "words.npz", X, compressed=False)
    ours, theirs = raced(scratch / "words.npz", "shiftsvd"), raced(scratch / "words.npz", "arpack", tol=0)
    m, n = X.shape
    print(f"\nA piece of Wikipedia: {m:,} paragraphs x {n:,} words, {_share(X)} not zero; {COMPONENTS} components")
    print("  ARPACK runs to machine precision here: its singular values are the reference.")
    _line("", "seconds", "memory, MB", ERROR)
    _result("shiftsvd", ours, theirs.values)
    _result("arpack", theirs, theirs.values)
    _line("the sparse matrix itself", "", _megabytes(_stored(X)))
    _line("the centred matrix, which nobody made", "", _megabytes(X.dtype.itemsize * m * n))
    print("  Ten words of each of the first components:")
    for j, axis in enumerate(ours.components[:6]):
        print(f"  {j + 1:3}: {', '.join(names[i] for i in np.argsort(-axis)[:10])}")
    return _map_of_words(names, ours.components)


def sizes(counts: csr_array, scratch: Path) -> None:
    print(f"\nLarger texts: counts of {COLUMNS:,} words; each row joins {JOINED} of these paragraphs, drawn at random")
    print("  (words, since no package installed here carries counts of single cells); single precision.")
    print(
        f"  Ours and ARPACK are given tol={TOL:g}; covariance_eigh has no tolerance. Errors are relative to eigenvalues"
    )
    print("  of the covariance matrix, which is computed exactly. Memory is what the process grew by during the fit.")
    _line("", "seconds", "memory, MB", ERROR)
    for m in SIZES:
        X, values = resampled(counts, m, np.random.default_rng(m))
        save_npz(scratch / "sizes.npz", X, compressed=False)
        _line(f"{m:,} rows, {_share(X)} not zero", "", _megabytes(_stored(X)), "the sparse matrix itself")
        for who in NAMES:
            _result(who, raced(scratch / "sizes.npz", who), values, indent="  ")


def resampled(counts: csr_array, m: int, rng: np.random.Generator) -> tuple[csr_array, npt.NDArray[np.float64]]:
    """Return m rows in single precision, and the largest singular values of the centred matrix in double."""
    C = counts[:, np.argsort(-counts.sum(axis=0), kind="stable")[:COLUMNS]]
    drawn = rng.integers(C.shape[0], size=JOINED * m)
    P = csr_array((np.ones(drawn.size), drawn, np.arange(0, drawn.size + 1, JOINED)), shape=(m, C.shape[0]))
    X = P @ C
    X.sort_indices()
    # X^T X = C^T (P^T P) C: sums of integers, which are exact in double precision.
    D = C.toarray()
    mean = P.sum(axis=0) @ D / m
    covariance = D.T @ (P.T @ P @ D) - m * np.outer(mean, mean)
    n = covariance.shape[0]
    squares = eigvalsh(covariance, subset_by_index=[n - COMPONENTS, n - 1])
    return X.astype(np.float32), np.sqrt(squares[::-1])


def raced(file: Path, who: Solver, tol: float = TOL) -> Race:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(race, file, who, tol).result()


def race(file: Path, who: Solver, tol: float = TOL) -> Race:
    X = csr_array(load_npz(file))
    if who == "shiftsvd":
        pca: Any = ss.PCA(COMPONENTS, tol=tol, random_state=0)
    else:
        pca = sklearn.decomposition.PCA(COMPONENTS, tol=tol, svd_solver=who, random_state=0)
    pca.fit(random_array((8 * COMPONENTS, 4 * COMPONENTS), density=0.5, format="csr", dtype=X.dtype, rng=0))
    watch, started = MemoryWatch(), time.perf_counter()
    pca.fit(X)
    return Race(time.perf_counter() - started, watch.growth(), pca.singular_values_, pca.components_)


def _result(who: Solver, run: Race, reference: npt.NDArray[np.float64], indent: str = "") -> None:
    error = float(np.max(np.abs(run.values / reference - 1)))
    said = "the reference" if run.values is reference else f"{error:.0e}"
    _line(indent + NAMES[who], f"{run.seconds:.2f}", _megabytes(run.grown), said)


def _line(what: str, seconds: str, memory: str, said: str = "") -> None:
    print(f"  {what:38}{seconds:>9}{memory:>12}  {said}".rstrip(), flush=True)


def _share(X: csr_array) -> str:
    return f"{X.nnz / (X.shape[0] * X.shape[1]):.1%}"


def _stored(X: csr_array) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f}"


def _map_of_words(words: npt.NDArray[np.str_], axes_: npt.NDArray[np.float64]) -> bytes:
    from matplotlib.figure import Figure

    from paper.figures import rendered

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.add_subplot()
    chosen = np.unique(np.argsort(-np.abs(axes_[:2]), axis=1)[:, :30])
    first, second = axes_[0, chosen], axes_[1, chosen]
    axes.scatter(first, second, s=4, color="C0")
    for word, x, y in zip(words[chosen], first, second, strict=True):
        axes.annotate(str(word), (float(x), float(y)), fontsize=8, alpha=0.8)
    axes.set(xlabel="loading on the first component", ylabel="on the second", title="Words of Wikipedia")
    return rendered(figure, "png")


if __name__ == "__main__":
    sys.exit(demo())
