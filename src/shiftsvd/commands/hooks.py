"""Hooks by which extensions take part in ``fit``, ``estimate``, ``transform`` and ``info``."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from inspect import cleandoc, isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from shiftsvd.backends.entries import Places, some_columns
from shiftsvd.commands.settings import Settings
from shiftsvd.commands.tables import Block, Table, Write
from shiftsvd.errors import Setting, plural
from shiftsvd.estimators.attributes import absent_limit
from shiftsvd.estimators.attributes import aligned as by_names
from shiftsvd.extend import extensions
from shiftsvd.io import Names
from shiftsvd.io.base import Labels
from shiftsvd.missing.gaps import Observed
from shiftsvd.names import resolve
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.outputs import Outputs
from shiftsvd.transforms.base import Transform

if TYPE_CHECKING:  # scikit-learn takes more than a second to import, and `info` of a table needs none of it
    from shiftsvd.estimators.batches import BatchPCA

Answer = TypeVar("Answer")
REMEDY = "Raise the limit with ", Setting("max_absent"), ", or fit on the features that both files have."


@dataclass(eq=False)
class Run:
    """A fit in progress: the data, and the decisions of the hooks so far.

    Parameters
    ----------
    settings : Settings
        The options of the command.
    A : Operator or matrix with gaps, of shape (m, n)
        The data.
    names : io.Names
        The names of samples and features.
    width : int
        Number of features that the fit uses.
    steps : tuple of Transform
        Transformations of the entries, including the selection of features.
    places : array of int, or None
        The features that the fit uses; None: all, or not chosen yet.
    covariates : array of shape (m, p), or None
        Covariates to regress out of the data.
    shift, scale : as `PCA` takes them
        What to subtract, and the divisors of the features.
    scale_ddof : int
        Standard deviations divide by n - scale_ddof.
    pca : PCA, or None
        The fitted model.
    scored : Operator, or None
        The samples whose scores are written, if these are not the samples of `A`.
    score_factors : float or array of shape (k,)
        Factors of the columns of the table of scores.
    beside : pairs of a header and texts
        Additional columns of the table of components.
    document : dict
        Additional keys of result.json.
    features : str, or None
        Number of features used and how they were chosen, for the report.
    facts : dict of str to str
        Further facts about the data, for the report.
    projected : array of bool, of shape (m,), or None
        Mask of the samples of `scored` that were not training samples.
    projected_scores : array of shape (p, k), or None
        Scores of the p projected samples, in place of those of `scored`.

    See Also
    --------
    Hooks : Reads and changes a run.

    Examples
    --------
    >>> from shiftsvd.extend import Run
    >>> Run.__dataclass_fields__["scale_ddof"].default
    0
    """

    settings: Settings
    A: Observed
    names: Names
    width: int
    steps: tuple[Transform, ...]
    places: Places | None = None
    covariates: Panel | None = None
    shift: Any = "mean"
    scale: Any = None
    scale_ddof: int = 0
    pca: Any = None
    scored: Observed | None = None
    score_factors: Any = 1
    beside: tuple[tuple[str, Any], ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    features: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    projected: NDArray[np.bool_] | None = None
    projected_scores: Panel | None = None

    def taken(self) -> Observed:
        """Return the matrix of the features that the fit uses, to predict its cost.

        Returns
        -------
        Operator or matrix with gaps, of shape (m, width)
            The first `width` features while the features are not chosen yet.
        """
        if not isinstance(self.A, Operator) or self.width == self.A.shape[1]:
            return self.A
        return some_columns(self.A, np.arange(self.width) if self.places is None else self.places)


# Arguments of the hooks, for the documentation of each hook.
_ARGUMENTS: Final = {
    "run": "Run\n    The fit, with the decisions of the hooks so far; `prepare`, `select` and `after_fit` change it.",
    "document": "mapping\n    What result.json holds.",
    "column": "str\n    The value of --label-column.",
    "table": "Table\n    The names and the size of the table of scores.",
    "paths": "mapping of str to Path\n    All outputs.",
    "outputs": "Outputs\n    Gives the places that are written to, by `part`.",
    "verb": "str\n    The name of the verb.",
    "A": "Operator or matrix with gaps, of shape (m, n)\n    The data.",
    "names": "io.Names\n    The names of the samples and features.",
    "model": "str or Path\n    The file of the model.",
    "pca": "PCA, or another model\n    The model.",
    "files": "sequence of str\n    The other files.",
}


def _documented(cls: type) -> type:
    """Add the section on its arguments to the docstring of each hook."""
    for hook in filter(isfunction, vars(cls).values()):
        if hook.__doc__ and (names := [*signature(hook).parameters][1:]):
            what, *results = re.split(r"\n\n(?=Returns\n|Yields\n)", cleandoc(hook.__doc__))
            taken = "\n".join(["Parameters", "-" * 10, *(f"{name} : {_ARGUMENTS[name]}" for name in names)])
            hook.__doc__ = "\n\n".join([what, taken, *results]) + "\n"
    return cls


@_documented
class Hooks:
    """Base class of the hooks of an extension: one object per run, whose methods do nothing by default.

    Parameters
    ----------
    settings : Settings
        The options of the command; `settings.extra` has those of extensions.

    See Also
    --------
    Extension : Declares a subclass.

    Examples
    --------
    >>> from shiftsvd.extend import Hooks
    >>> class Counting(Hooks):
    ...     def tell(self, run):
    ...         print(run.A.shape)
    """

    recorded: ClassVar[tuple[str, ...]] = ()  # options of the extension to list among the settings in result.json
    decisive: ClassVar[tuple[str, ...]] = ()  # options that numbers depend on; result.json lists them if they are set
    files: ClassVar[tuple[str, ...]] = ()  # names of all files that the extension may write into the folder
    models: ClassVar[tuple[str, ...]] = ()  # "module:class" of models that `transform` accepts besides PCA

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # fit and estimate, in the order of the calls

    def check(self) -> None:
        """Raise click.UsageError for options that contradict each other, before any file is read."""

    def defaults(self) -> Mapping[str, Any]:
        """Return settings that follow from the files, such as the scale of genotypes.

        Returns
        -------
        mapping of str to object
            Fields of the settings, with their values.
        """
        return {}

    def outputs(self) -> Mapping[str, str | Path]:
        """Return the output files of the extension: for each content a name in the folder, or a path.

        Returns
        -------
        mapping of str to str or Path
            Empty if the extension writes no files.
        """
        return {}

    def open(self) -> "tuple[Observed, Names] | None":
        """Open the data, if the extension opens such files itself.

        Returns
        -------
        pair of Operator and io.Names, or None
            The matrix, samples as rows; None: the core opens the files.
        """
        return None

    def labels(self, column: str) -> Sequence[str] | None:
        """Return a label of each sample, if the files have labels outside the matrix.

        Returns
        -------
        sequence of str, or None
            Of length m; None: the label is a column of a table.
        """
        return None

    def labels_beside(self) -> bool:
        """Return True if the files have labels of samples outside the matrix, so that no feature is a label.

        Returns
        -------
        bool
            True: --label-column is not a column of a table.
        """
        return False

    def prepare(self, run: Run) -> None:
        """Decide which data the fit uses and what it removes, from metadata, without reading the matrix."""

    def select(self, run: Run) -> None:
        """Choose features by passes over the data, immediately before the fit."""

    def foresee(self, run: Run) -> tuple[float, int]:
        """Predict the passes and the bytes of memory of `select`.

        Returns
        -------
        pair of float and int
            Both 0 if nothing is selected.
        """
        return 0, 0

    def after_fit(self, run: Run) -> None:
        """Add to the fitted model and to the result."""

    def writers(
        self, run: Run, table: Table, paths: Mapping[str, Path], outputs: Outputs
    ) -> Iterable[AbstractContextManager[Write]]:
        """Yield writers of scores into files of the extension.

        Returns
        -------
        iterable of context managers
            Each gives a function that writes a block of scores, given its first row.
        """
        return ()

    def write(self, run: Run, paths: Mapping[str, Path], outputs: Outputs) -> None:
        """Write the other files of the extension."""

    def figures(self, run: Run) -> Iterable[tuple[str, Callable[[Any], object]]]:
        """Return further figures of loadings for the report.

        Returns
        -------
        iterable of pairs
            A title, and a function that draws on the matplotlib Axes that it gets.
        """
        return ()

    def summary(self, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield lines above the table that is printed.

        Yields
        ------
        str
        """
        yield from ()

    def footer(self, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield lines below the table that is printed.

        Yields
        ------
        str
        """
        yield from ()

    def tell(self, run: Run) -> None:
        """Print messages about the fit on stderr."""

    # embed and contrast

    def advise(self, verb: str, A: Operator) -> None:
        """Print a notice if the verb usually needs other values, such as logarithms of counts."""

    # transform

    def score(self, model: Path, pca: Any) -> "tuple[Table, Iterator[tuple[int, Block]]] | None":
        """Return the scores of other samples as a table and blocks of rows, if the extension computes them itself.

        Returns
        -------
        pair of Table and iterator, or None
            The header of the table, and pairs of a first row and a block; None: the core computes the scores.
        """
        return None

    def open_new(self, pca: "BatchPCA") -> "tuple[BatchPCA, Observed, Names] | None":
        """Open other samples, if the extension opens such files itself.

        Returns
        -------
        triple of PCA, Operator and io.Names, or None
            The model has its features in the order of the file.
        """
        return None

    def refine(self, pca: "BatchPCA", A: Observed, names: Names) -> tuple[Observed, Names]:
        """Prepare other samples for the model, such as by removing features that the model does not have.

        Returns
        -------
        pair of Operator and io.Names
            The samples as the model expects them.
        """
        return A, names

    def covariates(self, pca: "BatchPCA") -> Panel | None:
        """Return the covariates of other samples that the fit regressed out.

        Returns
        -------
        array of shape (m, p), or None
            None: nothing was regressed out.
        """
        return None

    # info

    def facts(self, pca: Any) -> Mapping[str, Any]:
        """Return additional facts about a model for ``info``.

        Returns
        -------
        mapping
            Facts by name, as values that JSON can hold.
        """
        return {}

    def compare(self, model: str, files: Sequence[str]) -> Mapping[str, Any] | None:
        """Compare a model with files, for ``info MODEL FILE...``.

        Returns
        -------
        mapping, or None
            Facts by name; None: the extension does not handle such models.
        """
        return None


def first_answer(answers: Iterable[Answer | None]) -> Answer | None:
    return next((each for each in answers if each is not None), None)


def hooks_of(settings: Settings) -> list[Hooks]:
    return [resolve(each.hooks)(settings) for each in extensions() if each.hooks is not None]


def with_label(settings: Settings, hooks: Iterable[Hooks]) -> Settings:
    """Exclude --label-column from the features, unless the files have labels outside the matrix."""
    if settings.label_column is None or any(each.labels_beside() for each in hooks):
        return settings
    return replace(settings, labelled=True)


def aligned(pca: Any, n_features: int, names: Labels | None, file: str, max_absent: float | None = None) -> Any:
    if getattr(pca, "feature_names_in_", None) is None or names is None:
        if n_features != pca.n_features_in_:
            raise ValueError(
                f"{file} has {plural(n_features, 'feature')}, but the model was fitted on "
                f"{plural(pca.n_features_in_, 'feature')}. The model or the file has no feature names, so features are "
                "matched by position. Pass a file with the columns of the fit, in the same order."
            )
        return pca
    return by_names(pca, list(names), file, absent_limit(pca, max_absent), *REMEDY)
