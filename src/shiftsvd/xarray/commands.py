"""NetCDF fields in the command: area weights of cells, longitudes from 0 or from -180, and notices."""

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import click
import numpy as np

from shiftsvd.extend.commands import Hooks, Run, option_of
from shiftsvd.extend.files import Names, format_of
from shiftsvd.extend.fits import Gaps
from shiftsvd.extend.running import notice
from shiftsvd.xarray.fields import cell_weights, latitude_of, notice_unvarying
from shiftsvd.xarray.netcdf import variable_of

_LONGITUDE: Final = re.compile(r"\b(lon|longitude|nav_lon)=(-?\d+(?:\.\d+)?)(?= |$)")


class FieldHooks(Hooks):
    """Area weights and longitudes of cells, and notices about NetCDF fields."""

    recorded = decisive = ("weights",)

    @cached_property
    def fields(self) -> list[Any]:
        """Variables of the files (of the first file if samples are stacked); empty for other formats."""
        settings, paths = self.settings, self.settings.paths
        are_fields = all(str(path) != "-" and format_of(path, settings.format) == "netcdf" for path in paths)
        if not are_fields or settings.orient == "columns":
            return []
        return [variable_of(path, settings.key) for path in (paths if settings.stack == "columns" else paths[:1])]

    def check(self) -> None:
        settings = self.settings
        others = [f"--{name}" for name in ("scale", "join") if getattr(settings, name)]
        others += [option_of(name) for name in ("top_features", "mask") if settings.extra.get(name)]
        if settings.extra["weights"] == "coslat" and (others or settings.files[0] == "-"):
            if settings.files[0] == "-":
                raise click.UsageError("--weights coslat requires NetCDF files, got standard input. Pass a file.")
            raise click.UsageError(
                f"--weights coslat sets the scale of the cells of one field and conflicts with {others[0]}. Remove one "
                "of them."
            )

        removed = next((name for name in ("groups", "covariates") if settings.extra.get(name)), None)
        if removed and settings.files[0] != "-" and self.fields:
            raise click.UsageError(
                f"--{removed} requires annotated samples, which NetCDF fields do not have. Use shiftsvd.xarray.pca(da, "
                f"{removed}=...) in Python, or fit a file of anomalies."
            )

    def prepare(self, run: Run) -> None:
        weights, file = self.settings.extra["weights"], self.settings.file
        if weights == "coslat":
            if not self.fields:
                raise ValueError(
                    f"{file}: --weights coslat requires a NetCDF file with samples as rows. Remove the option."
                )
            found = [cell_weights(da, "coslat", da.dims[1:]) for da in self.fields]
            run.scale = 1 / np.concatenate([own for own in found if own is not None])
        if weights is None and (n := next(filter(None, map(_latitudes, self.fields)), 0)):
            notice(
                f"{file} is a field on {n:,} latitudes, and its cells differ in area. Add --weights coslat to weight "
                "cells by area, or --weights none to weight all cells equally and silence this notice."
            )
        if self.fields and isinstance(run.A, Gaps):
            in_rows, in_columns = run.A.observed()
            if self.settings.shift != "none":
                notice_unvarying(np.rint(in_columns) == 1, file)
            used = int(np.count_nonzero(np.rint(in_rows) > 0))
            if used < len(in_rows):
                notice(
                    f"{file}: only {used:,} of {len(in_rows):,} samples have values. The other samples are replaced by "
                    "the mean. To exclude them from the fit, remove them from the file."
                )

    def after_fit(self, run: Run) -> None:
        pca = run.pca
        if self.settings.extra["weights"] != "coslat" or pca.missing == "em" or not pca.n_components_:
            return
        from shiftsvd.xarray.anomalies import SMALL_CELL, computed_small_cells  # takes the time of importing xarray

        weights = 1 / pca.scale_
        if np.all(weights >= SMALL_CELL * np.sqrt(np.mean(weights**2))):
            return
        # `inverse` divides components by weights, as maps of the functions of fields do.
        A = pca._minus_shift(pca._operator(run.A), None, None)
        squares = A.column_squares()
        pca.components_ = computed_small_cells(A, pca.singular_values_, pca.components_, squares)

    def refine(self, pca: Any, A: Any, names: Any) -> tuple[Any, Any]:
        known = getattr(pca, "feature_names_in_", None)
        if known is None or names.features is None:
            return A, names
        model, found = (list(map(str, each)) for each in (known, names.features))
        if set(found) <= set(model):
            return A, names
        places = dict(zip(_turned(model), model, strict=True))
        renamed = [places.get(name) for name in _turned(found)]
        if len(places) < len(model) or len(set(renamed)) < len(renamed) or None in renamed:
            return A, names
        return A, Names(names.samples, np.array(renamed))


def _turned(names: Iterable[str]) -> list[str]:
    return [_LONGITUDE.sub(lambda found: f"{found[1]}={round(float(found[2]), 4) % 360:.4f}", name) for name in names]


def _latitudes(da: Any) -> int:
    try:
        latitude = latitude_of(da)
    except ValueError:
        return 0
    return int(latitude.size) if latitude.dims in [(dim,) for dim in da.dims[1:]] and latitude.size > 1 else 0
