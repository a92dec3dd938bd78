"""`shiftsvd transform` of genotypes: variants matched by their alleles, scores with standard errors."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from shiftsvd.commands.checks import tables
from shiftsvd.commands.options import say
from shiftsvd.commands.tables import Block, Table
from shiftsvd.commands.writing import component_names, model_in
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.genetics import GenotypePCA
from shiftsvd.genetics.components import patterson
from shiftsvd.genetics.files import joined, parts_of
from shiftsvd.genetics.projection import Basis, Scores, Target
from shiftsvd.genetics.variants import Variants, n_ambiguous
from shiftsvd.io.stacking import several
from shiftsvd.names import ProjectName

NUMBER, ERROR = "n_variants", "{}_se"  # columns beside those of the components
_FEW = 0.5  # share of the variants of a model, below which a file has so few that it is warned of


def knows_alleles(pca: BatchPCA | GenotypePCA, model: Path, trust_order: bool) -> bool:
    if isinstance(pca, GenotypePCA) or hasattr(pca, "variants_"):
        if trust_order:
            raise ValueError(f"{model} knows the alleles of its variants, and goes by them; leave out --trust-order")
        return True
    if not trust_order:
        raise ValueError(
            f"{model} does not know which alleles it counts, and a .bed may count others: fit it again to its .bed, "
            "or, if this file counts the same alleles of the same variants, give --trust-order"
        )
    return False


def refuse_other_files(pca: BatchPCA | GenotypePCA, model: Path, given: dict[str, Any]) -> None:
    if isinstance(pca, GenotypePCA):
        raise ValueError(f"{model} holds components of genotypes, matched by alleles: give it a .bed or .pgen")
    for name in ("project", "match", "trust_ambiguous", "trust_order"):
        if given[name]:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for a .bed with its samples as rows, got {given['files'][0]}")


def projected(pca: BatchPCA | GenotypePCA, given: dict[str, Any]) -> tuple[Table, Iterator[tuple[int, Block]]]:
    parts = parts_of([Path(file) for file in given["files"]], given["key"], given["memory"])
    target = Target.of(basis(pca), parts, given["match"] or "auto", given["trust_ambiguous"])
    file, method = several([path for path, _ in parts]), cast("ProjectName", given["project"] or "lsq")
    _tell(file, target, given["quiet"])
    components, plain = component_names(target.basis.loadings.shape[1]), tables(given["out"]) == "npy"
    beside = [] if method == "mean" else [ERROR.format(name) for name in components]
    columns = components if plain else [*components, *beside, NUMBER]
    names = joined(parts).columns
    table = Table(columns, len(target.samples.names), np.dtype(given["dtype"] or np.float32), names)
    return table, _rows(target.scores(method, given["memory"]), plain, file)


def basis(pca: BatchPCA | GenotypePCA) -> Basis:
    if isinstance(pca, GenotypePCA):
        return pca.basis
    components = pca.components_.astype(np.float64).T
    used = patterson(pca.mean_)[1] if pca.shift is not None else np.any(components != 0, axis=1)
    scale = np.ones(len(used)) if pca.scale_ is None else pca.scale_
    return Basis(pca.variants_, used, pca.mean_, scale, components, pca.singular_values_.astype(np.float64))


def known(variants: Variants) -> dict[str, int]:
    return {"known": len(variants.names), "ambiguous": n_ambiguous(variants.first, variants.second)}


def held_against(model: str, files: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
    pca = model_in(model, BatchPCA, GenotypePCA)
    knows_alleles(pca, Path(model), False)
    parts = parts_of([Path(file) for file in files], given["key"], given["memory"])
    target = Target.of(basis(pca), parts)
    told = {"model": model, "file": several([path for path, _ in parts]), "samples": len(target.samples.names)}
    return told | {"variants": int(np.count_nonzero(target.basis.used))} | target.match.counts


def _rows(groups: Iterator[Scores], plain: bool, file: str) -> Iterator[tuple[int, Block]]:
    n_untold = 0
    for group in groups:
        n_untold += int(np.isnan(group.scores).any(axis=1).sum())
        beside = [] if group.errors is None else [group.errors]
        block = group.scores if plain else np.column_stack([group.scores, *beside, group.n_present])
        yield group.first, block
    if n_untold:
        warnings.warn(f"{file}: {n_untold} samples have too few genotypes for scores, which are nan", stacklevel=2)


def _tell(file: str, target: Target, quiet: bool) -> None:
    found, n = target.match.counts, int(np.count_nonzero(target.basis.used))
    used = f"{found['matched']:,} of {n:,} variants of the model"
    how = {"flipped": "with alleles swapped", "complemented": "on the other strand", "by_name": "by name alone"}
    left = {
        "ambiguous": "ambiguous (A/T, C/G; --trust-ambiguous keeps them)",
        "absent": "absent",
        "mismatched": "with other alleles",
        "unclear": "there several times, or with a name that contradicts their position",
    }
    said = [f"{found[name]:,} {text}" for name, text in how.items()]
    lost = [f"{found[name]:,} {text}" for name, text in left.items()]
    say(f"{file}: {used}: {', '.join(said)}; left out: {', '.join(lost)}", quiet)
    if found["matched"] < _FEW * n:
        warnings.warn(f"{file} has only {used}: see the standard errors of the scores", stacklevel=2)
    if target.match.in_stretches(target.basis.used):
        warnings.warn(
            f"{file} lacks long stretches of the variants: what is linked in them is part of the standard errors as "
            "far as the stretches that are there tell",
            stacklevel=2,
        )
