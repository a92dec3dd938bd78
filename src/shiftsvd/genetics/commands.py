"""Genotypes in `fit`, `transform` and `info`: filters, tests, PLINK's files, new samples matched by their alleles."""

import csv
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import click
import numpy as np

from shiftsvd import Operator
from shiftsvd.extend import say
from shiftsvd.extend.commands import (
    Block,
    Hooks,
    Run,
    Table,
    Write,
    aligned,
    as_text,
    component_names,
    csv_table,
    model_in,
    need_folder,
    option_of,
    table_format,
    write_rows,
)
from shiftsvd.extend.files import n_missing, operator_of, several
from shiftsvd.extend.fits import BatchPCA, Observed
from shiftsvd.genetics.analysis import GenotypePCA
from shiftsvd.genetics.components import Patterson, TracyWidom, patterson, tested
from shiftsvd.genetics.extension import ProjectName
from shiftsvd.genetics.files import (
    Parts,
    eigenval,
    eigenvec,
    eigenvec_allele,
    filled,
    joined,
    parts_of,
    some_of,
    variants_of,
)
from shiftsvd.genetics.options import NAMES
from shiftsvd.genetics.projection import Basis, Scores, Target
from shiftsvd.genetics.readers import COHORTS
from shiftsvd.genetics.scan import SelectionScan, selection_scan
from shiftsvd.genetics.selection import Cohort, Selection, selected
from shiftsvd.genetics.variants import CHOICES, Samples, Variants, autosomal, n_ambiguous
from shiftsvd.io import Names

SCALE: Final = "patterson"
NUMBER, ERROR = "n_variants", "{}_se"  # columns beside those of the components
_OF_SAMPLES: Final = ("keep", "remove", "mind")  # filters of samples; all others are of variants
_TESTS: Final = ("tracy_widom", "scan")
_OF_TRANSFORM: Final = ("project", "match", "trust_ambiguous", "trust_order")
_FEW: Final = 0.5  # share of the variants of a model, below which a file has so few that a warning says so


class GenotypeHooks(Hooks):
    """Genotypes of PLINK: samples and variants that take part, Patterson's scale, the files that PLINK users expect."""

    recorded = ("chromosomes",)
    decisive = ("chromosomes", *NAMES)
    files = ("tracy_widom.csv", "scan.csv")
    models = ("shiftsvd.genetics.analysis:GenotypePCA",)

    cohort: Cohort | None = None
    test: TracyWidom
    scan: SelectionScan

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that were asked for."""
        extra = self.settings.extra
        return {name: extra[name] for name in NAMES if extra.get(name) not in (None, False)}

    @cached_property
    def are_genotypes(self) -> bool:
        """Whether all files are of PLINK, with their samples as rows."""
        settings = self.settings
        kinds = (settings.format or path.suffix.lower().removeprefix(".") for path in settings.paths)
        return settings.orient != "rows" and all(kind in ("bed", "pgen") for kind in kinds)

    @property
    def asked(self) -> list[str]:
        """Options of the extension that were given."""
        return [*self.filters, *(name for name in _TESTS if self.settings.extra.get(name))]

    # fit and estimate

    def check(self) -> None:
        settings, extra = self.settings, self.settings.extra
        if extra["autosome"] and extra["chromosomes"] == "all":
            raise click.UsageError("--autosome and --chromosomes all contradict each other; give one of them")
        for name, needed in (("hwe_midp", "hwe"), ("indep_order", "indep_pairwise")):
            if extra[name] and extra[needed] is None:
                raise click.UsageError(f"{option_of(name)} is for {option_of(needed)}, which is not given")
        if settings.out is None:
            need_folder("scan", extra["scan"])
        if settings.preprocess and settings.scale == SCALE:
            raise click.UsageError(f"--scale {SCALE} is of counts of an allele; leave out --preprocess")

    def defaults(self) -> Mapping[str, Any]:
        settings, file = self.settings, self.settings.file
        chromosomes = CHOICES[0] if settings.extra["autosome"] else settings.extra["chromosomes"]
        if settings.scale == SCALE and settings.shift != "mean":
            raise ValueError(f"--scale {SCALE} is for --shift mean, twice the frequencies, got {settings.shift}")
        if not self.are_genotypes:
            if chromosomes:
                raise ValueError(f"--chromosomes is for a .bed with its samples as rows, got {file}; leave it out")
            if self.asked:
                raise click.UsageError(f"{option_of(self.asked[0])} is for a .bed with its samples as rows, got {file}")
            return {}
        if settings.missing == "em" or settings.unobserved:
            raise ValueError(f"{file}: a missing genotype is the mean of its variant; leave out --missing")
        if len(settings.files) > 1 and settings.stack == "rows":
            raise ValueError(f"{file}: {COHORTS}")
        if settings.preprocess:
            raise ValueError(
                f"{file}: a missing genotype is the mean of its variant, which is no count; leave out --preprocess"
            )
        if settings.extra.get("top_features"):
            raise ValueError(f"{file}: variants are not ranked, which are no counts; leave out --top-features")
        scale = settings.scale or (SCALE if settings.shift == "mean" else None)
        if any(settings.extra[name] for name in _TESTS) and scale != SCALE:
            raise click.UsageError(
                f"--tracy-widom and --scan are of genotypes scaled by {SCALE}; leave out --scale, --shift"
            )
        return {"scale": scale, "missing": "mean", "filled": True, "chromosomes": chromosomes or CHOICES[0]}

    def outputs(self) -> Mapping[str, str | Path]:
        files: dict[str, str | Path] = {name: f"{name}.csv" for name in _TESTS if self.settings.extra[name]}
        if self.settings.filled and self.settings.scale == SCALE:
            out = Path(str(self.settings.out))
            folder = out if out.name.strip(".") else out.resolve()
            kinds = ("eigenvec", "eigenval", "eigenvec.allele")
            files |= {kind: folder.with_name(f"{folder.name}.{kind}") for kind in kinds}
        return files

    def open(self) -> tuple[Observed, Names] | None:
        settings = self.settings
        if not self.are_genotypes:
            return None
        settings.choices.refuse_for("genotypes")
        parts = parts_of(settings.paths, settings.key, settings.memory)
        filters = self.filters
        if "indep_order" in filters:
            filters["indep_order"] = int(filters["indep_order"])
        selection = Selection(settings.extra["chromosomes"], **filters)
        self.cohort = selected(settings.paths, parts, selection, settings.resources)
        return self._matrix(self.cohort.training), joined(self.cohort.parts).names

    def _matrix(self, parts: Parts) -> Operator:
        settings = self.settings
        paths = [path.absolute() for path in settings.paths] if settings.on_cluster else settings.paths
        return operator_of(paths, joined(parts), settings.resources, settings.on_cluster or None)[0]

    def select(self, run: Run) -> None:
        if self.settings.scale != SCALE:
            return
        mean = run.A.moments().mean
        if mean.min() < 0 or mean.max() > 2:
            raise ValueError(
                f"--scale {SCALE} takes counts of an allele, 0 to 2, got means from {mean.min():g} to {mean.max():g}"
            )
        run.scale = patterson(mean)[0]

    def after_fit(self, run: Run) -> None:
        cohort, pca = self.cohort, run.pca
        if self.settings.scale == SCALE:
            used = _n_used(pca)
            run.document["genotypes"] = {
                "scale": "sqrt(2 p (1 - p))",
                "variants_used": used,
                "monomorphic": len(pca.mean_) - used,
                "not_on_autosomes": 0 if cohort is None else cohort.removed.get("chromosomes", 0),
                "eigenvalues": _eigenvalues(pca),
            }
        if cohort is None:
            return
        pca.variants_ = cohort.left
        missing = sum(n_missing(opened.matrix) for _, opened in cohort.training)
        pca.info_ = replace(pca.info_, n_missing=missing)
        run.beside = beside(cohort.left)
        removed = {name: count for name, count in cohort.removed.items() if name != "chromosomes"}
        told = {"absent": cohort.absent} if cohort.absent else {}
        told |= self._tests(run, cohort)
        if told or removed:
            run.document.update({"removed": removed} | told)
        if cohort.learned is not None:  # everybody, those too that the components were not learned on
            run.scored = self._matrix(filled(cohort.parts, pca.mean_))

    def _tests(self, run: Run, cohort: Cohort) -> dict[str, Any]:
        """The tests that were asked for, of the samples that components were learned on."""
        settings, pca, A = self.settings, run.pca, run.A
        if not any(settings.extra[name] for name in _TESTS):
            return {}
        assert isinstance(A, Operator)
        resources, S = settings.resources, pca.singular_values_.astype(np.float64)
        scores = np.concatenate([block for _, block in pca.iter_scores(A)]).astype(np.float64)
        U = scores / np.where(S > 0, S, 1)
        scale, both = patterson(pca.mean_)
        told: dict[str, Any] = {}
        if settings.extra["tracy_widom"]:
            total = float((S**2).sum() / pca.explained_variance_ratio_.sum())
            matrix, rng = Patterson(A, pca.mean_, scale, both, total), np.random.default_rng(settings.seed)
            self.test = tested(matrix, U, S, int(np.count_nonzero(both)), rng, resources)
            told["tracy_widom"] = {name: _plain(part) for name, part in self.test._asdict().items()}
        if settings.extra["scan"]:
            self.scan = selection_scan(some_of(cohort.training, both), U, resources)
            (told["genomic_inflation"],) = _plain([self.scan.inflation])
        return told

    def writers(
        self, run: Run, table: Table, paths: Mapping[str, Path], outputs: Any
    ) -> Iterable[AbstractContextManager[Write]]:
        if "eigenvec" in paths:
            assert self.cohort is not None
            yield _vectors(outputs.part(paths["eigenvec"]), self.cohort.samples, run.pca)

    def write(self, run: Run, paths: Mapping[str, Path], outputs: Any) -> None:
        if self.cohort is None:
            return
        both = patterson(run.pca.mean_)[1]
        if "eigenval" in paths:
            eigenval(outputs.part(paths["eigenval"]), _eigenvalues(run.pca))
        if "eigenvec.allele" in paths:
            loadings = run.pca.components_[:, both].T.astype(np.float64)
            eigenvec_allele(outputs.part(paths["eigenvec.allele"]), self.cohort.left.at(both), loadings)
        if "tracy_widom" in paths:
            _write_test(outputs.part(paths["tracy_widom"]), self.test)
        if "scan" in paths:
            _write_scan(outputs.part(paths["scan"]), self.scan, self.cohort.left.at(both))

    def summary(self, document: Mapping[str, Any]) -> Iterator[str]:
        if told := document.get("genotypes"):
            used = f"{told['variants_used']:,} variants scaled by {told['scale']}"
            yield f"{used}, {told['monomorphic']:,} monomorphic left out, {told['not_on_autosomes']:,} not on autosomes"

    def footer(self, document: Mapping[str, Any]) -> Iterator[str]:
        if (test := document.get("tracy_widom")) is None:
            return
        yield "\ncomponent  Tracy-Widom   p-value  effective markers"
        columns = (test["statistics"], test["p_values"], test["effective_markers"])
        for j, (statistic, p_value, markers) in enumerate(zip(*columns, strict=True)):
            yield f"{j + 1:9}  {as_text(statistic, '11.4f')}  {as_text(p_value, '8.2g')}  {as_text(markers, '17.1f')}"

    def tell(self, run: Run) -> None:
        quiet, cohort = self.settings.quiet, self.cohort
        if cohort is None:
            return
        for name, count in cohort.removed.items():
            if name == "chromosomes":
                say(f"{count:,} variants that are not on autosomes left out; --chromosomes all keeps them", quiet)
            elif name == "unrelated":
                say(f"--unrelated: {count:,} samples with relatives projected, and not learned from", quiet)
            else:
                what, absent = "samples" if name in _OF_SAMPLES else "variants", cohort.absent.get(name, 0)
                more = f"; {absent:,} names of its file are not there" if absent else ""
                say(f"{option_of(name)}: {count:,} {what} removed{more}", quiet)

    # transform

    def score(self, model: Path, pca: Any) -> tuple[Table, Iterator[tuple[int, Block]]] | None:
        settings, extra = self.settings, self.settings.extra
        given = [name for name in _OF_TRANSFORM if extra[name]]
        if extra["trust_order"] and len(given) > 1:
            raise click.UsageError(f"--trust-order looks at no alleles; leave out {option_of(given[0])}")
        self.stacked = len(settings.files) > 1 and settings.stack == "rows"
        if not self.are_genotypes or self.stacked:
            if isinstance(pca, GenotypePCA):
                raise ValueError(f"{model} holds components of genotypes, matched by alleles: give it a .bed or .pgen")
            if given:
                file = settings.files[0]
                raise click.UsageError(f"{option_of(given[0])} is for a .bed with its samples as rows, got {file}")
            return None
        return self._projected(pca) if isinstance(pca, GenotypePCA) or self._knows_alleles(pca, model) else None

    def _knows_alleles(self, pca: Any, model: Path) -> bool:
        trust_order = self.settings.extra.get("trust_order", False)
        if isinstance(pca, GenotypePCA) or hasattr(pca, "variants_"):
            if trust_order:
                raise ValueError(
                    f"{model} knows the alleles of its variants, and goes by them; leave out --trust-order"
                )
            return True
        if not trust_order:
            raise ValueError(
                f"{model} does not know which alleles it counts, and a .bed may count others: fit it again to its "
                ".bed, or, if this file counts the same alleles of the same variants, give --trust-order"
            )
        return False

    def _projected(self, pca: Any) -> tuple[Table, Iterator[tuple[int, Block]]]:
        settings, extra = self.settings, self.settings.extra
        parts = parts_of(settings.paths, settings.key, settings.memory)
        target = Target.of(_basis(pca), parts, extra["match"] or "auto", extra["trust_ambiguous"])
        file, method = several([path for path, _ in parts]), cast("ProjectName", extra["project"] or "lsq")
        _tell(file, target, settings.quiet)
        components = component_names(target.basis.loadings.shape[1])
        plain = table_format(str(settings.out)) == "npy"
        errors = [] if method == "mean" else [ERROR.format(name) for name in components]
        columns = components if plain else [*components, *errors, NUMBER]
        dtype = np.dtype(settings.dtype or np.float32)
        table = Table(columns, len(target.samples.names), dtype, joined(parts).columns)
        return table, _rows(target.scores(method, settings.memory), plain, file)

    def open_new(self, pca: BatchPCA) -> tuple[BatchPCA, Observed, Names] | None:
        """Files of genotypes for a model without alleles; a missing genotype becomes the mean of the model."""
        if not self.are_genotypes or self.stacked:
            return None
        settings = self.settings
        parts = _parts_of_model(settings.paths, pca.n_features_in_, settings.key, settings.memory)
        variants = joined(parts)
        pca = aligned(pca, variants.matrix.shape[0], variants.rows, settings.file)
        # Without a mean there is nothing that could stand for them: they are refused.
        means = pca.mean_ if pca.shift is not None else np.full(pca.n_features_in_, np.nan)
        A, names = operator_of(settings.paths, joined(filled(parts, means)), settings.resources)
        return copy(pca).set_params(missing="error", unobserved=False), A, names

    # info

    def facts(self, pca: Any) -> Mapping[str, Any]:
        variants = getattr(pca, "variants_", None)
        if variants is None:
            return {}
        ambiguous = n_ambiguous(variants.first, variants.second)
        return {"variants": {"known": len(variants.names), "ambiguous": ambiguous}}

    def compare(self, model: str, files: Sequence[str]) -> Mapping[str, Any] | None:
        """What becomes of the variants of a model in files of genotypes."""
        pca: Any = model_in(model, BatchPCA, GenotypePCA)
        self._knows_alleles(pca, Path(model))
        parts = parts_of([Path(file) for file in files], self.settings.key, self.settings.memory)
        target = Target.of(_basis(pca), parts)
        told = {"model": model, "file": several([path for path, _ in parts]), "samples": len(target.samples.names)}
        return told | {"variants": int(np.count_nonzero(target.basis.used))} | target.match.counts


def beside(variants: Variants) -> tuple[tuple[str, Any], ...]:
    """Columns of tables of variants: chromosome, position, counted allele."""
    return ("chromosome", variants.chromosomes), ("position", variants.positions), ("counted_allele", variants.first)


def _parts_of_model(files: Sequence[Path], n_variants: int, key: str | None, memory_limit: int | str | None) -> Parts:
    """The variants of files that a model with so many is of: those on autosomes if they are so many, else all.

    Their names are compared afterwards: what is not all, nor all on autosomes, is no file of the model.
    """
    parts, kept = parts_of(files, key, memory_limit), autosomal(variants_of(files).chromosomes)
    return some_of(parts, kept if np.count_nonzero(kept) == n_variants else np.ones(len(kept), bool))


@contextmanager
def _vectors(path: Path, samples: Samples, pca: Any) -> Iterator[Write]:
    lengths = pca.singular_values_.astype(np.float64)
    with eigenvec(path, samples, len(lengths)) as write_vectors:

        def write(first: int, block: Block) -> None:
            write_vectors(first, block / np.where(lengths > 0, lengths, 1))

        yield write


def _n_used(pca: Any) -> int:
    return int(np.count_nonzero(patterson(pca.mean_)[1]))


def _eigenvalues(pca: Any) -> list[float]:
    eigenvalues: list[float] = (pca.singular_values_.astype(np.float64) ** 2 / max(_n_used(pca), 1)).tolist()
    return eigenvalues


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


def _basis(pca: BatchPCA | GenotypePCA) -> Basis:
    if isinstance(pca, GenotypePCA):
        return pca.basis
    components = pca.components_.astype(np.float64).T
    used = patterson(pca.mean_)[1] if pca.shift is not None else np.any(components != 0, axis=1)
    scale = np.ones(len(used)) if pca.scale_ is None else pca.scale_
    return Basis(pca.variants_, used, pca.mean_, scale, components, pca.singular_values_.astype(np.float64))


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
