"""The table of the components: which kind it is, and when the model has the numbers alone."""

import warnings
from pathlib import Path
from typing import Any, Final

from shiftsvd.commands.options import say
from shiftsvd.commands.tables import FORMATS, Table, format_named, write_rows
from shiftsvd.runs.outputs import Outputs

MOST: Final = 10_000_000  # numbers that are written where nobody asks: 200 MB of text


def planned(kind: str | None) -> dict[str, str]:
    if kind == "none":
        return {}
    if kind is not None:
        format_named(kind)
    return {"components": f"components.{kind or 'csv'}"}


def settled(pca: Any, options: Any, outputs: Outputs, paths: dict[str, Path]) -> None:
    count = pca.components_.size
    if options.components is not None or "components" not in paths or count <= MOST:
        return
    path = paths.pop("components")
    outputs.leave_out(path)
    if path.exists():
        warnings.warn(f"{path.parent} keeps {path.name} of an earlier run", stacklevel=2)
    say(
        f"no {path.name}: its {count:,} numbers are in the model; --components csv or --components parquet writes them",
        options.quiet,
    )


def write(path: Path, to: Path, pca: Any, features: Any, beside: tuple[tuple[str, Any], ...] = ()) -> None:
    columns = [f"PC{j + 1}" for j in range(pca.n_components_)]
    V = pca.components_.T
    table = Table(columns, len(V), V.dtype, features, "feature", beside)
    with to.open("wb") as file, FORMATS[path.suffix[1:]](file, table) as add:
        write_rows([(0, V)], [add])
