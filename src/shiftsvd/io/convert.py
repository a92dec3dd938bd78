"""convert: write a matrix file in a format that can be read block by block: the layout of AnnData."""

import json
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, issparse

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.source import RowSource
from shiftsvd.backends.validation import sound_structure
from shiftsvd.errors import Refused, Setting, few, refuse
from shiftsvd.extend import merged
from shiftsvd.io.base import Labels, Opened, Orient, optional
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.location import located
from shiftsvd.io.opening import FeatureTypes, held_bytes, read_files
from shiftsvd.io.sniff import decoder_of
from shiftsvd.io.spooling import refuse_decoded, rereadable
from shiftsvd.io.storage.hdf5 import ErrorKeepingFile
from shiftsvd.io.storage.tree import row_edges
from shiftsvd.names import VarNamesName, resolve
from shiftsvd.runs.memory import limit_of
from shiftsvd.runs.messages import external_files, notice
from shiftsvd.runs.outputs import Outputs, kind_of, local

# --- the layout of AnnData, written block by block, in HDF5 or Zarr ---

Block = csr_array | npt.NDArray[Any]
COMPRESSIONS = (None, "none", "gzip", "zstd")
_EMPTY = ("layers", "obsm", "varm", "obsp", "varp", "uns")
_WRITER = "written-by"  # attribute of the root of Zarr folders that this module writes
_PARTS = {"", "obs", "obs/_index", "var", "var/_index", "X", "X/data", "X/indices", "X/indptr", *_EMPTY}
_ZARR_FILE = re.compile(r"\.zgroup|\.zattrs|\.zarray|\d+(\.\d+)*")
_ENTRIES, _CHUNK = 2**17, 2**20  # entries in a chunk of a sparse matrix; bytes in a chunk of a dense one
_NAMES = 2**16  # names in a block: millions of strings take more memory than the data of a tall file


@dataclass(frozen=True, eq=False)
class Store:
    """An open file of HDF5, or of Zarr in the format that every version of AnnData reads, written block after block."""

    root: Any
    settings: dict[str, Any]  # compression of arrays
    file: ErrorKeepingFile | None = None  # of HDF5; Zarr raises errors of writes itself

    def check(self) -> None:
        if self.file is not None:
            self.file.check()

    def array(self, group: Any, name: str, dtype: Any, chunk: tuple[int, ...]) -> Any:
        known = {"shape": (0, *chunk[1:]), "dtype": dtype, "chunks": chunk, **self.settings}
        if self.file is not None:
            return group.create_dataset(name, maxshape=(None, *chunk[1:]), **known)
        return group.create_array(name, **known)

    def texts(self, group: Any, name: str, size: int) -> Any:
        if self.file is not None:
            return group.create_dataset(name, size, optional("h5py", "hdf5").string_dtype())
        chunk = {"chunks": (_NAMES,)} if size > _NAMES else {}
        return group.create_array(name, shape=size, dtype=str, **self.settings, **chunk)

    def append(self, array: Any, block: npt.NDArray[Any]) -> None:
        first, chunk = array.shape[0], array.chunks[0]
        array.resize((first + len(block), *array.shape[1:]))
        # By whole chunks: Zarr reads and writes a chunk for each part of it.
        ahead = -first % chunk
        for lo, hi in pairwise(sorted({0, *range(ahead, len(block), chunk), len(block)})):
            array[first + lo : first + hi] = block[lo:hi]
        self.check()


@contextmanager
def creating(path: Path, compression: str | None) -> Iterator[Store]:
    packed = compression not in (None, "none")
    if path.suffix == ".zarr":
        zarr, numcodecs = optional("zarr", "zarr"), optional("numcodecs", "zarr")
        codec = (numcodecs.GZip if compression == "gzip" else numcodecs.Zstd)() if packed else None
        root = zarr.open_group(str(path), mode="w-", zarr_format=2)
        root.attrs[_WRITER] = "shiftsvd"
        yield Store(root, {"compressors": codec})
        return
    filters: dict[str, Any] = {"compression": "gzip", "shuffle": True} if compression == "gzip" else {}
    if compression == "zstd":
        filters = {**optional("hdf5plugin", "hdf5").Zstd(), "shuffle": True}
    with ErrorKeepingFile(path) as file:
        with closing(optional("h5py", "hdf5").File(file, "w")) as root:
            yield Store(root, filters, file)
        file.check()


def is_converted(folder: Path) -> bool:
    for home, folders, files in os.walk(folder):
        inside = Path(home)
        ours = inside.relative_to(folder).as_posix().removeprefix(".") in _PARTS
        if not ours or not all(_ZARR_FILE.fullmatch(name) for name in files):
            return False
        if any(kind_of(inside / name) not in ("a file", "a folder") for name in (*folders, *files)):
            return False
    try:
        return bool(json.loads((folder / ".zattrs").read_bytes()).get(_WRITER) == "shiftsvd")
    except (OSError, ValueError, AttributeError):
        return False


def write(
    store: Store, blocks: Iterable[Block], shape: tuple[int, int], names: tuple[Labels | None, Labels | None]
) -> None:
    mark(store.root, "anndata", "0.1.0")
    for frame, labels, size in zip(("obs", "var"), names, shape, strict=True):
        write_frame(store, frame, labels, size)
    for empty in _EMPTY:
        mark(store.root.create_group(empty), "dict", "0.1.0")
    blocks = iter(blocks)
    first = next(blocks)
    written = (_write_dense if isinstance(first, np.ndarray) else _write_sparse)(store, first, blocks, shape)
    if written != shape[0]:
        raise ValueError(
            f"the input ended after {written:,} of {shape[0]:,} rows. It was changed during the conversion, or is "
            "truncated. Convert it again."
        )


def _write_sparse(store: Store, first: Any, blocks: Iterable[Any], shape: tuple[int, int]) -> int:
    group = store.root.create_group("X")
    mark(group, "csr_matrix", "0.1.0")
    group.attrs["shape"] = [int(size) for size in shape]
    data = store.array(group, "data", first.dtype, (_ENTRIES,))
    narrow = shape[1] <= np.iinfo(np.int32).max
    indices = store.array(group, "indices", np.int32 if narrow else np.int64, (_ENTRIES,))
    counts = []
    for block in chain([first], blocks):
        sound_structure(block)
        block.sum_duplicates()
        store.append(data, block.data)
        store.append(indices, block.indices)
        counts.append(np.diff(block.indptr).astype(np.int64))
    lengths = np.concatenate(counts)
    store.append(store.array(group, "indptr", np.int64, (_ENTRIES,)), np.cumsum(np.concatenate([[0], lengths])))
    return len(lengths)


def _write_dense(store: Store, first: Any, blocks: Iterable[Any], shape: tuple[int, int]) -> int:
    rows = int(np.clip(_CHUNK // (shape[1] * first.dtype.itemsize), 1, shape[0]))
    array = store.array(store.root, "X", first.dtype, (rows, shape[1]))
    mark(array, "array", "0.2.0")
    for block in chain([first], blocks):
        store.append(array, block)
    return int(array.shape[0])


def write_frame(store: Store, name: str, labels: Labels | None, size: int) -> None:
    group = store.root.create_group(name)
    mark(group, "dataframe", "0.2.0")
    group.attrs["_index"] = "_index"
    group.attrs["column-order"] = []
    array = store.texts(group, "_index", size)
    mark(array, "string-array", "0.2.0")
    for lo, hi in cut(size, _NAMES):
        array[lo:hi] = np.array(list(map(str, range(lo, hi) if labels is None else labels[lo:hi].tolist())), object)
        store.check()


def mark(node: Any, kind: str, version: str) -> Any:
    node.attrs["encoding-type"] = kind
    node.attrs["encoding-version"] = version
    return node


# --- convert ---

Bucket = tuple[int, int]  # columns of the file: rows of the adjoint


def adjoint_blocks(source: RowSource, n_bytes: int, folder: Path) -> Iterator[csr_array | npt.NDArray[Any]]:
    # Blocks of rows of about `n_bytes`. Read the source once (twice if it is sparse: count entries first, so that
    # buckets have equal sizes) and scatter each block over the buckets, files in `folder`; then read each bucket once.
    return _sparse(source, n_bytes, folder) if source.sparse else _dense(source, n_bytes, folder)


def _dense(source: RowSource, n_bytes: int, folder: Path) -> Iterator[npt.NDArray[Any]]:
    m, n = source.shape
    buckets = list(pairwise(row_edges((n, m), source.dtype.itemsize, 1, n_bytes)))
    for block in _row_blocks(source, n_bytes):
        for bucket in buckets:
            _append(folder, bucket, np.ascontiguousarray(block[:, slice(*bucket)]))
    for lo, hi in buckets:
        columns = _take(folder, (lo, hi), source.dtype).reshape(m, hi - lo)
        yield np.ascontiguousarray(columns.conj().T)


def _sparse(source: RowSource, n_bytes: int, folder: Path) -> Iterator[csr_array]:
    m, n = source.shape
    entry = np.dtype([("row", np.int64), ("column", np.int64), ("value", source.dtype)])
    counts = np.zeros(n, np.int64)
    for block in _row_blocks(source, n_bytes):
        counts += np.bincount(block.indices, minlength=n)
    buckets = _equal(counts * entry.itemsize, n_bytes)
    first = 0
    for block in _row_blocks(source, n_bytes):
        C = block.tocsc()
        for lo, hi in buckets:
            entries = np.empty(C.indptr[hi] - C.indptr[lo], entry)
            entries["row"] = C.indices[C.indptr[lo] : C.indptr[hi]] + np.int64(first)
            entries["column"] = np.repeat(np.arange(hi - lo), np.diff(C.indptr[lo : hi + 1]))
            entries["value"] = C.data[C.indptr[lo] : C.indptr[hi]].conj()
            _append(folder, (lo, hi), entries)
        first += block.shape[0]
    for lo, hi in buckets:
        entries = _take(folder, (lo, hi), entry)
        yield csr_array(coo_array((entries["value"], (entries["column"], entries["row"])), shape=(hi - lo, m)))


def _row_blocks(source: RowSource, n_bytes: int) -> Iterator[Any]:
    for lo, hi in pairwise(source.edges(n_bytes)):
        block = source.read(lo, hi)
        if not isinstance(block, np.ndarray):
            sound_structure(block)
        yield block


def _equal(sizes: npt.NDArray[np.int64], n_bytes: int) -> list[Bucket]:
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(n_bytes, int(ends[-1]), n_bytes), side="right")
    return list(pairwise(sorted({0, *cuts.tolist(), len(sizes)})))


def _append(folder: Path, bucket: Bucket, values: npt.NDArray[Any]) -> None:
    with (folder / f"{bucket[0]}").open("ab") as file:
        file.write(values.tobytes())


def _take(folder: Path, bucket: Bucket, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    path = folder / f"{bucket[0]}"
    values = np.fromfile(path, dtype)
    path.unlink()
    return values


_SUFFIXES = (".h5ad", ".h5", ".zarr")
_LEAST, _BLOCK, _SHARE = 2**20, 2**26, 16  # bytes of a block, and its share of the memory limit


def convert(
    path_in: str | Path,
    path_out: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    key: str | None = None,
    orient: Orient | None = None,
    feature_types: FeatureTypes = None,
    var_names: VarNamesName | None = None,
    measurement: str | None = None,
    obs_query: str | None = None,
    force: bool = False,
    memory_limit: int | str | None = None,
    compression: str | None = None,
    choices: Choices = NOTHING,
    allow_external: bool = False,
) -> None:
    """Write the matrix of a file in the layout of AnnData or BPCells; or VCF, BCF and BGEN as a file of PLINK.

    In the layout of AnnData, samples are rows; sparse matrices become a CSR group, others an array in chunks of rows.
    In that of BPCells, samples are columns; counts are packed, and other values are stored as they are. Names of
    samples and features are kept; a notice names columns that are not.

    Only `convert` reads files of variants: a fit would decode them again in each pass.

    Parameters
    ----------
    path_in : str or Path
        A file or folder that `open_matrix` reads, or ``"-"`` for standard input; or .vcf, .vcf.gz, .bcf, .bgen.
    path_out : str or Path
        .h5ad or .h5 for HDF5, .zarr for Zarr, .bpcells for a folder of BPCells; for variants also .pgen and .bed, with
        their tables in the same folder. The file appears when it is complete.
    format : str, optional
        The format of `path_in`, as in `open_matrix`.
    key : str, optional
        The element inside the file, as in `open_matrix`. For a VCF the field to read: "GT" (calls), "DS", "GP" or "HDS"
        (dosages); default: DS if the header declares it, else GT; for a .bed, which holds calls, GT first.
    orient, feature_types, var_names, measurement, obs_query : optional
        As in `open_matrix`.
    force : bool
        Overwrite an existing file, or a .zarr or .bpcells folder that holds only output of `convert`.
    memory_limit : int (bytes) or str such as "2GB", optional
        Limit for blocks of files that can be read in parts. Default: half of the available memory.
    compression : "gzip", "zstd", "none" or None
        None equals "none", which is the fastest to read.
    choices : Choices, optional
        Settings for a table: ``shiftsvd.io.Choices.of(ids="sample", drop="date")``, with arguments of `open_matrix`.
    allow_external : bool
        As in `open_matrix`.

    Raises
    ------
    ValueError, OSError
        If the input cannot be read or the output cannot be written; `path_out` is unchanged then.

    See Also
    --------
    io.open_matrix : Opens the output.

    Notes
    -----
    Costs one read. A file that stores columns and does not fit in memory is read twice, and needs temporary files
    of about three times its size in the folder of the output.

    Of VCF, BCF and BGEN only variants of two alleles are kept, and dosages count the second one. As in PLINK 2,
    genotypes of one copy count twice, phase is dropped, and dosages within 0.1 of a whole number are calls. Half-calls
    are missing. Warnings count the variants removed. Variants without names are named by position and alleles.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from shiftsvd.io import convert, open_matrix
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.ones((3, 2)))
    ...     convert(f"{folder}/X.npy", f"{folder}/X.h5ad")
    ...     A, _ = open_matrix(f"{folder}/X.h5ad")
    >>> A.shape
    (3, 2)
    """
    path_in, path_out = located(path_in), local(path_out)
    decoder = decoder_of(path_in) if format is None else None
    refuse_decoded(path_in)
    targets = {} if decoder is None else decoder.targets
    write_blocks, recognised = merged("targets").get(path_out.suffix, (None, None))
    _refuse(path_out, compression, targets)
    files = (path_out, *(path_out.with_suffix(suffix) for suffix in targets.get(path_out.suffix, ())))
    outputs = Outputs(files, force, is_converted if recognised is None else resolve(recognised))
    if decoder is not None:
        _refuse_matrix_options(path_in, choices, orient=orient, feature_types=feature_types, var_names=var_names)
        with _written(path_in, outputs, path_out) as part:
            is_target = part.suffix in targets
            decoded = part if is_target else part.parent / "decoded" / f"decoded{next(iter(targets))}"
            decoded.parent.mkdir(exist_ok=True)
            resolve(decoder.decode)(path_in, decoded, key, memory_limit)
            if not is_target:
                convert(decoded, part, memory_limit=memory_limit, compression=compression)
        return
    with external_files(allow_external), rereadable([path_in], format) as [path_in]:
        where: dict[str, Any] = {"format": format, "key": key, "orient": orient, "feature_types": feature_types}
        where |= {"var_names": var_names, "measurement": measurement, "obs_query": obs_query}
        opened = read_files([path_in], memory_limit, choices, **where)
        flip = opened.by_features
        shape = opened.matrix.shape[::-1] if flip else opened.matrix.shape
        _notify_unwritten(path_in, opened)
        with _written(path_in, outputs, path_out) as part:
            blocks = _blocks(opened.matrix, flip, memory_limit, part.parent)
            with closing(blocks):
                if write_blocks is not None:
                    resolve(write_blocks)(part, blocks, shape, opened.names)
                    return
                with creating(part, compression) as store:
                    write(store, blocks, shape, opened.names)


def _notify_unwritten(path: Path, opened: Opened) -> None:
    columns = opened.annotations or {"features": _other_names(opened)}
    if left := [f"{few(names)} of {frame}" for frame, names in columns.items() if names]:
        notice(
            f"{path}: only the matrix and its names are written. A fit of the new file has no mask, groups or ids from "
            f"these columns: {'; '.join(left)}."
        )


def _other_names(opened: Opened) -> list[str]:
    features, names = opened.features, np.asarray(opened.names.features)
    have = {} if features is None else {"ids": features.ids, "symbols": features.symbols}
    return [kind for kind, own in have.items() if own is not None and not np.array_equal(own, names)]


def _refuse_matrix_options(path: Path, choices: Choices, **options: Any) -> None:
    choices.refuse_for("genotypes")
    for name, value in options.items():
        if value is not None:
            of_matrices = f" applies to matrices, got {value!r} for the genotypes in {path}. Remove this setting."
            raise Refused(Setting(name), of_matrices)


def _refuse(path: Path, compression: str | None, targets: Mapping[str, tuple[str, ...]]) -> None:
    plain = (*merged("targets"), *targets)  # without compression
    suffixes = (*_SUFFIXES, *plain)
    if path.suffix not in suffixes:
        raise ValueError(f"{path} must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}.")
    if compression not in COMPRESSIONS:
        raise refuse("compression", 'be "gzip", "zstd" or "none"', compression)
    if path.suffix in plain and compression not in (None, "none"):
        raise refuse("compression", f'be "none" for {path.suffix}', compression)
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: the folder {path.parent} does not exist. Create it first.")


def _blocks(matrix: Any, flip: bool, memory_limit: int | str | None, folder: Path) -> Generator[Block, None, None]:
    limit = limit_of(memory_limit)
    n_bytes = _BLOCK if limit is None else int(np.clip(limit // _SHARE, _LEAST, _BLOCK))
    if not isinstance(matrix, RowSource):
        yield from _in_memory(matrix, flip, n_bytes)
    elif not flip:
        yield from (matrix.read(lo, hi) for lo, hi in pairwise(matrix.edges(n_bytes)))
    elif limit is None or held_bytes(matrix) <= limit // 4:
        yield from _in_memory(matrix.read(0, matrix.shape[0]), flip, n_bytes)
    else:
        yield from adjoint_blocks(matrix, n_bytes, folder)


def _in_memory(matrix: Any, flip: bool, n_bytes: int) -> Iterator[Block]:
    X: Any = matrix.conj().T if flip else matrix
    sparse = bool(issparse(X))
    X = csr_array(X) if sparse else np.asarray(X)
    row = max((X.nnz * 12 if sparse else X.size * X.dtype.itemsize) // X.shape[0], 1)
    for lo, hi in cut(X.shape[0], n_bytes // row):
        yield X[lo:hi]


@contextmanager
def _written(path_in: Path, outputs: Outputs, path: Path) -> Iterator[Path]:
    try:
        with outputs:
            yield outputs.part(path)
    except (OSError, RuntimeError) as error:
        if str(error).startswith((str(path_in), str(path))):
            raise
        raise OSError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error
