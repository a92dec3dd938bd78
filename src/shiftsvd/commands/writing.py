"""Print and write the result of a fit: a table, JSON, output files, and result.json with hashes of the files."""

import csv
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import file_digest
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import click
import numpy as np

from shiftsvd.backends.files import DiskRows
from shiftsvd.commands.hooks import Hooks, Run
from shiftsvd.commands.mixed import fields_of
from shiftsvd.commands.options import as_given, print_message, typed
from shiftsvd.commands.settings import RECORDED, Settings
from shiftsvd.commands.tables import WRITERS, Table, Write, component_names, format_named, write_rows
from shiftsvd.errors import plain_lines, plural
from shiftsvd.estimators.attributes import ALIGNED, feature_names_of, first_is_mean, n_empty_of, quantity_of
from shiftsvd.io import Names
from shiftsvd.io.formats.table import far_apart, with_decimals
from shiftsvd.io.location import Location, located
from shiftsvd.io.sniff import format_of, formats, named_format, split_element
from shiftsvd.missing.gaps import Observed
from shiftsvd.model_file import load_model
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import peak_bytes
from shiftsvd.runs.outputs import Outputs
from shiftsvd.wording import verdicts

MOST_NUMBERS: Final = 10_000_000  # write components.csv by default up to this size: 200 MB of text
# Files that a fit may write into its folder; extensions add others.
FILES: Final = (
    *(f"{content}.{kind}" for content in ("scores", "contributions") for kind in WRITERS),
    *("components.csv", "components.parquet", "supplementary.csv", "report.html"),
)
MANIFEST: Final = "result.json"
HASHES: Final = "sha256"
# Verify the hashes of files up to this size in bytes; for larger files, hashing would take longer than the subcommand.
MOST_HASHED: Final = 2**26
Model = TypeVar("Model")


# Result of a fit

SPECTRA: Final = ("singular_values", "explained_variance", "explained_variance_ratio")
COLUMNS = ("singular_value", "explained_variance", "ratio", "cumulative", "residual", "value_error", "converged")


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a fit as the command reports it; `document` is the content of result.json and of --json."""

    document: dict[str, Any]
    run: Run
    advice: str | None  # notice about the scale or the mean

    @classmethod
    def of(
        cls, run: Run, hooks: Sequence[Hooks], paths: Mapping[str, Path], seconds: float, advice: str | None
    ) -> Self:
        pca, A, settings = run.pca, run.A, run.settings
        info, files = pca.info_, [as_given(file) for file in settings.files]
        recorded = (name for each in hooks for name in (*each.recorded, *settings.given(each.decisive)))
        own = {name: getattr(settings, name) for name in RECORDED} | {name: settings.extra[name] for name in recorded}
        own["preprocess"] = list(settings.preprocess)
        document = {
            **{name: numbers(getattr(pca, f"{name}_")) for name in SPECTRA},
            **{name: numbers(getattr(info, name)) for name in ("residuals", "value_errors", "vector_errors")},
            "missed_below": info.missed_below,
            "converged": info.converged,
            **of_gaps(pca),
            "n_passes": info.n_passes,
            **of_run(settings, A, pca.n_components_, own, paths, seconds),
            **({"files": files, "stack": settings.stack} if len(files) > 1 else {}),
            "stored": stored_in(A),
            "solver": info.solver,
            **run.document,
        }
        return cls(document, run, advice)

    @property
    def features(self) -> Any:
        return feature_names_of(self.run.pca)

    @property
    def n_columns(self) -> int:
        """Number of columns of the table, of which one-hot encoding makes several features each."""
        return len(fields_of(self.run.names.features, self.run.A.shape[1], self.run.settings))

    @property
    def quantity(self) -> str:
        return quantity_of(self.run.pca)

    @property
    def source(self) -> dict[str, str]:
        (m, n), n_columns = self.run.A.shape, self.n_columns
        return {
            "file": self.document["file"],
            "samples": f"{m:,}",
            "features": self.run.features or (f"{n:,}" if n == n_columns else f"{n:,}, of {n_columns:,} columns"),
            "numbers stored": f"{self.document['stored']:,}",
            "precision": self.document["dtype"],
            **({} if self.advice is None else {"notice": self.advice}),
        }

    def rows(self) -> list[list[Any]]:
        result = self.document
        blank = [None] * result["n_components"]
        cumulative = np.cumsum(np.array(result["explained_variance_ratio"], float)).tolist()
        errors = result["value_errors"] or blank
        certain = verdicts(result, result["n_components"], result["settings"]["tol"])
        known = [result[name] for name in SPECTRA]
        return [
            list(row) for row in zip(*known, cumulative, result["residuals"] or blank, errors, certain, strict=True)
        ]


def of_run(
    settings: Settings,
    A: Any,  # the data, or anything else with their shape and type
    k: int | float | None,
    own: Mapping[str, Any],
    paths: Mapping[str, Path],
    seconds: float,
) -> dict[str, Any]:
    """Return the entries of result.json that all subcommands write."""
    return {
        "seconds": round(seconds, 3),
        "peak_bytes": peak_bytes(),
        "outputs": {name: str(path) for name, path in paths.items()},
        "n_components": k,
        "file": settings.file,
        "shape": list(A.shape),
        "dtype": str(A.dtype),
        "settings": own,
        **({"table": settings.choices.told} if settings.choices.told else {}),
        "version": version("shiftsvd"),
    }


def of_gaps(pca: Any) -> dict[str, Any]:
    info = pca.info_
    if info.completed is not None and (n_empty := n_empty_of(pca)):
        whole = f"the data, without {plural(n_empty, 'feature')} that {'has' if n_empty == 1 else 'have'} no values"
    elif info.completed is not None:
        whole = "the completed matrix: observed entries, and predictions of the model for missing values"
    elif info.n_missing is not None:
        whole = "the data, with missing values replaced by the means"
    else:
        whole = "the transformed data" if hasattr(pca, "preprocess_") else "the data"
    known = {"n_missing": info.n_missing, "heldout_r2": info.heldout_r2, "completed": info.completed}
    return {**known, "variance_of": whole}


def numbers(values: Any) -> list[float | None] | None:
    if values is None:
        return None
    return [float(value) if np.isfinite(value) else None for value in values]


def stored_in(A: Observed) -> int:
    return int(A.costs.stored if isinstance(A, Operator) else A.stored)


def first_line(file: str, A: Observed) -> str:
    """Return the line that is printed before the fit."""
    shape = f"{plural(A.shape[0], 'sample')} x {plural(A.shape[1], 'feature')}"
    return plain_lines(f"{file}: {shape}, {plural(stored_in(A), 'number')}, {A.dtype}")


def printed(result: Result, hooks: Sequence[Hooks]) -> str:
    """Return the lines that are printed after the fit."""
    document, lines = result.document, list[str]()
    if transforms := document["settings"]["preprocess"]:
        lines.append(f"entries transformed by {', then '.join(transforms)}")
    lines += [line for each in hooks for line in each.summary(document)]
    lines += _gap_lines(document, result)
    passes = f"{document['n_passes']:,} {'pass' if document['n_passes'] == 1 else 'passes'} over the data"
    lines.append(f"{document['solver']}; {passes}, {document['seconds']:.2f} s\n")
    width = max(11, len(result.quantity) + 1)
    lines.append(f"component  singular value {result.quantity:>{width}}   share  cumulative  residual     error")
    shown = [row for row in result.rows() if row[0] != 0]
    for j, (value, variance, share, cumulative, residual, error, _) in enumerate(shown):
        lines.append(
            f"{j + 1:9}  {as_text(value, '14.6g')} {as_text(variance, f'{width}.4g')}  {as_text(share, '6.2%')}  "
            f"{as_text(cumulative, '10.2%')}  {as_text(residual, '8.0e')}  {as_text(error, '8.0e')}"
        )
    if null := document["n_components"] - len(shown):
        further = "further component" if shown else "component"
        lines.append(f"{plural(null, further)} {'has' if null == 1 else 'have'} {result.quantity} 0.")
    errors = (document["value_errors"] or [])[: len(shown)]
    if errors and document["converged"] and None not in errors:  # with --tol 0, values of 0 may have no bound
        few = {1: "the singular value", 2: "both singular values"}
        values = few.get(len(errors), f"all {len(errors):,} singular values")
        lines.append(f"The relative error of {values} is at most {rounded_up(max(errors))}.")
    if result.run.settings.verbose and document["missed_below"] and not null:
        lines.append(missed(document["missed_below"], document["singular_values"][-1]))
    lines += [line for each in hooks for line in each.footer(document)]
    return plain_lines("\n".join(lines))


def rounded_up(value: float) -> str:
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return f"{math.ceil(value / power) * power:.0e}"


def missed(level: float, last: float) -> str:
    return f"Singular values not shown are at most {level / last:.4g} times the last one, with probability 1 - 1e-9."


def _gap_lines(document: dict[str, Any], result: Result) -> list[str]:
    if document["n_missing"] is None:
        return []
    n_missing = document["n_missing"]
    lines = [
        f"{plural(n_missing, 'missing value')} ({n_missing / (document['shape'][0] * result.n_columns):.1%})",
        f"shares of the {result.quantity} refer to {document['variance_of']}",
    ]
    if document["completed"] is not None:
        r2 = document["heldout_r2"]
        shown = "not computed, too few entries" if r2 is None else f"R^2 = {r2:.3f} (0: no better than the shift)"
        lines.append(f"prediction of held-out entries: {shown}")
    if document["completed"] is False:
        lines.append(
            "The completion of missing values did not converge. Use a larger --max-iter or a larger --penalty."
        )
    return lines


def as_text(value: float | None, form: str) -> str:
    return "-".rjust(int(form.split(".")[0])) if value is None else format(value, form)


def variance_table(path: Path, result: Result) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        own = {} if result.quantity == "variance" else {"explained_variance": result.quantity.replace(" ", "_")}
        writer.writerow(["component", *(own.get(name, name) for name in COLUMNS)])
        for j, row in enumerate(result.rows()):
            cells = ["" if cell is None else str(cell).lower() if isinstance(cell, bool) else cell for cell in row]
            writer.writerow([f"PC{j + 1}", *cells])


# Files


def with_table(model: Any, names: Names, settings: Settings) -> None:
    """Store the names of the features and the settings of the table in a fitted model."""
    if names.features is not None:
        model.feature_names_in_ = np.asarray(names.features, object)
    choices = with_decimals(settings.paths, settings.format, settings.choices)
    notation = getattr(names, "notation", None)
    if choices.given or choices.decimals or notation is not None:
        model.table_ = choices.learned(names.features, notation)


def print_result(settings: Settings, document: Mapping[str, Any], text: str) -> None:
    click.echo(json.dumps(document) if settings.json_out else text)
    if settings.out:
        print_message(f"written: {', '.join(document['outputs'].values())}", settings.quiet)


def write_manifest(document: dict[str, Any], outputs: Outputs, paths: Mapping[str, Path]) -> None:
    home = paths["result"].parent
    others = sorted(path for path in paths.values() if path.parent == home and path.name != MANIFEST)
    document[HASHES] = {path.name: _hash(outputs.part(path)) for path in others}
    outputs.part(paths["result"]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def model_in(path: str | Path, *kinds: type[Model]) -> Model:
    """Load a model of one of `kinds`; warn if files in its folder do not match the hashes in result.json."""
    model: Model = load_model(path, kinds)
    folder = Path(path).parent
    if others := _changed(folder):
        warnings.warn(
            f"{', '.join(others)} in {folder} {'does' if len(others) == 1 else 'do'} not match the hashes in "
            f"{MANIFEST}: files were replaced, or a run was interrupted. Repeat the fit with --force to write all "
            "files in one run.",
            stacklevel=2,
        )
    return model


def _changed(folder: Path) -> list[str]:
    try:
        manifest = folder / MANIFEST
        known = json.loads(manifest.read_bytes())[HASHES].items() if _is_short(manifest) else ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # another file of this name
        return []
    files = {folder / Path(name).name: digest for name, digest in known}
    return [file.name for file, digest in files.items() if _is_short(file) and _hash(file) != digest]


def _is_short(file: Path) -> bool:
    return file.is_file() and os.access(file, os.R_OK) and file.stat().st_size <= MOST_HASHED


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, HASHES).hexdigest()


def output_paths(settings: Settings, hooks: Sequence[Hooks]) -> dict[str, Path]:
    """Return the path of every output. Raise ValueError if a package is missing or an input would be replaced."""
    if settings.out is None:
        return {}
    files: dict[str, str | Path] = {"model": "model.safetensors"}
    kind = settings.scores or usual_kind(settings)
    if kind in WRITERS:
        format_named(kind)
        files["scores"] = f"scores.{kind}"
    if settings.components != "none":
        format_named(settings.components or "csv")
        files["components"] = f"components.{settings.components or 'csv'}"
    files["variances"] = "variances.csv"
    if settings.contributions:
        kind = kind if kind in WRITERS else usual_kind(settings)
        files["contributions"] = f"contributions.{kind}"
    if settings.supplementary:
        files["supplementary"] = "supplementary.csv"
    files |= page(settings)
    for each in hooks:
        files |= each.outputs()
    return placed(settings, files, [name for each in hooks for name in each.files])


def page(settings: Settings) -> dict[str, str]:
    """Return the file of the report, if there will be one."""
    drawn = all(find_spec(name) for name in ("matplotlib", "jinja2"))
    if settings.report and not drawn:
        raise ValueError("--report needs matplotlib and jinja2. Install them with: pip install 'shiftsvd[plot]'")
    return {"report": "report.html"} if drawn and settings.report is not False else {}


def placed(settings: Settings, files: Mapping[str, str | Path], more: Sequence[str] = ()) -> dict[str, Path]:
    """Return the paths of files in the output folder, and of result.json."""
    if settings.out is None:
        return {}
    folder = Path(settings.out)
    _warn_of_others(folder, {str(file) for file in files.values()}, more)
    paths = {name: folder / file if isinstance(file, str) else file for name, file in files.items()}
    paths["result"] = folder / MANIFEST  # written last, as it has hashes of the others
    given = [*settings.paths, *([] if settings.background is None else [located(settings.background)])]
    local = (file for file, _ in map(split_element, given) if not isinstance(file, Location))
    inputs = [file for file in local if file.exists()]
    for path in paths.values():
        if path.exists() and not path.is_symlink() and any(map(path.samefile, inputs)):
            raise ValueError(f"{path} is an input file and would be overwritten. Use another folder for --out.")
    return paths


def usual_kind(settings: Settings) -> str:
    """Return the default format of scores: CSV, unless a file is a matrix or a table of Parquet or Arrow."""
    stored = {"parquet", "arrow"} & set(_kinds(settings))
    return "csv" if (_are_tables(settings) and not stored) or find_spec("pyarrow") is None else "parquet"


def _kinds(settings: Settings) -> list[str | None]:
    return [_known_format(path, settings.format) for path in settings.paths]


def _known_format(path: Path, given: str | None) -> str | None:
    named, file = given or named_format(path), split_element(path)[0]
    return format_of(path, None) if named is None and not isinstance(file, Location) and file.exists() else named


def _warn_of_others(folder: Path, planned: set[str], more: Sequence[str]) -> None:
    """Warn if the folder keeps outputs of an earlier run, because users may mistake them for outputs of this run."""
    others = sorted(name for name in {*FILES, *more} - planned if (folder / name).exists())
    if others:
        warnings.warn(_kept(folder, others), stacklevel=2)


def _kept(folder: Path, names: Sequence[str]) -> str:
    which = "it" if len(names) == 1 else "them"
    return f"{folder} still contains {', '.join(names)} of an earlier run. Remove {which} if no longer needed."


def scale_advice(A: Observed, names: Names, settings: Settings) -> str | None:
    """Return a notice if columns of a table have very different scales and no scale was given."""
    is_plain = settings.scale is None and settings.shift == "mean" and not (settings.preprocess or settings.mixed)
    if not is_plain or not _are_tables(settings):
        return None
    moments = A.memo.get("columns") if isinstance(A, DiskRows) else A.moments()
    if moments is None or moments.M2 is None:
        return None
    spread = np.sqrt(moments.M2 / np.maximum(moments.count, 1))
    if (apart := far_apart(spread)) is None:
        return None
    least, most = apart
    called = [f"column {j + 1}" if names.features is None else repr(str(names.features[j])) for j in (most, least)]
    ratio = spread[most] / spread[least]
    return (
        f"Columns have very different scales: the standard deviation of {called[0]} is {ratio:,.0f} times that of "
        f"{called[1]}, which has almost no weight beside it. Use --scale to give all columns the same weight, "
        "or --scale none to keep their units and hide this notice."
    )


def mean_advice(run: Run) -> str | None:
    """Return a notice if nothing was centred and the first component is the mean of the samples; one pass."""
    pca = run.pca
    if pca.shift is not None or not pca.n_components_:
        return None
    B = pca._in_units(pca._minus_shift(pca._operator(run.A), None, None))
    mean = B.rmatmat(np.ones((B.shape[0], 1)))[:, 0]
    length = float(np.linalg.norm(mean))
    cosine = abs(float(pca.components_[0] @ mean)) / length if length > 0 else 0.0
    if cosine <= ALIGNED:
        return None
    return f"{first_is_mean(cosine, pca.n_components_)} Use --shift mean to subtract the mean. Sparse data stay sparse."


def _are_tables(settings: Settings) -> bool:
    return all(kind is not None and formats()[kind].is_table for kind in _kinds(settings))


def leave_out_components(run: Run, outputs: Outputs, paths: dict[str, Path]) -> None:
    """Omit the table of components by default if it is long, as the model holds the same numbers."""
    count = run.pca.components_.size
    if run.settings.components is not None or "components" not in paths or count <= MOST_NUMBERS:
        return
    path = paths.pop("components")
    outputs.leave_out(path)
    if path.exists():
        warnings.warn(_kept(path.parent, [path.name]), stacklevel=2)
    print_message(
        f"{path.name} was not written, because it would have {count:,} numbers, which the model also stores. Use "
        "--components csv or --components parquet to write it.",
        run.settings.quiet,
    )


def write_scores(
    run: Run, hooks: Sequence[Hooks], paths: Mapping[str, Path], outputs: Outputs, more: Sequence[Write] = ()
) -> tuple[list[Any], list[Any]]:
    """Write the scores to all requested files in one pass; return rasters of all and of projected samples."""
    pca, A, samples = run.pca, run.A if run.scored is None else run.scored, run.names.samples
    dtype = np.dtype(run.settings.dtype or A.dtype)
    table = Table(component_names(pca.n_components_), A.shape[0], dtype, samples)
    with ExitStack() as stack:
        writes: list[Any] = []
        if "scores" in paths:
            file = stack.enter_context(outputs.part(paths["scores"]).open("wb"))
            write = stack.enter_context(WRITERS[paths["scores"].suffix[1:]](file, table))
            writes.append(lambda first, block: write(first, block * run.score_factors))
        for each in hooks:
            writes += map(stack.enter_context, each.writers(run, table, paths, outputs))
        rasters = score_rasters(pca) if "report" in paths else []
        news = score_rasters(pca) if rasters and run.projected is not None else []
        writes += [rastering(rasters, news, run.projected)] if rasters else []
        if writes or more:
            write_rows(pca.iter_scores(A, covariates=run.covariates), [*more, _with_projected(run, writes)])
    return rasters, news


def _with_projected(run: Run, writes: Sequence[Write]) -> Write:
    def add(first: int, block: Any) -> None:
        if run.projected is not None and run.projected_scores is not None:
            here, start = run.projected[first : first + len(block)], np.count_nonzero(run.projected[:first])
            block = block.copy()
            block[here] = run.projected_scores[start : start + np.count_nonzero(here)]
        for write in writes:
            write(first, block)

    return add


def score_rasters(pca: Any) -> list[Any]:
    from shiftsvd.report import rasters_of

    return rasters_of(pca, pca.n_components_)


def rastering(rasters: list[Any], news: list[Any], projected: Any) -> Write:
    """Return a function that adds a block of scores to `rasters`, and its projected samples to `news`, too."""

    def add(first: int, block: Any) -> None:
        late = None if projected is None else projected[first : first + len(block)]
        block = block if late is None else np.nan_to_num(block)  # draw samples without scores at 0
        for raster in rasters:
            raster.add(block, late)
        for raster in news if late is not None else ():
            raster.add(block[late])

    return add


def write_files(
    result: Result,
    hooks: Sequence[Hooks],
    paths: Mapping[str, Path],
    outputs: Outputs,
    rasters: tuple[list[Any], list[Any]],
    colors: Any,
    supplementary: Any,
) -> None:
    if not paths:
        return
    run, pca = result.run, result.run.pca
    pca.save(outputs.part(paths["model"]), source=", ".join(result.document.get("files", [result.document["file"]])))
    if "components" in paths:
        path, V = paths["components"], pca.components_.T
        table = Table(component_names(pca.n_components_), len(V), V.dtype, result.features, "feature", run.beside)
        with outputs.part(path).open("wb") as file, WRITERS[path.suffix[1:]](file, table) as add:
            write_rows([(0, V)], [add])
    variance_table(outputs.part(paths["variances"]), result)
    for each in hooks:
        each.write(run, paths, outputs)
    if "report" in paths:
        from shiftsvd import report

        report.write(
            outputs.part(paths["report"]),
            pca,
            scores=rasters[0] or None,
            samples=run.names.samples,
            new_scores=rasters[1] or None,
            source=result.source | run.facts,
            command=typed(),
            names=result.features,
            colors=colors,
            supplementary=supplementary,
            figures=[figure for each in hooks for figure in each.figures(run)],
            seconds=result.document["seconds"],
            peak_bytes=result.document["peak_bytes"],
            tol=run.settings.tol,
        )
    write_manifest(result.document, outputs, paths)
