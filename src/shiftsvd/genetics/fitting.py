"""Genotypes in `shiftsvd fit`: defaults, filters, projected relatives, tests, PLINK's output files."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import click
import numpy as np

from shiftsvd.commands.options import say
from shiftsvd.commands.tables import Block, Table, Write, csv_table, write_rows
from shiftsvd.genetics.components import Patterson, TracyWidom, patterson, tested
from shiftsvd.genetics.files import Parts, eigenval, eigenvec, eigenvec_allele, filled, parts_of, some_of, variants_of
from shiftsvd.genetics.options import spelled
from shiftsvd.genetics.scan import SelectionScan, selection_scan
from shiftsvd.genetics.selection import Cohort, Selection, selected
from shiftsvd.genetics.variants import CHOICES, Samples, Variants, autosomal
from shiftsvd.io.stacking import COHORTS
from shiftsvd.missing.gaps.opening import n_missing
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import Resources

SCALE: Final = "patterson"


def are_genotypes(files: Sequence[str], format: str | None, orient: str | None) -> bool:  # noqa: A002
    named = (format or Path(file).suffix.lower().removeprefix(".") for file in files)
    return orient != "rows" and all(name in ("bed", "pgen") for name in named)


def genotype_settings(options: Any) -> dict[str, Any]:
    given, genotypes = options.scale, are_genotypes(options.files, options.format, options.orient)
    if given == SCALE and options.shift != "mean":
        raise ValueError(f"--scale {SCALE} is for --shift mean, which is twice the frequencies, got {options.shift}")
    if genotypes and (options.missing == "em" or options.unobserved):
        raise ValueError(f"{options.file}: a missing genotype is the mean of its variant; leave out --missing")
    if genotypes and len(options.files) > 1 and options.stack == "rows":
        raise ValueError(f"{options.file}: {COHORTS}")
    if genotypes and options.preprocess:
        raise ValueError(
            f"{options.file}: a missing genotype is the mean of its variant, which is no count; leave out --preprocess"
        )
    if options.chromosomes and not genotypes:
        raise ValueError(f"--chromosomes is for a .bed with its samples as rows, got {options.file}; leave it out")
    asked = [*options.filters, *(name for name in ("tracy_widom", "scan") if getattr(options, name))]
    if asked and not genotypes:
        raise click.UsageError(f"{spelled(asked[0])} is for a .bed with its samples as rows, got {options.file}")
    usual = SCALE if genotypes and options.shift == "mean" else None
    scale = {None: usual, "none": None}.get(given, given)
    if (options.tracy_widom or options.scan) and scale != SCALE:
        raise click.UsageError(
            f"--tracy-widom and --scan are of genotypes scaled by {SCALE}; leave out --scale, --shift"
        )
    of_genotypes = {"missing": "mean", "filled": True, "chromosomes": options.chromosomes or CHOICES[0]}
    return {"scale": scale} | (of_genotypes if genotypes else {})


def of_model(files: Sequence[Path], n_variants: int, key: str | None, memory_limit: int | str | None) -> Parts:
    """The variants of files that a model with so many is of: those on autosomes if they are so many, else all.

    Their names are compared afterwards: what is not all, nor all on autosomes, is no file of the model.
    """
    parts, kept = parts_of(files, key, memory_limit), autosomal(variants_of(files).chromosomes)
    return some_of(parts, kept if np.count_nonzero(kept) == n_variants else np.ones(len(kept), bool))


def divisors(mean: Vector) -> Vector:
    if mean.min() < 0 or mean.max() > 2:
        raise ValueError(
            f"--scale {SCALE} takes counts of an allele, 0 to 2, got means from {mean.min():g} to {mean.max():g}"
        )
    return patterson(mean)[0]


def planned_genotypes(options: Any) -> dict[str, Path]:
    if not (options.filled and options.scale == SCALE):
        return {}
    folder = Path(options.out) if Path(options.out).name.strip(".") else Path(options.out).resolve()
    return {kind: folder.with_name(f"{folder.name}.{kind}") for kind in ("eigenvec", "eigenval", "eigenvec.allele")}


@contextmanager
def vectors(path: Path, samples: Samples, pca: Any) -> Iterator[Write]:
    lengths = pca.singular_values_.astype(np.float64)
    with eigenvec(path, samples, len(lengths)) as write_vectors:

        def write(first: int, block: Block) -> None:
            write_vectors(first, block / np.where(lengths > 0, lengths, 1))

        yield write


def values(path: Path, pca: Any) -> None:
    eigenval(path, _eigenvalues(pca))


def n_missing_of(parts: Parts) -> int:
    return sum(n_missing(opened.matrix) for _, opened in parts)


def genotypes_told(pca: Any, n_left_out: int) -> dict[str, Any]:
    used = _n_used(pca)
    return {
        "scale": "sqrt(2 p (1 - p))",
        "variants_used": used,
        "monomorphic": len(pca.mean_) - used,
        "not_on_autosomes": n_left_out,
        "eigenvalues": _eigenvalues(pca),
    }


def _n_used(pca: Any) -> int:
    return int(np.count_nonzero(patterson(pca.mean_)[1]))


def _eigenvalues(pca: Any) -> list[float]:
    eigenvalues: list[float] = (pca.singular_values_.astype(np.float64) ** 2 / max(_n_used(pca), 1)).tolist()
    return eigenvalues


_OF_SAMPLES = ("keep", "remove", "mind")


def opened_cohort(files: list[Path], options: Any) -> Cohort:
    resources = Resources(options.memory, options.threads)
    parts = parts_of(files, options.key, options.memory)
    order = {"indep_order": int(options.filters["indep_order"])} if "indep_order" in options.filters else {}
    return selected(files, parts, Selection(options.chromosomes, **(options.filters | order)), resources)


def all_samples(cohort: Cohort, pca: Any) -> Parts:
    return filled(cohort.parts, pca.mean_)


def tell_removed(cohort: Cohort, quiet: bool) -> None:
    for name, count in cohort.removed.items():
        if name == "chromosomes":
            say(f"{count:,} variants that are not on autosomes left out; --chromosomes all keeps them", quiet)
        elif name == "unrelated":
            say(f"--unrelated: {count:,} samples with relatives projected, and not learned from", quiet)
        else:
            what = "samples" if name in _OF_SAMPLES else "variants"
            absent = cohort.absent.get(name, 0)
            beside = f"; {absent:,} names of its file are not there" if absent else ""
            say(f"{spelled(name)}: {count:,} {what} removed{beside}", quiet)


@dataclass(frozen=True, eq=False)
class Told:
    """What is told of the components of a cohort besides: tests that were asked for, and what filters removed."""

    cohort: Cohort
    pca: Any
    tracy_widom: TracyWidom | None
    scan: SelectionScan | None

    @classmethod
    def of(cls, cohort: Cohort, pca: Any, A: Operator, options: Any) -> Self:
        if not (options.tracy_widom or options.scan):
            return cls(cohort, pca, None, None)
        resources, S = Resources(options.memory, options.threads), pca.singular_values_.astype(np.float64)
        scores = np.concatenate([block for _, block in pca.iter_scores(A)]).astype(np.float64)
        U = scores / np.where(S > 0, S, 1)
        scale, both = patterson(pca.mean_)
        test = scan = None
        if options.tracy_widom:
            total = float((S**2).sum() / pca.explained_variance_ratio_.sum())
            matrix, rng = Patterson(A, pca.mean_, scale, both, total), np.random.default_rng(options.seed)
            test = tested(matrix, U, S, int(np.count_nonzero(both)), rng, resources)
        if options.scan:
            scan = selection_scan(some_of(cohort.training, both), U, resources)
        return cls(cohort, pca, test, scan)

    @cached_property
    def _both(self) -> Any:
        return patterson(self.pca.mean_)[1]

    @cached_property
    def used(self) -> Variants:
        return self.cohort.left.at(self._both)

    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = {"removed": {n: c for n, c in self.cohort.removed.items() if n != "chromosomes"}}
        told |= {"absent": self.cohort.absent} if self.cohort.absent else {}
        if self.tracy_widom is not None:
            told["tracy_widom"] = {name: _plain(part) for name, part in self.tracy_widom._asdict().items()}
        if self.scan is not None:
            (told["genomic_inflation"],) = _plain([self.scan.inflation])
        return told if len(told) > 1 or told["removed"] else {}

    def write(self, paths: dict[str, Path]) -> None:
        if "eigenvec.allele" in paths:
            loadings = self.pca.components_[:, self._both].T.astype(np.float64)
            eigenvec_allele(paths["eigenvec.allele"], self.used, loadings)
        if "tracy_widom" in paths:
            assert self.tracy_widom is not None
            _write_test(paths["tracy_widom"], self.tracy_widom)
        if "scan" in paths:
            assert self.scan is not None
            _write_scan(paths["scan"], self.scan, self.used)


def beside(variants: Variants) -> tuple[tuple[str, Any], ...]:
    return ("chromosome", variants.chromosomes), ("position", variants.positions), ("counted_allele", variants.first)


def _plain(values: Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _write_test(path: Path, test: TracyWidom) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["component", "statistic", "p_value", "effective_markers", "standard_error"])
        for j, row in enumerate(zip(*test, strict=True)):
            writer.writerow([f"PC{j + 1}", *("" if np.isnan(value) else float(value) for value in row)])


def _write_scan(path: Path, scan: SelectionScan, variants: Variants) -> None:
    columns = [*(f"z_PC{j + 1}" for j in range(scan.z_scores.shape[1])), "statistic", "p_value"]
    table = Table(columns, len(scan.p_values), np.dtype(np.float64), variants.names, "feature", beside(variants))
    with path.open("wb") as file, csv_table(file, table) as write:
        write_rows([(0, np.column_stack([scan.z_scores, scan.statistics, scan.p_values]))], [write])
