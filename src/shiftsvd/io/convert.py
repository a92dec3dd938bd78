"""convert: any matrix file to one that is read block by block, the layout of AnnData, or a file of PLINK."""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.source import RowSource
from shiftsvd.io.base import Orient
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.features import FeatureTypes
from shiftsvd.io.opening import held_bytes, read_files
from shiftsvd.io.sniff import decodable
from shiftsvd.io.spooling import rereadable
from shiftsvd.io.storage.anndata_store import COMPRESSIONS, Block, creating, is_converted, write
from shiftsvd.io.transpose import adjoint_blocks
from shiftsvd.io.variants.decoding import decode
from shiftsvd.io.variants.plink import SUFFIXES as PLINK
from shiftsvd.runs.external import external_files
from shiftsvd.runs.memory import limit_of
from shiftsvd.runs.outputs import Outputs

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
    force: bool = False,
    memory_limit: int | str | None = None,
    compression: str | None = None,
    choices: Choices = NOTHING,
    allow_external: bool = False,
) -> None:
    """Write the matrix of a file, samples as rows, in the layout of AnnData; or VCF, BCF and BGEN as a file of PLINK.

    Sparse matrices become a CSR group, others an array in chunks of rows; the names of samples and features go along.
    Files of variants are read here alone, since a fit would decode them again in each pass.

    Parameters
    ----------
    path_in : str or Path
        A file or folder that `open_matrix` reads, or ``"-"`` for standard input; or .vcf, .vcf.gz, .bcf, .bgen.
    path_out : str or Path
        .h5ad or .h5 for HDF5, .zarr for Zarr; of variants also .pgen and .bed, with their tables beside them. It
        appears when it is complete.
    format : str, optional
        The format of what is read, as in `open_matrix`.
    key : str, optional
        The element inside the file, as in `open_matrix`. Of a VCF the field that is read: "GT" (calls), "DS", "GP" or
        "HDS" (dosages); default: DS where the head declares it, else GT, and GT first for a .bed, which holds calls.
    orient : "rows" or "columns", optional
        Where the samples are in the file, as in `open_matrix`.
    feature_types : "all", a type such as "Antibody Capture", or list of them, optional
        Which features to take, as in `open_matrix`.
    force : bool
        Replace a file that exists, or a .zarr folder that holds nothing but what `convert` wrote.
    memory_limit : int (bytes) or str such as "2GB", optional
        What can be read in parts is written in parts that fit. Default: half of the available memory.
    compression : "gzip", "zstd", "none" or None
        None is the same as "none": the fastest to read.
    choices : Choices, optional
        What is said of a table: ``shiftsvd.io.Choices.of(ids="sample", drop="date")``, with arguments of `open_matrix`.
    allow_external : bool
        As in `open_matrix`.

    Raises
    ------
    ValueError, OSError
        If the input cannot be read or the output not be written; what was at `path_out` is then there still.

    See Also
    --------
    io.open_matrix : Opens what was written.

    Notes
    -----
    Costs one read. A file in the order of its columns that does not fit in memory is read twice and goes through
    temporary files beside the output, of about three times its size.

    Of VCF, BCF and BGEN variants of two alleles are taken, and dosages are those of the second one. As in PLINK 2,
    genotypes of one copy count twice, phase is forgotten, and dosages within 0.1 of a whole number are calls.
    Half-calls are missing. Warnings count what is left out. Variants without names are called by place and alleles.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from shiftsvd.io import convert, open_matrix
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.ones((3, 2)))
    ...     convert(f"{folder}/X.npy", f"{folder}/X.h5ad")
    ...     A, names = open_matrix(f"{folder}/X.h5ad")
    >>> A.shape, names.samples.tolist()
    ((3, 2), ['0', '1', '2'])
    """
    path_in, path_out = Path(path_in), Path(path_out)
    variants = format is None and decodable(path_in)
    _refuse(path_out, compression, variants)
    files = (path_out, *(path_out.with_suffix(suffix) for suffix in PLINK.get(path_out.suffix, ())))
    outputs = Outputs(files, force, is_converted)
    if variants:
        _refuse_matrix_options(path_in, orient, feature_types, choices)
        with _written(path_in, outputs, path_out) as part:
            _write_variants(path_in, part, key, memory_limit, compression)
        return
    with external_files(allow_external), rereadable([path_in], format) as [path_in]:
        opened = read_files(
            [path_in], None, format, key, orient, memory_limit, feature_types=feature_types, choices=choices
        )
        flip = opened.by_features
        shape = opened.matrix.shape[::-1] if flip else opened.matrix.shape
        with _written(path_in, outputs, path_out) as part:
            blocks = _blocks(opened.matrix, flip, memory_limit, part.parent)
            with closing(blocks), creating(part, compression) as store:
                write(store, blocks, shape, opened.names)


def _write_variants(
    path_in: Path, part: Path, key: str | None, memory_limit: int | str | None, compression: str | None
) -> None:
    if part.suffix in PLINK:
        decode(path_in, part, key, memory_limit)
        return
    pgen = part.parent / "decoded" / "genotypes.pgen"
    pgen.parent.mkdir()
    decode(path_in, pgen, key, memory_limit)
    convert(pgen, part, memory_limit=memory_limit, compression=compression)


def _refuse_matrix_options(path: Path, orient: Orient | None, feature_types: FeatureTypes, choices: Choices) -> None:
    choices.refuse_for("genotypes")
    for name, value in (("orient", orient), ("feature_types", feature_types)):
        if value is not None:
            raise ValueError(f"{name} is for matrices, got {value!r} for the genotypes in {path}; leave it out")


def _refuse(path: Path, compression: str | None, variants: bool) -> None:
    suffixes = (*_SUFFIXES, *PLINK) if variants else _SUFFIXES
    if path.suffix not in suffixes:
        raise ValueError(f"{path} must end in {', '.join(suffixes)}: those are the formats that are written")
    if compression not in COMPRESSIONS:
        raise ValueError(f'compression must be "gzip", "zstd" or "none", got {compression!r}')
    if path.suffix in PLINK and compression not in (None, "none"):
        raise ValueError(f'compression must be "none" for {path.suffix}, got {compression!r}')
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}; make it first")


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
