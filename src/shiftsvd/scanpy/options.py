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
            help="Find the features that vary most, such as highly variable genes, and take so many of them.",
        ),
        click.option(
            "--flavor",
            type=click.Choice(get_args(FlavorName)),
            help="Rank them by dispersions of logarithms (of --preprocess log-normalize), by variances of raw counts, "
            "or by variances of residuals.  [default: seurat; pearson_residuals with --preprocess pearson]",
        ),
        click.option(
            "--batch",
            metavar="COLUMN",
            help="A column of obs: rank features in each batch, and take those that rank high in most batches.",
        ),
        click.option(
            "--mask",
            metavar="COLUMN",
            help="Features to take, a column of var; none: all.  [default: highly_variable, where var has it]",
        ),
    ),
    group_options(
        "Preparation",
        click.option(
            "--covariates",
            metavar="COLUMNS",
            callback=split_names,
            help="Columns of obs to regress out: numbers as they are, a coefficient for each label of others.",
        ),
        click.option(
            "--groups",
            metavar="COLUMNS",
            callback=split_names,
            help="Columns of obs whose groups lose their means, as batches.",
        ),
    ),
    group_options("Output", click.option("--anndata", is_flag=True, help="Write fit.h5ad, which scanpy opens.")),
)
