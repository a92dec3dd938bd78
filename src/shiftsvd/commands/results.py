"""The result of a fit as people and programs read it: a table, files, one JSON object."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from shiftsvd.commands.hooks import Hooks, Run
from shiftsvd.errors import plain_lines
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import peak_bytes

SETTINGS: Final = (
    "k",
    "feature_types",
    "join",
    "preprocess",
    "shift",
    "scale",
    "missing",
    "unobserved",
    "penalty",
    "max_iter",
    "solver",
    "tol",
    "seed",
)
COLUMNS = ("singular_value", "explained_variance", "ratio", "cumulative", "residual", "value_error", "converged")


@dataclass(frozen=True, eq=False)
class Result:
    """What is told of a fit.

    Attributes
    ----------
    document : dict
        What --json prints and result.json holds.
    features : array of str, or None
    tol : float
        What an error bound is judged by.
    taken : str, or None
        How many features were taken, and how they were chosen.
    """

    document: dict[str, Any]
    features: Any
    tol: float
    taken: str | None = None

    @classmethod
    def of(cls, run: Run, features: Any, recorded: tuple[str, ...], paths: Mapping[str, Path], seconds: float) -> Self:
        """The account of a fit; options of extensions that are `recorded` stand among its settings."""
        pca, A, settings = run.pca, run.A, run.settings
        info, more = pca.info_, settings.extra
        several = {"files": list(settings.files), "stack": settings.stack} if len(settings.files) > 1 else {}
        told = {name: getattr(settings, name) for name in SETTINGS} | {name: more[name] for name in recorded}
        document = {
            "singular_values": numbers(pca.singular_values_),
            "explained_variance": numbers(pca.explained_variance_),
            "explained_variance_ratio": numbers(pca.explained_variance_ratio_),
            "residuals": numbers(info.residuals),
            "value_errors": numbers(info.value_errors),
            "vector_errors": numbers(info.vector_errors),
            "missed_below": info.missed_below,
            "converged": info.converged,
            **of_gaps(pca),
            "n_passes": info.n_passes,
            "seconds": round(seconds, 3),
            "peak_bytes": peak_bytes(),
            "outputs": {name: str(path) for name, path in paths.items()},
            "n_components": pca.n_components_,
            "file": settings.file,
            **several,
            "shape": list(A.shape),
            "stored": int(A.costs.stored if isinstance(A, Operator) else A.stored),
            "dtype": str(A.dtype),
            "solver": info.solver,
            "settings": told | {"preprocess": list(settings.preprocess)},
            **({"table": settings.choices.told} if settings.choices.told else {}),
            "version": version("shiftsvd"),
            **run.document,
        }
        return cls(document, features, settings.tol, run.features)

    @property
    def source(self) -> dict[str, str]:
        """What was read, for the report."""
        m, n = self.document["shape"]
        return {
            "file": self.document["file"],
            "samples": f"{m:,}",
            "features": self.taken or f"{n:,}",
            "numbers stored": f"{self.document['stored']:,}",
            "precision": self.document["dtype"],
        }

    def rows(self) -> list[list[Any]]:
        told = self.document
        blank = [None] * told["n_components"]
        cumulative = np.cumsum(np.array(told["explained_variance_ratio"], float)).tolist()
        errors = told["value_errors"] or blank
        certain: list[bool | None] = [
            None if told["value_errors"] is None else e is not None and e <= self.tol for e in errors
        ]
        if told["completed"] is False:  # the bounds are of a matrix that would still have changed
            certain = [False] * told["n_components"]
        elif told["converged"] is False and all(certain):  # a value may be missing: which of them is which is not known
            certain = [None] * told["n_components"]
        columns = (told["singular_values"], told["explained_variance"], told["explained_variance_ratio"], cumulative)
        return [list(row) for row in zip(*columns, told["residuals"] or blank, errors, certain, strict=True)]


def of_gaps(pca: Any) -> dict[str, Any]:
    info = pca.info_
    if info.completed is not None:
        whole = "the completed matrix: the observed entries, and the model's own in place of the missing ones"
    elif info.n_missing is not None:
        whole = "the data, with the means in place of missing entries"
    else:
        whole = "the transformed data" if hasattr(pca, "preprocess_") else "the data"
    known = {"n_missing": info.n_missing, "heldout_r2": info.heldout_r2, "completed": info.completed}
    return {**known, "variance_of": whole}


def numbers(values: Any) -> list[float | None] | None:
    if values is None:
        return None
    return [float(value) if np.isfinite(value) else None for value in values]


def printed(result: Result, hooks: Sequence[Hooks]) -> str:
    """The table for people."""
    told = result.document
    m, n = told["shape"]
    lines = [f"{told['file']}: {m:,} x {n:,}, {told['stored']:,} numbers, {told['dtype']}"]
    if transforms := told["settings"]["preprocess"]:
        lines.append(f"entries by {', then '.join(transforms)}")
    lines += [line for each in hooks for line in each.summary(told)]
    lines += _gap_lines(told)
    lines.append(f"{told['solver']}; {told['n_passes']} passes over the data, {told['seconds']:.2f} s\n")
    lines.append("component  singular value    variance   share  cumulative  residual     error")
    for j, (value, variance, share, cumulative, residual, error, _) in enumerate(result.rows()):
        lines.append(
            f"{j + 1:9}  {as_text(value, '14.6g')}  {as_text(variance, '10.4g')}  {as_text(share, '6.2%')}  "
            f"{as_text(cumulative, '10.2%')}  {as_text(residual, '8.0e')}  {as_text(error, '8.0e')}"
        )
    if told["missed_below"] is not None and len(told["singular_values"]) < min(told["shape"]):
        lines.append(missed(told["missed_below"], told["singular_values"][-1]))
    lines += [line for each in hooks for line in each.footer(told)]
    return plain_lines("\n".join(lines))


def missed(level: float, last: float) -> str:
    above = f"{level / last:.4g} times the last one" if last > 0 else f"{level:.4g}"
    return f"singular values that are not shown are at most {above}, with probability 1 - 1e-9"


def _gap_lines(told: dict[str, Any]) -> list[str]:
    if told["n_missing"] is None:
        return []
    m, n = told["shape"]
    entries = "entry" if told["n_missing"] == 1 else "entries"
    lines = [
        f"{told['n_missing']:,} missing {entries} ({told['n_missing'] / (m * n):.1%})",
        f"shares are of {told['variance_of']}",
    ]
    if told["completed"] is not None:
        r2 = (
            "too few to tell"
            if told["heldout_r2"] is None
            else f"R^2 = {told['heldout_r2']:.3f} (0: no better than the shift)"
        )
        lines.append(f"observed entries that were held out: {r2}")
    if told["completed"] is False:
        lines.append("not converged: the completion stopped unfinished; give a larger --max-iter or --penalty")
    return lines


def as_text(value: float | None, form: str) -> str:
    return "-".rjust(int(form.split(".")[0])) if value is None else format(value, form)


def variance_table(path: Path, result: Result) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["component", *COLUMNS])
        for j, row in enumerate(result.rows()):
            cells = ["" if cell is None else str(cell).lower() if isinstance(cell, bool) else cell for cell in row]
            writer.writerow([f"PC{j + 1}", *cells])
