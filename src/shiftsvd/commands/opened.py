"""What `shiftsvd fit` reads: any file as a matrix, genotypes with their filters, blocks that workers read."""

from pathlib import Path
from typing import Any, Final

from shiftsvd.algebra.derived import Derived
from shiftsvd.backends.blocked import Blocked
from shiftsvd.commands.asked import WHERE
from shiftsvd.commands.cluster import asked_for
from shiftsvd.commands.cohorts import all_samples, opened_cohort
from shiftsvd.estimators.pca import PCA
from shiftsvd.genetics.selection import Cohort
from shiftsvd.genetics.several import Parts, joined
from shiftsvd.io import Names
from shiftsvd.io.opening import open_chosen, operator_of
from shiftsvd.missing.gaps import Observed
from shiftsvd.missing.gaps.file import FileGaps
from shiftsvd.missing.gaps.opening import open_with_gaps
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.warned import notice

PANEL: Final = 16  # columns of the panels that most fits multiply by, about


def opened_samples(options: Any) -> tuple[Observed, Names, Cohort | None]:
    resources = Resources(options.memory, options.threads)
    where = vars(resources) | {name: getattr(options, name) for name in (*WHERE, "choices")}
    if options.left_missing != "error":
        A, names = open_with_gaps(options.files, unobserved=options.unobserved, whole=options.missing == "em", **where)
        return A, names, None
    if options.chromosomes:
        options.choices.refuse_for("genotypes")
        cohort = opened_cohort(files_of(options), options)
        return genotypes_of(cohort.training, options), joined(cohort.parts).names, cohort
    B, names = open_chosen(files_of(options), stream=asked_for(options.scheduler, options.workers) or None, **where)
    return spread(B, options), names, None


def tell_unless_kept(A: Observed, options: Any) -> None:
    inner: Any = A.X if isinstance(A, FileGaps) else A
    while isinstance(inner, Derived):
        inner = inner.A
    if not (isinstance(inner, Blocked) and inner.worth_keeping(PANEL)):
        notice(
            f"{options.file} is in memory, where its reads take no longer than to keep them: after a kill the fit "
            "begins again"
        )


def files_of(options: Any) -> list[Path]:
    on_cluster = asked_for(options.scheduler, options.workers)
    return [Path(file).absolute() if on_cluster else Path(file) for file in options.files]


def genotypes_of(parts: Parts, options: Any) -> Operator:
    stream = asked_for(options.scheduler, options.workers) or None
    A, _ = operator_of(files_of(options), joined(parts), Resources(options.memory, options.threads), stream)
    return spread(A, options)


def everybody(cohort: Cohort, pca: PCA, options: Any) -> Operator:
    return genotypes_of(all_samples(cohort, pca), options)


def spread(A: Operator, options: Any) -> Operator:
    if not asked_for(options.scheduler, options.workers):
        return A
    from shiftsvd.backends.dask.file import on_workers

    return on_workers(A)
