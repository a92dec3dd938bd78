"""What single cells add to shiftsvd, and names of their settings."""

from typing import Final, Literal

from shiftsvd.extend import Extension, Format

FlavorName = Literal["seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals"]

EXTENSION: Final = Extension(
    name="scanpy",
    module="shiftsvd.scanpy",
    formats={
        "10x": Format(
            "shiftsvd.scanpy.files:read_tenx_folder",
            (),
            ("folder",),
            "10x folder: matrix.mtx, barcodes.tsv, features.tsv",
            claims="shiftsvd.scanpy.files:is_tenx_folder",
        ),
        "10x-h5": Format(
            "shiftsvd.scanpy.files:read_tenx_h5", (), ("HDF5",), "10x HDF5", claims="shiftsvd.scanpy.files:genomes"
        ),
        "h5ad": Format(
            "shiftsvd.scanpy.files:read_anndata",
            (".h5ad",),
            ("HDF5",),
            "AnnData",
            claims="shiftsvd.scanpy.files:is_anndata",
            element="shiftsvd.scanpy.files:element",
        ),
    },
    beside="shiftsvd.scanpy.files:beside_matrix",
    options={"fit": "shiftsvd.scanpy.options:OF_FIT"},
    hooks="shiftsvd.scanpy.commands:CellHooks",
    help={
        "fit": """--top-features ranks all features by their variability, keeps so many, and writes features.csv with
    a row for each of them; library sizes stay those of all features, also where `transform` reads other samples.

    Of single cells (.h5ad, Zarr) the features that highly_variable of var marks are taken, or those of --mask; columns
    of obs are regressed out by --covariates and --groups, also where `transform` reads other cells. Matrices of 10x are
    of genes alone, unless --feature-types names other types. What was left out is printed on stderr.""",
        "transform": """A model of some features (--mask) leaves out the others. Columns of obs that it has regressed
    out are needed.""",
        "estimate": "With --top-features the reads that rank the features are among the passes.",
    },
    examples={
        "fit": (
            "fit counts.h5ad -k 10 --preprocess log-normalize --scale -o out/",
            "fit counts.h5ad -k 10 --preprocess log-normalize --top-features 2000 --memory 1G -o cells/",
            "fit counts.h5ad -k 10 --workers 2 --checkpoint reads/ -o by-workers/",
            "fit donors/*.h5ad --stack rows -k 20 --memory 2G -o atlas/",
        ),
        "info": ("info counts.h5ad",),
        "estimate": (
            "estimate counts.h5ad -k 10 --top-features 2000 --preprocess log-normalize --memory 1G -o cells/",
        ),
    },
)
