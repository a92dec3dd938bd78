"""Columns of obs as covariates: looked up by name, and what a regression on them has found, kept in ``uns``."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from shiftsvd.model_file.coding import code, decode
from shiftsvd.preparation.covariates import LearnedCovariates
from shiftsvd.preparation.design import Column, Design

_KEPT: Final = "design"  # where it is in ``uns["pca"]``


def names_of(what: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a column of obs or a list of them, got {given!r:.80}")
    return names


def obs_column(adata: Any) -> Callable[[str], Column]:
    def column(name: str) -> Column:
        if name not in adata.obs:
            raise ValueError(f"covariates and groups must be columns of obs, got {name!r}; obs has {list(adata.obs)}")
        series = adata.obs[name]
        is_label = type(series.dtype).__name__ == "CategoricalDtype" or series.dtype.kind not in "fiub"
        values: Column = series.to_numpy(object) if is_label else _numbers(series)
        return values

    return column


def _numbers(series: Any) -> Column:
    if isinstance(series.dtype, np.dtype):
        return np.asarray(series)
    return np.asarray(series.to_numpy(np.float64, na_value=np.nan))


def kept_design(design: Design, learned: LearnedCovariates) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    text = json.dumps(code((design, learned), "design", tensors))
    return {"text": text, **tensors}


def write_design(adata: Any, key: str, design: Design, learned: Any) -> None:
    adata.uns[key][_KEPT] = kept_design(design, learned)
    adata.uns[key]["params"]["covariates"] = ", ".join(design.names)


def read_design(reference: Any, key: str, n_genes: int) -> tuple[Design, LearnedCovariates] | None:
    kept = dict(reference.uns.get(key, {}).get(_KEPT, {}))
    if not kept:
        return None
    text = str(kept.pop("text"))
    design, learned = decode(json.loads(text), {name: np.asarray(value) for name, value in kept.items()})
    if learned.coefficients.shape != (design.width, n_genes) or learned.mean.shape != (n_genes,):
        raise ValueError(
            f"uns[{key!r}][{_KEPT!r}] must be of the {n_genes} genes of the components, got coefficients of shape "
            f"{learned.coefficients.shape}; run shiftsvd.scanpy.pca again"
        )
    return design, learned
