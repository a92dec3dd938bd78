"""The demonstration: a row of the paper's table, and a PCA of words in paragraphs, beside scikit-learn's."""

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import numpy as np
import numpy.typing as npt
import sklearn.decomposition
from matplotlib.figure import Figure
from scipy.sparse import csr_array, load_npz, save_npz
from sklearn.feature_extraction.text import TfidfVectorizer

import shiftsvd as ss
from paper import DataError, images
from paper.corpus import gensim_sample, lines
from paper.figures import reconstructions, rendered
from paper.published import ALL, MSE_PLAIN, MSE_SHIFTED, WR_SHIFTED, published
from paper.tables import Dataset, measure, picture
from shiftsvd.runs.memory import MemoryWatch
from shiftsvd.runs.outputs import refuse, write_all

SEEDS = 30
COMPONENTS = 20


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-out"), show_default=True)
@click.option("--force", is_flag=True, help="Replace outputs that exist.")
def demo(out: Path, force: bool) -> None:
    """Show the point on real data: digits as in the paper's table, and words of Wikipedia beside scikit-learn."""
    files = [out / "digits.png", out / "words.png"]
    try:
        refuse(files, force)
        with tempfile.TemporaryDirectory() as scratch:
            figures = [digits(Path(scratch)), words(Path(scratch))]
        write_all(dict(zip(files, figures, strict=True)))
    except (DataError, OSError) as error:
        raise click.ClickException(str(error)) from None
    print(f"\nFigures: {files[0]}  {files[1]}")
    print("Every table and figure of the paper: make paper")


def digits(scratch: Path) -> bytes:
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


def words(scratch: Path) -> bytes:
    sample = gensim_sample()
    if sample is None:
        raise DataError("the text sample is missing; install shiftsvd[paper]")
    weigh = TfidfVectorizer(min_df=5, max_df=0.05, sublinear_tf=True, dtype=np.float32, token_pattern="[a-z]{3,}")
    X = weigh.fit_transform([line for line in lines(sample) if line.count(" ") >= 20])
    names = weigh.get_feature_names_out()
    save_npz(scratch / "words.npz", X)
    ours, theirs = (raced(scratch / "words.npz", who) for who in ("shiftsvd", "scikit-learn"))
    error = float(np.max(np.abs(ours.values / theirs.values - 1)))
    m, n = X.shape
    head = f"{m:,} paragraphs x {n:,} words, {X.nnz / (m * n):.1%} not zero; {COMPONENTS} components"
    rows = [
        ("", "seconds", "memory, MB", "largest error of a singular value"),
        ("shiftsvd, PCA()", f"{ours.seconds:.2f}", _megabytes(ours.grown), f"{error:.0e}, of 1e-4 asked for"),
        ("scikit-learn, PCA(arpack)", f"{theirs.seconds:.2f}", _megabytes(theirs.grown), "as exact as it gets"),
        ("the sparse matrix itself", "", _megabytes(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes), ""),
        ("the centred matrix, which nobody made", "", _megabytes(4 * m * n), ""),
    ]
    print(f"\nA piece of Wikipedia: {head}")
    print("\n".join(f"  {what:38}{seconds:>9}{memory:>12}  {said}".rstrip() for what, seconds, memory, said in rows))
    print("  Ten words of each of the first components:")
    for j, axis in enumerate(ours.components[:6]):
        print(f"  {j + 1:3}: {', '.join(names[i] for i in np.argsort(-axis)[:10])}")
    return _map_of_words(names, ours.components)


def raced(file: Path, who: Literal["shiftsvd", "scikit-learn"]) -> Race:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(race, file, who).result()


def race(file: Path, who: Literal["shiftsvd", "scikit-learn"]) -> Race:
    X = csr_array(load_npz(file))
    if who == "shiftsvd":
        pca: Any = ss.PCA(COMPONENTS, random_state=0)
    else:
        pca = sklearn.decomposition.PCA(COMPONENTS, svd_solver="arpack", random_state=0)
    pca.fit(X[: 4 * COMPONENTS])
    watch, started = MemoryWatch(), time.perf_counter()
    pca.fit(X)
    return Race(time.perf_counter() - started, watch.growth(), pca.singular_values_, pca.components_)


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f}"


def _map_of_words(words: npt.NDArray[np.str_], axes_: npt.NDArray[np.float64]) -> bytes:
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
