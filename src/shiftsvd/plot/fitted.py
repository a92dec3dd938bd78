"""Numbers that plots take from an estimator or an SVDResult, and the base class of all plots."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import refuse
from shiftsvd.estimators.attributes import beyond, feature_names_of, quantity_of
from shiftsvd.operators import Panel, Vector
from shiftsvd.result import SVDResult

# Mid tones, visible on white and on black.
BLUE: Final = "#3b8bc4"
ORANGE: Final = "#e07b39"
GREEN: Final = "#3f9a5a"
GREY: Final = "#8a8a8a"
SHORTEST: Final = 2.0**-400  # squares of values below this, or above its inverse, may under- or overflow
LONGEST: Final = 24  # characters of a name in a plot
LEAST: Final = 1e-12  # smaller shares are printed as 0
TINY: Final = 1e-7  # smaller shares, and shares closer to 1, are printed as beyond this
DWARFED: Final = 0.05  # relative to the largest value: smaller ones are barely visible on a linear axis


@dataclass(frozen=True, eq=False)
class Fit:
    """Variances with their bounds, components and names of an estimator or an SVDResult."""

    model: Any
    variances: Vector  # explained variances; of an SVDResult the squared singular values
    total: float | None  # variance; None if it is unknown
    errors: Vector | None  # bounds of the relative errors of the singular values

    @property
    def is_estimator(self) -> bool:
        return not isinstance(self.model, SVDResult)

    @property
    def quantity(self) -> str:
        return quantity_of(self.model) if self.is_estimator else "squared norm"

    @property
    def whole(self) -> str:
        return self.quantity if self.is_estimator else "variance"

    @property
    def k(self) -> int:
        return len(self.variances)

    @property
    def info(self) -> Any:
        return getattr(self.model, "info_" if self.is_estimator else "info", None)

    @property
    def is_completed(self) -> bool:
        return getattr(self.info, "completed", None) is not None

    @property
    def singular_values(self) -> Vector:
        return np.asarray(self.model.singular_values_ if self.is_estimator else self.model.S, np.float64)

    @property
    def n_varying(self) -> int:
        return int(np.count_nonzero(self.singular_values > 0))

    @property
    def components(self) -> Panel:
        return real(self.model.components_ if self.is_estimator else self.model.Vh, "components")

    @property
    def shares(self) -> Vector | None:
        return None if self.total is None else self.share_of(self.variances)

    def share_of(self, variances: Vector) -> Vector:
        return variances / self.total if self.total else np.zeros(len(variances))

    def bounds(self) -> tuple[Vector, Vector] | None:
        if self.errors is None:
            return None
        e = np.nan_to_num(np.asarray(self.errors, np.float64), nan=np.inf)
        lower = self.variances * (1 - np.minimum(e, 1)) ** 2
        upper = np.where(self.variances > 0, np.where(self.variances > 0, self.variances, 1) * (1 + e) ** 2, 0)
        return lower, upper if self.total is None else np.minimum(upper, self.total)

    def cumulative(self) -> tuple[Vector, Vector, Vector] | None:
        if self.total is None:
            return None
        lower, upper = self.bounds() or (self.variances, self.variances)
        share, low, high = (np.cumsum(self.share_of(values)) for values in (self.variances, lower, upper))
        return share, low, np.minimum(high, 1)

    def feature_names(self, names: Any = None) -> list[str]:
        n = self.components.shape[1]
        names = feature_names_of(self.model) if names is None else names
        if names is None:
            return [f"feature {j}" for j in range(1, n + 1)]
        if len(names) != n:
            raise refuse("names", f"have one entry for each of the {n:,} features", len(names))
        return [str(name) for name in names]

    def places(self, components: tuple[int, ...]) -> list[int]:
        for number in components:
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number <= self.k:
                raise ValueError(f"components must be numbers from 1 to {self.k}, got {number!r}")
        return [int(number) - 1 for number in components]


def read(model: Any) -> Fit:
    if isinstance(model, SVDResult):
        S, error = np.asarray(model.S, np.float64), model.info.frobenius_error
        if S[0] > 0 and not SHORTEST < S[0] < 1 / SHORTEST:  # its square may be out of range
            S, error = S / S[0], None if error is None else error / S[0]
        squares = S**2
        total = None if error is None else float(squares.sum()) + error**2
        return Fit(model, squares, total, model.info.value_errors)
    if not hasattr(model, "explained_variance_"):
        kind = type(model).__name__
        of_cells = "Use the plots of scanpy, or load_model of a model that the command wrote"
        remedy = of_cells if kind == "AnnData" else "Call fit first"
        raise TypeError(f"A plot needs a fitted estimator or an SVDResult, got {kind}. {remedy}.")
    variances = np.asarray(model.explained_variance_, np.float64)
    ratios = np.asarray(model.explained_variance_ratio_, np.float64)
    errors = getattr(getattr(model, "info_", None), "value_errors", None)
    if beyond_range(model):
        return Fit(model, ratios, 1.0, errors)
    if share := float(ratios.sum()):
        return Fit(model, variances, float(variances.sum()) / share, errors)
    n_values = int(min(model.n_samples_, model.components_.shape[1]))  # all variance is noise: there are no components
    return Fit(model, variances, float(model.noise_variance_) * n_values, errors)


def beyond_range(model: Any) -> bool:
    return hasattr(model, "singular_values_") and beyond(model.singular_values_, model.explained_variance_)


def is_dominated(values: Vector) -> bool:
    there = np.sort(values[values > 0])
    return len(there) > 1 and bool(there[-2] < DWARFED * there[-1])


def real(values: Any, what: str) -> Panel:
    values = np.asarray(values)
    if np.iscomplexobj(values):
        raise ValueError(f"{what} must be real, got {values.dtype}. Plot their real parts or magnitudes.")
    return np.asarray(values, np.float64)


def largest(values: npt.NDArray[Any], top: int) -> npt.NDArray[np.intp]:
    if top < 1:
        raise refuse("top", "be at least 1", top)
    return np.argsort(-values, kind="stable")[:top]


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    rest = min(abs(share), abs(1 - share))
    if LEAST <= rest < TINY:
        return f"< {100 * TINY:.5f} %" if share < 0.5 else f"> {100 * (1 - TINY):.5f} %"
    places = 2 if rest >= 1e-4 or rest < LEAST else 1 - int(np.floor(np.log10(100 * rest)))
    return f"{100 * share:.{places}f} %"


def short(name: Any, longest: int = LONGEST) -> str:
    text = " ".join(str(name).split())
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


class Display(ABC):
    """A plot: its numbers and its axes."""

    ax_: Any
    figure_: Any

    def plot(self, *, ax: Any = None) -> Self:
        """Draw this plot on `ax` or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Default: those of a new figure.

        Returns
        -------
        Display
            This plot, with its axes as ``ax_`` and its figure as ``figure_``.
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError("Plots need matplotlib. Install it with: pip install 'shiftsvd[plot]'") from error
            ax = plt.subplots(layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        self._draw()
        return self

    @abstractmethod
    def _draw(self) -> None: ...


class FitDisplay(Display):
    """A plot of a fit."""

    _function: ClassVar[Callable[..., Any]]  # which draws it

    @classmethod
    def from_estimator(cls, estimator: Any, *args: Any, **settings: Any) -> Self:
        """Plot a fitted estimator or an SVDResult, as the function of the same plot does.

        Parameters
        ----------
        estimator : fitted estimator such as `PCA`, or SVDResult
            The fit that is drawn.
        *args, **settings
            The other parameters of the function, which documents them.

        Returns
        -------
        Display
            The plot, drawn.
        """
        found: Self = cls._function(estimator, *args, **settings)
        return found
