"""Validation of the data that users pass: structure, numbers, NaN and infinity by column."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.blocked import Rows, cut, exhaust
from shiftsvd.backends.dense import BLOCK, native_dtype
from shiftsvd.backends.sparse import ENTRIES
from shiftsvd.errors import Part, Refused, Setting, plain_lines, plural, sentence
from shiftsvd.kernels import best, ordered, twin
from shiftsvd.kernels.twin import CSR, take_rows
from shiftsvd.numerics.panels import unmasked
from shiftsvd.runs.memory import affordable

Counts = npt.NDArray[np.int64]
SHOWN: Final = 5  # columns in an error
FILL: Final = (
    *("remove or fill these values, or pass ", Setting("missing", "mean"), " or ", Setting("missing", "em")),
    " to svd or PCA",
)


@dataclass(frozen=True, eq=False)
class BadValues:
    """Positions of NaN and infinite values in a matrix, and the text of an error about them."""

    n_nan: int
    n_inf: int
    rows: Counts  # shape (2, j): numbers of rows with such values, from 0, and the count in each
    columns: Counts
    gaps: bool = False  # NaN marks a missing entry, which is allowed
    nothing_else: bool = False  # these columns have no observed entry
    where: str = ""  # the file, and the rows that were read of it
    names: Any = None  # of columns: texts, or a mapping to column numbers that count from 1
    drop: Part | None = None  # setting that removes these columns, for tables
    remedy: Part | None = None  # replaces the usual remedy
    n_rows: int = 0  # that were read; 0: unknown

    @property
    def n_empty(self) -> int:
        """Number of columns without a value in the rows that were read."""
        return int(np.count_nonzero(self.columns[1] == self.n_rows))

    @property
    def parts(self) -> tuple[Part, ...]:
        at, these = self._at, "this column" if len(self.columns[0]) == 1 else "these columns"
        bad = " and ".join(f"{n:,} {what}" for n, what in ((self.n_nan, "NaN"), (self.n_inf, "inf")) if n)
        said = f"the matrix must be finite, got {bad} in {at}"
        usual: tuple[Part, ...] = ("remove or replace these values",) if self.n_inf else FILL
        if self.nothing_else:
            said, usual = (
                f"every column needs an observed entry, got none in {at}",
                (f"remove {these}, or use ", Setting("missing", "em"), ", which gives components of 0"),
            )
        elif self.gaps:
            said = f"the matrix must be finite or NaN, got {plural(self.n_inf, 'infinite value')} in {at}"
            usual = ("remove these values or set them to NaN",)
        elif self.names is not None and not self.n_inf:
            said = f"{self.n_nan:,} entr{'ies are' if self.n_nan > 1 else 'y is'} missing (NaN), in {at}"
        remedy = sentence(*(usual if self.remedy is None else (self.remedy,)))
        drop = () if self.drop is None else sentence("use ", self.drop, f" to exclude {these}")
        return (f"{self.where}{said}.", *remedy, *drop)

    @property
    def _at(self) -> str:
        places, counts = self.columns
        more, shown = len(places) - SHOWN, places[:SHOWN]
        if self.names is None:
            first = ", ".join(map(str, shown)) + (", ..." if more > 0 else "")
            one = f"column {first} (counted from 0)"
            return one if len(places) == 1 else f"{len(places):,} columns ({first}, counted from 0)"
        if len(places) == 1:
            name = self.names[places[0]]
            return _called(name) if isinstance(name, int) else f"column {_called(name)}"
        numbers = ["" if self.nothing_else else f" ({n:,})" for n in counts[:SHOWN]]
        some = ", ".join(_called(self.names[j]) + n for j, n in zip(shown, numbers, strict=True))
        return some + (f" and {plural(more, 'more column')}" if more > 0 else "")


class NotFinite(Refused):
    """ValueError for NaN or infinite values."""

    def __init__(self, found: BadValues) -> None:
        super().__init__(*found.parts)
        self.found = found

    def __reduce__(self) -> tuple[Any, ...]:  # workers of a cluster send it
        return NotFinite, (self.found,)

    def but(self, **known: Any) -> "NotFinite":
        return NotFinite(replace(self.found, **known))

    def after(self, text: str) -> "NotFinite":
        return self.but(where=text + self.found.where)

    def plain(self) -> "NotFinite":
        return self.but(where=plain_lines(self.found.where))

    def turned(self) -> "NotFinite":
        return self.but(rows=self.found.columns, columns=self.found.rows, n_rows=0)


def _called(name: Any) -> str:
    return f"column {name}" if isinstance(name, int) else repr(str(name))


@contextmanager
def named(names: Any) -> Iterator[None]:
    try:
        yield
    except NotFinite as error:
        texts = names is not None and all(isinstance(name, str) for name in names)  # numbers are positions
        raise (error.but(names=names) if error.found.names is None and texts else error) from None


def numeric_array(X: Any) -> npt.NDArray[Any]:
    if isinstance(X, str | bytes) or np.isscalar(X) or X is None:
        remedy = ". Read a file with shiftsvd.io.open_matrix." if isinstance(X, str | bytes) else ""
        what = f"the matrix must be an array, sparse matrix, data frame or operator, got {type(X).__name__}"
        raise TypeError(what + remedy)
    array = np.asarray(unmasked_matrix(X))
    if array.dtype.kind == "O":
        array = _from_objects(array)
    check_numbers(array.dtype, array.shape)
    return array


def check_numbers(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if dtype.kind not in "fciub":
        raise ValueError(f"the matrix must be numeric, got dtype {dtype}. Encode text and dates as numbers.")
    if len(shape) != 2:
        remedy = "Use reshape(-1, 1) for one column."
        if len(shape) > 2:
            of_field = "for a fit of a field with named dimensions, shiftsvd.xarray.pca"
            remedy = f"Use reshape({shape[0]}, -1), or, {of_field}."
        raise ValueError(f"the matrix must have two dimensions, got shape {shape}. {remedy}")
    if min(shape) < 1:
        raise ValueError(f"the matrix must have at least one row and one column, got shape {shape}")


def unannotated(X: Any) -> None:
    if hasattr(X, "var_names") and hasattr(X, "obs_names") and not is_frame(X):
        kind = type(X).__name__
        raise TypeError(f"expected a matrix, got {kind}. Use shiftsvd.scanpy.pca(adata), or pass the matrix adata.X.")


def unmasked_matrix(X: Any) -> Any:
    unannotated(X)
    if isinstance(X, tuple) and X and len(getattr(X[0], "shape", ())) == 2:
        raise ValueError(
            "X must be one matrix, got a tuple whose first element is one. Pass that element: `open_matrix` "
            "returns the matrix and the names: A, names = open_matrix(path)."
        )
    return unmasked(
        "the matrix", X, "fill them, or pass X.astype(float).filled(np.nan) with ", Setting("missing", "mean")
    )


def _from_objects(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if any(isinstance(x, str | bytes) for x in X.flat):
        raise ValueError("the matrix must be numeric, got objects that are strings. Encode them as numbers.")
    is_complex = any(isinstance(x, complex | np.complexfloating) for x in X.flat)
    try:
        return X.astype(np.complex128 if is_complex else np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the matrix must be numeric, got objects that are not numbers: {error}") from None


def is_frame(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(X, "columns")


def from_frame(X: Any) -> Any:
    if type(X).__module__.startswith("polars"):
        return X.to_numpy()
    if len(X.columns) and all(_is_sparse(dtype) for dtype in X.dtypes):
        return filled_with_zeros(X).sparse.to_coo().tocsr()
    # pandas' nullable types, such as Int64, are not NumPy types and mark missing values by <NA>.
    if any(not isinstance(dtype, np.dtype) for dtype in X.dtypes) and all(d.kind in "fiub" for d in X.dtypes):
        return X.to_numpy(dtype=np.float64, na_value=np.nan)
    return X.to_numpy()


def filled_with_zeros(X: Any) -> Any:
    if not is_frame(X) or not any(_is_sparse(dtype) and dtype.fill_value != 0 for dtype in X.dtypes):
        return X
    return X.apply(_filled_with_zeros)


def before_sklearn(X: Any) -> Any:
    unmasked_matrix(X)
    sound_places(X)
    return filled_with_zeros(X)


def _filled_with_zeros(column: Any) -> Any:
    if not _is_sparse(column.dtype) or column.dtype.kind not in "fiub":
        return column
    return column.sparse.to_dense().astype(type(column.dtype)(column.dtype.subtype, 0))


def _is_sparse(dtype: Any) -> bool:
    return type(dtype).__name__ == "SparseDtype"


def finite_dense(X: npt.NDArray[Any], allow_nan: bool = False) -> None:
    if X.dtype.kind not in "fc":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(X, axis=None)):  # a finite sum has no NaN or infinite term
            return
    tall = X if X.shape[0] >= X.shape[1] else X.T
    by_row, by_column = (np.zeros(size, np.int64) for size in tall.shape)
    n_nan = 0
    for lo, hi in cut(len(tall), BLOCK // tall.shape[1]):
        bad = _bad(tall[lo:hi], allow_nan)
        if bad.any():
            by_row[lo:hi] = bad.sum(axis=1)
            by_column += bad.sum(axis=0)
            n_nan += int(np.isnan(tall[lo:hi][bad]).sum())
    if by_row.any():
        _refuse(n_nan, *((by_row, by_column) if tall is X else (by_column, by_row)), allow_nan, len(X))


def finite_sparse(X: CSR, by_columns: bool = False, allow_nan: bool = False) -> None:
    if X.dtype.kind not in "fc":
        return
    data = X.data[: X.indptr[-1]]
    bad = np.concatenate([lo + np.flatnonzero(_bad(data[lo:hi], allow_nan)) for lo, hi in cut(len(data), BLOCK)])
    if len(bad):
        lines, across = np.searchsorted(X.indptr, bad, side="right") - 1, X.indices[bad]
        rows, columns = (across, lines) if by_columns else (lines, across)
        n_nan, n_rows = int(np.isnan(data[bad]).sum()), X.shape[int(by_columns)]
        _refuse(n_nan, np.bincount(rows), np.bincount(columns), allow_nan, n_rows)


def _bad(x: npt.NDArray[Any], allow_nan: bool) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isinf(x) if allow_nan else ~np.isfinite(x))


def _refuse(n_nan: int, rows: npt.NDArray[Any], columns: npt.NDArray[Any], allow_nan: bool, n_rows: int) -> None:
    by_row, by_column = (np.stack([np.flatnonzero(counts), counts[counts > 0]]) for counts in (rows, columns))
    raise NotFinite(BadValues(n_nan, int(rows.sum()) - n_nan, by_row, by_column, allow_nan, n_rows=n_rows))


def canonical(X: Any, n_threads: int, memory_limit: int | str | None, allow_nan: bool = False) -> tuple[CSR, bool]:
    # A CSR of sorted rows without duplicates, and whether it is the adjoint of X, as it is of a CSC.
    check_numbers(X.dtype, X.shape)
    if X.format not in ("csr", "csc"):
        affordable(X.nnz * (X.dtype.itemsize + 8), memory_limit, f"converting {X.format.upper()} to CSR")
        sound_places(X)
        X = X.tocsr()
    sound_pointers(X)
    by_columns = X.format == "csc"
    shape = X.shape[::-1] if by_columns else X.shape
    used = int(X.indptr[-1])  # SciPy allows longer arrays, but only of equal length
    data = X.data[:used].conj() if by_columns and X.dtype.kind == "c" else X.data[:used]
    # The kernels read contiguous arrays in the machine's byte order; half precision and long doubles are converted.
    dtype = native_dtype(data.dtype) if allow_nan or data.dtype.kind in "fc" else data.dtype
    if dtype != data.dtype:
        affordable(used * dtype.itemsize, memory_limit, f"converting {data.dtype} to {dtype}")
    data = np.ascontiguousarray(data, dtype)
    indices, indptr = np.ascontiguousarray(X.indices[:used]), np.ascontiguousarray(X.indptr)
    # The arrays are shared; only flags such as `has_sorted_indices` are kept on our own container.
    C = csr_array((data, indices, indptr), shape=shape, copy=False)
    found = inspected(C, n_threads)
    if not found.inside:
        sound_structure(X)  # raises the error
    if not found.finite:
        finite_sparse(C, by_columns, allow_nan)
    C.has_canonical_format = found.in_order
    if not found.in_order:
        affordable(C.nnz * (C.dtype.itemsize + C.indices.itemsize), memory_limit, "sorting the sparse rows")
        C = sorted_rows(C, n_threads)
    return C, by_columns


class Inspected(NamedTuple):
    """Properties of all entries of a CSR matrix."""

    finite: bool
    inside: bool  # column indices are inside of the matrix
    in_order: bool  # column indices increase in each row


def inspected(X: CSR, n_threads: int) -> Inspected:
    kernels = best if X.dtype.char in "fd" else twin
    parts = list(ordered(lambda rows: kernels.inspect(X, rows), _blocks(X), n_threads))
    n_nan, n_inf, least, largest, in_order = zip(*parts, strict=True)
    inside = min(least) >= 0 and max(largest) < X.shape[1]
    return Inspected(not any(n_nan + n_inf), inside, all(in_order))


def sorted_rows(X: CSR, n_threads: int) -> CSR:
    X = X.copy()

    def part(rows: Rows) -> None:
        block = take_rows(X, *rows)
        block.has_sorted_indices = False
        block.sort_indices()

    exhaust(ordered(part, _blocks(X), n_threads))
    X.has_sorted_indices = True
    X.sum_duplicates()
    return X


def _blocks(X: CSR) -> list[Rows]:
    return cut(X.shape[0], X.shape[0] // max(1, X.nnz // ENTRIES))


def sound_places(X: Any) -> None:
    kind = getattr(X, "format", None)
    if kind == "coo":
        for of, places, size in zip(("row", "column"), X.coords, X.shape, strict=True):
            needs = f"{of} coordinates must be"
            if places.dtype.kind not in "iu" or places.shape != X.data.shape:
                raise _corrupt(X, f"{needs} {X.data.size:,} integers, got {places.size:,} of {places.dtype}")
            if len(places) and (places.min() < 0 or places.max() >= size):
                raise _corrupt(X, f"{needs} in 0..{size - 1}, got {places.min()}..{places.max()}")
    elif kind == "bsr":
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            raise _corrupt(X, str(error)) from None
    elif kind == "lil":
        for i, (places, values) in enumerate(zip(X.rows, X.data, strict=True)):
            if len(places) != len(values):
                counts = f"got {len(values)} and {len(places)}"
                raise _corrupt(X, f"row {i} must have as many values as column indices, {counts}")


def _corrupt(X: Any, rule: str, where: str = "") -> ValueError:
    return ValueError(
        f"{where}corrupt {X.format.upper()} structure: {rule}. Create the matrix again from its values, rows "
        "and columns."
    )


def sound_structure(X: Any) -> None:
    sound_pointers(X)
    across, used = X.shape[X.format == "csr"], X.indices[: X.indptr[-1]]
    if len(used) and (used.min() < 0 or used.max() >= across):
        raise _corrupt(X, f"indices must be in 0..{across - 1}, got {used.min()}..{used.max()}")


def sound_pointers(X: Any, where: str = "") -> None:
    lines = X.shape[X.format == "csc"]
    indptr, indices = X.indptr, X.indices
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        rule = f"indptr and indices must be integers, got {indptr.dtype} and {indices.dtype}"
    elif indptr.ndim != 1 or len(indptr) != lines + 1:
        rule = f"indptr must have {lines + 1:,} entries, got shape {indptr.shape}"
    elif indices.ndim != 1 or X.data.ndim != 1:
        rule = f"indices and data must be flat, got shapes {indices.shape} and {X.data.shape}"
    elif indptr[0] != 0 or np.any(indptr[1:] < indptr[:-1]):
        rule = "indptr must start at 0 and never decrease"
    elif indptr[-1] > min(len(indices), len(X.data)):
        rule = f"indptr ends at {indptr[-1]:,}, but there are {len(indices):,} indices and {len(X.data):,} values"
    else:
        return
    raise _corrupt(X, rule, where)
