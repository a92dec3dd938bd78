"""report.html: a fit on one page that needs no other file, readable on a phone and in the dark."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.errors import plain_lines
from shiftsvd.plot.features import LoadingsDisplay
from shiftsvd.plot.fitted import Fit, largest, percent, read, short
from shiftsvd.plot.points import ScoresDisplay
from shiftsvd.plot.raster import ScoreRaster
from shiftsvd.plot.svg import drawing, inline_svg
from shiftsvd.plot.variance import ReconstructionErrorDisplay, ScreeDisplay
from shiftsvd.plot.words import settings_of, shown, solver
from shiftsvd.runs.memory import shown_bytes
from shiftsvd.runs.outputs import Outputs, refuse
from shiftsvd.solvers.base import TOL

__all__ = ["write"]

ROWS: Final = 2000  # components in the table
PLANES: Final = ((1, 2), (1, 3), (2, 3))  # components whose scores are drawn beside each other
DRAWN: Final = 4  # components whose loadings are drawn
LISTED: Final = 10  # components up to which the loadings of others are listed
BARS: Final = 15  # features in a drawing
SAYS: Final = 0.02  # of the largest loading: what is smaller is not drawn
NAMED: Final = 8  # features at either end of a list
CLOSE: Final = 4  # places after the point, of percent, that bounds are told to at most
FAR: Final = 1.05  # times the last value: up to there a fit that converged may have missed others


@dataclass(frozen=True)
class Drawn:
    """What is drawn of the samples: scores, the names of those far out, a column that colours them."""

    scores: Any
    samples: Any
    colors: Any


@dataclass(frozen=True)
class Row:
    """A line of the report's table: one component."""

    number: int
    value: float
    variance: float
    share: float | None
    cumulative: float | None
    residual: float | None
    error: float | None
    angle: float | None
    converged: str


def write(
    path: str | os.PathLike[str],
    model: Any,
    *,
    scores: Any = None,
    samples: Any = None,
    source: Mapping[str, Any] | None = None,
    command: str | None = None,
    names: Any = None,
    colors: Any = None,
    seconds: float | None = None,
    peak_bytes: int | None = None,
    force: bool = False,
) -> None:
    """Write a report of a fit: what was read, what was found, and how far it can be trusted.

    Parameters
    ----------
    path : path of the file
        Written under another name first, so that it appears whole or not at all.
    model : fitted `PCA`, or SVDResult
        Also one that was loaded, without its data.
    scores : array of shape (m, k), ScoreRaster, or list of ScoreRaster, optional
        The first columns are enough. Drawn as a raster where there are many, so that the file stays small. An
        SVDResult has its own.
    samples : sequence of m names, optional
        Those of the samples farthest out are written beside them.
    source : mapping, optional
        What was read: each name with its value, in this order.
    command : str, optional
        What repeats the fit.
    names : sequence of n_features names, optional
        Default: those of the data frame that was fitted, or numbers from 1.
    colors : array of shape (m,), optional
        A column to colour the scores by, as in `shiftsvd.plot.scores`.
    seconds, peak_bytes : optional
        Of the whole run. Default: those of the solver.
    force : bool
        Replace a file that exists.

    Raises
    ------
    FileExistsError
        If the file exists, and `force` is false.
    ValueError
        If scores, names or colours do not fit the model.

    See Also
    --------
    plot.scree : One of its figures alone.

    Examples
    --------
    >>> import tempfile, numpy as np, shiftsvd as ss
    >>> from pathlib import Path
    >>> from shiftsvd import report
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> pca = ss.PCA(n_components=3).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report.write(Path(folder, "report.html"), pca, scores=pca.transform(X))
    ...     "Explained variance" in Path(folder, "report.html").read_text(encoding="utf-8")
    True
    """
    target = Path(path)
    refuse([target], force)
    template = _template()
    fit = read(model)
    page = _page(fit, Drawn(scores, samples, colors), names) | {
        "source": {name: shown(value) for name, value in (source or {}).items()},
        "command": command,
        "facts": _facts(fit, seconds, peak_bytes),
    }
    text = plain_lines(str(template.render(page)))
    with Outputs([target], force) as outputs:
        outputs.part(target).write_text(text, encoding="utf-8", errors="replace")


def _template() -> Any:
    try:
        import matplotlib as mpl  # noqa: F401
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise ImportError("a report needs matplotlib and jinja2; pip install 'shiftsvd[plot]'") from error
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"number": number, "percent": percent}
    return environment.get_template("report.html.j2")


def _page(fit: Fit, drawn: Drawn, names: Any) -> dict[str, Any]:
    labels = fit.feature_names(getattr(names, "features", names))
    rows = table(fit)
    info = fit.info
    return {
        "title": type(fit.model).__name__ if fit.is_estimator else "Singular value decomposition",
        "k": fit.k,
        "quantity": "variance" if fit.is_estimator else "squared norm",
        "rows": rows[:ROWS],
        "late": [row.number for row in rows if row.converged == "no" and not _is_unfinished(info)],
        "gaps": _gaps(info),
        "converged": None if info is None else info.converged,
        "certificate": _certificate(fit),
        "missed": _missed(fit),
        "settings": settings_of(fit.model),
        "variance_figures": list(_variance_figures(fit)) if fit.k else [],
        "scores_figures": list(_scores_figures(fit, drawn)) if fit.k else [],
        "loadings_figures": list(_loadings_figures(fit, labels)),
        "loadings": _top_loadings(fit, labels),
        "version": version("shiftsvd"),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def table(fit: Fit) -> list[Row]:
    shares, known, info = fit.shares, fit.cumulative(), fit.info
    columns = (
        fit.singular_values,
        fit.variances,
        shares,
        None if known is None else known[0],
        getattr(info, "residuals", None),
        fit.errors,
        getattr(info, "vector_errors", None),
    )
    lists: list[list[Any]] = [[None] * fit.k if column is None else [float(x) for x in column] for column in columns]
    return [Row(*line) for line in zip(range(1, fit.k + 1), *lists, _verdicts(fit), strict=True)]


def _verdicts(fit: Fit) -> list[str]:
    if _is_unfinished(fit.info):
        return ["no"] * fit.k
    converged = getattr(fit.info, "converged", None)
    if converged is None or fit.errors is None:
        return ["–"] * fit.k
    if converged:
        return ["yes"] * fit.k
    settings = (getattr(getattr(fit.model, "solver", None), "tol", None), getattr(fit.model, "tol", None))
    tol = next((float(tol) for tol in settings if tol is not None), TOL)
    late = ~(np.asarray(fit.errors) <= tol)
    # Some did not: if the tolerance that is known here does not tell which, none is called converged.
    return ["no" if one else "yes" if late.any() else "?" for one in late]


def _is_unfinished(info: Any) -> bool:
    return getattr(info, "completed", None) is False


def _gaps(info: Any) -> dict[str, Any]:
    count, completed = getattr(info, "n_missing", None), getattr(info, "completed", None)
    r2 = getattr(info, "heldout_r2", None)
    return {"count": count, "model": completed is not None, "unfinished": completed is False, "r2": r2}


def _certificate(fit: Fit) -> dict[str, Any]:
    known = fit.cumulative()
    if known is None or not fit.k:
        return {"total": fit.total, "share": None, "bounds": None}
    share, lower, upper = (float(values[-1]) for values in known)
    bounds = None if fit.errors is None else _between(lower, share, upper)
    return {"total": fit.total, "share": share, "bounds": bounds}


def _between(lower: float, share: float, upper: float) -> dict[str, str | None]:
    off = max(upper - share, share - lower)
    places = CLOSE if off == 0 else min(int(np.floor(-np.log10(100 * off))), CLOSE)
    if places >= 2:
        return {"off": f"{10.0**-places:.{places}f} %", "lower": None, "upper": None}
    return {"off": None, "lower": f"{100 * lower:.4f} %", "upper": f"{100 * upper:.4f} %"}


def _missed(fit: Fit) -> dict[str, Any]:
    level = getattr(fit.info, "missed_below", None)
    S = fit.singular_values
    if level is None or not len(S):
        return {"level": None, "far": False}
    return {
        "level": f"{level / S[-1]:.4g} times the last one" if S[-1] > 0 else number(level),
        "far": level > FAR * S[-1],
    }


def _facts(fit: Fit, seconds: float | None, peak_bytes: int | None) -> dict[str, str]:
    info = fit.info
    facts: dict[str, str] = {}
    if info is not None:
        facts = {"Solver": solver(info.solver), "Reads of the data": str(info.n_passes)}
        seconds = info.seconds if seconds is None else seconds
        peak_bytes = info.peak_bytes if peak_bytes is None else peak_bytes
        facts |= _facts_of_gaps(_gaps(info))
    if seconds is not None:
        facts["Time"] = f"{seconds:.3g} s" if seconds < 600 else f"{seconds / 60:.0f} min"
    if peak_bytes is not None:
        facts["Peak memory"] = shown_bytes(peak_bytes)
    return facts


def _facts_of_gaps(gaps: dict[str, Any]) -> dict[str, str]:
    facts = {} if gaps["count"] is None else {"Missing entries": f"{gaps['count']:,}"}
    if gaps["model"]:
        facts["R² of held-out entries"] = "too few to tell" if gaps["r2"] is None else f"{gaps['r2']:.3f}"
    return facts


def _variance_figures(fit: Fit) -> Iterator[str]:
    with drawing(4.4, 3.2) as ax:
        ScreeDisplay.from_estimator(fit.model, ax=ax)
        yield inline_svg(ax.figure, 0, "Explained variance")
    if fit.total:
        with drawing(4.4, 3.2) as ax:
            ReconstructionErrorDisplay.from_estimator(fit.model, ax=ax)
            yield inline_svg(ax.figure, 1, "Error of the reconstruction")


def _scores_figures(fit: Fit, drawn: Drawn) -> Iterator[str]:
    scores = drawn.scores
    if scores is None and not fit.is_estimator:
        scores = np.asarray(fit.model.U * fit.model.S)
    for place, (pair, Z) in enumerate([] if scores is None else _planes(fit, scores), start=2):
        with drawing(4.4, 4.0) as ax:
            how = {"components": pair, "color": drawn.colors, "labels": drawn.samples}
            ScoresDisplay.from_estimator(fit.model, Z=Z, ax=ax, **how)
            _make_room(ax)
            yield inline_svg(ax.figure, place, f"Scores of components {pair[0]} and {pair[1]}")


def _make_room(ax: Any) -> None:
    legend, figure = ax.get_legend(), ax.figure
    if legend is not None:
        figure.draw_without_rendering()
        figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)


def _loadings_figures(fit: Fit, names: list[str]) -> Iterator[str]:
    for component in range(1, min(fit.k, DRAWN) + 1):
        with drawing(4.4, 3.8) as ax:
            size = np.abs(fit.components[component - 1])
            top = int(np.clip(np.count_nonzero(size > SAYS * size.max(initial=0)), 1, BARS))
            LoadingsDisplay.from_estimator(fit.model, component, top=top, names=names, ax=ax)
            yield inline_svg(ax.figure, 1 + len(PLANES) + component, f"Loadings of component {component}")


def planes_of(k: int) -> list[tuple[int, int]]:
    return [pair for pair in PLANES if max(pair) <= k]


def _planes(fit: Fit, scores: Any) -> list[tuple[tuple[int, int], Any]]:
    rasters = scores if isinstance(scores, list | tuple) else [scores]
    if rasters and all(isinstance(raster, ScoreRaster) for raster in rasters):
        return [(raster.components, raster) for raster in rasters]
    if np.ndim(scores) != 2:
        raise ValueError(f"scores must have shape (m, k), got {np.shape(scores)}")
    return [(pair, scores) for pair in planes_of(min(fit.k, np.shape(scores)[1]))]


def _top_loadings(fit: Fit, names: list[str]) -> list[dict[str, Any]]:
    found = []
    for place, values in enumerate(fit.components[DRAWN:LISTED], start=DRAWN + 1):
        least = 0.05 * np.max(np.abs(values))  # what is smaller says nothing
        ends = [
            [(short(names[j], 60), float(values[j])) for j in largest(sign * values, NAMED) if sign * values[j] > least]
            for sign in (1, -1)
        ]
        found.append({"number": place, "positive": ends[0], "negative": ends[1]})
    return found


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:#.5g}".removesuffix(".")
