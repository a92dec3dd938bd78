"""The option of `shiftsvd fit` for fields."""

from typing import Final

import click

from shiftsvd.extend import group_options

OF_FIT: Final = (
    group_options(
        "Preparation",
        click.option(
            "--weights",
            type=click.Choice(["coslat", "none"]),
            help="Multiply the cells of a NetCDF field by the root of the cosine of their latitude, so that equal "
            "areas have equal weight.  [default: none, with a notice]",
        ),
    ),
)
