"""Run `embed`, `diffmap` and `contrast`: open, fit, print and write coordinates with bounds of their errors."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
from click.core import ParameterSource

from shiftsvd.backends import as_operator
from shiftsvd.backends.entries import some_columns
from shiftsvd.backends.files import left_beside
from shiftsvd.backends.validation import named
from shiftsvd.commands import writing
from shiftsvd.commands.applying import coordinate_table, precision
from shiftsvd.commands.hooks import hooks_of, with_label
from shiftsvd.commands.mixed import labels_of
from shiftsvd.commands.options import as_given, check_files, need_folder, typed, worded
from shiftsvd.commands.settings import Settings
from shiftsvd.commands.tables import WRITERS, Block, write_rows
from shiftsvd.errors import Refused, Setting, few, plain_lines, plural
from shiftsvd.estimators.contrastive import ALPHAS, ContrastivePCA
from shiftsvd.estimators.graphs import DiffusionMap, SpectralEmbedding, check_order
from shiftsvd.events import listening
from shiftsvd.io import Names
from shiftsvd.io.base import Labels
from shiftsvd.io.opening import open_chosen, read_whole
from shiftsvd.model_file import save_model
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import shown_bytes
from shiftsvd.runs.messages import notice
from shiftsvd.runs.outputs import Outputs
from shiftsvd.runs.progress import progress

# Attributes of a model that are printed and written to result.json, with their headers.
OF_GRAPHS: Final = {"eigenvalues_": "eigenvalue", "eigenvalue_errors_": "error", "vector_errors_": "sine"}
OF_CONTRASTS: Final = {
    "eigenvalues_": "contrast",
    "target_variance_": "target",
    "background_variance_": "background",
    "eigenvalue_errors_": "error",
    "vector_errors_": "sine",
}
OF_RATIOS: Final = OF_CONTRASTS | {"eigenvalues_": "ratio"}


class Fits(NamedTuple):
    """Fitted models, each with the suffix of its files and its scores."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    samples: Labels | None
    facts: Mapping[str, Any]
    models: list[tuple[str, Any, Block]]


def embed(settings: Settings) -> None:
    _run(settings, OF_GRAPHS, "k affinity n_neighbors drop_first tol max_products seed", _embedded)


def diffmap(settings: Settings) -> None:
    _run(settings, OF_GRAPHS, "k alpha t drop_first tol max_products seed", _diffused)


def contrast(settings: Settings) -> None:
    columns, recorded = OF_CONTRASTS, "k alphas choose background tol max_passes seed"
    given = click.get_current_context().get_parameter_source("alphas") is not ParameterSource.DEFAULT
    if settings.ridge is not None:
        if settings.choose or given:
            raise click.UsageError("--ridge maximizes a ratio, which has no alpha. Remove --alpha and --choose.")
        columns, recorded = OF_RATIOS, "k ridge background tol max_passes seed"
    alphas = ALPHAS if settings.choose and not given else settings.alphas
    settings = replace(settings, alphas=tuple(dict.fromkeys(alphas)))
    _run(settings, columns, recorded, _contrasted, _suffixes(settings))


def _embedded(settings: Settings) -> Fits:
    read: Callable[..., tuple[Any, Names]] = open_chosen if settings.affinity == "cosine" else read_whole
    X, names = read(settings.paths, settings.choices, **settings.where, **vars(settings.resources))
    own = _arguments(settings, "affinity n_neighbors drop_first tol max_products")
    if settings.affinity == "cosine":
        own["memory_limit"] = left_beside(X, settings.memory)
    if settings.affinity != "precomputed":
        for each in hooks_of(settings):
            each.advise("embed", as_operator(X))
    return _graph(SpectralEmbedding(**own), X, names)


def _diffused(settings: Settings) -> Fits:
    X, names = read_whole(settings.paths, settings.choices, **settings.where, **vars(settings.resources))
    model = DiffusionMap(**_arguments(settings, "alpha t drop_first tol max_products"))
    fits = _graph(model, X, names)
    if (nodes := names.samples if names.features is None else names.features) is not None:
        model.feature_names_in_ = np.asarray(nodes, object)
    return fits


def _graph(model: Any, X: Any, names: Names) -> Fits:
    if getattr(model, "affinity", "precomputed") == "precomputed":
        check_order(*names)
    Z = model.fit_transform(X)
    sizes = np.sort(np.bincount(model.component_labels_))[::-1]
    facts = {"n_products": model.n_products_, "connected_components": sizes.tolist()}
    return Fits(X.shape, precision(X.dtype), names.samples, facts, [("", model, Z)])


def _arguments(settings: Settings, names: str) -> dict[str, Any]:
    own = {name: getattr(settings, name) for name in names.split()}
    return own | {"n_components": settings.k, "random_state": settings.seed, **vars(settings.resources)}


def _contrasted(settings: Settings) -> Fits:
    how = settings.where | vars(settings.resources)
    A, names = open_chosen(settings.paths, settings.choices, **how)
    for each in hooks_of(settings):
        each.advise("contrast", A)
    learned = settings.choices.learned(names.features, getattr(names, "notation", None))
    choices = replace(learned, skip=settings.choices.skip)
    B, others = open_chosen(settings.background or "", choices, **how)
    B = _same_features(B, others.features, A.shape[1], names.features, settings)
    with named(names.features):
        own = _arguments(settings, "ridge tol max_passes") | {"memory_limit": left_beside(A, settings.memory)}
        estimator = ContrastivePCA(**own)
        if settings.ridge is None:
            found = estimator.path(A, background=B, alphas=settings.alphas, choose=settings.choose)
        else:
            found = [estimator.fit(A, background=B)]
        models = [(suffix, model, model.transform(A)) for suffix, model in zip(_suffixes(settings), found, strict=True)]
    for model in found:
        writing.with_table(model, names, settings)
    facts = {"n_passes": found[0].n_passes_, "n_background": B.shape[0]}
    return Fits(A.shape, A.dtype, names.samples, facts, models)


def _same_features(B: Operator, found: Any, n: int, wanted: Any, settings: Settings) -> Operator:
    if found is None or wanted is None:
        if B.shape[1] != n:
            raise ValueError(
                f"{settings.background} has {plural(B.shape[1], 'feature')}, but {settings.file} has {n:,}. Without "
                "names, features are matched by position. Pass a background with the columns of the target."
            )
        return B
    if np.array_equal(found, wanted):
        return B
    found, wanted = list(map(str, found)), list(map(str, wanted))
    places = {name: j for j, name in enumerate(found)}
    if len(places) < len(found) or len({*wanted}) < n:
        raise ValueError(
            f"{settings.file} and {settings.background} have different features, and duplicate names, so columns "
            "cannot be matched. Make the names unique."
        )
    if absent := [name for name in wanted if name not in places]:
        raise Refused(
            f"{settings.background} lacks {plural(len(absent), 'feature')} of the target: {few(absent)}. It has "
            f"{few(found)}. To match genes by another kind of names, use ",
            *(Setting("var_names", "gene_ids"), " or ", Setting("var_names", "gene_symbols"), "."),
        )
    if more := len(found) - n:
        notice(f"{settings.background} has {plural(more, 'feature')} more than the target, which are ignored.")
    return some_columns(B, np.array([places[name] for name in wanted], np.intp))


def _suffixes(settings: Settings) -> list[str]:
    alphas = settings.alphas
    if settings.choose:
        return [f"_{j + 1}" for j in range(min(settings.choose, len(alphas)))]
    return [f"_alpha{alpha!r}".removesuffix(".0") if len(alphas) > 1 else "" for alpha in alphas]


# --- the run ----------------------------------------------------------------------------------------------------------


def _run(
    settings: Settings,
    columns: Mapping[str, str],
    recorded: str,
    fit: Callable[[Settings], Fits],
    suffixes: Sequence[str] = ("",),
) -> None:
    check_files(settings)
    for option in ("scores", "report", "label_column") if settings.out is None else ():
        need_folder(option, getattr(settings, option))
    settings = with_label(settings, hooks_of(settings))
    with_model = fit is not _embedded  # new samples have no coordinates in a spectral embedding
    paths = writing.placed(settings, _files(settings, suffixes, with_model))
    outputs, started = Outputs(paths.values(), settings.force), time.perf_counter()
    with ExitStack() as stack:
        listen = stack.enter_context(progress(settings.progress, settings.quiet))
        stack.enter_context(outputs)
        try:
            with listening(listen):
                fits = fit(settings)
                label, m = settings.label_column, fits.shape[0]
                colors = label and labels_of(m, "label_column", settings, settings.choices, hooks_of(settings))
        except Refused as error:
            if not isinstance(error.args[0], Setting):
                raise
            raise click.UsageError(worded(error)) from None
        found = [_numbers(model, columns) for _, model, _ in fits.models]
        values = ((name, getattr(settings, name)) for name in recorded.split())
        own = {name: as_given(value) if isinstance(value, str) else value for name, value in values}
        document = {
            **(found[0] if len(found) == 1 else {"contrasts": found}),
            "converged": all(one["converged"] for one in found),
            **fits.facts,
            **writing.of_run(settings, fits, settings.k, own, paths, time.perf_counter() - started),
        }
        _write_fits(fits, settings, outputs, paths)
        if paths:
            if "report" in paths:
                _write_page(outputs.part(paths["report"]), fits, columns, document, colors)
            writing.write_manifest(document, outputs, paths)
    writing.print_result(settings, document, _printed(document, found, columns))


def _write_fits(fits: Fits, settings: Settings, outputs: Outputs, paths: Mapping[str, Path]) -> None:
    for suffix, model, Z in fits.models:
        if (path := paths.get(f"scores{suffix}")) is not None:
            table = coordinate_table(model, len(Z), settings.dtype or fits.dtype, fits.samples)
            with outputs.part(path).open("wb") as file, WRITERS[path.suffix[1:]](file, table) as write:
                write_rows([(0, Z)], [write])
        if (path := paths.get(f"model{suffix}")) is not None:
            save_model(model, outputs.part(path), source=settings.file)


def _files(settings: Settings, suffixes: Sequence[str], with_model: bool) -> dict[str, str]:
    kind, files = settings.scores or writing.usual_kind(settings), {}
    for suffix in suffixes:
        if kind in WRITERS:
            files[f"scores{suffix}"] = f"scores{suffix}.{kind}"
        if with_model:
            files[f"model{suffix}"] = f"model{suffix}.safetensors"
    return files | writing.page(settings)


def _numbers(model: Any, columns: Mapping[str, str]) -> dict[str, Any]:
    values = {name.rstrip("_"): writing.numbers(getattr(model, name)) for name in columns}
    return {**_weight(model), **values, "converged": model.converged_}


def _weight(model: Any) -> dict[str, float]:
    if not isinstance(model, ContrastivePCA):
        return {}
    return {"alpha": model.alpha} if model.ridge is None else {"ridge": model.ridge}


def _form(column: str) -> str:
    return ".0e" if column.endswith("errors_") else ".5g"


def _printed(document: Mapping[str, Any], found: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    (m, n), count = document["shape"], len(document.get("connected_components", [0]))
    graph = "connected_components" in document and document["settings"].get("affinity", "precomputed") == "precomputed"
    size = plural(n, "node") if graph else f"{plural(m, 'sample')} x {plural(n, 'feature')}"
    lines = [f"{document['file']}: {size}"]
    if count > 1:
        lines.append(f"{count:,} connected components")
    for one in found:
        lines += ["", *(f"{name} = {one[name]:g}" for name in ("alpha", "ridge") if name in one)]
        lines.append("component" + "".join(f"{head:>12}" for head in columns.values()))
        cells = ([writing.as_text(value, f"12{_form(name)}") for value in one[name.rstrip("_")]] for name in columns)
        lines += [f"{j:9}{''.join(row)}" for j, row in enumerate(zip(*cells, strict=True), start=1)]
        if one["converged"]:
            largest = max(one["vector_errors"])
            angle = "The sine of the angle to an exact component"
            where = ", in the scalar product of the background plus ridge," if "ridge" in one else ""
            lines.append(f"{angle}{where} is at most {writing.rounded_up(largest)}.")
    return plain_lines("\n".join(lines))


# --- the report, for which matplotlib is imported ---

TITLES: Final = {
    "SpectralEmbedding": "Spectral embedding",
    "DiffusionMap": "Diffusion map",
    "ContrastivePCA": "Contrastive PCA",
}


def _write_page(path: Path, fits: Fits, columns: Mapping[str, str], document: dict[str, Any], colors: Any) -> None:
    from shiftsvd import report
    from shiftsvd.wording import shown

    kind, facts = type(fits.models[0][1]).__name__, {**document["settings"], "Time": f"{document['seconds']:.3g} s"}
    (m, n), components = fits.shape, document.get("connected_components", [])
    source = {"file": document["file"], "size": f"{plural(m, 'row')} x {plural(n, 'column')}"}
    if components:
        source["connected components"] = f"{len(components):,}"
    if document["peak_bytes"] is not None:
        facts["Peak memory"] = shown_bytes(document["peak_bytes"])
    page = {
        **document,
        "title": TITLES[kind],
        "k": document["n_components"],
        "kind": kind,
        "source": source,
        "heads": list(columns.values()),
        "models": [_section(model, Z, columns, fits.samples, colors) for _, model, Z in fits.models],
        "facts": {name: shown(value) for name, value in facts.items() if value is not None},
        "command": typed(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    text = plain_lines(str(report.template("coordinates.html.j2").render(page)))
    path.write_text(text, encoding="utf-8", errors="replace")


def _section(model: Any, Z: Block, columns: Mapping[str, str], samples: Any, colors: Any) -> dict[str, Any]:
    from shiftsvd import report

    numbers = [[format(value, _form(name)) for value in getattr(model, name)[: report.ROWS]] for name in columns]
    names, k = coordinate_table(model, len(Z), Z.dtype, None).columns, Z.shape[1]
    alpha, figures = _weight(model).get("alpha"), []
    for pair in report.planes_of(k):
        axes = tuple(names[j - 1] for j in pair)
        title = f"{axes[0]} and {axes[1]}" + ("" if alpha is None else f", alpha = {alpha:g}")
        figures.append(report.drawn(title, 4.0, _draw, Z, pair, axes, samples, colors))
    return {"alpha": alpha, "rows": list(zip(*numbers, strict=True)), "figures": figures}


def _draw(Z: Block, pair: tuple[int, int], axes: tuple[str, str], samples: Any, colors: Any, ax: Any) -> None:
    from shiftsvd.plot import ScoreRaster, ScoresDisplay

    deviations = np.std(Z[:, np.subtract(pair, 1)], axis=0)
    raster = ScoreRaster((float(deviations[0]), float(deviations[1])), components=pair, rng=0)
    raster.add(Z)
    ScoresDisplay(raster, components=pair, color=colors, labels=samples).plot(ax=ax)
    ax.set(xlabel=axes[0], ylabel=axes[1])
