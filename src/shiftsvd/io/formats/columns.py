"""Columns of a table: names, numbers, categories, triplets, and errors about columns."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from shiftsvd.errors import Part, Refused, Setting, few, sentence
from shiftsvd.io.base import Opened, bounded, labels, optional, plausible_shape
from shiftsvd.io.choices import JOIN, Choices, naming
from shiftsvd.io.formats.text import NO_CLASS, NOTATIONS, Marks, is_gap, looks_like_number, without_signs

_SHOWN = 6  # columns in an error
_LONGEST = 40  # characters of a cell in an error
_FEW = 10  # number of distinct texts from which a column without duplicates does not hold classes
_PURPOSES: Final = {
    "one_hot": "encode each category as a column",
    "label_column": "colour the report of `shiftsvd fit`",
    "ids": "take row names from this column",
    "drop": "exclude",
}
_DATE: Final = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?"
    r"|\d{1,2}[- ]?[A-Za-z]{3,9}\.?[- ,]*\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
)
_OTHER_MARKS = (*NOTATIONS, *(Marks(decimal, mark) for decimal in ".," for mark in " '\u00a0\u202f\u2019"))


def not_numbers(columns: Mapping[str, Sequence[str]], marks: Marks, *more: Part) -> Refused:
    wrong = {
        name: [cell.strip() for cell in cells if not is_gap(cell) and not marks.is_number(cell)] or [""]
        for name, cells in columns.items()
    }
    some = {name: min(cells, key=_is_otherwise) for name, cells in list(wrong.items())[:_SHOWN]}
    many = f" and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
    kinds = {name: "the date" if _DATE.fullmatch(cell) else "the text" for name, cell in some.items()}
    shown = ", ".join(f"{name!r} ({kinds[name]} {_short(cell)!r})" for name, cell in some.items())
    word = "column" if len(wrong) == 1 else "columns"
    return Refused(f"{word} {shown}{many} must be numbers.", *_remedies(wrong, columns, marks), *more)


def _remedies(wrong: Mapping[str, Sequence[str]], columns: Mapping[str, Sequence[str]], marks: Marks) -> list[Part]:
    if len(columns) > 1 and all(
        len(columns[name]) > 1 and each == [columns[name][0].strip()] for name, each in wrong.items()
    ):
        return [*sentence("if the first row below the header holds units, remove this row")]
    other = {name: _other_marks(cells, marks) for name, cells in wrong.items()}
    remedies: list[Part] = []
    if written := next((found for found in other.values() if found is not None), None):
        given = {"decimal": written.decimal, "thousands": written.thousands}
        changed = [[Setting(name, mark)] for name, mark in given.items() if mark and mark != getattr(marks, name)]
        remedies += sentence("use ", *_joined(changed, "and"), " to parse these numbers")
    signs = [name for name, found in other.items() if found is None and all(map(looks_like_number, wrong[name]))]
    if signs:
        cell = wrong[signs[0]][0]
        remedies += sentence(f"write {_short(without_signs(cell))} instead of {_short(cell)!r} in the file")
    left = [name for name, found in other.items() if found is None and name not in signs]
    uses: list[list[Part]] = []
    for setting, purpose in _PURPOSES.items():
        if helped := [name for name in left if setting in _settings(wrong[name], columns[name])]:
            named = naming(setting, helped[: _SHOWN if setting in ("one_hot", "drop") else 1])
            uses.append([named, f" to {purpose}{_excluded(helped) if setting == 'drop' else ''}"])
    return [*remedies, *(sentence("use ", *_joined(uses, "or")) if uses else ())]


def _excluded(names: Sequence[str]) -> str:
    return " this column" if len(names) == 1 else " these columns"


def _joined(each: Sequence[Sequence[Part]], last: str) -> list[Part]:
    between = [", "] * (len(each) - 2) + [f"{',' if len(each) > 2 else ''} {last} "]
    return [part for mark, parts in zip(["", *between], each, strict=False) for part in (mark, *parts)]


def _settings(wrong: Sequence[str], cells: Sequence[str]) -> tuple[str, ...]:
    there = [cell for cell in cells if not is_gap(cell)]
    all_differ = len(set(there)) == len(cells)
    if len(wrong) < len(there) or len(there) == 1:  # a text among numbers
        return ("ids", "drop") if all_differ and len(cells) > 1 else ("drop",)
    if _DATE.fullmatch(wrong[0]):
        return ("ids", "drop") if all_differ else ("drop",)
    if all_differ and len(there) >= _FEW:
        return "ids", "drop"
    return "one_hot", "ids" if all_differ else "label_column", "drop"


def _is_otherwise(cell: str) -> bool:
    return any(marks.is_number(cell) for marks in _OTHER_MARKS)


def _other_marks(cells: Sequence[str], marks: Marks) -> Marks | None:
    return next((each for each in _OTHER_MARKS if each != marks and all(map(each.is_number, cells))), None)


def _short(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…"


Cells = Sequence[Sequence[str]]  # rows of cells
# Names of columns of identifiers; the columns that _NAMES matches hold texts.
_IDENTIFIERS: Final = re.compile(
    r"(.*[_\W])?(ids?|idx|index|key|uuid|guid|barcodes?|row|rows?_?(id|nr|no|num|number)|rownames?|nr|no|num|number|"
    r"serial|code|record|unnamed: 0)",
    re.IGNORECASE,
)
_CAMEL: Final = re.compile(r".*[a-z](Id|ID|Nr|No|Key|Index)")
_NAMES: Final = re.compile(
    r"(names?|genes?|symbols?|samples?|cells?|features?|probes?|subjects?|patients?)", re.IGNORECASE
)


class Layout(NamedTuple):
    """Use of the columns of a table, by position."""

    label: int | None  # the column of row names
    numbers: Sequence[int]  # the columns of features, in order
    dtype: np.dtype[Any] = np.dtype(np.float64)  # of the features
    classes: Mapping[int, Sequence[str]] = {}  # classes of categorical features; each becomes an indicator
    why: str | None = None  # reason for taking the first column as row names without a setting

    @property
    def numeric(self) -> list[int]:
        return [j for j in self.numbers if j not in self.classes]

    @property
    def unknown(self) -> list[int]:
        return [j for j, classes in self.classes.items() if not classes]

    @property
    def width(self) -> int:
        return len(self.numbers) - len(self.classes) + sum(map(len, self.classes.values()))

    def named(self, names: Sequence[str]) -> list[str]:
        return [
            name
            for j in self.numbers
            for name in ([names[j] + JOIN + one for one in self.classes[j]] if j in self.classes else [names[j]])
        ]

    def with_classes(self, columns: Iterable[tuple[int, Any]]) -> "Layout":
        found = defaultdict[int, set[str]](set)
        for j, column in columns:
            found[j].update(one for one in class_texts(column).unique().to_pylist() if one is not None)
        return self._replace(classes={**self.classes, **{j: in_order(classes) for j, classes in found.items()}})

    def within(self, columns: Sequence[int]) -> "Layout":
        at = {j: place for place, j in enumerate(columns)}
        label = None if self.label is None else at[self.label]
        classes = {at[j]: classes for j, classes in self.classes.items()}
        return Layout(label, [at[j] for j in self.numbers], self.dtype, classes)


def layout_of_text(names: Sequence[str], rows: Cells, short: bool, marks: Marks, choices: Choices) -> Layout:
    # From the names and the first rows; `short` if the header lacks the first name.
    choices.check_names(names)
    label, why = _label_of_text(names, rows, short, marks, choices)
    empty = {j for j, name in enumerate(names) if name == "" and all(row[j].strip() == "" for row in rows)}
    form = _layout(names, label, empty, choices)
    cells = {j: [row[j] for row in rows] for j in form.numeric}
    wrong = {names[j]: each for j, each in cells.items() if not all(map(marks.reads, each))}
    if wrong:
        uncut = sentence("if the columns have another delimiter, use an option such as ", Setting("sep", " "))
        raise not_numbers(wrong, marks, *(uncut if len(names) == 1 else ()))
    return form._replace(why=why)


def _layout(names: Sequence[str], label: int | None, hidden: set[int], choices: Choices) -> Layout:
    features = [j for j, name in enumerate(names) if j not in (label, *hidden) and not choices.leaves_out(name)]
    if not features:
        if choices.given:
            raise Refused("no columns of numbers are left. Exclude fewer columns.")
        raise Refused("the table has no columns of numbers. Check the delimiter, such as ", Setting("sep", ";"), ".")
    return Layout(
        label, features, classes={j: choices.one_hot[names[j]] for j in features if names[j] in choices.one_hot}
    )


def _label_of_text(
    names: Sequence[str], rows: Cells, short: bool, marks: Marks, choices: Choices
) -> tuple[int | None, str | None]:
    if choices.ids is not None and choices.ids in names:
        return list(names).index(choices.ids), None
    name = names[0]
    if len(names) == 1 or name in (*choices.drop, *choices.columns, *choices.one_hot):
        return None, None
    if short:
        return 0, "the header has no name for this column"
    if name == "":
        return 0, "this column has no name"
    cells = [row[0].strip() for row in rows]
    if all(map(marks.reads, cells)):
        return None, None
    if len(set(cells)) == len(cells) and not any(map(looks_like_number, cells)):
        return 0, "it holds text without repeats"
    is_name = says_identifiers(name) or _NAMES.fullmatch(name.strip()) is not None
    return (0, "it holds text and has a usual name for identifiers") if is_name else (None, None)


def says_identifiers(name: str) -> bool:
    name = name.strip()
    return _IDENTIFIERS.fullmatch(name) is not None or _CAMEL.fullmatch(name) is not None


def layout_of_schema(schema: Any, choices: Choices) -> Layout:
    choices.check_names(schema.names)
    index = set(_stored_index(schema)).difference(choices.columns)  # the index of pandas is not a feature
    hidden = {j for j, name in enumerate(schema.names) if name in index}
    form = _layout(schema.names, _label(schema, choices), hidden, choices)
    fields = [schema.field(j) for j in form.numeric]
    for field in fields:
        _check_numbers(field)
    single = all(field.type == optional("pyarrow", "parquet").float32() for field in fields)
    return form._replace(dtype=np.dtype(np.float32 if single else np.float64))


def _check_numbers(field: Any) -> None:
    types = optional("pyarrow", "parquet").types
    kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    if not any(is_kind(field.type) for is_kind in kinds):
        settings = ("one_hot", "drop") if is_text(field.type) else ("drop",)
        ends = {setting: _excluded([field.name]) if setting == "drop" else "" for setting in settings}
        uses: list[list[Part]] = [
            [Setting(setting, field.name), f" to {_PURPOSES[setting]}{ends[setting]}"] for setting in settings
        ]
        text = f"column {field.name!r} must be numbers, got {field.type}."
        raise Refused(text, *sentence("use ", *_joined(uses, "or")))


def _label(schema: Any, choices: Choices) -> int | None:
    if choices.ids is not None and choices.ids in schema.names:
        return int(schema.names.index(choices.ids))
    stored = _stored_index(schema)
    if len(stored) == 1 and schema.get_field_index(stored[0]) >= 0:
        return int(schema.get_field_index(stored[0]))
    first = schema.names[0] if len(schema) else None
    is_used = first in (*choices.drop, *choices.columns, *choices.one_hot)
    return 0 if first is not None and not is_used and is_text(schema.field(0).type) else None


def _stored_index(schema: Any) -> list[str]:
    return [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]


def is_text(kind: Any) -> bool:
    types = optional("pyarrow", "parquet").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def texts(column: Any) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]


def sound(batch: Any) -> Any:
    batch.validate(full=True)  # otherwise damaged offsets lead to reads outside the buffers
    return batch


def to_numbers(batch: Any, form: Layout) -> npt.NDArray[Any]:
    if not form.classes:
        return _numbers(batch, form.numbers, form.dtype)
    X = np.empty((batch.num_rows, form.width), form.dtype)
    numbers = iter(_numbers(batch, form.numeric, form.dtype).T if form.numeric else ())
    place = 0
    for j in form.numbers:
        found = _indicators(batch, j, form.classes[j]) if j in form.classes else next(numbers)[:, None]
        X[:, place : place + found.shape[1]] = found
        place += found.shape[1]
    return X


def _numbers(batch: Any, positions: Sequence[int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    pa = optional("pyarrow", "parquet")
    numbers = batch.select(list(positions))
    kind = pa.from_numpy_dtype(dtype)
    schema = pa.schema([field.with_type(kind) for field in numbers.schema])
    # The default pool does not return freed memory to the system.
    tensor = numbers.cast(schema, safe=False).to_tensor(null_to_nan=True, memory_pool=pa.system_memory_pool())
    X: npt.NDArray[Any] = tensor.to_numpy()
    return X


def _indicators(batch: Any, j: int, classes: Sequence[str]) -> npt.NDArray[np.float64]:
    pa, pc = optional("pyarrow", "parquet"), optional("pyarrow.compute", "parquet")
    given = class_texts(batch.column(j))
    codes = pc.index_in(given, value_set=pa.array(classes, pa.string()))
    unknown = given.filter(pc.and_(codes.is_null(), given.is_valid()))
    if len(unknown):
        category, categories = repr(unknown[0].as_py()), few(map(repr, classes), 10)
        raise Refused(f"category {category} did not occur in the training data. Known categories: {categories}.")
    found = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    X = np.where(found < 0, np.nan, 0.0)[:, None] + np.zeros(len(classes))
    known = np.flatnonzero(found >= 0)
    X[known, found[known]] = 1
    return X


def class_texts(column: Any) -> Any:
    pa, pc = optional("pyarrow", "parquet"), optional("pyarrow.compute", "parquet")
    if pa.types.is_boolean(column.type):
        column = pc.if_else(column, "True", "False")  # as pandas writes them in texts
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.is_in(trimmed, pa.array(NO_CLASS)), pa.scalar(None, pa.string()), trimmed)


def in_order(classes: Iterable[str]) -> tuple[str, ...]:
    those = list(classes)
    whole = all(one.removeprefix("-").isdecimal() for one in those)
    return tuple(sorted(those, key=int if whole else str))


def column_of_numbers(column: Any) -> npt.NDArray[Any]:
    pa = optional("pyarrow", "parquet")
    if not (pa.types.is_float32(column.type) or pa.types.is_float64(column.type)):
        column = column.cast(pa.float64(), safe=False)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


_PLACES = (("row", "column"), ("row", "col"), ("i", "j"), ("user", "item"))
_VALUES = ("value", "x", "rating")
_BYTES = 48  # of memory for a triplet: parsed, concatenated, and in the CSR

Positions = tuple[int, int, int]


def positions(names: Sequence[str], key: str | None) -> Positions | None:
    if key == "triplets":
        if len(names) < 3:
            raise ValueError(f"triplets need three columns, got {len(names)}: {', '.join(names)}")
        return (0, 1, 2)
    shown = [(j, name.strip().lower()) for j, name in enumerate(names) if name and not name.startswith("__index_level")]
    called = [name for _, name in shown]
    if key == "matrix" or len(called) != 3 or tuple(called[:2]) not in _PLACES or called[2] not in _VALUES:
        return None
    return (shown[0][0], shown[1][0], shown[2][0])


def gather(
    path: Path, batches: Iterable[Any], where: Positions, memory_limit: int | str | None, *, digits: bool = False
) -> Opened:
    rows, columns = _Axis("row", digits), _Axis("column", digits)
    values: list[npt.NDArray[Any]] = []
    count = 0
    for batch in batches:
        count += batch.num_rows
        bounded(path, _BYTES * count, memory_limit)
        rows.add(batch.column(where[0]))
        columns.add(batch.column(where[1]))
        values.append(column_of_numbers(batch.column(where[2])))
    if not count:
        raise Refused("the table has no rows of triplets.")
    i, j = rows.places(), columns.places()
    shape = int(i.max()) + 1, int(j.max()) + 1
    plausible_shape(path, shape, memory_limit)
    X = coo_array((np.concatenate(values), (i, j)), shape=shape).tocsr()
    named = (labels(path, axis.names, memory_limit) if axis.names else None for axis in (rows, columns))
    return Opened(X, next(named), next(named))


class _Axis:
    """Rows or columns of triplets; with `digits`, texts of digits may be positions."""

    def __init__(self, what: str, digits: bool) -> None:
        self._what, self._digits = what, digits
        self.names: dict[str, int] = {}
        self._parts: list[npt.NDArray[Any]] = []

    def add(self, column: Any) -> None:
        pa = optional("pyarrow", "parquet")
        if column.null_count:
            raise Refused(f"triplets must have a {self._what}, got {column.null_count:,} without. Remove these rows.")
        if is_text(column.type):
            encoded = column.cast(pa.string()).dictionary_encode()
            codes = [self.names.setdefault(name, len(self.names)) for name in encoded.dictionary.to_pylist()]
            self._parts.append(np.array(codes, np.int64)[encoded.indices.to_numpy()])
        elif pa.types.is_integer(column.type):
            self._parts.append(column.to_numpy(zero_copy_only=False).astype(np.int64))
        else:
            raise Refused(f"the {self._what}s of triplets must be positions or names, got {column.type}")

    def places(self) -> npt.NDArray[np.int64]:
        places = np.concatenate(self._parts)
        if self._digits and all(map(_is_whole, self.names)):
            places = np.array([int(text) for text in self.names], np.int64)[places]
            self.names = {}
        if places.min() < 0:
            raise Refused(f"positions of {self._what}s must be at least 0, got {places.min()}")
        return places


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and (text == "0" or text.lstrip("-")[0] != "0")
