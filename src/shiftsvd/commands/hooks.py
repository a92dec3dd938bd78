"""What an extension adds to ``fit``, ``estimate``, ``transform`` and ``info``: the base class of its hooks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from shiftsvd.backends.columns import Places, some_columns
from shiftsvd.commands.settings import Settings
from shiftsvd.commands.tables import Block, Table, Write
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.extend import extensions
from shiftsvd.io import Names
from shiftsvd.missing.gaps import Observed
from shiftsvd.names import resolve
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.outputs import Outputs
from shiftsvd.transforms.base import Transform

Answer = TypeVar("Answer")


@dataclass(eq=False)
class Run:
    """A fit in progress: what was read, and what the hooks have decided so far.

    Parameters
    ----------
    settings : Settings
        The options of the command.
    A : Operator or matrix with gaps, of shape (m, n)
        The data.
    names : io.Names
        The names of samples and features.
    width : int
        How many features take part.
    steps : tuple of Transform
        What is done to the entries first, the selection of features included.
    places : array of int, or None
        Which features take part; None: all, or not known yet.
    covariates : array of shape (m, p), or None
        What is regressed out of the data.
    shift, scale : as `PCA` takes them
        What is subtracted, and what features are divided by.
    scale_ddof : int
        What deviations divide by, n - scale_ddof.
    pca : PCA, or None
        The fitted model.
    scored : Operator, or None
        The samples whose scores are written, where these are not those of `A`.
    beside : pairs of a head and texts
        More columns of the table of components.
    document : dict
        More keys of result.json.
    features : str, or None
        How many features take part and how they were chosen, for the report.

    See Also
    --------
    Hooks : Takes and changes it.

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
    beside: tuple[tuple[str, Any], ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    features: str | None = None

    def taken(self) -> Observed:
        """Return the features that take part, to plan by: where they are not known yet, as many as there will be.

        Returns
        -------
        Operator or matrix with gaps, of shape (m, width)
            The first ones, where it is not known yet which features take part.
        """
        if not isinstance(self.A, Operator) or self.width == self.A.shape[1]:
            return self.A
        return some_columns(self.A, np.arange(self.width) if self.places is None else self.places)


class Hooks:
    """What an extension adds to the verbs; one object lives for one run, and each method does nothing by default.

    Parameters
    ----------
    settings : Settings
        The options of the command; those that the extension declares are in `settings.extra`.

    See Also
    --------
    Extension : Names a subclass.

    Examples
    --------
    >>> from shiftsvd.extend import Hooks
    >>> class Counting(Hooks):
    ...     def tell(self, run):
    ...         print(run.A.shape)
    """

    recorded: ClassVar[tuple[str, ...]] = ()  # options of the extension that result.json lists among the settings
    decisive: ClassVar[tuple[str, ...]] = ()  # options of the extension that numbers depend on
    files: ClassVar[tuple[str, ...]] = ()  # names of all files that the extension may write into the folder
    models: ClassVar[tuple[str, ...]] = ()  # "module:class" of models that `transform` takes beside those of PCA

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # fit and estimate, in the order of the calls

    def check(self) -> None:
        """Refuse options that contradict each other, by a click.UsageError, before anything is read."""

    def defaults(self) -> Mapping[str, Any]:
        """Return settings that follow from the files, such as the scale of genotypes.

        Returns
        -------
        mapping of str to object
            Fields of the settings, with their values.
        """
        return {}

    def outputs(self) -> Mapping[str, str | Path]:
        """Return the files that are written: what they hold, and their names in the folder, or their paths.

        Returns
        -------
        mapping of str to str or Path
            Empty where nothing is written.
        """
        return {}

    def open(self) -> "tuple[Observed, Names] | None":
        """Read the data, where the extension reads them itself.

        Returns
        -------
        pair of Operator and io.Names, or None
            The matrix, samples as rows; None: the core reads the files.
        """
        return None

    def labels(self, column: str) -> Sequence[str] | None:
        """Return a label of each sample, where the files have labels beside the matrix.

        Parameters
        ----------
        column : str
            What --label-column names.

        Returns
        -------
        sequence of str, or None
            Of length m; None: the column is one of a table.
        """
        return None

    def labels_beside(self) -> bool:
        """Return whether the files have labels of samples beside the matrix, so that none of its columns is one.

        Returns
        -------
        bool
            True: --label-column names none of the columns of a table.
        """
        return False

    def prepare(self, run: Run) -> None:
        """Look at the data, and decide what takes part and what is removed; nothing is read but what lies beside.

        Parameters
        ----------
        run : Run
            Changed in place.
        """

    def select(self, run: Run) -> None:
        """Choose features by reads of the data, right before the fit.

        Parameters
        ----------
        run : Run
            Changed in place.
        """

    def foresee(self, run: Run) -> tuple[float, int]:
        """Return the reads that `select` would take, and the bytes of memory.

        Parameters
        ----------
        run : Run
            As `prepare` left it.

        Returns
        -------
        pair of float and int
            Both 0 where nothing is selected.
        """
        return 0, 0

    def after_fit(self, run: Run) -> None:
        """Add to the fitted model and to the result.

        Parameters
        ----------
        run : Run
            With its fitted model; changed in place.
        """

    def writers(
        self, run: Run, table: Table, paths: Mapping[str, Path], outputs: Outputs
    ) -> Iterable[AbstractContextManager[Write]]:
        """Yield what takes the scores, block by block, into files of the extension.

        Parameters
        ----------
        run : Run
            With its fitted model.
        table : Table
            The names and the size of the table of scores.
        paths : mapping of str to Path
            All outputs.
        outputs : Outputs
            Gives the places that are written to, by `part`.

        Returns
        -------
        iterable of context managers
            Each gives a function of the first row and a block.
        """
        return ()

    def write(self, run: Run, paths: Mapping[str, Path], outputs: Outputs) -> None:
        """Write the files of the extension that are not scores.

        Parameters
        ----------
        run : Run
            With its fitted model.
        paths : mapping of str to Path
            All outputs.
        outputs : Outputs
            Gives the places that are written to, by `part`.
        """

    def summary(self, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield lines above the table that is printed.

        Parameters
        ----------
        document : mapping
            What result.json holds.

        Yields
        ------
        str
        """
        yield from ()

    def footer(self, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield lines below the table that is printed.

        Parameters
        ----------
        document : mapping
            What result.json holds.

        Yields
        ------
        str
        """
        yield from ()

    def tell(self, run: Run) -> None:
        """Say on stderr what was done.

        Parameters
        ----------
        run : Run
            With its fitted model.
        """

    # transform

    def score(self, model: Path, pca: Any) -> "tuple[Table, Iterator[tuple[int, Block]]] | None":
        """Return the table of scores and its rows in blocks, where the extension makes them itself.

        Parameters
        ----------
        model : Path
            The file of the model.
        pca : object
            The model.

        Returns
        -------
        pair of Table and iterator, or None
            The head of the table, and pairs of a first row and a block; None: the core makes the scores.
        """
        return None

    def open_new(self, pca: BatchPCA) -> "tuple[BatchPCA, Observed, Names] | None":
        """Open other samples, where the extension reads them itself.

        Parameters
        ----------
        pca : PCA
            The model.

        Returns
        -------
        triple of PCA, Operator and io.Names, or None
            The model has its features in the order of the samples.
        """
        return None

    def refine(self, pca: BatchPCA, A: Observed, names: Names) -> tuple[Observed, Names]:
        """Look at other samples, and leave out features that the model does not know.

        Parameters
        ----------
        pca : PCA
            The model.
        A : Operator or matrix with gaps, of shape (m, n)
            The samples.
        names : io.Names
            Their names.

        Returns
        -------
        pair of Operator and io.Names
            The samples as they are given to the model.
        """
        return A, names

    def covariates(self, pca: BatchPCA) -> Panel | None:
        """Return what is known of other samples and was regressed out by the fit.

        Parameters
        ----------
        pca : PCA
            The model.

        Returns
        -------
        array of shape (m, p), or None
            None: nothing was regressed out.
        """
        return None

    # info

    def facts(self, pca: Any) -> Mapping[str, Any]:
        """Return what ``info`` says of a model besides.

        Parameters
        ----------
        pca : object
            The model.

        Returns
        -------
        mapping
            Facts by their names, which JSON can hold.
        """
        return {}

    def compare(self, model: str, files: Sequence[str]) -> Mapping[str, Any] | None:
        """Return what ``info MODEL FILE...`` says, where the extension knows.

        Parameters
        ----------
        model : str
            The file of the model.
        files : sequence of str
            The other files.

        Returns
        -------
        mapping, or None
            Facts by their names; None: it knows nothing of such models.
        """
        return None


def first_answer(answers: Iterable[Answer | None]) -> Answer | None:
    """Return the first answer of an extension that is not None; later ones are not asked."""
    return next((each for each in answers if each is not None), None)


def hooks_of(settings: Settings) -> list[Hooks]:
    return [resolve(each.hooks)(settings) for each in extensions() if each.hooks is not None]
