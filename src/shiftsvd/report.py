"""Write report.html: one self-contained page about a fit, for any screen size and for dark mode."""

import io
import os
import re
import time
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd import plot
from shiftsvd.errors import Refused, Setting, plain_lines, plural
from shiftsvd.estimators.attributes import feature_names_of, n_empty_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.plot import ScoreRaster
from shiftsvd.plot.fitted import ORANGE, Fit, largest, percent, read, short
from shiftsvd.plot.points import CRISP, LEAST_OF_CLASS, colouring
from shiftsvd.result import Info
from shiftsvd.runs.memory import shown_bytes
from shiftsvd.runs.outputs import Outputs, local, refuse
from shiftsvd.solvers.base import TOL
from shiftsvd.wording import categories_of, is_mixed, settings_of, shown, solver, verdicts

__all__ = ["write"]

ROWS: Final = 2000  # components in the table
PLANES: Final = ((1, 2), (1, 3), (2, 3))  # pairs of components in the plots of scores
DRAWN: Final = 4  # plot the loadings of this number of components
LISTED: Final = 10  # list the loadings of further components, up to this number
BARS: Final = 15  # largest number of features in a plot
SHOWN: Final = 0.02  # smallest loading in a plot, relative to the largest
FOLDED: Final = 300  # largest number of features whose other loadings are in a folded table
ARROWS: Final = 8  # features in the biplot
IN_WORDS: Final = 3  # features of each sign in a sentence
LARGE: Final = 100_000  # bytes of an SVG that cannot be downloaded
TABLE: Final = 500  # largest number of rows of a table that can be downloaded
NAMED_CLOSE: Final = 4  # components among which those with close variances are named
PLACED: Final = 5  # components in the table of supplementary columns
NAMED: Final = 8  # features of each sign in a list
LEAST: Final = 0.05  # smallest loading in a list, relative to the largest
CLEAR: Final = 1 / 3  # smallest loading in a sentence, relative to the largest
SIMILAR: Final = 3 / 4  # smallest loading of a feature that the sentence counts, relative to the largest
DOMINANT: Final = 1 / 3  # share of one sample in a component from which a sentence names it
FEWEST: Final = 10  # samples from which such a share is unusual
CLOSE: Final = 4  # largest number of decimals of a bound in percent
FAR: Final = 1.05  # a converged fit may miss values up to this multiple of the last one


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
    new_scores: Any = None,
    supplementary: Any = None,
    figures: Iterable[tuple[str, Callable[[Any], object]]] = (),
    seconds: float | None = None,
    peak_bytes: int | None = None,
    tol: float | None = None,
    force: bool = False,
) -> None:
    """Write a report of a fit: the data, the settings, the variances with their bounds, scores and loadings.

    Parameters
    ----------
    path : path of the file
        The file appears whole or not at all.
    model : fitted `PCA`, or SVDResult
        A loaded model, too, without its data.
    scores : array of shape (m, k), ScoreRaster, or list of ScoreRaster, optional
        The first columns are enough. Many samples are drawn as a raster, so that the file stays small. An
        SVDResult has its own scores.
    samples : sequence of m names, optional
        Names of the samples, written next to the outermost points.
    source : mapping, optional
        Facts about the data, in this order.
    command : str, optional
        The command that repeats the fit.
    names : sequence of n_features names, optional
        Default: those of the data frame that was fitted, or numbers from 1.
    colors : array of shape (m,), optional
        A column to colour the scores and the biplot by, as in `shiftsvd.plot.scores`; classes have ellipses.
    new_scores : like `scores`, optional
        Scores of further samples, drawn over the others.
    supplementary : Supplementary, optional
        Columns that took no part in the fit, which `shiftsvd.supplementary` placed: drawn in the biplot, and listed.
    figures : iterable of (title, function), optional
        Further figures of loadings: each function draws on the matplotlib Axes that it gets.
    seconds, peak_bytes : optional
        Time and memory of the whole run. Default: those of the solver.
    tol : float, optional
        The tolerance by which components converged. Default: that of the model.
    force : bool
        Replace an existing file.

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
    target = local(path)
    refuse([target], force)
    page_of = template("report.html.j2")
    fit = read(model)
    info = {each.name: getattr(fit.info, each.name, None) for each in fields(Info)}  # None if not computed
    info["tol"] = _tol(model) if tol is None else tol
    measured = {"seconds": seconds, "peak_bytes": peak_bytes}
    given = getattr(names, "features", names)
    names = fit.feature_names(given)
    if scores is None and fit.k and not fit.is_estimator:
        scores = np.asarray(fit.model.U * fit.model.S)
    planes = [] if scores is None or not fit.k else _planes(fit, scores)
    new = {} if new_scores is None or not planes else {Z.components: Z for Z in _planes(fit, new_scores)}
    page = _page(fit, info, names) | {
        "scores_figures": [_scores_figure(fit, Z, new.get(Z.components), color=colors, labels=samples) for Z in planes],
        "biplot": [_biplot(fit, planes[0], names, colors, supplementary)] if planes else [],
        "has_ellipses": getattr(colouring(colors), "names", None) is not None,
        "outermost": _outermost(planes[0], samples) if planes else [],
        "dominant": _dominant(planes, samples),
        "close": _close(fit),
        "supplementary": [] if supplementary is None else _positions(supplementary),
        "more_figures": [drawn(title, 2.6, lambda ax, draw=draw: draw(ax)) for title, draw in figures],
        "numbered_samples": samples is None,
        "numbered_features": given is None and feature_names_of(model) is None,
        "n_new": next((raster.n for raster in new.values()), 0),
        "source": {name: shown(value) for name, value in (source or {}).items()},
        "command": command,
        "facts": _facts(info | {name: value for name, value in measured.items() if value is not None}),
    }
    text = plain_lines(str(page_of.render(page)))
    with Outputs([target], force) as outputs:
        outputs.part(target).write_text(text, encoding="utf-8", errors="replace")


def template(name: str) -> Any:
    try:
        import jinja2
        import matplotlib as mpl  # noqa: F401
    except ImportError as error:
        needs = "A report needs matplotlib and jinja2. Install them with: pip install 'shiftsvd[plot]'"
        raise ImportError(needs) from error
    return _environment(jinja2).get_template(name)


@cache
def _environment(jinja2: Any) -> Any:
    settings = {"autoescape": True, "trim_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), **settings)
    environment.filters |= {"number": number, "percent": percent}
    return environment


def _page(fit: Fit, info: dict[str, Any], names: list[str]) -> dict[str, Any]:
    rows, categories = _rows(fit, info)[: fit.n_varying], categories_of(fit.model)
    title = type(fit.model).__name__ if fit.is_estimator else "Singular value decomposition"
    return {
        "title": "Factor analysis of mixed data (FAMD)" if categories and is_mixed(fit.model) else title,
        "k": len(rows),
        "n_null": fit.k - len(rows),
        "categories": categories,
        "least_of_class": LEAST_OF_CLASS,
        "quantity": fit.quantity,
        "whole": fit.whole,
        "n_empty": n_empty_of(fit.model),
        "rows": rows[:ROWS],
        "table": _table(rows) if 0 < len(rows) <= TABLE else None,
        "late": [row["number"] for row in rows if row["converged"] == "no"],
        "info": info,
        "certificate": _certificate(fit),
        "missed": _missed(fit, info["missed_below"]),
        "settings": settings_of(fit.model),
        "variance_figures": list(_variance_figures(fit)) if fit.k else [],
        "in_words": _in_words(fit, names, categories),
        "loadings_figures": list(_loadings_figures(fit, names)),
        "loadings": [
            dict(zip(("number", "positive", "negative"), (place, *_ends(values, names, NAMED, LEAST)), strict=True))
            for place, values in enumerate(fit.components[DRAWN : min(LISTED, fit.n_varying)], start=DRAWN + 1)
        ],
        "version": version("shiftsvd"),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def _rows(fit: Fit, info: dict[str, Any]) -> list[dict[str, Any]]:
    known = fit.cumulative()
    columns: dict[str, Any] = {
        "value": fit.singular_values,
        "variance": fit.variances,
        "share": fit.shares,
        "cumulative": None if known is None else known[0],
        "residual": info["residuals"],
        "error": fit.errors,
        "angle": info["vector_errors"],
    }
    lists = {
        name: [None] * fit.k if values is None else np.asarray(values).tolist() for name, values in columns.items()
    }
    lists |= {"number": [*range(1, fit.k + 1)], "converged": _verdicts(fit, info)}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _table(rows: list[dict[str, Any]]) -> dict[str, str]:
    lines = [",".join(rows[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in rows)]
    return _link("variances", "csv", ("text/csv", "\n".join(lines).encode()))


def _verdicts(fit: Fit, info: dict[str, Any]) -> list[str]:
    unknown = "–" if info["converged"] is None or info["value_errors"] is None else "?"
    words = {True: "yes", False: "no", None: unknown}
    return [words[verdict] for verdict in verdicts(info, fit.k, info["tol"])]


def _tol(model: Any) -> float:
    settings = (getattr(getattr(model, "solver", None), "tol", None), getattr(model, "tol", None))
    return next((float(tol) for tol in settings if tol is not None), TOL)


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


def _missed(fit: Fit, level: float | None) -> dict[str, Any]:
    if level is None or not fit.k:
        return {"level": None, "far": False, "nothing": False}
    last = fit.singular_values[-1]
    if not (level and last):  # further singular values are 0, or there are none
        return {"level": None, "far": False, "nothing": True}
    return {"level": f"{level / last:.4g} times the last one", "far": level > FAR * last, "nothing": False}


def _facts(info: dict[str, Any]) -> dict[str, str]:
    r2 = "not computed, too few entries" if info["heldout_r2"] is None else f"{info['heldout_r2']:.3f}"
    facts: dict[str, tuple[Any, Callable[[Any], str]]] = {
        "Solver": (info["solver"], solver),
        "Passes over the data": (info["n_passes"], str),
        "Missing values": (info["n_missing"], "{:,}".format),
        "R² of held-out entries": (None if info["completed"] is None else r2, str),
        "Time": (info["seconds"], lambda seconds: f"{seconds:.3g} s" if seconds < 600 else f"{seconds / 60:.0f} min"),
        "Peak memory": (info["peak_bytes"], shown_bytes),
    }
    return {name: written(value) for name, (value, written) in facts.items() if value is not None}


def drawn(title: str, height: float, draw: Callable[..., Any], *what: Any, **how: Any) -> dict[str, Any]:
    with drawing(4.4, height) as ax:
        draw(*what, ax=ax, **how)
        legend, figure = ax.get_legend(), ax.figure
        figure.draw_without_rendering()
        if legend is not None:  # below the axes, which keep their height
            figure.set_figheight(height + legend.get_window_extent().height / figure.dpi)
            figure.draw_without_rendering()
        figure.set_layout_engine(None)  # the layout is final: each file takes one drawing
        svg = _saved(figure, title, "svg")
        files = {"svg": ("image/svg+xml", svg)} if len(svg) < LARGE else {}  # many dots are pixels in both files
        files |= {"png": ("image/png", _saved(figure, title, "png"))}
        name = re.sub(r"\W+", "-", title.lower())
        links = [_link(name, *file) for file in files.items()]
        return {"svg": inline_svg(svg.decode(), title), "links": links, "rest": []}


def _link(name: str, ending: str, content: tuple[str, bytes]) -> dict[str, str]:
    data = b64encode(content[1]).decode()
    return {"name": f"{name}.{ending}", "label": ending.upper(), "data": f"data:{content[0]};base64,{data}"}


def _variance_figures(fit: Fit) -> Iterator[dict[str, Any]]:
    yield drawn(f"Explained {fit.whole}", 3.2, plot.scree, fit.model)
    if fit.total:
        yield drawn("Error of the reconstruction", 3.2, plot.reconstruction_error, fit.model)


def _scores_figure(fit: Fit, Z: ScoreRaster, new: ScoreRaster | None, **how: Any) -> dict[str, Any]:
    how |= {"components": Z.components, "ellipses": True}
    return drawn("Scores of components {} and {}".format(*Z.components), 4.0, _draw_scores, fit, Z, new, **how)


def _draw_scores(fit: Fit, Z: ScoreRaster, new: ScoreRaster | None, ax: Any, **how: Any) -> None:
    fill = ORANGE if how["color"] is None else "none"  # relatives are also among the coloured dots
    drawn = plot.scores(fit.model, Z=Z, ax=ax, **how)
    if new is not None:
        points = drawn._within(new.sample)
        moved = int(np.any(points != new.sample, axis=1).sum())
        label = plural(new.n, "projected sample") + (f", {moved:,} drawn at the edge" if moved else "")
        look = {"s": 18, "marker": "D", "linewidths": 0.5, "edgecolors": _INK, "rasterized": len(new.sample) > CRISP}
        ax.scatter(*points.T, facecolors=fill, label=label, **look)
        if ax.get_legend() is None:
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False, fontsize="small")


def _biplot(fit: Fit, Z: ScoreRaster, names: list[str], color: Any, more: Any) -> dict[str, Any]:
    how = {"names": names, "color": color, "supplementary": more, "components": Z.components, "top": ARROWS}
    return drawn("Biplot of components {} and {}".format(*Z.components), 4.0, plot.biplot, fit.model, Z=Z, **how)


def _positions(found: Any) -> list[dict[str, Any]]:
    tables = (np.asarray(table)[:TABLE, :PLACED].tolist() for table in (found.coordinates, found.v_tests))
    return [
        {"name": short(name, 60), "is_number": category is None, "rows": f"{rows:,}", "at": at, "tests": tests}
        for name, category, rows, at, tests in zip(found.names, found.categories, found.counts, *tables, strict=False)
    ]


def _outermost(raster: ScoreRaster, samples: Any) -> list[dict[str, Any]]:
    points, rows = raster.farthest
    shares = (points / raster.deviations) ** 2 / np.where(raster.squares > 0, raster.squares, 1)
    names = [f"sample {row + 1:,}" if samples is None else short(samples[row], 60) for row in rows]
    return [
        {"name": name, "scores": point.tolist(), "shares": share.tolist()}
        for name, point, share in zip(names, points, shares, strict=True)
    ]


def _dominant(planes: list[ScoreRaster], samples: Any) -> list[dict[str, Any]]:
    """Return components of which one sample makes up more than `DOMINANT`, in order."""
    found = dict[int, dict[str, Any]]()
    for raster in planes:
        for one in _outermost(raster, samples) if raster.n_fitted >= FEWEST else ():
            name = one["name"] if samples is None else f"sample {one['name']}"
            shares = zip(raster.components, one["shares"], strict=True)
            found |= {j: {"number": j, "name": name, "share": share} for j, share in shares if share > DOMINANT}
    return [found[j] for j in sorted(found)]


def _close(fit: Fit) -> list[str]:
    """Return runs of components, such as "1 and 2", whose variances differ by less than their standard errors.

    By the rule of North et al. (1982), which says that these components mix in other samples.
    """
    n, variances = getattr(fit.model, "n_samples_", None), fit.variances
    if not n or variances is None:
        return []
    shown = np.asarray(variances[: min(NAMED_CLOSE, fit.n_varying)], np.float64)
    runs = np.split(np.arange(1, len(shown) + 1), np.flatnonzero(-np.diff(shown) >= np.sqrt(2 / n) * shown[:-1]) + 1)
    return [joined([str(j) for j in run]) for run in runs if len(run) > 1]


def _loadings_figures(fit: Fit, names: list[str]) -> Iterator[dict[str, Any]]:
    for component, values in enumerate(fit.components[: min(DRAWN, fit.n_varying)], start=1):
        size = np.abs(values)
        top = int(np.clip(np.count_nonzero(size > SHOWN * size.max(initial=0)), 1, BARS))
        figure = drawn(f"Loadings of component {component}", 3.8, plot.loadings, fit.model, component, top, names)
        order = largest(size, len(size))[top : len(size) if len(size) <= FOLDED else top]
        yield figure | {"number": component, "rest": [(short(names[j], 60), float(values[j])) for j in order]}


def _in_words(fit: Fit, names: list[str], categories: dict[str, str]) -> dict[str, Any] | None:
    if not fit.n_varying or not fit.components.size:
        return None
    share = None if fit.shares is None else float(fit.shares[0])
    phrases: dict[str, list[tuple[str, str]]] = {"numbers": [], "classes": []}
    loadings = fit.components[0] / np.max(np.abs(fit.components[0]))
    ends = zip((loadings, -loadings), _ends(loadings, names, IN_WORDS, CLEAR), strict=True)
    for (of_end, end), size, often in zip(ends, ("large", "small"), ("more", "less"), strict=True):
        more = int(np.count_nonzero(of_end >= SIMILAR)) - len(end)
        others = [plural(more, "other feature")] * (more > 0)
        numbers = [name for name, _ in end if name not in categories]
        classes = [categories[name] for name, _ in end if name in categories]
        phrases["numbers"] += [(size, joined([*numbers, *others]))] * bool(numbers)
        phrases["classes"] += [(often, joined([*classes, *([] if numbers else others)]))] * bool(classes)
    return {"share": share, **phrases}


def joined(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def planes_of(k: int) -> list[tuple[int, int]]:
    return [pair for pair in PLANES if max(pair) <= k]


def rasters_of(model: Any, k: int) -> list[ScoreRaster]:
    return [ScoreRaster.of(model, components=pair, rng=0) for pair in planes_of(k)]


def _planes(fit: Fit, scores: Any) -> list[ScoreRaster]:
    rasters = scores if isinstance(scores, list | tuple) else [scores]
    if rasters and all(isinstance(raster, ScoreRaster) for raster in rasters):
        return list(rasters)
    if np.ndim(scores) != 2 or np.shape(scores)[1] > fit.k:
        raise Refused(Setting("scores"), f" must have shape (m, k) with k up to {fit.k}, got {np.shape(scores)}")
    rasters = rasters_of(fit.model, np.shape(scores)[1])
    for raster in rasters:
        raster.add(scores)
    return rasters


def _ends(values: Vector, names: list[str], count: int, least: float) -> Iterator[list[tuple[str, float]]]:
    size = np.max(np.abs(values))
    for sign in (1, -1):
        found = [j for j in largest(sign * values, count) if sign * values[j] > least * size]
        yield [(short(names[j], 60), float(values[j])) for j in found]


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:#.5g}".removesuffix(".")


# --- figures as SVG, with the colours and the width of the page -----------------------------------------------------

# Placeholder colours that figures do not use otherwise; `inline_svg` replaces them by the colours of the page.
_INK, _DIM = "#010203", "#040506"
_LOOK: Final = {
    "svg.fonttype": "none",  # text stays text: searchable, and a tenth of the size
    "font.size": 11,
    "axes.titlesize": 12,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), _DIM),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
}
_NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with style.context(["default", _LOOK]), warnings.catch_warnings():
        # The browser draws the text, with its own fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.subplots()


def _saved(figure: Any, title: str, kind: str) -> bytes:
    from matplotlib import rc_context

    out = io.BytesIO()
    look = {"metadata": _NO_METADATA, "dpi": 96} if kind == "svg" else {"facecolor": "white", "dpi": 96}
    with rc_context({"svg.hashsalt": title}):  # identifiers differ between the figures of a page
        figure.savefig(out, format=kind, **look)
    return out.getvalue()


def inline_svg(text: str, title: str) -> str:
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[\w.]+"', "<g", text)  # figure_1, axes_1, ...: the same in each figure
    # Only in tags: the words between them stay.
    text = re.sub(r"<[^>]*>", lambda tag: tag[0].replace(_INK, "currentColor").replace(_DIM, "var(--dim)"), text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    return f'<svg role="img" aria-label="{escape(title)}" {box[0]}>' + text[text.index(">") + 1 :]
