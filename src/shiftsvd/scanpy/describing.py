"""Describe files of single cells for `shiftsvd info`: elements, columns, values, and a command to begin with."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from shiftsvd.extend import files as io
from shiftsvd.extend.commands import quoted
from shiftsvd.extend.running import few
from shiftsvd.extend.transforms import Sample, sample_places
from shiftsvd.scanpy.commands import DEFAULT_MASK
from shiftsvd.scanpy.files import GENES, element, frames_of
from shiftsvd.scanpy.stored import booleans

_BATCH: Final = re.compile(
    r"(batch|donor|sample|patient|individual|subject|library|lane|run|plate|pool|channel|dataset|study|site|"
    r"orig[._]ident)s?([._ ]?(ids?|names?|keys?|numbers?))?",
    re.IGNORECASE,
)
_TOP: Final = 2000  # features to keep by default, as in tutorials of scanpy
_SHOWN: Final = 3  # categories of a column
_EQUAL: Final = 5e-3  # largest relative difference of the sums of normalized cells
_COUNTS, _LOGS, _NORMALIZED = "counts", "logarithms", "normalized"
Kind = tuple[str, str]  # kind of the values, and the evidence


def describe_tenx(
    paths: list[Path], opened: io.Opened, key: str | None, memory_limit: int | str | None
) -> Mapping[str, Any]:
    """Return the facts of a 10x matrix, with "settings" of a first fit."""
    if len(paths) > 1:
        return {}
    samples = _samples(opened)
    kind = _kind(samples, logged=False)
    facts: dict[str, Any] = {"looks_like": kind[1], "sampled": _extent(samples, opened)}
    facts |= {"gene_names": _kinds_of_names(opened)}
    settings = _settings(kind[0], opened.names.features, None, samples)
    return facts | {"notes": _of_words(kind[0], opened), "settings": settings}


def describe_anndata(
    paths: list[Path], opened: io.Opened, key: str | None, memory_limit: int | str | None
) -> Mapping[str, Any]:
    """Return the facts of an AnnData file, with "settings" of a first fit."""
    if len(paths) > 1:
        return {}
    with io.opened_tree(paths[0], memory_limit) as tree:
        own, name = _samples(opened), key or "X"
        kinds = _kinds(tree, name, own)
        best = key or next((each for each, kind in kinds.items() if kind[0] == _COUNTS), "X")
        columns, mask = _all_columns(tree, key, opened), _mask(tree, frames_of(best)[1])
        chosen, samples, settings = opened, own, dict[str, Any]()
        if best != name:
            chosen = element(tree, best)
            samples, settings = _samples(chosen), {"key": best}
        settings |= _settings(kinds[best][0], chosen.names.features, mask, samples)
        if opened.places is None:
            settings |= _types_to_keep(chosen.features)
        batches = [each for each in columns if each["use"] == "batch"]
        facts: dict[str, Any] = {
            "looks_like": kinds[name][1],
            "sampled": _extent(own, opened),
            "elements": {each: kind[1] for each, kind in kinds.items() if each != name},
            "obsm": _embeddings(tree),
            "gene_names": _kinds_of_names(opened),
            "mask": mask and f"{DEFAULT_MASK}, {mask}",
            "batches": [f"{each['name']} ({each['kind']})" for each in batches],
        }
        facts = {fact: value or None for fact, value in facts.items()} | {"columns": columns}
        return facts | {"notes": [*_notes(batches), *_of_words(kinds[best][0], opened)], "settings": settings}


def _kinds_of_names(opened: io.Opened) -> list[str] | None:
    """Return the values of --var-names that the file has names for."""
    features, names = opened.features, opened.names.features
    have = {} if features is None else {"gene_symbols": features.symbols, "gene_ids": features.ids}
    kinds = [kind for kind, own in have.items() if own is not None]
    return kinds or (["gene_ids"] if names is not None and io.are_ids(names) else None)


def _members(tree: io.Tree, group: str) -> list[str]:
    return sorted(tree.root[group]) if group in tree.root and not io.is_array(tree.root[group]) else []


def _elements(tree: io.Tree) -> list[str]:
    """Return the names of the matrices of cells by genes, X first, then `counts` among the layers."""
    layers = sorted(_members(tree, "layers"), key=lambda name: ("count" not in name.casefold(), name))
    names = ["X", *(f"layers/{name}" for name in layers), "raw/X", "raw.X"]
    there = {name: tree.root[name] for name in names if name in tree.root}
    return [name for name, node in there.items() if io.is_array(node) or io.is_sparse(node)]


def _embeddings(tree: io.Tree) -> dict[str, str]:
    node = tree.root.get("obsm")
    if node is None or not io.is_array(node):
        return {name: _shape(node[name]) for name in _members(tree, "obsm")}
    fields = {name: node.dtype[name].shape for name in node.dtype.names or ()}  # layout of AnnData before 0.7
    return {name: " x ".join(f"{size:,}" for size in (*node.shape, *more)) for name, more in fields.items()}


def _shape(node: Any) -> str:
    sizes = node.shape if io.is_array(node) else node.attrs.get("shape", ())
    return " x ".join(f"{int(size):,}" for size in sizes) or str(io.attribute(node, "encoding-type"))


# ---- values


def _samples(opened: io.Opened) -> list[Sample]:
    X, flip = opened.matrix, opened.by_features
    if not isinstance(X, io.RowSource) and flip:
        X, flip = X.T, False
    X = X.with_nan() if isinstance(X, io.RowSource) else X
    found = []
    for lo, hi in sample_places(X.shape):
        block = sparse.coo_array(X.read(lo, hi) if isinstance(X, io.RowSource) else X[lo:hi])
        there = block.data != 0
        i, j = (place[there] for place in block.coords[:: -1 if flip else 1])
        found.append(Sample(block.data[there], i, j, block.shape[:: -1 if flip else 1], not flip))
    return found


def _kinds(tree: io.Tree, name: str, samples: list[Sample]) -> dict[str, Kind]:
    """Return the kinds of all matrices, first of that of the samples."""
    logged = "X" if "uns/log1p" in tree.root else ""
    others = {each: _kind_of(tree, each, each == logged) for each in _elements(tree) if each != name}
    return {name: _kind(samples, name == logged)} | others


def _kind_of(tree: io.Tree, name: str, logged: bool) -> Kind:
    try:
        return _kind(_samples(element(tree, name)), logged)
    except (LookupError, OSError, TypeError, ValueError) as error:
        return "unreadable", f"unreadable: {error}"


def _extent(samples: list[Sample], opened: io.Opened) -> str:
    whole = samples[0].whole_rows if samples else True
    m, n = opened.matrix.shape[::-1] if opened.by_features else opened.matrix.shape
    seen = sum(each.shape[0 if whole else 1] for each in samples)
    size = m if whole else n
    return f"{min(seen, size):,} of {size:,} {'cells' if whole else 'genes'}"


def _kind(samples: list[Sample], logged: bool) -> Kind:
    """Return what the values of samples look like."""
    x = np.concatenate([each.x for each in samples]) if samples else np.zeros(0)
    known = x[np.isfinite(x)]
    gaps = f", {len(x) - len(known):,} of the sampled values are missing" if len(known) < len(x) else ""
    if not len(known):
        return "empty", f"no numbers other than 0{gaps}"
    least, most = float(known.min()), float(known.max())
    extent = f"{least:.3g} to {most:.3g}{gaps}"
    if least < 0:
        clipped = f", clipped at {most:g}" if most == round(most) and np.count_nonzero(known == most) > 1 else ""
        return "scaled", f"scaled or centred values, with negative ones: {extent}{clipped}"
    if not gaps and not np.any(known % 1):
        return (_COUNTS, f"counts: integers up to {most:,.0f}") if most > 1 else ("indicators", "zeros and ones")
    if evidence := next(filter(None, (each.logarithms(logged) for each in samples)), None) if not gaps else None:
        return _LOGS, f"logarithms, {extent}: {evidence}"
    sums = np.concatenate([np.bincount(each.i, each.x, each.shape[0]) for each in samples])
    if not gaps and samples[0].whole_rows and np.ptp(sums[sums > 0]) < _EQUAL * np.median(sums[sums > 0]):
        return _NORMALIZED, f"normalized counts without a logarithm: every cell has the sum {np.median(sums):,.0f}"
    return "numbers", f"numbers of an unknown kind: {extent}"


# ---- columns


def _all_columns(tree: io.Tree, key: str | None, opened: io.Opened) -> list[dict[str, Any]]:
    sizes = opened.matrix.shape[:: -1 if opened.transposed else 1] if opened.places is None else (None, None)
    axes = zip(("obs", "var"), frames_of(key), sizes, strict=True)
    return [column for axis, frame, size in axes for column in _columns(tree, axis, frame, size)]


def _columns(tree: io.Tree, axis: str, frame: str | None, size: int | None) -> Iterator[dict[str, Any]]:
    node = None if frame is None else tree.root.get(frame)
    for name in [] if node is None else io.column_names(node):
        facts: dict[str, Any] = {"name": f"{axis}/{name}", "kind": "unreadable", "use": "", "missing": {}}
        facts |= {"n_missing": 0, "low": None, "high": None, "unit": "", "n_texts": None, "examples": [], "notes": []}
        try:
            facts |= _described(io.column(tree, node, name, size))
        except (LookupError, OSError, TypeError, ValueError) as error:
            yield facts | {"notes": [str(error)]}
            continue
        n_categories = facts.pop("n_categories", 0)
        if axis == "obs" and 1 < n_categories and _BATCH.fullmatch(name):
            facts["use"] = "batch"
        elif axis == "var" and name == DEFAULT_MASK:
            facts["use"] = "mask"
        yield facts


def _described(values: Any) -> dict[str, Any]:
    if values.dtype.kind in "iuf":
        known = values[np.isfinite(values)]
        distinct = np.unique(known) if values.dtype.kind in "iu" else known[:0]
        ends = {"low": float(known.min()), "high": float(known.max())} if len(known) else {}
        few_values = 1 < len(distinct) <= len(values) // 2
        n_missing, n_categories = len(values) - len(known), few_values * len(distinct)
        return {"kind": "numbers", "n_missing": n_missing, "n_categories": n_categories, **ends}
    if values.dtype.kind == "b":
        return {"kind": "true or false", "examples": [f"{np.count_nonzero(values):,} true"]}
    gaps = [value is None or value != value for value in values.tolist()]
    counts = Counter(str(value) for value, gap in zip(values.tolist(), gaps, strict=True) if not gap)
    facts: dict[str, Any] = {"n_missing": sum(gaps), "examples": list(map(str, counts))[:_SHOWN], "kind": "text"}
    if 2 * len(counts) > len(values) and len(counts) > 1:  # names
        return facts
    common = [f"{name} ({count:,})" for name, count in counts.most_common(_SHOWN)]
    kind = "1 category" if len(counts) == 1 else f"{len(counts):,} categories"
    return facts | {"kind": kind, "examples": common, "n_categories": len(counts)}


def _mask(tree: io.Tree, frame: str | None) -> str | None:
    """Return how many features the default mask has, or why it cannot be used; None if there is none."""
    node = None if frame is None else tree.root.get(frame)
    if node is None or DEFAULT_MASK not in io.column_names(node):
        return None
    try:
        values = io.column(tree, node, DEFAULT_MASK)
        kept = np.count_nonzero(booleans(values, len(values)))
    except (LookupError, OSError, TypeError, ValueError):
        return "unusable"
    return f"{kept:,} of {len(values):,}"


def _notes(batches: list[dict[str, Any]]) -> list[str]:
    names = [each["name"].partition("/")[2] for each in batches]
    if not names:
        return []
    may = "may be a batch" if len(names) == 1 else "may be batches"
    groups = f"--groups {quoted(names[0])} subtracts the mean of each of its groups"
    ranks = f"--batch {quoted(names[0])} with --top-features ranks features within groups"
    return [f"{few(names)} {may}: {groups}, and {ranks}."]


def _of_words(kind: str, opened: io.Opened) -> list[str]:
    if kind != _COUNTS or _kinds_of_names(opened):
        return []
    return ["The command is for cells. For counts of words, use --preprocess tfidf --shift none."]


# ---- the command


def _types_to_keep(features: io.Features | None) -> dict[str, Any]:
    types = set() if features is None or features.types is None else {*features.types.tolist()}
    return {"feature_types": GENES} if len(types) > 1 and GENES in types else {}


def _settings(kind: str, features: Any, mask: str | None, samples: list[Sample]) -> dict[str, Any]:
    """Return the options of a fit that reads these values as they are meant."""
    if any(not np.isfinite(each.x).all() for each in samples):
        return {"missing": "mean"}
    settings: dict[str, Any] = {"preprocess": "log-normalize"} if kind in (_COUNTS, _NORMALIZED) else {}
    n = samples[0].shape[1] if samples and samples[0].whole_rows else 0 if features is None else len(features)
    if mask == "unusable":
        settings |= {"mask": "none"}
    if mask in (None, "unusable") and n > 2 * _TOP and kind in (_COUNTS, _NORMALIZED, _LOGS):
        settings |= {"top_features": _TOP}
    return settings
