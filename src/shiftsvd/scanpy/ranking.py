"""Highly variable features, ranked in a few reads of the data."""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from shiftsvd import Operator
from shiftsvd.extend.operators import Grouped, Panel, Vector, all_groups, group_bytes, group_moments, with_zeros
from shiftsvd.extend.running import Refused, Setting, affordable, warn
from shiftsvd.extend.transforms import (
    EntryOf,
    Transform,
    checked,
    learn_all,
    warn_of_logarithms,
    warn_unless_counts,
)
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.scanpy.flavors import (
    Batches,
    Columns,
    Counts,
    Cutoffs,
    Logarithms,
    chosen_by_rank,
    flavored,
    normalised,
    of_batches,
    residual_variances,
    standardised_variances,
)

OF_LOGARITHMS: Final = ("seurat", "cell_ranger")
# How many features where no number is asked for, by flavors that have no cutoffs.
USUAL: Final = 2000


@dataclass(frozen=True)
class HighlyVariable:
    """Which features are taken for highly variable; what scanpy calls its arguments of these names.

    Attributes
    ----------
    n_top : int, optional
        How many; without it `cutoffs` decide, or of the flavors that have none, there are 2000.
    flavor : str
    n_bins : int
        Of means, for "seurat".
    span : float
        The share of genes that the regression of "seurat_v3" goes by at once.
    theta : float
    clip : float, optional
        Of residuals.
    cutoffs : Cutoffs
    """

    n_top: int | None = None
    flavor: FlavorName = "seurat"
    n_bins: int = 20
    span: float = 0.3
    theta: float = 100.0
    clip: float | None = None
    cutoffs: Cutoffs = field(default_factory=Cutoffs)

    def __post_init__(self) -> None:
        rules = (
            (self.flavor in get_args(FlavorName), f"flavor must be one of {', '.join(get_args(FlavorName))}", "flavor"),
            (self.n_top is None or _whole(self.n_top, 1), "n_top_genes must be a whole number of at least 1", "n_top"),
            (_whole(self.n_bins, 1), "n_bins must be a whole number of at least 1", "n_bins"),
            (0 < self.span <= 1, "span must be above 0 and at most 1", "span"),
            (self.theta > 0, "theta must be above 0", "theta"),
            (self.clip is None or self.clip >= 0, "clip must be at least 0, or None", "clip"),
        )
        for kept, rule, name in rules:
            if not kept:
                raise ValueError(f"{rule}, got {getattr(self, name)!r}")

    @property
    def of_logarithms(self) -> bool:
        return self.flavor in OF_LOGARITHMS

    def check_steps(self, steps: tuple[Transform, ...]) -> None:
        if not self.of_logarithms and steps:
            raise Refused(flavored(self.flavor), " ranks raw counts; leave ", Setting("preprocess"), " out")
        for step in steps:
            if not step.keeps_zeros:
                raise Refused(
                    *(flavored(self.flavor), f" ranks logarithms of counts, not {step}; give "),
                    *(
                        Setting("preprocess", "log-normalize"),
                        ", or a flavor of raw counts: seurat_v3 or pearson_residuals",
                    ),
                )


class Ranking(NamedTuple):
    """What is known of every feature, and which of them are highly variable.

    Attributes
    ----------
    asked : HighlyVariable
    columns : dict of array of shape (n,)
        By the names that scanpy gives them in ``var``: "highly_variable", "means", "dispersions_norm", ...
    n_stored : int
        How many stored entries those that are chosen have together.
    """

    asked: HighlyVariable
    columns: Columns
    n_stored: int

    @property
    def mask(self) -> Vector:
        return self.columns["highly_variable"]


def rank(
    A: Operator,
    asked: HighlyVariable,
    steps: tuple[Transform, ...] = (),
    batches: Batches | None = None,
    names: Vector | None = None,
    base: float = 1.0,
    memory_limit: int | str | None = None,
    logged: bool = False,
) -> Ranking:
    """Rank the columns of A.

    Parameters
    ----------
    A : Operator of shape (m, n)
        Counts; for "seurat" and "cell_ranger" what `steps` make logarithms, or logarithms themselves.
    asked : HighlyVariable
    steps : tuple of transformations that keep zeros
    batches : Batches, optional
        Features are ranked in each, and those are chosen that most of them choose.
    names : array of str, optional
        Of the features: they decide between those that are ranked alike, as in scanpy.
    base : float
        The natural logarithm of the base of logarithms.
    memory_limit : int (bytes) or str, optional
        What would need more is refused before anything is read.

    Notes
    -----
    One read, and those that `steps` need; two reads for the flavors of counts. Memory: some numbers for each feature in
    each batch, for each block in work.
    """
    asked.check_steps(steps)
    batches = Batches.of(None, A.shape[0]) if batches is None else batches
    A = checked(A)
    in_groups = f"ranking {A.shape[1]} features in {batches.n} {'batches' if batches.given else 'group'}"
    affordable(group_bytes(A, batches.n, 2), memory_limit, in_groups, "batches or threads")
    if asked.of_logarithms:
        warn_unless_counts(steps, A, logged)
        return _by_dispersion(A, asked, steps, batches, names, base)
    warn_of_logarithms(flavored(asked.flavor), A, logged)
    sums, stored = group_moments(A, _look(A, Counts(asked.flavor), batches))
    moments = with_zeros(stored, batches.sizes)
    whole = all_groups(moments)
    if not sums[:, 1].any():  # as exact as sums of whole numbers are: genes of as many counts have the same mean
        counts = np.rint(stored[0] * stored[1])
        moments[1], whole[1] = counts / batches.sizes, counts.sum(axis=1) / A.shape[0]
    told = {"means": whole[1], "variances": whole[2] / (whole[0] - 1)}
    if asked.flavor == "pearson_residuals":
        scores = residual_variances(A, sums[:, 0], batches, moments, asked.theta, asked.clip)
        told["residual_variances"] = scores.mean(axis=1)
    else:
        scores = standardised_variances(A, batches, moments, asked.span)
        told["variances_norm"] = scores.mean(axis=1)
    told |= chosen_by_rank(scores, asked.n_top or USUAL, rank_first=asked.flavor == "seurat_v3")
    if asked.flavor == "pearson_residuals":
        told["highly_variable_intersection"] = told["highly_variable_nbatches"] == batches.n
    return _ranking(asked, told, stored, batches)


def _by_dispersion(
    A: Operator,
    asked: HighlyVariable,
    steps: tuple[Transform, ...],
    batches: Batches,
    names: Vector | None,
    base: float,
) -> Ranking:
    look = _look(A, Logarithms(None, asked.flavor == "seurat", base), batches)
    if steps:
        A, look = _of_last_step(A, steps, look)
    fractions, stored = group_moments(A, look)
    if not steps and not fractions.any() and stored[0].any():
        raise Refused(
            *(flavored(asked.flavor), " ranks logarithms, but all entries are whole numbers; give "),
            *(Setting("preprocess", "log-normalize"), " with raw counts, or ", Setting("flavor", "seurat_v3")),
        )
    moments = with_zeros(stored, batches.sizes)
    if not np.isfinite(moments).all():
        raise Refused(
            *(flavored(asked.flavor), " takes exponentials of logarithms, and those of these entries are beyond the "),
            *("range of numbers; give ", Setting("preprocess", "log-normalize"), " with raw counts"),
        )
    wanted = asked.cutoffs if asked.n_top is None else int(asked.n_top)
    each = [_of_batch(moments[:, :, b], asked, wanted, batches.given) for b in range(batches.n)]
    order = np.arange(moments.shape[1]) if names is None else np.argsort(names.astype(str), kind="stable")
    return _ranking(asked, of_batches(each, wanted, order) if batches.given else each[0], stored, batches)


def _look(A: Operator, f: Counts | Logarithms, batches: Batches) -> Grouped:
    return Grouped(f, batches.codes, np.zeros((A.shape[0], 0)), np.zeros((A.shape[1], batches.n, 0)), batches.n)


def _of_last_step(A: Operator, steps: tuple[Transform, ...], look: Grouped) -> tuple[Operator, Grouped]:
    A = learn_all(steps[:-1], A, None, 0.0).B
    fitted, R = steps[-1].learn_rows(A, np.ones(A.shape[0]), 0.0)
    f = look.f
    assert isinstance(f, Logarithms)
    made = Logarithms(EntryOf(fitted.how, fitted.known, fitted.table), f.exponentials, f.base)
    C = np.repeat(fitted.columns[:, None, :], look.n_groups, axis=1)
    return A, Grouped(made, look.codes, R, C, look.n_groups)


def _of_batch(moments: Panel, asked: HighlyVariable, wanted: int | Cutoffs, given: bool) -> Columns:
    size, mean, squares = moments
    there = (mean != 0) | (squares != 0) if given else np.ones(len(mean), bool)
    variance = squares / (size - 1)
    flavor: Literal["seurat", "cell_ranger"] = "seurat" if asked.flavor == "seurat" else "cell_ranger"
    found = normalised(mean[there], variance[there], flavor, asked.n_bins, wanted) if there.any() else {}
    columns: Columns = {}
    for name in ("means", "dispersions", "dispersions_norm", "highly_variable"):
        columns[name] = np.zeros(len(mean), bool if name == "highly_variable" else float)
        columns[name][there] = found.get(name, 0)
    return columns


def _ranking(asked: HighlyVariable, told: Columns, stored: Panel, batches: Batches) -> Ranking:
    if not told["highly_variable"].any():
        by = asked.cutoffs if asked.n_top is None else "any measure: none of them varies"
        raise ValueError(f"no feature is highly variable by {by}; give other data, cutoffs, or n_top_genes")
    n_chosen = int(told["highly_variable"].sum())
    if asked.n_top is not None and n_chosen < asked.n_top:
        warn(f"{n_chosen} features are taken, which is all that can be ranked, {asked.n_top} were asked for")
    if not batches.given:
        told = {name: told[name] for name in told if not name.endswith(("_nbatches", "_intersection"))}
    return Ranking(asked, told, int(stored[0][told["highly_variable"]].sum()))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)
