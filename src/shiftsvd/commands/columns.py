"""Options of tables: which columns are what, how a text is written, and what colours the report."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shiftsvd.commands.options import under
from shiftsvd.commands.spelling import spelled

if TYPE_CHECKING:
    from shiftsvd.io.choices import Choices

OF_CELLS: Final = ("h5ad", "zarr")
NAMES: Final = ("ids", "drop", "columns", "one_hot", "sep", "decimal", "thousands", "encoding", "comment")


def _listed(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for one in value for row in csv.reader([one], skipinitialspace=True) for name in row)


def _several(name: str, says: str) -> Any:
    return click.option(name, metavar="COLUMNS", multiple=True, callback=_listed, help=says)


table = under(
    "Tables",
    click.option(
        "--ids",
        metavar="COLUMN",
        help="What names the rows.  [default: the first column, if it has no name, or is text that never repeats]",
    ),
    _several("--drop", "Columns that are left out: date,comment; names with commas in quotes."),
    _several("--columns", "The only columns that are features.  [default: all]"),
    _several("--one-hot", "Columns of classes: each class becomes a column of zeros and ones, as in sex=F."),
    click.option("--sep", metavar="CHARACTER", help="What is between cells; also tab, space.  [default: as it looks]"),
    click.option(
        "--decimal", metavar="CHARACTER", help='What is before fractions, such as ",".  [default: as it looks]'
    ),
    click.option("--thousands", metavar="CHARACTER", help="What is between thousands.  [default: as it looks]"),
    click.option("--encoding", metavar="NAME", help="Such as latin-1, cp1252.  [default: UTF-8, or as its mark says]"),
    click.option("--comment", metavar="TEXT", help="Lines that begin so are left out.  [default: # at the beginning]"),
)
label_column = under(
    "Tables",
    click.option(
        "--label-column",
        metavar="COLUMN",
        help="What colours the scores in the report: a column of a table, which is no feature then, or of obs.",
    ),
)


def chosen(given: dict[str, Any]) -> "Choices":
    from shiftsvd.io.choices import Choices

    said = {name: given.pop(name) for name in NAMES}
    label = given.get("label_column")
    said["drop"] += () if label is None or label in said["drop"] or _are_of_cells(given) else (label,)
    try:
        return Choices.of(**said)
    except ValueError as error:
        raise click.UsageError(spelled(str(error))) from None


def _are_of_cells(options: Mapping[str, Any]) -> bool:
    from shiftsvd.io.sniff import format_of

    said = options.get("format_", options.get("format"))
    return all(format_of(Path(file), said) in OF_CELLS for file in options["files"])


def label_of(options: Any, n_samples: int) -> Any:
    if options.label_column is None:
        return None
    label = _of_obs(options) if _are_of_cells(vars(options)) else _of_table(options)
    if len(label) != n_samples:
        raise ValueError(f"--label-column needs a value for each of {n_samples:,} samples, got {len(label):,}")
    return label


def _of_table(options: Any) -> Any:
    from shiftsvd.io.formats.table import read_column

    files = [Path(file) for file in options.files]
    return read_column(files, options.label_column, options.format, options.choices, along=options.stack != "columns")


def _of_obs(options: Any) -> Any:
    from shiftsvd.io.formats.table import Column
    from shiftsvd.scanpy.annotations import of_samples
    from shiftsvd.scanpy.commands import place_of

    values = of_samples(place_of(vars(options), options.files), options.label_column).tolist()
    return Column(options.label_column, ["" if value is None or value != value else str(value) for value in values])
