"""The demonstration: a row of the paper's table, and a PCA of a word matrix that centring would not let fit."""

import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

import shiftsvd as ss
from shiftsvd.paper import DataError, images
from shiftsvd.paper.corpus import count_words, gensim_sample
from shiftsvd.paper.figures import reconstructions, rendered
from shiftsvd.paper.published import ALL, MSE_PLAIN, MSE_SHIFTED, WR_SHIFTED, published
from shiftsvd.paper.tables import Dataset, measure, picture
from shiftsvd.runs.outputs import refuse, write_all

SEEDS = 30
COMPONENTS = 50


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-out"), show_default=True)
@click.option("--force", is_flag=True, help="Replace outputs that exist.")
def demo(out: Path, force: bool) -> None:
    """Show the point on real data: digits as in the paper's table, and the words of a piece of Wikipedia."""
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
    """The digits row of Table 1, published beside measured; returns the picture of the reconstructions."""
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


def words(scratch: Path) -> bytes:
    """PCA of a word-by-word matrix in the memory of its nonzeros; returns a map of frequent words."""
    sample = gensim_sample()
    if sample is None:
        raise DataError("the text sample is missing; install shiftsvd[paper]")
    counts = count_words(sample, m=2, n=10**9, scratch=scratch)
    everything = len(counts.words)
    counts = count_words(sample, m=everything, n=everything, scratch=scratch)
    X = np.sqrt(counts.matrix(everything))  # Hellinger: the usual scale for rows that are distributions
    stored = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    started = time.perf_counter()
    pca = ss.PCA(n_components=COMPONENTS, random_state=0).fit(X)
    seconds = time.perf_counter() - started
    grown = pca.info_.peak_bytes
    print(f"\n{counts.n_tokens:,} words of Wikipedia: {everything:,} x {everything:,}, which word stands before which")
    print(f"  the sparse matrix                       {stored / 1e6:10,.0f} MB ({X.nnz:,} nonzeros)")
    print(f"  centring it would have taken            {X.shape[0] * X.shape[1] * 8 / 1e6:10,.0f} MB")
    print(f"  {COMPONENTS} components grew the process by       {(grown or 0) / 1e6:10,.0f} MB, in {seconds:.1f} s")
    print(f"  {X.shape[1]:,} means subtracted, none of them from X; {pca.info_.n_passes} passes over the data")
    print(f"  explained variance {pca.explained_variance_ratio_.sum():.1%}; largest loadings of the first components:")
    for axis in pca.components_[:4]:
        top = np.argsort(-np.abs(axis))[:5]
        print("    " + ", ".join(f"{counts.words[j]} ({axis[j]:+.2f})" for j in top))
    before = [counts.words[int(np.argmax(np.abs(axis)))] for axis in pca.components_[:2]]
    return _map_of_words(counts.words, before, pca.transform(X[:90]))


def _map_of_words(words: list[str], before: list[str], scores: npt.NDArray[np.float64]) -> bytes:
    """Frequent words at their first two scores; `before` is the word that most makes up each component."""
    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(scores[:, 0], scores[:, 1], s=4, color="C0")
    for word, (x, y) in zip(words, scores[:, :2], strict=False):
        axes.annotate(word, (x, y), fontsize=7, alpha=0.8)
    axes.set_xlabel(f"first component (largest loading: after '{before[0]}')")
    axes.set_ylabel(f"second component (after '{before[1]}')")
    axes.set_title("Words of Wikipedia by what stands before them")
    return rendered(figure, "png")


if __name__ == "__main__":
    sys.exit(demo())
