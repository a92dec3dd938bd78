"""Settings of estimators: components wanted, solver, shift, randomness, threads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast, get_args

import numpy as np
from numpy.random import Generator, RandomState

from shiftsvd.kernels import threads
from shiftsvd.names import NormalizerName, SklearnSolverName
from shiftsvd.operators import Operator
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.shifts import NAMES, Shift
from shiftsvd.sketch import generator
from shiftsvd.solvers import BlockLanczos, Exact, Gram, RandomizedSVD, ShiftedRandomizedSVD, Solver
from shiftsvd.solvers.base import SHARED, TOL, check_tol
from shiftsvd.solvers.randomized import auto_iterations

P = ParamSpec("P")
R = TypeVar("R")


def as_one_fit(method: Callable[P, R]) -> Callable[P, R]:
    @wraps(method)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with threads(cast("Any", args[0]).n_threads):
            return method(*args, **kwargs)

    return inside


SVD_SOLVERS = get_args(SklearnSolverName)
MLE_FEATURES = 5000


def wanted(n_components: Any, shape: tuple[int, int], svd_solver: str | None) -> Any:
    m, n = shape
    truncated = svd_solver in ("arpack", "randomized")
    spelled = f"with svd_solver={svd_solver if truncated else 'full'!r}"
    if n_components is None:
        return min(m, n) - (svd_solver == "arpack")
    if isinstance(n_components, str):
        return _mle(n_components, shape, f"cannot be a string {spelled}" if truncated else "")
    if isinstance(n_components, float | np.floating) and 0 < n_components < 1 and not truncated:
        return float(n_components)
    if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer):
        kinds = "an integer" if truncated else 'an integer, a float in (0, 1), None or "mle"'
        raise ValueError(f"n_components must be {kinds} {spelled}, got {n_components!r}")
    least = int(truncated)
    if not least <= n_components <= min(m, n):
        raise ValueError(
            f"n_components={n_components} must be between {least} and min(n_samples, n_features)={min(m, n)} {spelled}"
        )
    return int(n_components)


def _mle(n_components: str, shape: tuple[int, int], refused: str) -> str:
    m, n = shape
    if n_components != "mle":
        raise ValueError(f'n_components must be a number, None or "mle", got {n_components!r}')
    if refused:
        raise ValueError(f"n_components='mle' {refused}; leave svd_solver out")
    if m < n:
        raise ValueError(f"n_components='mle' is only supported if n_samples >= n_features, got {m} x {n}")
    if n > MLE_FEATURES:
        raise ValueError(f"n_components='mle' needs all eigenvalues: at most {MLE_FEATURES} features, got {n}")
    return "mle"


@dataclass(frozen=True)
class Asked:
    """The settings of `PCA` that choose a solver."""

    solver: Any
    svd_solver: str | None
    tol: float | None
    iterated_power: int | str
    n_oversamples: int
    power_iteration_normalizer: NormalizerName

    def solver_for(self, k: Any, shape: tuple[int, int]) -> str | Solver:
        solver, svd_solver = self.solver, self.svd_solver
        if svd_solver is not None:
            if svd_solver not in SVD_SOLVERS:
                raise ValueError(f"svd_solver must be one of {', '.join(SVD_SOLVERS)} or None, got {svd_solver!r}")
            if not (isinstance(solver, str) and solver == "auto"):
                raise ValueError(f"give svd_solver or solver, not both; got {svd_solver!r} and {solver!r}")
        if self.tol is not None:
            check_tol(self.tol)
        if self.tol is not None and isinstance(solver, Solver):
            raise ValueError(
                f"tol fills solvers given by name; set it in the solver object, got tol={self.tol} beside {solver}"
            )
        name = svd_solver or solver
        if isinstance(k, str):
            if not (isinstance(name, Exact) or name in ("auto", "exact", "full", "covariance_eigh")):
                raise ValueError(f'n_components="mle" needs solver="auto" or "exact", got {name!r}')
            return Exact()
        if name == "full":
            return Exact()
        if name == "covariance_eigh":
            return Gram(self.tol or 0)
        if name == "arpack":
            return BlockLanczos(self.tol or 0)
        if name not in ("randomized", "shifted-randomized"):
            return name
        return self._randomized(k, shape, name)

    def _randomized(self, k: Any, shape: tuple[int, int], name: str) -> Solver:
        if isinstance(k, float):
            raise ValueError(f"a share of the variance (n_components={k}) needs {SHARED}, got {name!r}")
        if self.iterated_power != "auto" and (
            not isinstance(self.iterated_power, int | np.integer) or self.iterated_power < 0
        ):
            raise ValueError(f'iterated_power must be "auto" or an integer of at least 0, got {self.iterated_power!r}')
        q = auto_iterations(k, shape) if self.iterated_power == "auto" else int(self.iterated_power)
        if not isinstance(self.n_oversamples, int | np.integer) or self.n_oversamples < 0:
            raise ValueError(f"n_oversamples must be an integer of at least 0, got {self.n_oversamples!r}")
        if name == "shifted-randomized":
            # Never fewer samples than the paper's 2k; pass ShiftedRandomizedSVD() for its own settings.
            return ShiftedRandomizedSVD(n_oversamples=max(int(self.n_oversamples), k), n_iter=q)
        normalizer = self.power_iteration_normalizer
        if shape[0] < shape[1]:
            return RandomizedSVD(int(self.n_oversamples), q, normalizer)
        # On the tall side "project" gives values below the norms of the scores; ending with A V instead, one product
        # later, the variance of the scores is explained_variance_, converged or not.
        return RandomizedSVD(int(self.n_oversamples), q + 1, normalizer, finish="last")


def shift_of_rows(shift: Any, data: dict[str, Any]) -> Any:
    if isinstance(shift, GroupMeans | Covariates):
        return _with_data(shift, data)
    data_of_rows(None, shift, data)
    if isinstance(shift, str):  # before the other kinds: to tell a protocol takes a while
        if shift not in NAMES:
            choices = '"mean", "rows", "both", None, a vector, GroupMeans() or Covariates()'
            raise ValueError(f"shift must be {choices}, got {shift!r}")
        return shift
    if isinstance(shift, Operator | Shift):
        raise ValueError(f"a shift of PCA must mean something for new rows, got {shift}; use svd instead")
    if np.iscomplexobj(shift):
        raise ValueError("a shift of PCA must be real, got complex numbers; use svd instead")
    return shift


def _with_data(shift: GroupMeans | Covariates, data: dict[str, Any]) -> GroupMeans | Covariates:
    name, spec = ("groups", "labels") if isinstance(shift, GroupMeans) else ("covariates", "values")
    if getattr(shift, spec) is not None:
        kind = type(shift).__name__
        raise ValueError(f"in PCA {kind}() is empty, so that folds and new rows bring their own: fit(X, {name}=...)")
    values = data_of_rows(name, shift, data)
    if np.iscomplexobj(values):
        raise ValueError(f"{name} of PCA must be real, got complex numbers; use svd instead")
    return replace(shift, **{spec: values})


def data_of_rows(needed: str | None, shift: Any, data: dict[str, Any]) -> Any:
    for name, values in data.items():
        if name == needed and values is None:
            raise ValueError(f"shift={shift!r} needs {name}: give {name}=..., one for each row of X")
        if name != needed and values is not None:
            kind = {"groups": "GroupMeans()", "covariates": "Covariates()"}[name]
            raise ValueError(f"{name} are for shift={kind}, got shift={shift!r}")
    return None if needed is None else data[needed]


def tolerance(tol: float | None, solver: Any) -> float:
    if tol is None:
        return TOL
    if isinstance(solver, Solver):
        raise ValueError(f"set tol in the solver object, got tol={tol} beside {solver}")
    check_tol(tol)
    return tol


def random_generator(random_state: Any) -> Generator:
    if isinstance(random_state, RandomState):
        return generator(int(random_state.randint(0, 2**31 - 1)), "random_state")
    return generator(random_state, "random_state")
