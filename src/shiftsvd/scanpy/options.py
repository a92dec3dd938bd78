"""Options of `shiftsvd fit` for single cells."""

from typing import Any, Final, get_args

import click

from shiftsvd.extend import group_options, split_names
from shiftsvd.scanpy.extension import FlavorName

OF_FIT: Final[tuple[Any, ...]] = (
    group_options(
        "Features",
        click.option(
            "--top-features",
            metavar="NUMBER",
            type=click.IntRange(min=1),
            help="Keep this number of the most variable features, such as highly variable genes.",
        ),
        click.option(
            "--flavor",
            type=click.Choice(get_args(FlavorName)),
            help="Rank features by the dispersion of logarithms (seurat, cell_ranger; use --preprocess log-normalize), "
            "by the standardised variance of raw counts (seurat_v3, seurat_v3_paper), or by the variance of Pearson "
            "residuals (pearson_residuals).  [default: seurat; pearson_residuals with --preprocess pearson]",
        ),
        click.option(
            "--batch",
            metavar="COLUMN",
            help="Rank features within each batch, a column of obs, and keep the features that most batches select; "
            "seurat_v3: those of the best median rank.",
        ),
        click.option(
            "--mask",
            metavar="COLUMN",
            help="Features to use: a column of booleans in var, or none for all features.  [default: highly_variable "
            "if var has this column]",
        ),
    ),
    group_options(
        "Preparation",
        click.option(
            "--max-value",
            metavar="NUMBER",
            type=float,
            help="With --scale, clip scaled values at plus and minus this number, such as 10, as max_value of "
            "scanpy.pp.scale does.  [default: no clipping]",
        ),
        click.option(
            "--covariates",
            metavar="COLUMNS",
            callback=split_names,
            help="Columns of obs to regress out of every feature. Numeric columns get one coefficient, other columns "
            "one for each category.",
        ),
        click.option(
            "--groups",
            metavar="COLUMNS",
            callback=split_names,
            help="Columns of obs to regress out as categories, even if they are numeric, such as the batch.",
        ),
    ),
    group_options(
        "Output", click.option("--anndata", is_flag=True, help="Write fit.h5ad, an AnnData file for scanpy.")
    ),
)
