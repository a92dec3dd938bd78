"""Write report.html of `embed`, `diffmap` and `contrast`: values with bounds, and plots of the coordinates."""

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd import report
from shiftsvd.commands import writing
from shiftsvd.commands.applying import coordinate_table
from shiftsvd.commands.options import typed
from shiftsvd.commands.tables import Block
from shiftsvd.errors import plain_lines, plural
from shiftsvd.plot import ScoreRaster, ScoresDisplay
from shiftsvd.runs.memory import shown_bytes

TITLES: Final = {
    "SpectralEmbedding": "Spectral embedding",
    "DiffusionMap": "Diffusion map",
    "ContrastivePCA": "Contrastive PCA",
}
READING: Final = {
    "SpectralEmbedding": (
        "Samples that are joined by heavy edges, directly or through others, are close together in the plots. "
        "A component with an eigenvalue near 0 varies along few or light edges only, so that the samples at its two "
        "ends are groups with few links between them. "
        "The sign of a component is arbitrary, and components with similar eigenvalues are best read together."
    ),
    "DiffusionMap": (
        "Samples between which a random walk on the graph takes few steps are close together in the plots. "
        "A component with an eigenvalue near 1 fades slowly along the walk: its ends are the parts of the graph that "
        "are farthest from each other, such as the beginning and the end of a process. "
        "The sign of a component is arbitrary, and components with similar eigenvalues are best read together."
    ),
    "ContrastivePCA": (
        "Samples of the target that are close together in the plots are similar in the features that vary more in the "
        "target than in the background. "
        "The contrast of a component is its variance in the target minus alpha times that in the background: with a "
        "larger alpha, components avoid what varies in the background. "
        "The sign of a component is arbitrary, and a component whose contrast is below 0 varies less in the target "
        "than alpha times in the background."
    ),
}


def write_page(
    path: Path,
    models: Sequence[tuple[Any, Block]],
    columns: Mapping[str, str],
    document: Mapping[str, Any],
    samples: Any,
    colors: Any,
) -> None:
    """Write the page of fitted models with their scores; `columns` are the headers of their attributes."""
    kind, facts = type(models[0][0]).__name__, {**document["settings"], "Time": f"{document['seconds']:.3g} s"}
    source: dict[str, Any] = {"file": document["file"]}
    (m, n), components = document["shape"], document.get("connected_components", [])
    source["size"] = f"{plural(m, 'row')} x {plural(n, 'column')}"
    if components:
        source["connected components"] = f"{len(components):,}"
    if document["peak_bytes"] is not None:
        facts["Peak memory"] = shown_bytes(document["peak_bytes"])
    page = {
        "title": TITLES[kind],
        "k": document["n_components"],
        "converged": document["converged"],
        "reading": READING[kind],
        "source": source,
        "heads": list(columns.values()),
        "models": [_of_model(model, Z, columns, samples, colors) for model, Z in models],
        "facts": {name: report.shown(value) for name, value in facts.items() if value is not None},
        "command": typed(),
        "version": version("shiftsvd"),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    text = plain_lines(str(report.template("coordinates.html.j2").render(page)))
    path.write_text(text, encoding="utf-8", errors="replace")


def _of_model(model: Any, Z: Block, columns: Mapping[str, str], samples: Any, colors: Any) -> dict[str, Any]:
    numbers = [
        [
            writing.as_text(value, ".0e" if name.endswith("errors_") else ".5g")
            for value in getattr(model, name)[: report.ROWS]
        ]
        for name in columns
    ]
    names, k = coordinate_table(model, len(Z), Z.dtype, None).columns, Z.shape[1]
    alpha, figures = getattr(model, "alpha", None) if "target_variance_" in columns else None, []
    for pair in report.planes_of(k):
        axes = tuple(names[j - 1] for j in pair)
        title = f"{axes[0]} and {axes[1]}" + ("" if alpha is None else f", alpha = {alpha:g}")
        figures.append(report.drawn(title, 4.0, _draw, Z, pair, axes, samples, colors))
    return {"alpha": alpha, "rows": list(zip(*numbers, strict=True)), "figures": figures}


def _draw(Z: Block, pair: tuple[int, int], axes: tuple[str, str], samples: Any, colors: Any, ax: Any) -> None:
    deviations = np.std(Z[:, np.subtract(pair, 1)], axis=0)
    raster = ScoreRaster((float(deviations[0]), float(deviations[1])), components=pair, rng=0)
    raster.add(Z)
    ScoresDisplay(raster, components=pair, color=colors, labels=samples).plot(ax=ax)
    ax.set(xlabel=axes[0], ylabel=axes[1])
