"""The figures in the paper's layout: our mean and range over the seeds, and the published points on top."""

import io
from collections.abc import Callable
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from paper.checks import Runs
from paper.published import CURVES, EXACT, EXPLICIT, PLAIN, SHIFTED, SVD
from paper.random_data import DRAWS
from paper.tables import Picture

COLOURS: Final = {
    SHIFTED: "#0072b2",
    PLAIN: "#d55e00",
    EXPLICIT: "#d55e00",
    EXACT: "#009e73",
    SVD: "#777777",
    "Uniform": "#0072b2",
    "Normal": "#d55e00",
    "Zipf": "#333333",
    "Poisson": "#cc79a7",
}
LINES: Final = {PLAIN: "--", EXACT: ":", SVD: "-.", "Normal": "--", "Poisson": ":"}
WIDTHS: Final = {SHIFTED: 2.2, EXACT: 1.6}  # the two coincide: one must be seen under the other
PANELS: Final = {
    "fig-a": "(a) MSE against the number of components",
    "fig-b": "(b) MSE-SUM against the sample size",
    "fig-c": "(c) MSE-SUM against the distribution",
    "fig-d": "(d) implicit and explicit centring",
    "fig-e": "(e) MSE-SUM against q, uniform data",
    "fig-f": "(f) S-RSVD minus RSVD against q",
}
AXES: Final = {
    "fig-a": ("k", "MSE"),
    "fig-b": ("n", "MSE-SUM"),
    "fig-e": ("q", "MSE-SUM"),
    "fig-f": ("q", "difference"),
}
BARS: Final = ("fig-c", "fig-d")
FORMATS: Final = ("svg", "png")


def six_panels(runs: Runs) -> Figure:
    present = [name for name in PANELS if any(place[0] == name for place in runs)]
    lines = (len(present) + 1) // 2
    figure = Figure(figsize=(9, 2.8 * lines), layout="constrained")
    for number, name in enumerate(present, start=1):
        axes = figure.add_subplot(lines, 2 if len(present) > 1 else 1, number)
        axes.set_title(PANELS[name], fontsize=9)
        draw: Callable[[Any, Runs, str], None] = _bars if name in BARS else _curves
        draw(axes, runs, name)
        x, y = AXES.get(name, ("", "MSE-SUM"))
        axes.set_xlabel(x, fontsize=8)
        axes.set_ylabel(y, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=6, frameon=False, ncols=1 + (name in BARS))
    return figure


def _series(runs: Runs, name: str) -> list[str]:
    found = dict.fromkeys(series for experiment, series, _ in runs if experiment == name)
    return [series for series in found if series in COLOURS]


def _curves(axes: Any, runs: Runs, name: str) -> None:
    for series in _series(runs, name):
        xs = sorted(int(x) for experiment, s, x in runs if (experiment, s) == (name, series))
        values = np.array([runs[name, series, x] for x in xs])
        axes.plot(
            xs,
            values.mean(axis=1),
            LINES.get(series, "-"),
            color=COLOURS[series],
            label=series,
            linewidth=WIDTHS.get(series, 1.2),
        )
        if series not in (EXACT, SVD):
            axes.fill_between(
                xs, values.min(axis=1), values.max(axis=1), color=COLOURS[series], alpha=0.15, linewidth=0
            )
        paper = CURVES.get((name, series), {})
        axes.plot(
            [x for x in xs if x in paper],
            [paper[x] for x in xs if x in paper],
            "x",
            color=COLOURS[series],
            markersize=4,
        )
    axes.plot([], [], "x", color="#555555", markersize=4, label="published")


def _bars(axes: Any, runs: Runs, name: str) -> None:
    series = _series(runs, name)
    width = 0.8 / len(series)
    for number, one in enumerate(series):
        values = np.array([runs[name, one, x] for x in DRAWS])
        at = np.arange(len(DRAWS)) + (number - (len(series) - 1) / 2) * width
        mean = values.mean(axis=1)
        spread = [mean - values.min(axis=1), values.max(axis=1) - mean]
        axes.bar(at, mean, width, yerr=spread, color=COLOURS[one], alpha=0.7, label=one, error_kw={"linewidth": 0.8})
        paper = CURVES.get((name, one))
        if paper is not None:
            axes.plot(at, [paper[x] for x in DRAWS], "D", color="black", markersize=3)
    axes.plot([], [], "D", color="black", markersize=3, label="published")
    axes.set_yscale("log")
    axes.set_ylim(10, 4e4)
    axes.set_xticks(range(len(DRAWS)), list(DRAWS))


def reconstructions(picture: Picture) -> Figure:
    count = len(picture.rows[0])
    figure = Figure(figsize=(0.9 * count, 3.4), layout="constrained")
    for row, (name, images) in enumerate(zip(("original", SHIFTED, PLAIN), picture.rows, strict=True)):
        for column, image in enumerate(images):
            axes = figure.add_subplot(3, count, row * count + column + 1)
            axes.imshow(
                image.reshape(picture.height, -1), cmap="gray", aspect="auto" if picture.height == 1 else "equal"
            )
            axes.set(xticks=[], yticks=[])
            if row:
                axes.set_title(f"{picture.errors[row - 1][column]:.3g}", fontsize=6, pad=2)
            if column == 0:
                axes.set_ylabel(name, fontsize=7)
    return figure


def rendered(figure: Figure, kind: str) -> bytes:
    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "shiftsvd"}):
        figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def all_figures(runs: Runs, pictures: list[Picture]) -> dict[str, bytes]:
    figures = {picture.experiment: reconstructions(picture) for picture in pictures}
    if any(place[0] in PANELS for place in runs):
        figures["random-data"] = six_panels(runs)
    return {f"{name}.{kind}": rendered(figure, kind) for name, figure in figures.items() for kind in FORMATS}
