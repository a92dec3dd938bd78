"""The parts of the toy extension."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from shiftsvd.extend import Hooks, Run
from shiftsvd.io import Opened, open_matrix
from shiftsvd.transforms import Elementwise


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    """Read a plain PGM image: a row of the matrix for each row of pixels."""
    magic, width, height, _, *pixels = path.read_text().split()
    if magic != "P2" or len(pixels) != int(width) * int(height):
        raise ValueError(f"{path} must be a plain PGM image of {width} x {height} pixels")
    return Opened(np.array(pixels, float).reshape(int(height), int(width)))


@dataclass(frozen=True, eq=False)
class Brighten(Elementwise):
    """``log(1 + x)``, by a name of its own."""

    f: Any = np.log1p


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def brightness(file: Path) -> None:
    """Print the mean of a file."""
    A, _ = open_matrix(file)
    click.echo(f"{A.moments().mean.mean():.2f}")


class Told(Hooks):
    """Adds the brightness to the result of a fit."""

    recorded = ("gamma",)

    def after_fit(self, run: Run) -> None:
        run.document["brightness"] = float(run.pca.mean_.mean()) ** self.settings.extra["gamma"]


OPTIONS = (click.option("--gamma", type=float, default=1.0, help="Exponent of the brightness in the result."),)
