"""Register file formats, options and help of single cells with shiftsvd, and name the choices of their settings."""

from typing import Any, Final, Literal

from shiftsvd.extend import Extension, Format

FlavorName = Literal["seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals"]


def _format(reader: str, suffixes: tuple[str, ...], content: str, title: str, claims: str, **more: Any) -> Format:
    more = {"describe": "shiftsvd.scanpy.describing:describe_tenx", "claims": f"shiftsvd.scanpy.{claims}"} | more
    return Format(f"shiftsvd.scanpy.{reader}", suffixes, (content,), title, **more)


EXTENSION: Final = Extension(
    name="scanpy",
    module="shiftsvd.scanpy",
    formats={
        "10x": _format(
            *("files:read_tenx_folder", (), "folder", "10x folder: matrix.mtx, barcodes.tsv, features.tsv"),
            "files:is_tenx_folder",
        ),
        "10x-h5": _format("files:read_tenx_h5", (), "HDF5", "10x HDF5", "files:genomes", remote="read"),
        "bpcells": _format(
            "bpcells:read_folder", (".bpcells",), "folder", "BPCells folder of bit-packed counts", "bpcells:is_bpcells"
        ),
        "bpcells-h5": _format("bpcells:read_group", (), "HDF5", "BPCells matrix in HDF5", "bpcells:groups"),
        "h5ad": _format(
            *("files:read_anndata", (".h5ad",), "HDF5", "AnnData", "files:is_anndata"),
            element="shiftsvd.scanpy.files:element",
            describe="shiftsvd.scanpy.describing:describe_anndata",
            remote="read",
        ),
        "soma": _format(
            *("soma:read", (), "folder", "TileDB-SOMA experiment", "soma:is_soma"),
            describe=None,
            remote="read",
            schemes=("soma", "tiledb"),
            selects=True,
        ),
    },
    targets={".bpcells": ("shiftsvd.scanpy.bpcells:write", "shiftsvd.scanpy.bpcells:is_written")},
    beside="shiftsvd.scanpy.files:with_tenx_names",
    options={"fit": "shiftsvd.scanpy.options:OF_FIT"},
    values="shiftsvd.scanpy.models:VALUES",
    hooks="shiftsvd.scanpy.commands:CellHooks",
    help={
        "fit": """--top-features ranks all features by variability, keeps the given number of them, and writes the
    ranking to features.csv. Library sizes are always sums over all features, also in `transform`.

    Single cells (.h5ad, Zarr): by default, fit uses the features that the column highly_variable of var marks; --mask
    names another column. --covariates and --groups regress out columns of obs, also in `transform`. From 10x matrices,
    only genes are used unless --feature-types names other types. The number of removed features is printed on
    stderr.""",
        "transform": """Single cells: features that MODEL does not use (--mask, --top-features) are ignored. The file
    must have the columns of obs that MODEL regresses out.""",
        "info": """Single cells: the values of a sample of cells or genes are described as counts, logarithms or scaled
    values, with layers, columns of obs and var, batches and the mask; the last line is a command to begin with.""",
        "convert": """OUT.bpcells is a folder of BPCells: counts are packed into about 2 bytes each, which are read as
    fast as an uncompressed .h5ad file. Other values are stored as they are.""",
        "estimate": "With --top-features, the number of passes includes the reads that rank the features.",
    },
    examples={
        "fit": (
            "fit counts.h5ad -k 10 --preprocess log-normalize --scale -o out/",
            "fit counts.h5ad -k 10 --preprocess log-normalize --top-features 2000 --memory 1G -o cells/",
            "fit counts.h5ad -k 10 --workers 2 --checkpoint reads/ -o by-workers/",
            "fit donors/*.h5ad --stack rows -k 20 --memory 2G -o atlas/",
        ),
        "convert": ("convert counts.h5ad counts.bpcells",),
        "info": ("info counts.h5ad",),
        "estimate": (
            "estimate counts.h5ad -k 10 --top-features 2000 --preprocess log-normalize --memory 1G -o cells/",
        ),
    },
)
