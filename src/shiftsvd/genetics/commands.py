"""Genotypes in `fit`, `transform` and `info`: filters, tests, PLINK's output files, and matching of variants."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click
import numpy as np

from shiftsvd import Operator
from shiftsvd.extend import commands as cli
from shiftsvd.extend import fits, print_message
from shiftsvd.extend.files import n_missing
from shiftsvd.extend.fits import Observed
from shiftsvd.extend.running import plural
from shiftsvd.genetics import files as plink
from shiftsvd.genetics.analysis import GenotypePCA, basis_of, rows_of_fit
from shiftsvd.genetics.components import Patterson, SelectionScan, TracyWidom, patterson_scale, selection_scan
from shiftsvd.genetics.extension import ProjectName, ScoresScale
from shiftsvd.genetics.figures import DRAWN, figures, write_png
from shiftsvd.genetics.lists import LabelTable
from shiftsvd.genetics.matching import matched, n_ambiguous
from shiftsvd.genetics.projection import Scores, Target, scores_of_projected, warn_of_undetermined
from shiftsvd.genetics.selection import OF_SAMPLES, Cohort, Filters, Selection, selected
from shiftsvd.genetics.variants import Samples, Variants, autosomal, read_sample_column
from shiftsvd.io import Names

if TYPE_CHECKING:  # it imports scikit-learn
    from shiftsvd.extend.fits import BatchPCA

SCALE: Final = "patterson"
NAMES: Final = tuple(Filters.__annotations__)
_TESTS: Final = ("tracy_widom", "scan")
PICTURE: Final = "loadings.png"
LISTS: Final = {"unrelated": ("kin0", "projected"), "mind": ("mindrem.id",)}  # files of filters, as plink2 names them
_PHENOTYPE_MISSING: Final = "-9"  # PLINK's code
_LEAST_P: Final = 1e-300  # smaller p values lose digits or become 0
_LEVEL: Final = 0.05  # of the Tracy-Widom test
_AGAINST_AXES: Final = ("indep_pairwise", "unrelated", "maf")  # filters, by the causes that the message names
_OF_TRANSFORM: Final = ("project", "match", "trust_ambiguous", "trust_order", "scores_scale")
_OF_OTHERS: Final = ("feature_types", "var_names", "measurement", "obs_query", "max_absent")  # other formats
_MIN_MATCHED: Final = 0.5  # warn if the file has less than this share of the variants of the model


class GenotypeHooks(cli.Hooks):
    """Filters, Patterson's scale and PLINK's output files for the genotypes of a .bed or .pgen."""

    recorded = ("chromosomes", "scores_scale")
    decisive = ("chromosomes", *NAMES)
    files = ("tracy_widom.csv", "scan.csv", PICTURE)
    models = ("shiftsvd.genetics.analysis:GenotypePCA",)

    cohort: Cohort | None = None
    label_table: LabelTable | None = None
    sample_labels: Sequence[str] = ()
    filters: Mapping[str, str | float]
    message_of_labels = ""
    test: TracyWidom
    scan: SelectionScan

    @cached_property
    def are_genotypes(self) -> bool:
        settings = self.settings
        kinds = (settings.format or path.suffix.lower().removeprefix(".") for path in settings.paths)
        return settings.orient != "rows" and all(kind in ("bed", "pgen") for kind in kinds)

    @property
    def stacked(self) -> bool:
        return len(self.settings.files) > 1 and self.settings.stack == "rows"

    def refuse(self, given: Iterable[str]) -> None:
        for name in given:
            raise click.UsageError(
                f"{cli.option_of(name)} requires genotypes (.bed or .pgen) with samples as rows, got "
                f"{self.settings.file}. Remove the option."
            )

    def read(self) -> plink.Fileset:
        settings = self.settings
        settings.choices.refuse_for("genotypes")
        for name in _OF_OTHERS:
            if getattr(settings, name) is not None:
                raise click.UsageError(f"{cli.option_of(name)} has no effect on genotypes. Remove it.")
        # Workers of a cluster may have another working directory.
        paths = [path.absolute() for path in settings.paths] if settings.on_cluster else settings.paths
        return plink.Fileset.of(paths, settings.key, settings.memory)

    # fit and estimate

    def check(self) -> None:
        settings, extra = self.settings, self.settings.extra
        if extra["autosome"] and extra["chromosomes"] == "all":
            raise click.UsageError("--autosome and --chromosomes all contradict each other. Use one of them.")
        for name, needed in (("hwe_midp", "hwe"), ("indep_order", "indep_pairwise")):
            if extra[name] and extra[needed] is None:
                raise click.UsageError(
                    f"{cli.option_of(name)} requires {cli.option_of(needed)}. Add {cli.option_of(needed)}."
                )
        for name in ("scan", "labels", "scores_scale") if settings.out is None else ():
            cli.need_folder(name, extra[name])
        if extra["labels"] and settings.report is False:
            raise click.UsageError("--labels colours the plots of the report. Remove --no-report.")
        if settings.preprocess and settings.scale == SCALE:
            raise click.UsageError(f"--scale {SCALE} requires untransformed allele counts. Remove --preprocess.")

    def defaults(self) -> Mapping[str, Any]:
        settings, file = self.settings, self.settings.file
        if settings.scale == SCALE and settings.shift != "mean":
            raise ValueError(f"--scale {SCALE} requires --shift mean, got --shift {settings.shift}. Remove --shift.")
        if not self.are_genotypes:
            self.refuse(self.settings.given(("chromosomes", "autosome", "labels", "scores_scale", *NAMES, *_TESTS)))
            return {}
        if self.stacked:
            raise ValueError(f"{file}: {plink.COHORTS}")
        if settings.missing == "em" or settings.unobserved:
            raise ValueError(
                f"{file}: missing genotypes are always replaced by the mean of their variant. Remove --missing."
            )
        if settings.preprocess:
            raise ValueError(
                f"{file}: genotypes cannot be transformed, because missing genotypes are replaced by the mean of their "
                "variant. Remove --preprocess."
            )
        if settings.extra.get("top_features"):
            raise ValueError(
                f"{file}: --top-features ranks features of count data and cannot rank variants. Remove it."
            )
        scale = settings.scale or (SCALE if settings.shift == "mean" else None)
        if scale != SCALE and settings.extra["scores_scale"]:
            raise click.UsageError(
                "--scores-scale uses eigenvalues of the relationship matrix, so it requires --scale "
                f"{SCALE} and --shift mean. Remove --scale and --shift, or --scores-scale."
            )
        if self.settings.given(_TESTS) and scale != SCALE:
            tests = " and ".join(map(cli.option_of, _TESTS))
            raise click.UsageError(f"{tests} require --scale {SCALE} and --shift mean. Remove --scale and --shift.")
        chromosomes, label = settings.extra["chromosomes"] or "autosomes", settings.label_column
        if settings.extra["labels"] is not None:
            self.label_table = LabelTable.read(Path(settings.extra["labels"]))
            label = self.label_table.column(label)
        own = {"scale": scale, "missing": "mean", "filled": True, "chromosomes": chromosomes}
        return own | {"label_column": label}

    def outputs(self) -> Mapping[str, str | Path]:
        files: dict[str, str | Path] = {name: f"{name}.csv" for name in self.settings.given(_TESTS)}
        out = Path(str(self.settings.out))
        folder = out if out.name.strip(".") else out.resolve()
        kinds: tuple[str, ...] = plink.RESULTS if self.settings.filled and self.settings.scale == SCALE else ()
        if self.are_genotypes and self.settings.report is not False and find_spec("matplotlib"):
            files["genome"] = PICTURE
        for name, lists in LISTS.items():
            kinds += lists if self.settings.given((name,)) else ()
        return files | {kind: folder.with_name(f"{folder.name}.{kind}") for kind in kinds}

    def open(self) -> tuple[Observed, Names] | None:
        settings, filters = self.settings, self.settings.given(NAMES)
        if not self.are_genotypes:
            return None
        if "indep_order" in filters:
            filters["indep_order"] = int(filters["indep_order"])
        selection = Selection(settings.extra["chromosomes"], **filters)
        self.filters, whole = selection.given, self.read()
        self._read_labels(whole, settings.label_column)  # before the filters read the genotypes
        self.cohort = selected(whole, selection, settings.resources)
        self.cohort.require_two_samples()
        files = self.cohort.files
        return self._operator(self.cohort.training), Names(files.labels, files.variants.names)

    def labels_beside(self) -> bool:
        return self.are_genotypes

    def labels(self, column: str) -> Sequence[str] | None:
        if self.cohort is None:
            return None
        return [label for label, kept in zip(self.sample_labels, self.cohort.rows, strict=True) if kept]

    def _read_labels(self, files: plink.Fileset, column: str | None) -> None:
        if column is not None and self.label_table is not None:
            self.sample_labels, self.message_of_labels = self.label_table.labels(column, files.samples)
        elif column is not None:
            texts = read_sample_column(files.paths[0], column).tolist()
            self.sample_labels = ["" if text == _PHENOTYPE_MISSING else text for text in texts]

    def _operator(self, files: plink.Fileset) -> Operator:
        return files.operator(self.settings.resources, self.settings.on_cluster or None)

    def select(self, run: cli.Run) -> None:
        if self.settings.scale != SCALE:
            return
        mean = run.A.moments().mean
        if mean.min() < 0 or mean.max() > 2:
            raise ValueError(
                f"--scale {SCALE} requires allele counts from 0 to 2, got columns with means from {mean.min():g} to "
                f"{mean.max():g}. Use --scale std, or pass allele counts."
            )
        run.scale = patterson_scale(mean)[0]

    def after_fit(self, run: cli.Run) -> None:
        cohort, pca = self.cohort, run.pca
        removed = {} if cohort is None else dict(cohort.removed)
        not_on_autosomes = removed.pop("chromosomes", 0)
        if self.settings.scale == SCALE:
            used = int(np.count_nonzero(patterson_scale(pca.mean_)[1]))
            run.document["genotypes"] = {
                "scale": "sqrt(2 p (1 - p))",
                "variants_used": used,
                "monomorphic": len(pca.mean_) - used,
                "not_on_autosomes": not_on_autosomes,
                "eigenvalues": (pca.singular_values_.astype(np.float64) ** 2 / max(used, 1)).tolist(),
            }
            if self.settings.extra["scores_scale"]:
                run.score_factors = self._factors(run, self.settings.extra["scores_scale"])
        if cohort is None:
            return
        pca.variants_, pca.filters = cohort.files.variants, self.filters
        if not cohort.rows.all():
            pca.kept = cohort.rows
        pca.info_ = replace(pca.info_, n_missing=sum(map(n_missing, cohort.training.parts)))
        run.beside = variant_columns(pca.variants_)
        results = ({"absent": cohort.absent} if cohort.absent else {}) | self._tests(run, cohort)
        if results or removed:
            run.document.update({"removed": removed} | results)
        if cohort.learned is not None:  # score all samples, also those that are not training samples
            assert isinstance(run.A, Operator)
            means = run.A.moments().mean if pca.shift is None else pca.mean_
            run.scored = self._operator(cohort.files.filled(means))
            if not cohort.learned.all():
                run.projected, pca.learned = ~cohort.learned, cohort.learned
                others = cohort.files.of_samples(~cohort.learned)
                run.projected_scores = scores_of_projected(basis_of(pca), others, self.settings.memory)
        counts = cohort.removed.items()
        run.facts |= {f"{cli.option_of(name)} {self.filters[name]}": _removed(name, count) for name, count in counts}
        if "tracy_widom" in results:
            run.facts["Tracy-Widom test"] = _significant(results["tracy_widom"]["p_values"], self.filters)

    def _tests(self, run: cli.Run, cohort: Cohort) -> dict[str, Any]:
        settings, pca, A = self.settings, run.pca, run.A
        results: dict[str, Any] = {}
        if not self.settings.given(_TESTS):
            return results
        assert isinstance(A, Operator)
        S = pca.singular_values_.astype(np.float64)
        scores = np.concatenate([block for _, block in pca.iter_scores(A)]).astype(np.float64)
        U, (scale, both) = scores / np.where(S > 0, S, 1), patterson_scale(pca.mean_)
        if settings.extra["tracy_widom"]:
            total = float((S**2).sum() / pca.explained_variance_ratio_.sum())
            matrix, rng = Patterson(A, pca.mean_, scale, both, total), np.random.default_rng(settings.seed)
            self.test = matrix.tracy_widom(U, S, rng, settings.resources)
            results["tracy_widom"] = {name: cli.numbers(part) for name, part in self.test._asdict().items()}
        if settings.extra["scan"]:
            self.scan = selection_scan(cohort.training.of_variants(both), U, settings.resources)
            inflation = float(self.scan.inflation)
            results["genomic_inflation"] = inflation if np.isfinite(inflation) else None
        return results

    def _factors(self, run: cli.Run, scale: ScoresScale) -> Any:
        lengths = run.pca.singular_values_.astype(np.float64)
        return plink.score_factors(scale, lengths, run.document["genotypes"]["variants_used"])

    def writers(
        self, run: cli.Run, table: cli.Table, paths: Mapping[str, Path], outputs: Any
    ) -> Iterable[AbstractContextManager[cli.Write]]:
        if "eigenvec" in paths:
            assert self.cohort is not None
            factors = self._factors(run, self.settings.extra["scores_scale"] or "unit")
            yield _eigenvec_file(outputs.part(paths["eigenvec"]), table.columns, self.cohort.files.samples, factors)

    def write(self, run: cli.Run, paths: Mapping[str, Path], outputs: Any) -> None:
        if self.cohort is None:
            return
        both = patterson_scale(run.pca.mean_)[1]
        variants = self.cohort.files.variants.at(both)
        if "eigenval" in paths:
            plink.eigenval(outputs.part(paths["eigenval"]), run.document["genotypes"]["eigenvalues"])
        if "eigenvec.allele" in paths:
            plink.eigenvec_allele(outputs.part(paths["eigenvec.allele"]), variants, run.pca.components_[:, both].T)
        if "genome" in paths:
            write_png(outputs.part(paths["genome"]), self.figures(run))
        for kind, write_list in self.cohort.lists.items():
            if kind in paths:
                write_list(outputs.part(paths[kind]))
        if "tracy_widom" in paths:
            _write_test(outputs.part(paths["tracy_widom"]), self.test)
        if "scan" in paths:
            _write_scan(outputs.part(paths["scan"]), self.scan, variants)

    def figures(self, run: cli.Run) -> Iterable[tuple[str, Any]]:
        if self.cohort is None:
            return ()
        loadings = run.pca.components_[:DRAWN].T.astype(np.float64)
        used = np.any(loadings != 0, axis=1)
        return figures(self.cohort.files.variants.at(used), loadings[used])

    def summary(self, document: Mapping[str, Any]) -> Iterator[str]:
        if facts := document.get("genotypes"):
            used = f"{facts['variants_used']:,} variants scaled by {facts['scale']}"
            removed = f"{facts['monomorphic']:,} monomorphic and {facts['not_on_autosomes']:,} not on autosomes removed"
            yield f"{used}, {removed}"

    def footer(self, document: Mapping[str, Any]) -> Iterator[str]:
        if document.get("genomic_inflation") is not None:
            yield f"\nselection scan: genomic inflation factor {document['genomic_inflation']:.4g}"
        if (test := document.get("tracy_widom")) is None:
            return
        yield "\n" + _significant(test["p_values"], self.filters)
        yield "component  Tracy-Widom   p-value  effective markers"
        columns = (test["statistics"], test["p_values"], test["effective_markers"])
        for j, (statistic, p_value, markers) in enumerate(zip(*columns, strict=True)):
            p = "<1e-300" if p_value is not None and p_value < _LEAST_P else cli.as_text(p_value, "8.2g")
            yield f"{j + 1:9}  {cli.as_text(statistic, '11.4f')}  {p:>8}  {cli.as_text(markers, '17.1f')}"

    def tell(self, run: cli.Run) -> None:
        removed, absent_names = ({}, {}) if self.cohort is None else (self.cohort.removed, self.cohort.absent)
        for name, count in removed.items():
            absent = absent_names.get(name, 0)
            if name == "chromosomes":
                text = f"{plural(count, 'variant')} not on autosomes removed. To keep all, use --chromosomes all."
            else:
                more = f" {plural(absent, 'name')} of the list not found in the data." if absent else ""
                text = f"{cli.option_of(name)}: {_removed(name, count)}.{more}"
            print_message(text, self.settings.quiet)
        if self.message_of_labels:
            print_message(f"--labels:{self.message_of_labels}", self.settings.quiet)

    # transform

    def score(self, model: Path, pca: Any) -> tuple[cli.Table, Iterator[tuple[int, cli.Block]]] | None:
        settings, given = self.settings, list(self.settings.given(_OF_TRANSFORM))
        if settings.extra["trust_order"] and len(given) > 1:
            raise click.UsageError(f"--trust-order ignores alleles. Remove {cli.option_of(given[0])} or --trust-order.")
        if not self.are_genotypes or self.stacked:
            if isinstance(pca, GenotypePCA):
                raise ValueError(
                    f"{model} is a model of genotypes and needs alleles. Pass a .bed or .pgen, with samples as rows."
                )
            self.refuse(given)
            return None
        return self._projected(pca) if self._knows_alleles(pca, model) else None

    def _knows_alleles(self, pca: Any, model: Path) -> bool:
        trusted, knows = self.settings.extra.get("trust_order", False), hasattr(pca, "variants_")
        if isinstance(pca, GenotypePCA):
            return True
        if knows and trusted:
            raise ValueError(f"{model} records alleles, by which variants are matched. Remove --trust-order.")
        if not knows and not trusted:
            raise ValueError(
                f"{model} does not record which alleles it counts, so variants cannot be matched. Fit the model again "
                "on its .bed or .pgen. If this file has the same variants in the same order and counts the same "
                "alleles, use --trust-order."
            )
        return knows

    def _projected(self, pca: Any) -> tuple[cli.Table, Iterator[tuple[int, cli.Block]]]:
        settings, extra, files = self.settings, self.settings.extra, self.read()
        target = Target.of(pca.basis, files, extra["match"] or "auto", extra["trust_ambiguous"])
        method = cast("ProjectName", extra["project"] or "lsq")
        _report_match(target, method, settings.quiet)
        components, form = cli.component_names(target.basis.loadings.shape[1]), cli.table_format(str(settings.out))
        columns = [*components, *([] if method == "mean" or form == "npy" else [f"{name}_se" for name in components])]
        columns += ["n_variants"] if form not in ("npy", "eigenvec") else []
        dtype, lengths = np.dtype(settings.dtype or np.float32), target.basis.lengths
        of_plink = files.samples.names, "IID", (("FID", files.samples.families),)
        table = cli.Table(columns, files.shape[0], dtype, *(of_plink if form == "eigenvec" else (files.labels,)))
        scale = cast("ScoresScale | None", extra["scores_scale"] or ("unit" if form == "eigenvec" else None))
        factors = plink.score_factors(scale, lengths, int(np.count_nonzero(target.basis.used)))
        return table, _score_rows(target.scores(method, settings.memory), factors, len(columns), files.name)

    def open_new(self, pca: "BatchPCA") -> "tuple[BatchPCA, Observed, Names] | None":
        # The model has no alleles. If the file has as many variants on autosomes as the model has features, use those;
        # otherwise use all variants. `aligned` then compares the names.
        settings = self.settings
        if settings.extra.get("labels") and settings.leave_out is None:
            raise click.UsageError("--labels requires --leave-out, with the name of their column. Add --leave-out.")
        if not self.are_genotypes or self.stacked:
            self.refuse(settings.given(("labels",)))
            return None
        files = self.read()
        if hasattr(pca, "variants_"):
            return self._of_fit(pca, files)
        kept = autosomal(files.variants.chromosomes)
        if np.count_nonzero(kept) == pca.n_features_in_:
            files = files.of_variants(kept)
        pca = cli.aligned(pca, files.shape[1], files.variants.names, settings.file)
        # A model without a mean cannot replace missing genotypes: NaN makes `missing="error"` raise.
        means = pca.mean_ if pca.shift is not None else np.full(pca.n_features_in_, np.nan)
        A = files.filled(means).operator(settings.resources)
        names = Names(files.labels, files.variants.names)
        return copy(pca).set_params(missing="error", unobserved=False), A, names

    def _of_fit(self, pca: "BatchPCA", files: plink.Fileset) -> "tuple[BatchPCA, Observed, Names]":
        settings = self.settings
        model, cohort = rows_of_fit(pca, files)
        if settings.extra["labels"] is not None:
            self.label_table = LabelTable.read(Path(settings.extra["labels"]))
        self._read_labels(files, settings.leave_out)
        if self.message_of_labels:
            print_message(f"--labels:{self.message_of_labels}", settings.quiet)
        self.cohort = cohort
        return model, self._operator(cohort.files), Names(cohort.files.labels, cohort.files.variants.names)

    # info

    def facts(self, pca: Any) -> Mapping[str, Any]:
        variants = getattr(pca, "variants_", None)
        if variants is None:
            return {}
        known = {"known": len(variants.names), "ambiguous": n_ambiguous(variants)}
        return {"variants": known, "filters": getattr(pca, "filters", None)}

    def compare(self, model: str, files: Sequence[str]) -> Mapping[str, Any] | None:
        pca: Any = cli.model_in(model, fits.BatchPCA, GenotypePCA)
        kinds = {Path(file).suffix.lower() for file in files}
        if not (isinstance(pca, GenotypePCA) or hasattr(pca, "variants_") or kinds <= {".bed", ".pgen"}):
            return None
        self._knows_alleles(pca, Path(model))
        opened = plink.Fileset.of([Path(file) for file in files], self.settings.key, self.settings.memory)
        variants, used = pca.basis[:2]
        found = {"model": model, "file": opened.name, "samples": opened.shape[0]}
        counts = matched(variants, used, opened.variants, opened.name).counts
        return found | {"variants": int(np.count_nonzero(used))} | counts


def _removed(name: str, count: int) -> str:
    if name == "unrelated":
        return f"{plural(count, 'related sample')} removed from the fit and projected onto it"
    return f"{plural(count, 'sample' if name in OF_SAMPLES else 'variant')} removed"


def _significant(p_values: Sequence[float | None], filters: Iterable[str]) -> str:
    above = (j for j, p in enumerate(p_values) if p is None or p >= _LEVEL)
    count = next(above, len(p_values))
    which = "none" if not count else "PC1" if count == 1 else f"PC1 to PC{count}"
    found = f"significant axes (Tracy-Widom, p < {_LEVEL}): {count}, {which}"
    if count < len(p_values):
        return found
    absent = [cli.option_of(name) for name in _AGAINST_AXES if name not in filters]
    remedy = f"see {', '.join(absent)}" if absent else "try --indep-pairwise 1000kb 1 0.1 and a larger --maf"
    return f"{found}. There may be more: use a larger -k. LD, relatives and rare variants add axes: {remedy}"


@contextmanager
def _eigenvec_file(path: Path, columns: list[str], samples: Samples, factors: Any) -> Iterator[cli.Write]:
    with path.open("wb") as file, plink.eigenvec(file, columns, samples) as write:
        yield lambda first, block: write(first, block * factors)


def eigenvec_table(file: BinaryIO, table: cli.Table) -> AbstractContextManager[cli.Write]:
    if not table.beside:
        raise ValueError("A .eigenvec requires genotypes (.bed or .pgen) with samples as rows. Write a .csv instead.")
    return plink.eigenvec(file, table.columns, Samples(table.beside[0][1], table.names))


def variant_columns(variants: Variants) -> tuple[tuple[str, Any], ...]:
    return ("chromosome", variants.chromosomes), ("position", variants.positions), ("counted_allele", variants.first)


def _write_test(path: Path, test: TracyWidom) -> None:
    rows = [["component", "statistic", "p_value", "effective_markers", "standard_error"]]
    for j, row in enumerate(zip(*test, strict=True)):
        rows.append([f"PC{j + 1}", *("" if np.isnan(value) else str(float(value)) for value in row)])
    path.write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8", newline="\n")


def _write_scan(path: Path, scan: SelectionScan, variants: Variants) -> None:
    columns = [*(f"z_PC{j + 1}" for j in range(scan.z_scores.shape[1])), "statistic", "p_value"]
    table = cli.Table(
        columns, len(scan.p_values), np.dtype(np.float64), variants.names, "feature", variant_columns(variants)
    )
    with path.open("wb") as file, cli.csv_table(file, table) as write:
        cli.write_rows([(0, np.column_stack([scan.z_scores, scan.statistics, scan.p_values]))], [write])


def _score_rows(groups: Iterator[Scores], factors: Any, width: int, file: str) -> Iterator[tuple[int, cli.Block]]:
    # The first `width` columns: scores, their standard errors if known, and the number of variants.
    n_undetermined = 0
    for first, scores, errors, n_present in groups:
        n_undetermined += int(np.isnan(scores).any(axis=1).sum())
        more = [] if errors is None else [errors * factors]
        yield first, np.column_stack([scores * factors, *more, n_present])[:, :width]
    warn_of_undetermined(file, n_undetermined)


_MATCHED: Final = {"flipped": "with swapped alleles", "complemented": "on the other strand", "by_name": "by name only"}
_REMOVED: Final = {
    "ambiguous": "ambiguous (A/T or C/G; to keep them, use --trust-ambiguous)",
    "absent": "absent from the file",
    "mismatched": "with different alleles",
    "unclear": "with duplicate records or conflicting name and position",
}


def _report_match(target: Target, method: ProjectName, quiet: bool) -> None:
    file, found, n = target.files.name, target.match.counts, int(np.count_nonzero(target.basis.used))
    used = f"{found['matched']:,} of the {n:,} variants of the model"
    how, removed = (
        ", ".join(f"{found[name]:,} {text}" for name, text in each.items()) for each in (_MATCHED, _REMOVED)
    )
    print_message(f"{file}: matched {used} ({how}). Removed: {removed}.", quiet)
    as_in_fit = not (found["flipped"] or found["complemented"] or found["by_name"])
    if found["ambiguous"] and as_in_fit and found["matched"] + found["ambiguous"] == n:
        print_message(
            "If this is the file of the fit, its scores differ from those of the fit, because ambiguous variants are "
            "removed. Use --trust-ambiguous --project mean to compute the scores of its training samples.",
            quiet,
        )
    if found["matched"] < _MIN_MATCHED * n:
        remedy = (
            "Use --project lsq"
            if method == "mean"
            else "Check the standard errors of the scores (columns *_se, not in .npy)"
        )
        warnings.warn(f"{file} has only {used}, so scores are less accurate. {remedy}.", stacklevel=2)
    if target.match.in_segments(target.basis.used):
        warnings.warn(
            f"{file} lacks whole segments of the genome. Standard errors may be too small, because LD in these "
            "segments is estimated from the other segments.",
            stacklevel=2,
        )
