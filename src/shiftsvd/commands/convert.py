"""`shiftsvd convert`: any matrix file to one that is read in blocks, and files of variants to those of PLINK."""

from typing import Any

import click

from shiftsvd.commands import checks, columns, options
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Examples:
  shiftsvd convert counts.mtx.gz counts.zarr
  shiftsvd convert counts.npz big.h5ad --compression gzip
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("file", metavar="IN", type=options.MATRIX)
@click.argument("out", metavar="OUT", type=click.Path())
@options.inside
@columns.table
@click.option("--compression", type=click.Choice(["none", "gzip", "zstd"]), help="Of OUT.  [default: none]")
@options.memory
@options.force
@options.talk
def convert(**given: Any) -> None:
    """Write a matrix in another format.

    OUT (.h5ad, .h5 or .zarr) has the layout of AnnData: rows are samples, sparse data compressed by rows. What does
    not fit in memory is written block by block; names of samples and features go with it.

    VCF, BCF and BGEN become .pgen or .bed, too, with chromosomes, positions and both alleles: variants of two alleles,
    and dosages of the second one. --key is the field of a VCF: GT (calls), DS, GP or HDS (dosages); by default DS where
    the file has it, and GT for a .bed.
    """
    checks.check_format(given["file"], given["format_"])
    choices = columns.chosen(given)
    from shiftsvd.io.convert import convert as run

    run(
        given["file"],
        given["out"],
        **options.where(given),
        force=given["force"],
        memory_limit=given["memory"],
        compression=given["compression"],
        choices=choices,
    )
    options.say(f"written: {given['out']}", given["quiet"])
