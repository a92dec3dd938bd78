"""Tables: CSV, TSV, Parquet and Arrow files as matrices, one column read by itself, and the profile of a table."""

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Refused, Setting, Worded
from shiftsvd.io.base import NAME, Opened, bounded, labels, plausible_shape, reading
from shiftsvd.io.choices import NOTHING, Choices, shown
from shiftsvd.io.formats.cells import NO_CLASS, is_gap, number, values_of
from shiftsvd.io.formats.columns import TRIPLETS, gather, in_order, texts
from shiftsvd.io.formats.delimited import MOST, Rows
from shiftsvd.io.formats.grid import GRIDS, Stored, can_stream, grid_of, opened_parquet, read_parquet, stored_column
from shiftsvd.io.formats.header import Head, head_of
from shiftsvd.io.formats.notices import check_table, log_findings, notice_header, of_codes, of_numbers, refused
from shiftsvd.io.formats.numpy_files import NpyRows
from shiftsvd.io.formats.tally import Finding, Kind, Tally
from shiftsvd.io.location import Location, located
from shiftsvd.io.sniff import content_of, format_of, formats, split_element
from shiftsvd.io.spooling import rereadable
from shiftsvd.io.stacking import several
from shiftsvd.io.storage.tree import fingerprint_of
from shiftsvd.numerics.digests import told
from shiftsvd.runs.memory import limit_of, temporary_folder


@dataclass(frozen=True, eq=False)
class Column:
    """Name and cells of a column; NumPy converts it to an array of numbers or texts."""

    name: str
    cells: Sequence[str]

    def __len__(self) -> int:
        return len(self.cells)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(_values(self.cells), dtype)

    @property
    def classes(self) -> set[str]:
        return {cell.strip() for cell in self.cells} - set(NO_CLASS)


def read_column(paths: Sequence[Path], name: str, format: str | None, choices: Choices, *, along: bool) -> Column:  # noqa: A002
    # From all files if their rows are stacked (`along`), else from the first file with the column.
    found = []
    for path in paths:
        with reading(path):
            kind = format_of(path, format)
            if not formats()[kind].is_table:
                raise ValueError(f"{path} must be a table to read column {name!r}, got format {kind!r}.")
            cells, names = _cells(path, name, kind, replace(choices, may_lack=choices.named))
        if cells is None and (along or len(paths) == 1):
            raise ValueError(f"{path} has no column {name!r}. The columns are {shown(names)}.")
        found += [] if cells is None else [cells]
    if not found:
        raise ValueError(f"{several(paths)} have no column {name!r}.")
    return Column(name, [cell for cells in (found if along else found[:1]) for cell in cells])


def is_text(path: Path) -> bool:
    """Return True for a table that is a text file, plain or compressed."""
    return content_of(path) not in (*GRIDS, "Parquet", "Arrow")


def with_decimals(paths: Sequence[Path], format: str | None, choices: Choices) -> Choices:  # noqa: A002
    """Return settings with the decimal marks of text files, if they have decimal commas and can be read again."""
    found: dict[str, str] = {}
    for path in paths if choices.decimal is None and choices.thousands is None else ():
        if isinstance(path, Location) or not split_element(path)[0].is_file():
            continue
        if formats()[format_of(path, format)].is_table and is_text(path):
            head = head_of(path, "matrix", replace(choices, may_lack=choices.named))
            marks = zip(head.called, head.decimals, strict=True)
            found = {name: mark for name, mark in marks if mark in head.proven} | found
    return replace(choices, decimals=found if "," in found.values() else {})


def with_classes(paths: Sequence[Path], format: str | None, choices: Choices) -> Choices:  # noqa: A002
    found = {
        name: classes or in_order(read_column(paths, name, format, choices, along=True).classes)
        for name, classes in choices.one_hot.items()
    }
    return replace(choices, one_hot=found)


def _cells(path: Path, name: str, kind: str, choices: Choices) -> tuple[list[str] | None, Sequence[str]]:
    head = head_of(path, "matrix", replace(choices, one_hot={}))
    if name not in head.called:
        return None, head.called
    place = list(head.called).index(name)
    if kind == "parquet" and can_stream(file := opened_parquet(path), head.form, choices):
        return texts(stored_column(file, place)), head.called
    return [cell for block in Rows(path, head, choices) for cell in texts(block.cells.column(place))], head.called


def _values(cells: Sequence[str]) -> npt.NDArray[Any]:
    read = [None if is_gap(cell) else number(cell) for cell in cells]
    if all(is_gap(cell) or found is not None for cell, found in zip(cells, read, strict=True)):
        numbers = np.array([np.nan if found is None else found.value for found in read])
        return numbers.astype(np.int64) if np.array_equal(numbers, np.floor(numbers)) else numbers
    return np.array([cell or "missing" for cell in cells], np.str_)


def read(path: Path, key: str | None, memory_limit: int | str | None, choices: Choices = NOTHING) -> Opened:
    # A table with the three columns row, column, value (or row, col; i, j; user, item; and x, rating) holds triplets.
    # Rows and columns are positions from 0, or names in order of first use; values at the same position are summed. The
    # key "matrix" or "triplets" overrides the names.
    with reading(path):
        content = content_of(path)
        if key not in TRIPLETS and content not in GRIDS:
            must = f' of a table must be "matrix" or "triplets", got {key!r}'
            raise Refused(f"{path}: the ", Setting("key"), must)
        refuse_settings(content, choices)
        if content not in GRIDS and split_element(path)[1] is not None:
            raise ValueError(f"{path}: this file holds one table. Pass it without the name of a table.")
        head = head_of(path, key, choices, memory_limit)
        found = None
        if content == "Parquet" and not head.triplets:
            found = read_parquet(path, head.form, memory_limit, choices)
        return _read_rows(path, head, memory_limit, choices) if found is None else found


def refuse_settings(content: str, choices: Choices) -> None:
    is_sheet, of_texts = content in ("zip", "OLE"), ("sep", "encoding", "comment", "skip")
    is_stored = is_sheet or content in ("Parquet", "Arrow", "SQLite", "DuckDB")
    given = [name for name in choices.given if is_stored and name in (of_texts[:2] if is_sheet else of_texts)]
    if given and not choices.remembered:
        got = "a sheet" if is_sheet else f"a {content} file"
        raise Refused(Setting(given[0]), f" applies to text files, got {got}. Remove it.")


def _read_rows(path: Path, head: Head, memory_limit: int | str | None, choices: Choices) -> Opened:
    rows = Rows(path, head, choices, memory_limit)
    if head.triplets:
        if not choices.remembered:
            choices.refuse_for("triplets", choices.of_texts)
        digits = not isinstance(head.source, Stored)
        found = gather(path, rows.triplets(), head.triplets, memory_limit, digits=digits, features=choices.features)
    else:
        notice_header(path, head.names, head.called[head.form.label or 0], head.form.why)
        found = _gather(path, rows, memory_limit, choices)
    findings = rows.findings()
    if errors := [each for each in findings if each.is_error]:
        raise refused(errors)
    log_findings(path, findings)
    if not head.triplets:
        check_table(path, found, choices, rows.read_tallies)
        found = replace(found, notation=rows.notation())
    return found


def _below(matrix: npt.NDArray[Any] | None, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if matrix is None:
        return block
    if matrix.base is not None or not matrix.flags.c_contiguous:
        matrix = np.array(matrix, order="C")
    first = len(matrix)
    matrix.resize((first + len(block), matrix.shape[1]), refcheck=False)
    matrix[first:] = block
    return matrix


def _gather(path: Path, blocks: Rows, memory_limit: int | str | None, choices: Choices) -> Opened:
    # In memory up to half of the limit; a larger table is written to a temporary file, and read from there in blocks.
    matrix, rows, n_rows, limit = None, list[str](), 0, limit_of(memory_limit)
    with ExitStack() as stack:
        spilled: BinaryIO | None = None
        for block, called, _ in blocks:
            bounded(path, 2 * block.nbytes + NAME * (len(rows) + len(called)), memory_limit)
            rows += called
            n_rows += len(block)
            if spilled is None:
                matrix = _below(matrix, block)
                if limit is None or 2 * matrix.nbytes <= limit:
                    continue
                folder = stack.enter_context(temporary_folder("shiftsvd-"))
                spilled, block = stack.enter_context((folder / "rows").open("wb")), matrix
            matrix = np.empty((0, block.shape[1]), block.dtype)
            spilled.write(np.ascontiguousarray(block).data)
        if matrix is None:
            raise ValueError(f"{path} has no rows. Check that the file is complete.")
        shape = n_rows, matrix.shape[1]
        plausible_shape(path, shape, memory_limit)
        found: Any = matrix
        if spilled is not None:
            spilled.close()
            about = str(path), fingerprint_of(split_element(path)[0], told((str(path), (blocks.form, choices))))
            found = NpyRows(*about, shape, matrix.dtype, matrix.dtype, 0, False, spilled.name)
            weakref.finalize(found, stack.pop_all().close)
    names = labels(path, rows, memory_limit) if blocks.head.form.label is not None else None
    columns = None if blocks.names is None else labels(path, blocks.names, memory_limit)
    return Opened(found, names, columns, table=True)


# --- the profile of a table: what each column holds, what does not fit, and the settings that read it ---


Use = Literal["feature", "row names", "categories", "excluded"]
# Advise --scale from this ratio of the largest to the smallest standard deviation: a column then has 1 % of the
# variance of another. It is 4 in iris, in one unit, and 12 in linnerud, in several. Of 217 tables of
# tests/support/odd.py, 4 have a ratio from 10 to 100, each with several units.
APART: Final = 10
_NAMES: Final = 3  # names of rows that are kept
_OF_ROWS: Final = ("sep", "skip", "comment", "encoding", "decimal", "thousands")  # these change the rows


@dataclass(frozen=True)
class ColumnProfile:
    """Profile of a column of a table: the kind of its cells, its use, and the cells that do not fit.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : "measurement", "identifier", "label", "date", "constant" or "text"
        What its cells are.
    use : "feature", "row names", "categories" or "excluded"
        Its use with the settings of the profile.
    n_missing : int
        Number of missing values with the settings of the profile.
    missing : dict
        Number of cells of each text that is a missing value.
    misfits : dict
        Rows of the first cells that do not fit among the others, by their text.
    n_misfits : int
        Number of these cells.
    low, high : float or None
        Range of the numbers.
    deviation : float or None
        Standard deviation of the numbers.
    n_texts : int or None
        Number of different texts of a column of texts; None beyond 1,000.
    unit : str
        The unit that is removed from its cells.
    examples : tuple of str
        The first three different cells.
    notes : tuple of str
        What a reader of the table should know about the column.

    See Also
    --------
    io.profile : Returns one for each column.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> ss.io.ColumnProfile("age", "measurement", "feature", low=18.0, high=90.0).kind
    'measurement'
    """

    name: str
    kind: Kind
    use: Use
    n_missing: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    misfits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    n_misfits: int = 0
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    n_texts: int | None = None
    unit: str = ""
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableProfile:
    """Profile of a table: its columns, and the settings with which `open_matrix` reads it.

    Parameters
    ----------
    path : str
        The file.
    format : str
        Its format.
    n_rows : int
        Number of samples; empty rows below the table and a last row of totals are none.
    columns : tuple of ColumnProfile
        All columns, in the order of the file.
    choices : Choices
        The settings that read the table: those given, and others for what does not fit.
    features : tuple of str
        Names of the features, such as "age" and "sex=F".
    dtype : str
        Precision of the numbers.
    n_missing : int
        Number of missing values among the features.
    samples : tuple of str
        Names of the first rows.
    notes : tuple of str
        What a reader of the table should know about it.

    See Also
    --------
    io.profile : Returns it.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> ss.io.TableProfile("a.csv", "csv", 3, (), ss.io.Choices(skip=2)).settings
    {'skip': 2}
    """

    path: str
    format: str
    n_rows: int
    columns: tuple[ColumnProfile, ...]
    choices: Choices
    features: tuple[str, ...] = ()
    dtype: str = "float64"
    n_missing: int = 0
    samples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as arguments of `open_matrix`."""
        return self.choices.told


def profile(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    memory_limit: int | str | None = None,
    **settings: Any,
) -> TableProfile:
    """Describe the columns of a table, the cells that do not fit, and the settings that read it.

    Parameters
    ----------
    path : str or Path
        A text, Parquet or Arrow file, or ``"-"`` for standard input.
    format : str, optional
        Name of the format, such as "csv". Default: from the suffix, else from the first bytes.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory.
    **settings
        Settings for tables, as of `open_matrix`: `ids`, `drop`, `na`, `skip` and others.

    Returns
    -------
    TableProfile
        A value for each column, and the settings; `open_matrix` reads the table with them.

    Raises
    ------
    ValueError, OSError
        If the file is no table, or damaged.

    See Also
    --------
    io.open_matrix : Opens the table; a fit takes the same decisions.

    Notes
    -----
    Costs one read of the file, in blocks. A column counts at most 1,000 different texts, or 100 different numbers.

    Examples
    --------
    >>> import tempfile, shiftsvd as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/a.csv"
    ...     with open(path, "w") as file:
    ...         _ = file.write("who,age,weight\\nx,31,70.5\\ny,28,k.A.\\nz,45,81\\n")
    ...     found = ss.io.profile(path)
    >>> [column.kind for column in found.columns], found.settings
    (['identifier', 'measurement', 'measurement'], {'na': ['k.A.']})
    """
    with rereadable([located(path)], format) as (file,), reading(file):
        found = profiled(file, format, "matrix", Choices.of(**settings), memory_limit)
        if found is None:
            raise ValueError(
                f"{file} has more than {MOST:,} columns, too many to describe. Read it with shiftsvd.io.open_matrix."
            )
        return replace(found, path=str(path))


def far_apart(deviations: npt.ArrayLike) -> tuple[int, int] | None:
    """Return the places of the smallest and the largest deviation above 0 if their ratio is at least `APART`."""
    spread = np.asarray(deviations, np.float64)
    there = np.flatnonzero(spread > 0)
    if not len(there):
        return None
    least, most = there[np.argmin(spread[there])], there[np.argmax(spread[there])]
    return None if spread[most] < APART * spread[least] else (int(least), int(most))


def profiled(
    path: Path,
    format: str | None,  # noqa: A002
    key: str | None,
    choices: Choices,
    memory_limit: int | str | None = None,
    spell: Callable[[Worded], str] = str,
) -> TableProfile | None:
    """Return the profile of a table, or None if it holds triplets, or too many columns to describe each."""
    kind, notes = format_of(path, format), list[str]()
    if not formats()[kind].is_table:
        raise ValueError(f"{path} must be a table, got format {kind!r}.")
    refuse_settings(content_of(path), choices)
    grid = grid_of(path, key, memory_limit)
    while True:
        try:
            head = head_of(path, key, choices, memory_limit, grid)
            if head.triplets or head.width > MOST:
                return None
            rows = Rows(path, head, choices, memory_limit, everything=True)
            samples = [name for block in rows for name in block.names][:_NAMES]
            findings = rows.findings()
            applied = [each for each in findings if each.applies]
            changing = [each for each in applied if any(setting.name in _OF_ROWS for setting in each.settings)]
            given, choices = choices, _with(choices, [part for each in changing for part in each.settings])
            if choices == given:
                return _profile(path, kind, rows, findings, samples, choices, notes, spell)
            notes += [spell(Refused(*each.parts)) for each in changing]
        except Refused as error:  # follow the setting that the message suggests, and note it
            choices = _followed(choices, error)
            notes.append(spell(error).removeprefix(f"{path}: "))


def _profile(
    path: Path,
    kind: str,
    table: Rows,
    findings: Sequence[Finding],
    samples: Sequence[str],
    choices: Choices,
    notes: Sequence[str],
    spell: Callable[[Worded], str],
) -> TableProfile:
    found = [*findings, *of_numbers(table.read_tallies, choices, used=False), *of_codes(table.read_tallies)]
    if unsolved := [each for each in found if each.is_error and not each.uses]:
        raise refused(unsolved)
    for finding in found:
        if finding.applies:
            has_ids = table.form.label is not None or choices.ids is not None
            choices = _with(choices, _settings(finding, has_ids=has_ids))
    names = table.head.called
    texts = {name: [spell(Refused(*each.parts)) for each in found if each.columns == (name,)] for name in set(names)}
    columns = tuple(_column(table, j, choices, texts[names[j]]) for j in sorted(table.tallies))
    places = [j for j in table.form.numbers if columns[j].use in ("feature", "categories")]
    form = table.form._replace(numbers=places)
    used, features = [table.tallies[j] for j in places], form.named(names)
    for named in (samples, features):
        labels(path, named, None)  # refuses names that a fit refuses
    said = [*notes, *(spell(Refused(*each.parts)) for each in found if not each.columns)]
    n_missing = sum(_n_missing(tally, choices) for tally in used)
    return TableProfile(
        str(path),
        kind,
        table.n_rows,
        columns,
        choices,
        tuple(features),
        str(form.dtype),
        n_missing,
        tuple(samples),
        tuple(said),
    )


def _settings(finding: Finding, *, has_ids: bool) -> list[Setting]:
    """Return the settings to follow: the best of a finding, and names of rows where there are none yet."""
    settings = [part for use in finding.uses for part in use if isinstance(part, Setting)]
    ids = next((each for each in settings if each.name == "ids"), None)
    if ids is None or (has_ids and finding.is_error):
        return finding.settings
    if has_ids:
        return [Setting("drop", list(finding.columns))]
    others = [name for name in finding.columns if name != ids.value]
    return [ids, *([Setting("drop", others)] if others else [])]


def _with(choices: Choices, settings: Sequence[Setting]) -> Choices:
    for setting in settings:
        value = setting.value
        if setting.name in ("drop", "na", "comment"):
            before = choices.comments if setting.name == "comment" else getattr(choices, setting.name)
            added = [value] if isinstance(value, str) else list(value)
            value = tuple(dict.fromkeys((*before, *added)))
        elif setting.name == "one_hot":
            value = choices.one_hot | dict.fromkeys([value] if isinstance(value, str) else value, ())
        choices = replace(choices, **{setting.name: value})
    return choices


def _followed(choices: Choices, error: Refused) -> Choices:
    """Return the settings that the message of an error suggests, or raise the error if there are none."""
    settings = [part for part in error.args if isinstance(part, Setting) and part.has_value]
    followed = _with(choices, [part for part in settings if part.name in _OF_ROWS])
    if followed == choices:
        raise error
    return followed


def _n_missing(tally: Tally, choices: Choices) -> int:
    """Return the number of missing values with the settings of a profile."""
    marks = set(values_of(choices.na)).difference(values_of(tally.choices.na))
    n_marked = sum(seen.count for value, seen in tally.sentinels.items() if value in marks)
    n_texts = 0 if tally.text else sum(seen.count for text, seen in tally.texts.items() if text.strip() in choices.na)
    n_texts += sum(seen.count for seen in tally.units.values() if seen.texts and seen.texts <= {*choices.na})
    is_half = choices.censored == "half" != tally.choices.censored and "<" in tally.limits
    return tally.n_missing + n_marked + n_texts - (tally.limits["<"].count if is_half else 0)


def _column(table: Rows, j: int, choices: Choices, notes: Sequence[str]) -> ColumnProfile:
    tally, name = table.tallies[j], table.head.called[j]
    is_label = j == table.form.label or name == choices.ids
    is_used = j in table.form.numbers and not choices.leaves_out(name)
    use: Use = "row names" if is_label else "excluded" if not is_used else "feature"
    why = [f"used for row names: {table.form.why}"] if j == table.form.label and table.form.why else []
    has_range = not tally.is_text and tally.low <= tally.high
    low, high, deviation = (tally.low, tally.high, float(tally.of.deviations[j])) if has_range else (None, None, None)
    misfits = {} if tally.is_text else tally.texts
    return ColumnProfile(
        name,
        tally.kind,
        "categories" if is_used and name in choices.one_hot else use,
        _n_missing(tally, choices),
        dict(tally.marks),
        {text: tuple(seen.rows) for text, seen in misfits.items()},
        0 if tally.is_text else tally.n_texts,
        low,
        high,
        deviation,
        len(tally.distinct) if tally.is_text and tally.distinct is not None else None,
        tally.unit() if tally.units else "",
        tuple(tally.examples),
        (*why, *notes),
    )
