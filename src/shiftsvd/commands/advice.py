"""What a fit of a table advises: a scale, where columns differ by orders of magnitude."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.backends.disk import DiskRows
from shiftsvd.commands.options import say
from shiftsvd.io import Names
from shiftsvd.io.sniff import FORMATS, format_of, named_format
from shiftsvd.operators import Operator

APART: Final = 100  # times the smallest standard deviation: two orders of magnitude


def are_tables(options: Any) -> bool:
    return all(FORMATS[each].module == "table" for each in _formats(options))


def are_texts(options: Any) -> bool:
    return all((options.format or named_format(Path(file))) in ("csv", "tsv") for file in options.files)


def _formats(options: Any) -> set[str]:
    if options.file == "-":
        return {options.format}
    return {format_of(Path(file), options.format) for file in options.files}


def advise_scale(A: Any, names: Names, options: Any) -> None:
    is_plain = options.scale is None and options.shift == "mean" and not options.preprocess
    if not is_plain or not isinstance(A, Operator) or not are_tables(options):
        return
    moments = A.memo.get("columns") if isinstance(A, DiskRows) else A.moments()
    squares = None if moments is None else moments.M2
    if squares is None or not np.any(squares > 0):
        return
    spread = np.sqrt(squares)
    there = np.flatnonzero(spread)
    least, most = there[np.argmin(spread[there])], there[np.argmax(spread[there])]
    if spread[most] < APART * spread[least]:
        return
    called = [f"column {j + 1}" if names.features is None else repr(str(names.features[j])) for j in (most, least)]
    ratio = spread[most] / spread[least]
    say(
        f"columns differ by orders of magnitude: {called[0]} varies {ratio:,.0f} times as much as {called[1]}, and "
        "weighs as much more; --scale gives all columns the same weight (--scale none: as they are, without this line)",
        options.quiet,
    )
