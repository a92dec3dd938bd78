"""Option of `shiftsvd fit` for fields."""

from typing import Final

import click

from shiftsvd.extend import group_options

OF_FIT: Final = (
    group_options(
        "Preparation",
        click.option(
            "--weights",
            type=click.Choice(["coslat", "none"]),
            help="Multiply each cell of a NetCDF field by sqrt(cos(latitude)), so that equal areas have equal weight "
            "(coslat), or weight all cells equally (none).  [default: none, with a notice]",
        ),
    ),
)
