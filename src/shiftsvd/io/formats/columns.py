"""Columns of a table: which of them are numbers or classes, which names the rows, and what they become."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Unfit, optional
from shiftsvd.io.choices import JOIN, Choices, said
from shiftsvd.io.formats.marks import NO_CLASS


class Layout(NamedTuple):
    """What the columns of batches become.

    Attributes
    ----------
    label : int or None
        Position of the column that names the rows.
    numbers : sequence of int
        Positions of the features, in their order.
    dtype : dtype
        The type that holds them all.
    classes : mapping
        Of those features that are classes: their positions, each with its classes; each becomes an indicator.
    """

    label: int | None
    numbers: Sequence[int]
    dtype: np.dtype[Any]
    classes: Mapping[int, Sequence[str]] = {}

    @property
    def width(self) -> int:
        return len(self.numbers) - len(self.classes) + sum(map(len, self.classes.values()))

    def named(self, names: Sequence[str]) -> list[str]:
        if not self.classes:
            return [names[j] for j in self.numbers]
        each = (
            [names[j] + JOIN + one for one in self.classes[j]] if j in self.classes else [names[j]]
            for j in self.numbers
        )
        return [name for names in each for name in names]


def layout(path: Path, schema: Any, choices: Choices) -> Layout:
    names = schema.names
    choices.check_names(names)
    label = _label(schema, choices)
    index = {name for name in _stored_index(schema) if name not in choices.columns}  # of pandas, and no data
    numbers = [j for j, name in enumerate(names) if j != label and name not in index and not choices.leaves_out(name)]
    if not numbers:
        raise ValueError(f"{path} has no column of numbers" + (" left" if choices.given else ""))
    classes = {j: choices.one_hot[names[j]] for j in numbers if names[j] in choices.one_hot}
    for j in numbers:
        if j not in classes:
            _check_numbers(path, schema.field(j))
    single = all(
        optional("pyarrow", "parquet").types.is_float32(schema.field(j).type) for j in numbers if j not in classes
    )
    return Layout(label, numbers, np.dtype(np.float32 if single else np.float64), classes)


def _check_numbers(path: Path, field: Any) -> None:
    types = optional("pyarrow", "parquet").types
    kind = field.type
    if any(known(kind) for known in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)):
        return
    drop = f"{said('drop', [field.name])} leaves it out"
    helps = f"{said('one_hot', [field.name])} makes a column of each class, {drop}" if is_text(kind) else drop
    raise ValueError(f"{path}: column {field.name!r} must be numbers, got {kind}; {helps}")


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


def to_numbers(batch: Any, form: Layout) -> npt.NDArray[Any]:
    if not form.classes:
        return _numbers(batch, form.numbers, form.dtype)
    X = np.empty((batch.num_rows, form.width), form.dtype)
    plain = [j for j in form.numbers if j not in form.classes]
    numbers = iter(_numbers(batch, plain, form.dtype).T if plain else ())
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
    # The default pool keeps what was freed for itself.
    tensor = numbers.cast(schema, safe=False).to_tensor(null_to_nan=True, memory_pool=pa.system_memory_pool())
    X: npt.NDArray[Any] = tensor.to_numpy()
    return X


def _indicators(batch: Any, j: int, classes: Sequence[str]) -> npt.NDArray[np.float64]:
    pa, pc = optional("pyarrow", "parquet"), optional("pyarrow.compute", "parquet")
    given = class_texts(batch.column(j))
    codes = pc.index_in(given, value_set=pa.array(classes, pa.string()))
    unknown = given.filter(pc.and_(codes.is_null(), given.is_valid()))
    if len(unknown):
        raise Unfit(f"{unknown[0].as_py()!r} is none of the classes {', '.join(map(repr, classes))}")
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


def found_classes(batches: Iterable[Any], positions: Sequence[int]) -> dict[int, tuple[str, ...]]:
    found: dict[int, set[str]] = {j: set() for j in positions}
    for batch in batches:
        batch.validate(full=True)
        for j in positions:
            found[j].update(one for one in class_texts(batch.column(j)).unique().to_pylist() if one is not None)
    return {j: in_order(those) for j, those in found.items()}


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
