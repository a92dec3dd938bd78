"""Names for readers and writers of files."""

from shiftsvd.backends.entries import Places, SomeColumns, SomeRows, some_columns
from shiftsvd.backends.files import left_beside
from shiftsvd.backends.source import OnTop, RowSource
from shiftsvd.backends.validation import sound_structure
from shiftsvd.io.base import (
    PIPED,
    VERSIONED_ID,
    Features,
    Labels,
    Names,
    Opened,
    Orient,
    are_ids,
    bounded,
    bounded_lines,
    labels,
    open_bytes,
    optional,
    plausible_shape,
    reading,
    refuse_key,
    without_version,
)
from shiftsvd.io.convert import Block, creating, mark, write_frame
from shiftsvd.io.formats.market import comments, read_matrix, unsaid
from shiftsvd.io.opening import MatrixOptions, held_or_streamed, listed, of_types, operator_of, read_file, read_files
from shiftsvd.io.sniff import format_of, split_element
from shiftsvd.io.stacking import several, stacked, with_same_ids
from shiftsvd.io.storage.hdf5 import check_texts
from shiftsvd.io.storage.tree import (
    Column,
    Field,
    StoredArray,
    Tree,
    attribute,
    check_size,
    column,
    column_names,
    csr_rows,
    fingerprint_of,
    is_array,
    is_sparse,
    opened_tree,
    refuse_outside,
    row_edges,
    times_decoded,
)
from shiftsvd.missing.opening import n_missing
