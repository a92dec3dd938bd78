"""Columns of a table: names, numbers, categories, triplets, and errors about columns."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from shiftsvd.errors import Part, Refused, Setting, few, plural, sentence
from shiftsvd.io.base import Opened, bounded, labels, plausible_shape
from shiftsvd.io.choices import JOIN, NOTHING, Choices, naming
from shiftsvd.io.formats.cells import NO_CLASS, any_number, as_numpy, filled, is_empty, is_gap, number, pa, pc, strings
from shiftsvd.runs.messages import notice

FEW_TEXTS: Final = 3  # different texts that may be missing values among numbers
_PURPOSES: Final = {
    "one_hot": "encode each category as a column",
    "label_column": "colour the report of `shiftsvd fit`",
    "ids": "take row names from this column",
    "drop": "exclude",
}


Cells = Sequence[Sequence[str]]  # rows of cells
# Names of columns of identifiers; the columns that _NAMES matches hold texts.
_IDENTIFIERS: Final = re.compile(
    r"(.*[_\W])?(ids?|idx|index|key|uuid|guid|barcodes?|row|rows?_?(id|nr|no|num|number)|rownames?|nr|no|num|number|"
    r"serial|((zip|post(al)?|bar)[ _-]?)?code|plz|zip|iban|isbn|ean|record|unnamed: 0)",
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
    texts: frozenset[int] = frozenset()  # columns that hold no numbers, an error for features
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


def layout_of(
    names: Sequence[str], rows: Cells, short: bool, decimals: Sequence[str], choices: Choices, schema: Any = None
) -> Layout:
    # From the names and first rows; `short` if the header lacks the first name; `schema` of a Parquet or Arrow file.
    choices.check_names(names)
    held = ([row[j].strip() for row in rows] for j in range(len(names)))
    texts = frozenset(j for j, cells in enumerate(held) if not _are_numbers(cells, decimals[j], choices))
    label, why = _label(names, rows, short, choices) if schema is None else (_label_of(schema, choices, texts), None)
    index = set(_stored_index(schema)).difference(choices.columns)  # of pandas
    features = [j for j in _used(names, rows, choices) if j != label and names[j] not in index]
    if not features:
        raise _without_features(choices)
    classes = {j: choices.one_hot[names[j]] for j in features if names[j] in choices.one_hot}
    found = Layout(label, features, classes=classes, texts=texts, why=why)
    is_single = schema is not None and {schema.field(j).type for j in found.numeric} == {pa.float32()}
    return found._replace(dtype=np.dtype(np.float32)) if is_single else found


def _used(names: Sequence[str], rows: Cells, choices: Choices) -> list[int]:
    """Return the columns that are not left out, without those that have neither a name nor a value."""
    used = [j for j, name in enumerate(names) if not choices.leaves_out(name)]
    return [j for j in used if names[j] or any(row[j].strip() for row in rows)]


def _without_features(choices: Choices) -> Refused:
    if not choices.named:
        return Refused("the table has no columns of numbers. Check the delimiter, such as ", Setting("sep", ";"), ".")
    none = "no column is left for features: each column holds row names or is excluded. Change "
    return Refused(none, Setting("ids"), ", ", Setting("drop"), " or ", Setting("columns"), ".")


def _are_numbers(cells: Sequence[str], decimal: str, choices: Choices) -> bool:
    """Return True if most cells are numbers, or at least two and a few different texts."""
    there = [cell for cell in cells if not is_gap(cell) and cell.strip() not in choices.na]
    others = [cell for cell in there if number(cell, decimal) is None]
    n_numbers = len(there) - len(others)
    return 2 * n_numbers >= len(there) or (n_numbers > 1 and len(set(others)) <= FEW_TEXTS)


def _label(names: Sequence[str], rows: Cells, short: bool, choices: Choices) -> tuple[int | None, str | None]:
    if choices.ids is not None and choices.ids in names:
        return list(names).index(choices.ids), None
    used = _used(names, rows, NOTHING)  # a line that begins with a delimiter has an empty column in front
    first = used[0] if used else 0
    name, column = names[first], [row[first] for row in rows]
    if len(names) == 1 or name in (*choices.drop, *choices.columns, *choices.one_hot):
        return None, None
    if short:
        return 0, "the header has no name for this column"
    if name == "" and any(map(str.strip, column)):
        return first, "this column has no name"
    cells = [cell.strip() for cell in column if not is_gap(cell)]
    n_numbers = sum(any_number(cell.strip("()")) for cell in cells)
    if 2 * n_numbers >= len(cells) or 2 * len(cells) < len(rows):
        return None, None
    if len(set(cells)) == len(cells) and not n_numbers:
        return first, "it holds text without repeats"
    is_name = says_identifiers(name) or _NAMES.fullmatch(name.strip()) is not None
    return (first, "it holds text and has a usual name for identifiers") if is_name else (None, None)


def says_identifiers(name: str) -> bool:
    name = name.strip()
    return _IDENTIFIERS.fullmatch(name) is not None or _CAMEL.fullmatch(name) is not None


def holds_numbers(kind: Any) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(is_kind(kind) for is_kind in kinds)


def use(setting: str, names: Sequence[str], most: int | None = None) -> tuple[Part, ...]:
    """Return a setting with the first `most` of these columns, and what it does with columns."""
    these = f" {'this column' if len(names) == 1 else 'these columns'}" if setting == "drop" else ""
    return naming(setting, names[:most]), f" to {_PURPOSES[setting]}{these}"


def remedies(uses: Sequence[Sequence[Part]], by_hand: str = "") -> tuple[Part, ...]:
    """Return a sentence that offers alternatives, first what to do in the file: " Use A to ..., or B to ..."."""
    if not uses:
        return sentence(by_hand) if by_hand else ()
    between = [", "] * (len(uses) - 2) + [f"{',' if len(uses) > 2 else ''} or "]
    return sentence(
        *(f"{by_hand}, or use " if by_hand else "use ",),
        *(part for mark, parts in zip(["", *between], uses, strict=False) for part in (mark, *parts)),
    )


def _label_of(schema: Any, choices: Choices, texts: Collection[int]) -> int | None:
    if choices.ids is not None and choices.ids in schema.names:
        return int(schema.names.index(choices.ids))
    stored = _stored_index(schema)
    if len(stored) == 1 and schema.get_field_index(stored[0]) >= 0:
        return int(schema.get_field_index(stored[0]))
    is_free = schema.names[:1] and schema.names[0] not in (*choices.drop, *choices.columns, *choices.one_hot)
    return 0 if is_free and 0 in texts and is_text(schema.field(0).type) else None


def _stored_index(schema: Any) -> list[str]:
    stored = getattr(schema, "pandas_metadata", None) or {}
    return [name for name in stored.get("index_columns", []) if isinstance(name, str)]


def is_text(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def texts(column: Any) -> list[str]:
    column = column.field("text") if _is_mixed(column.type) else column
    return ["" if value is None else str(value) for value in column.to_pylist()]


def as_texts(column: Any) -> Any:
    """Return the cells of a column as Arrow texts; "" if a value is null."""
    if is_text(column.type):
        column = column.cast(pa.string())
        return column.fill_null("") if column.null_count else column
    return strings(texts(column))


def _is_mixed(kind: Any) -> bool:
    # As `grid` makes columns with texts and numbers.
    return bool(pa.types.is_struct(kind)) and kind.names == ["text", "number"]


def numbers_of(column: Any) -> Any:
    """Return the cells that are stored as numbers, null elsewhere, or None if a column holds texts alone."""
    if _is_mixed(column.type):
        return column.field("number")
    return column if holds_numbers(column.type) else None


def sound(batch: Any) -> Any:
    batch.validate(full=True)  # otherwise damaged offsets lead to reads outside the buffers
    return batch


def with_indicators(
    numbers: npt.NDArray[Any],
    batch: Any,
    form: Layout,
    names: Sequence[str],
    na: Sequence[str] = (),
    row_of: Callable[[int], int] | None = None,  # numbers of rows of the batch in the file
) -> npt.NDArray[Any]:
    """Return columns of numbers with those of indicators between them; `na` are missing values."""
    if not form.classes:
        return numbers
    X, place, plain = np.empty((len(numbers), form.width), numbers.dtype), 0, iter(numbers.T)
    for j in form.numbers:
        if j in form.classes:
            column = filled(as_texts(batch.column(j)), strings(na)) if na else batch.column(j)
            part = indicators(column, form.classes[j], names[j], row_of)
        else:
            part = next(plain)[:, None]
        X[:, place : place + part.shape[1]] = part
        place += part.shape[1]
    return X


def numbers_in(batch: Any, positions: Sequence[int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if not positions:
        return np.empty((batch.num_rows, 0), dtype)
    numbers, kind = batch.select(list(positions)), pa.from_numpy_dtype(dtype)
    if set(numbers.schema.types) != {kind}:
        numbers = numbers.cast(pa.schema([field.with_type(kind) for field in numbers.schema]), safe=False)
    # The default pool does not return freed memory to the system.
    tensor = numbers.to_tensor(null_to_nan=True, memory_pool=pa.system_memory_pool())
    X: npt.NDArray[Any] = tensor.to_numpy()
    return X


def indicators(
    column: Any, classes: Sequence[str], name: str, row_of: Callable[[int], int] | None = None
) -> npt.NDArray[np.float64]:
    given = class_texts(column)
    codes = pc.index_in(given, value_set=strings(classes))
    unknown = np.flatnonzero(as_numpy(pc.and_(codes.is_null(), given.is_valid())))
    if len(unknown):
        category = given[int(unknown[0])].as_py()
        at = "" if row_of is None else f" (first in row {row_of(int(unknown[0])):,})"
        alike = next((one for one in classes if one.strip().casefold() == category.strip().casefold()), None)
        which = f"{category!r}{at}, which did not occur in the training data"
        remedy = "Remove these rows, or fit on data with this category." if alike is None else f"Write it as {alike!r}."
        categories = few(map(repr, classes), 10)
        raise Refused(f"column {name!r} has the category {which}. Known categories: {categories}. {remedy}")
    found = as_numpy(codes.fill_null(-1))
    X = np.where(found < 0, np.nan, 0.0)[:, None] + np.zeros(len(classes))
    known = np.flatnonzero(found >= 0)
    X[known, found[known]] = 1
    return X


def class_texts(column: Any) -> Any:
    if pa.types.is_boolean(column.type):
        column = pc.if_else(column, *strings(["True", "False"]))  # as pandas writes them in texts
    return filled(as_texts(column) if _is_mixed(column.type) else column.cast(pa.string()), strings(NO_CLASS))


def in_order(classes: Iterable[str]) -> tuple[str, ...]:
    those = list(classes)
    whole = all(one.removeprefix("-").isdecimal() for one in those)
    return tuple(sorted(those, key=int if whole else str))


def column_of_numbers(column: Any) -> npt.NDArray[Any]:
    is_float = pa.types.is_float32(column.type) or pa.types.is_float64(column.type)
    return as_numpy(column if is_float else column.cast(pa.float64(), safe=False))


_PLACES = (("row", "column"), ("row", "col"), ("i", "j"), ("user", "item"))
_VALUES = ("value", "x", "rating")
_BYTES = 48  # of memory for a triplet: parsed, concatenated, and in the CSR

Positions = tuple[int, int, int]
TRIPLETS: Final = (None, "matrix", "triplets")  # keys of tables


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
    path: Path,
    parts: Iterable[tuple[Any, npt.NDArray[Any]]],  # batches, and the values of their triplets
    where: Positions,
    memory_limit: int | str | None,
    *,
    digits: bool = False,
    features: Sequence[str] = (),  # of a fit: those without a triplet are 0, and others are removed
) -> Opened:
    rows, columns = _Axis("row", digits), _Axis("column", digits, features)
    values: list[npt.NDArray[Any]] = []
    count = 0
    for batch, numbers in parts:
        count += batch.num_rows
        bounded(path, _BYTES * count, memory_limit)
        rows.add(batch.column(where[0]))
        columns.add(batch.column(where[1]))
        values.append(numbers)
    if not count:
        raise Refused("the table has a header but no rows. Check that the file is complete.")
    i, j = rows.places(), columns.places()
    n_rows, x = int(i.max()) + 1, np.concatenate(values)
    known = j < len(features)
    if columns.names and known.any() and not known.all():  # new texts have new words
        new = [columns.names.popitem()[0] for _ in range(len(columns.names) - len(features))][::-1]
        notice(f"{path}: removed {plural(len(new), 'feature')} that the model does not have: {few(new)}.")
        i, j, x = i[known], j[known], x[known]
    shape = n_rows, max(int(j.max()) + 1, len(columns.names))
    plausible_shape(path, shape, memory_limit)
    X = coo_array((x, (i, j)), shape=shape).tocsr()
    named = (labels(path, axis.names, memory_limit) if axis.names else None for axis in (rows, columns))
    return Opened(X, next(named), next(named))


class _Axis:
    """Rows or columns of triplets; with `digits`, texts of digits may be positions."""

    def __init__(self, what: str, digits: bool, known: Sequence[str] = ()) -> None:
        self._what, self._digits, self._known = what, digits, known
        self.names: dict[str, int] = {}
        self._parts: list[npt.NDArray[Any]] = []

    def add(self, column: Any) -> None:
        holds_texts = is_text(column.type)
        column = column.cast(pa.string()) if holds_texts else column
        if count := column.null_count or (holds_texts and is_empty(column).true_count):
            text = f"the {self._what} is missing in {plural(count, 'triplet')}. Remove such lines from the file."
            raise Refused(text)
        if holds_texts:
            self.names = self.names or {name: i for i, name in enumerate(self._known)}
            encoded = column.dictionary_encode()
            codes = [self.names.setdefault(name, len(self.names)) for name in encoded.dictionary.to_pylist()]
            self._parts.append(np.array(codes, np.int64)[as_numpy(encoded.indices)])
        elif pa.types.is_integer(column.type):
            self._parts.append(as_numpy(column).astype(np.int64))
        else:
            rule = "must be positions (integers from 0) or names (texts)"
            raise Refused(f"the {self._what}s of triplets {rule}, got {column.type}")

    def places(self) -> npt.NDArray[np.int64]:
        places = np.concatenate(self._parts)
        if self._digits and self.names and all(map(_is_whole, self.names)):
            places = np.array([int(text) for text in self.names], np.int64)[places]
            self.names = {}
        if places.min() < 0:
            raise Refused(f"positions of {self._what}s must be at least 0, got {places.min()}. Count from 0.")
        return places


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and (text == "0" or text.lstrip("-")[0] != "0")
