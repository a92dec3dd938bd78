"""`shiftsvd transform`: scores of new samples."""

from pathlib import Path
from typing import Any

import click

from shiftsvd.commands import checks, columns, options, tables
from shiftsvd.commands.options import under
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Examples:
  shiftsvd transform out/model.safetensors new.mtx.gz -o scores.parquet
  shiftsvd transform out/model.safetensors new.mtx.gz -o - | head -3
  shiftsvd transform reference/model.safetensors array.bed --project oadp -o scores.csv
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("model", type=options.FILE)
@click.argument("files", metavar="FILE...", type=options.MATRIX, nargs=-1, required=True)
@options.stack
@under(
    "Output",
    click.option("-o", "--out", type=options.OUTPUT, required=True, help='.parquet, .csv or .npy; "-" prints CSV.'),
)
@options.inside
@under(
    "Features",
    click.option(
        "--max-absent",
        metavar="SHARE",
        type=click.FloatRange(0, 1),
        help="The share of features of MODEL that may be absent, and are unobserved.  [default: 0.1 of those that only "
        "sums of samples go over, 0 of others]",
    ),
)
@options.projection
@options.trust_values
@columns.table
@options.resources
@options.dtype
@options.progress
@options.force
@tables.option
@options.talk
def transform(model: Path, **given: Any) -> None:
    """Write the scores of new samples.

    The samples are those of FILE ("-": standard input), the components those of MODEL, a file that `fit` wrote.
    Where both have names of features, these are matched: another order is no matter, other features are an error, but
    for a model of some features (--mask), which leaves them out. Scores of samples that lack some (--max-absent) are
    those by which the components come nearest to the others, in least squares.
    Columns of obs that it has regressed out are needed. Several files are one matrix, as `fit` stacks them. What was
    said of a table in the fit holds here too, unless it is said otherwise.

    Variants of a .bed are matched with those of MODEL by chromosome, position and alleles: swapped alleles, other
    strands and another order are no matter, and what is left out is counted on stderr. Scores are those of least
    squares on the genotypes that a sample has; columns beside them (.csv, .parquet) tell their standard errors, PC1_se,
    ..., and how many variants the sample has, n_variants.
    """
    checks.check_stack(given["files"], given["stack"], given["join"])
    checks.check_projection(given)
    checks.check_format(given["files"][0], given["format_"])
    checks.tables(given["out"])
    given["choices"] = columns.chosen(given)
    from shiftsvd.commands.applying import transform as run

    run(model, given)
