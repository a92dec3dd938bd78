"""Columns of a table: which of them are numbers, and which names the rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional


class Layout(NamedTuple):
    """Position of the column that names the rows, positions of the numbers, and the type that holds them all."""

    label: int | None
    numbers: Sequence[int]
    dtype: np.dtype[Any]


def layout(path: Path, schema: Any) -> Layout:
    """Of a table with types; every column but the names must be numbers."""
    label = _label(schema)
    numbers = [j for j in range(len(schema)) if j != label]
    if not numbers:
        raise ValueError(f"{path} has no column of numbers")
    types = optional("pyarrow", "parquet").types
    for field in map(schema.field, numbers):
        kind = field.type
        known = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(is_known(kind) for is_known in known):
            raise ValueError(f"{path}: column {field.name!r} must be numbers, got {kind}; drop or encode it first")
    single = all(types.is_float32(schema.field(j).type) for j in numbers)
    return Layout(label, numbers, np.dtype(np.float32 if single else np.float64))


def _label(schema: Any) -> int | None:
    """The index that pandas stored, else the first column if it is text."""
    stored = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
    if len(stored) == 1 and schema.get_field_index(stored[0]) >= 0:
        return int(schema.get_field_index(stored[0]))
    return 0 if len(schema) and is_text(schema.field(0).type) else None


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a category of texts."""
    types = optional("pyarrow", "parquet").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def texts(column: Any) -> list[str]:
    """A column as Python strings; a missing one is empty."""
    return ["" if value is None else str(value) for value in column.to_pylist()]


def to_numbers(batch: Any, form: Layout) -> npt.NDArray[Any]:
    """The numbers of a batch as an array; missing ones are NaN."""
    pa = optional("pyarrow", "parquet")
    numbers = batch.select(list(form.numbers))
    kind = pa.from_numpy_dtype(form.dtype)
    schema = pa.schema([field.with_type(kind) for field in numbers.schema])
    X: npt.NDArray[Any] = numbers.cast(schema, safe=False).to_tensor(null_to_nan=True).to_numpy()
    return X


def column_of_numbers(column: Any) -> npt.NDArray[Any]:
    """One column of numbers as floats; missing ones are NaN."""
    pa = optional("pyarrow", "parquet")
    if not (pa.types.is_float32(column.type) or pa.types.is_float64(column.type)):
        column = column.cast(pa.float64(), safe=False)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
