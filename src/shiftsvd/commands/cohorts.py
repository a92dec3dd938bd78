"""What `shiftsvd fit` does with the samples and variants that filters leave: open, project relatives, test, tell."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from shiftsvd.commands.options import say
from shiftsvd.commands.selecting import spelled
from shiftsvd.commands.tables import Table, csv_table, write_rows
from shiftsvd.genetics.alleles import Variants
from shiftsvd.genetics.components import Patterson, patterson, tested
from shiftsvd.genetics.plink_files import eigenvec_allele
from shiftsvd.genetics.scan import SelectionScan, selection_scan
from shiftsvd.genetics.selection import Cohort, Selection, selected
from shiftsvd.genetics.several import Parts, filled, parts_of, some_of
from shiftsvd.genetics.tracy_widom import TracyWidom
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import Resources

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
