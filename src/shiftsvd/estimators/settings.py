"""Settings of estimators: threads, components wanted, solver, shift, randomness."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, get_args

import numpy as np
from numpy.random import Generator, RandomState

from shiftsvd.errors import Refused, Setting, few, refuse
from shiftsvd.front import integer
from shiftsvd.kernels import threads
from shiftsvd.names import SklearnSolverName
from shiftsvd.operators import Operator
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.shifts import NAMES, Shift
from shiftsvd.runs.messages import warn
from shiftsvd.sketch import generator
from shiftsvd.solvers import BlockLanczos, Exact, Gram, RandomizedSVD, ShiftedRandomizedSVD, Solver
from shiftsvd.solvers.base import SHARE_SOLVERS
from shiftsvd.solvers.randomized import auto_iterations

if TYPE_CHECKING:
    from shiftsvd.estimators.pca import PCA

P = ParamSpec("P")
R = TypeVar("R")
SVD_SOLVERS = get_args(SklearnSolverName)
TO_ROUNDING = "arpack", "covariance_eigh"  # solvers of scikit-learn's names that iterate to rounding by default
MLE_FEATURES = 5000  # all eigenvalues are needed


def as_one_fit(method: Callable[P, R]) -> Callable[P, R]:
    @wraps(method)
    def inside(*args: P.args, **named: P.kwargs) -> R:
        with threads(cast("Any", args[0]).n_threads):
            return method(*args, **named)

    return inside


def warn_unconverged(components: Iterable[int], effort: str, most: str) -> None:
    """Warn of components that exceed the tolerance or, if none does, of components that may have been missed."""
    if listed := list(components):
        text = f"Component{'s' * (len(listed) > 1)} {few(listed)} did not converge in {effort}. "
        text += "Vectors of equal eigenvalues are not unique. If the eigenvalues differ, raise "
    else:
        text = f"Components may have been missed: {effort} could not rule this out. Raise "
    warn(text, Setting(most), " or ", Setting("tol"), ".")


def wanted(n_components: Any, shape: tuple[int, int], svd_solver: str | None) -> int | float | Literal["mle"]:
    m, n = shape
    truncated = svd_solver in ("arpack", "randomized")
    # scikit-learn's words, which its tests require.
    spelled = "" if svd_solver is None else f" with svd_solver={svd_solver if truncated else 'full'!r}"
    if n_components is None:
        return min(m, n) - (svd_solver == "arpack")
    if isinstance(n_components, str):
        if n_components != "mle":
            raise refuse("n_components", 'be a number, None or "mle"', n_components)
        mle = Setting("n_components", "mle")
        if truncated:
            raise Refused(mle, f" cannot be a string{spelled}. Remove ", Setting("svd_solver"), ".")
        if m < n:
            raise Refused(mle, f" is only supported if n_samples >= n_features, got {m:,} x {n:,}. Pass a number.")
        if n > MLE_FEATURES:
            most = f" computes all eigenvalues and supports at most {MLE_FEATURES:,} features"
            raise Refused(mle, f"{most}, got {n:,}. Pass a number.")
        return "mle"
    if isinstance(n_components, float | np.floating) and 0 < n_components < 1 and not truncated:
        return float(n_components)
    if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer):
        kinds = "an integer" if truncated else 'an integer, a float in (0, 1), None or "mle"'
        raise refuse("n_components", f"be {kinds}{spelled}", n_components)
    k, least = int(n_components), int(truncated)
    if not least <= k <= min(m, n):
        rule = f" must be between {least} and min(n_samples, n_features)={min(m, n)}{spelled}"
        raise Refused(Setting("n_components", k), rule)
    return k


def solver_of(pca: "PCA", k: int | float | Literal["mle"], shape: tuple[int, int]) -> str | Solver:
    name = either(pca.solver, svd_solver=pca.svd_solver)
    if pca.svd_solver is not None and pca.svd_solver not in SVD_SOLVERS:
        raise refuse("svd_solver", f"be one of {', '.join(SVD_SOLVERS)} or None", pca.svd_solver)
    if k == "mle" and not (isinstance(name, Exact) or name in ("auto", "exact", "full", "covariance_eigh")):
        exact = Setting("solver", "auto"), f' or "exact", got {name!r}'
        raise Refused(Setting("n_components", "mle"), " needs ", *exact)
    if k == "mle" and pca.missing == "em":
        raise Refused(Setting("missing", "em"), " needs the number of components as an integer, got 'mle'")
    if k == "mle" or name == "full":
        return Exact()
    if name == "covariance_eigh":
        return Gram(pca.tol or 0)
    if name == "arpack":
        return BlockLanczos(pca.tol or 0)
    if name not in ("randomized", "shifted-randomized"):
        return name
    if isinstance(k, float):
        raise ValueError(f"n_components={k}, a share of the variance, needs {SHARE_SOLVERS}, got {name!r}")
    q, extra = pca.iterated_power, integer("n_oversamples", pca.n_oversamples, 0)
    q = auto_iterations(k, shape) if q == "auto" else integer("iterated_power", q, 0, of=' or "auto"')
    if name == "shifted-randomized":
        # Never fewer samples than the paper's 2k; pass ShiftedRandomizedSVD() for its own settings.
        return ShiftedRandomizedSVD(n_oversamples=max(extra, k), n_iter=q)
    normalizer = pca.power_iteration_normalizer
    if shape[0] < shape[1]:
        return RandomizedSVD(extra, q, normalizer)
    # On the tall side "project" gives values below the norms of the scores; ending with A V instead, one product
    # later, the variance of the scores is explained_variance_, converged or not.
    return RandomizedSVD(extra, q + 1, normalizer, finish="last")


def either(solver: str | Solver, **theirs: str | None) -> str | Solver:
    ((name, spelled),) = theirs.items()
    if spelled is None:
        return solver
    if not (isinstance(solver, str) and solver == "auto"):
        both = f", not both, got {spelled!r} and {solver!r}"
        raise Refused("Pass either ", Setting(name), " or ", Setting("solver"), both)
    return spelled


def shift_of_rows(shift: Any, missing: str, data: dict[str, Any]) -> Any:
    if missing != "error" and not (shift is None or (isinstance(shift, str) and shift == "mean")):
        allowed = Setting("shift", "mean")
        or_none = " or None" if missing == "em" else ""
        raise Refused(Setting("missing", missing), " of PCA needs ", allowed, f"{or_none}, got {shift!r}")
    if isinstance(shift, GroupMeans | Covariates):
        name, spec = ("groups", "labels") if isinstance(shift, GroupMeans) else ("covariates", "values")
        if getattr(shift, spec) is not None:
            kind = type(shift).__name__
            raise Refused(
                f"PCA needs {kind}() without {spec}, because new rows have other {name}. Pass the {name} of the rows ",
                *("as fit(X, ", Setting(name), "=...)."),
            )
        values = data_of_rows(name, shift, data)
        if np.iscomplexobj(values):
            raise Refused(Setting(name), " of PCA must be real, got complex numbers. Use shiftsvd.svd.")
        return replace(shift, **{spec: values})
    data_of_rows(None, shift, data)
    if isinstance(shift, str):  # before the other kinds: to tell a protocol takes a while
        if shift not in NAMES:
            choices = '"mean", "rows", "both", None, a vector, GroupMeans() or Covariates()'
            raise refuse("shift", f"be {choices}", shift)
    elif isinstance(shift, Operator | Shift):
        raise ValueError(f"a shift of PCA must apply to new rows, got {shift}. Use shiftsvd.svd.")
    elif np.iscomplexobj(shift):
        raise ValueError("a shift of PCA must be real, got complex numbers. Use shiftsvd.svd.")
    return shift


def data_of_rows(needed: str | None, shift: Any, data: dict[str, Any]) -> Any:
    for name, values in data.items():
        if name == needed and values is None:
            remedy = ". Pass ", Setting(name), "=..., with one entry per row of X."
            raise Refused(Setting("shift", shift), " needs ", Setting(name), *remedy)
        if name != needed and values is not None:
            kind = {"groups": "GroupMeans()", "covariates": "Covariates()"}[name]
            remedy = ". Remove ", Setting(name), ", or change the shift."
            raise Refused(Setting(name), f" requires shift={kind}, got ", Setting("shift", shift), *remedy)
    return None if needed is None else data[needed]


def random_generator(random_state: Any) -> Generator:
    if isinstance(random_state, RandomState):
        random_state = int(random_state.randint(0, 2**31 - 1))
    return generator(random_state, "random_state")
