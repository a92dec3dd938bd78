"""Several fields at the same samples: matched by their labels, and without those that one of them lacks."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from shiftsvd.xarray.fields import Mask, Stacked, as_field, at_rows, tell_used


def is_several(data: Any) -> bool:
    return isinstance(data, Mapping) or (isinstance(data, Sequence) and not isinstance(data, str))


def as_fields(data: Any) -> dict[str, Any]:
    if not is_several(data):
        told = type(data).__name__
        raise TypeError(f"data must be a Dataset, or DataArrays in a list or by their names, got {told}")
    if hasattr(data, "data_vars"):
        pairs = list(data.data_vars.items())
    elif isinstance(data, Mapping):
        pairs = list(data.items())
    else:
        pairs = [(getattr(da, "name", None) or f"field{i}", da) for i, da in enumerate(data, 1)]
    names = [str(name) for name, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"data must hold fields with a name of their own each, got {names}; da.rename(...) gives one")
    if prefixes := [a for a in names for b in names if a != b and b.startswith(f"{a}_")]:
        raise ValueError(f"no name may begin with that of another field and _, as with {prefixes[0]!r}; rename one")
    return dict(zip(names, (as_field(da, name) for name, (_, da) in zip(names, pairs, strict=True)), strict=True))


def in_order(first: Any, other: Any, dim: Any, names: tuple[str, str]) -> Any:
    for name in [dim] if isinstance(dim, str) or not isinstance(dim, Sequence) else dim:
        if name not in first.dims or name not in other.dims:
            continue  # which stacking refuses
        known, own = (da.indexes.get(name) if name in da.coords else None for da in (first, other))
        told = f"{names[0]} and {names[1]} must have the same samples"
        if known is None or own is None or known.equals(own):
            if first.sizes[name] != other.sizes[name]:
                raise ValueError(f"{told}, got {first.sizes[name]} and {other.sizes[name]} along {name}")
            continue
        places = own.get_indexer(known) if own.is_unique and known.is_unique else np.full(len(known), -1)
        if np.any(places < 0) or len(known) != len(own):
            common = int(np.count_nonzero(places >= 0))
            raise ValueError(
                f"{told}, each once: of {name}, {common} of the {len(known)} labels of {names[0]} are among the "
                f'{len(own)} of {names[1]}; xarray.align(..., join="inner") keeps those that both have'
            )
        other = other.isel({name: places})
    return other


def at_common(stacked: Sequence[Stacked]) -> list[Stacked]:
    rows: Mask = reduce(np.logical_and, (field.rows for field in stacked))
    if np.count_nonzero(rows) < 2:
        raise ValueError(f"fields must have values at two samples in common, got {np.count_nonzero(rows)}")
    tell_used(rows, stacked[0].over, "have values in all fields")
    return [at_rows(field, rows) for field in stacked]
