"""Rules for what models of cells hold in files."""

from typing import Final

from shiftsvd.extend.models import Value, fields, same_check, texts

VALUES: Final = {
    "ClippedScale": Value("shiftsvd.scanpy.clipping"),
    "GeneNames": Value("shiftsvd.scanpy.gene_names", fields(**same_check(texts("i", fixed=True), "ids symbols"))),
}
