"""The result of a fit as people and programs read it: a table, files, one JSON object."""

import csv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np

from shiftsvd.errors import plain_lines
from shiftsvd.missing.gaps import Observed
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import peak_bytes

SETTINGS = (
    "k",
    "chromosomes",
    "feature_types",
    "join",
    "preprocess",
    "mask",
    "top_features",
    "flavor",
    "batch",
    "covariates",
    "groups",
    "shift",
    "scale",
    "weights",
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
    """

    document: dict[str, Any]
    features: Any
    tol: float

    @classmethod
    def of(
        cls, pca: Any, A: Observed, features: Any, options: dict[str, Any], paths: dict[str, Path], seconds: float
    ) -> Self:
        info = pca.info_
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
            "file": options["file"],
            **({"files": list(options["files"]), "stack": options["stack"]} if len(options["files"]) > 1 else {}),
            "shape": list(A.shape),
            "stored": int(A.costs.stored if isinstance(A, Operator) else A.stored),
            "dtype": str(A.dtype),
            "solver": info.solver,
            "settings": {name: options[name] for name in SETTINGS} | {"preprocess": list(options["preprocess"])},
            **({"table": options["table"]} if options["table"] else {}),
            "version": version("shiftsvd"),
        }
        return cls(document, features, options["tol"])

    @property
    def source(self) -> dict[str, Any]:
        m, n = self.document["shape"]
        features = self.document.get("features")
        return {
            "file": self.document["file"],
            "samples": f"{m:,}",
            "features": f"{n:,}" if features is None else f"{_taken(features)}, {_chosen_by(features)}",
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


def printed(result: Result) -> str:
    told = result.document
    m, n = told["shape"]
    lines = [f"{told['file']}: {m:,} x {n:,}, {told['stored']:,} numbers, {told['dtype']}"]
    if variants := told.get("genotypes"):
        used = f"{variants['variants_used']:,} variants scaled by {variants['scale']}"
        left_out = (
            f"{variants['monomorphic']:,} monomorphic left out, {variants['not_on_autosomes']:,} not on autosomes"
        )
        lines.append(f"{used}, {left_out}")
    if transforms := told["settings"]["preprocess"]:
        lines.append(f"entries by {', then '.join(transforms)}")
    if features := told.get("features"):
        lines.append(f"{_taken(features)} features, {_chosen_by(features)}")
    if regressed := told.get("regressed_out"):
        lines.append(f"less what {', '.join(regressed['columns'])} explain")
    lines += _gap_lines(told)
    lines.append(f"{told['solver']}; {told['n_passes']} passes over the data, {told['seconds']:.2f} s\n")
    lines.append("component  singular value    variance   share  cumulative  residual     error")
    for j, (value, variance, share, cumulative, residual, error, _) in enumerate(result.rows()):
        lines.append(
            f"{j + 1:9}  {_text(value, '14.6g')}  {_text(variance, '10.4g')}  {_text(share, '6.2%')}  "
            f"{_text(cumulative, '10.2%')}  {_text(residual, '8.0e')}  {_text(error, '8.0e')}"
        )
    if told["missed_below"] is not None and len(told["singular_values"]) < min(told["shape"]):
        lines.append(missed(told["missed_below"], told["singular_values"][-1]))
    lines += _test_lines(told.get("tracy_widom"))
    return plain_lines("\n".join(lines))


def _taken(features: dict[str, Any]) -> str:
    return f"{features['taken']:,} of {features['of']:,}"


def _chosen_by(features: dict[str, Any]) -> str:
    if "mask" in features:
        return f"by {features['mask']}"
    batches = f" in each {features['batch']}" if "batch" in features else ""
    return f"by flavor {features['flavor']}{batches}, in {features['reads']:g} reads"


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


def _test_lines(test: dict[str, Any] | None) -> list[str]:
    if test is None:
        return []
    lines = ["\ncomponent  Tracy-Widom   p-value  effective markers"]
    columns = (test["statistics"], test["p_values"], test["effective_markers"])
    for j, (statistic, p_value, markers) in enumerate(zip(*columns, strict=True)):
        lines.append(f"{j + 1:9}  {_text(statistic, '11.4f')}  {_text(p_value, '8.2g')}  {_text(markers, '17.1f')}")
    return lines


def _text(value: float | None, form: str) -> str:
    return "-".rjust(int(form.split(".")[0])) if value is None else format(value, form)


def variance_table(path: Path, result: Result) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["component", *COLUMNS])
        for j, row in enumerate(result.rows()):
            cells = ["" if cell is None else str(cell).lower() if isinstance(cell, bool) else cell for cell in row]
            writer.writerow([f"PC{j + 1}", *cells])
