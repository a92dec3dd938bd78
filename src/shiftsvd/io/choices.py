"""What whoever opens a table says of it: what its columns are, and how its text is written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Self

from shiftsvd.io.base import Unfit

_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
_SHOWN = 8  # names of columns in an error
JOIN = "="  # between the name of a column and one of its classes: sex=F

Columns = str | Iterable[str]


@dataclass(frozen=True)
class Choices:
    """Settings of `open_matrix` for tables.

    Parameters
    ----------
    ids : str or None
        The column that names the rows.
    drop : tuple of str
        Columns that are left out.
    columns : tuple of str
        The only columns that are features; empty: all.
    one_hot : dict
        Columns of classes, each with its classes in order; empty where they are still to be found.
    sep, decimal, thousands, encoding, comment : str or None
        How a text is written; None: as it is recognised.
    may_lack : tuple of str
        Columns that need not be there.
    remembered : bool
        Whether they are those of a fit, whose features decide what counts.

    See Also
    --------
    io.open_matrix : Takes them.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> ss.io.Choices(ids="patient", drop=("age",)).ids
    'patient'
    """

    ids: str | None = None
    drop: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    one_hot: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    comment: str | None = None
    may_lack: tuple[str, ...] = ()
    remembered: bool = False

    @classmethod
    def of(
        cls,
        drop: Columns = (),
        columns: Columns = (),
        one_hot: Columns | Mapping[str, Iterable[str]] = (),
        **settings: Any,
    ) -> Self:
        """The choices from arguments as `open_matrix` takes them, which are refused where they cannot be.

        Parameters
        ----------
        drop : str, or iterable of str
            Columns that are left out.
        columns : str, or iterable of str
            The only columns that are features; empty: all.
        one_hot : str, iterable of str, or mapping of str to classes
            Columns of classes.
        **settings
            The other parameters of `Choices`.

        Returns
        -------
        Choices
            The settings, with names as tuples, and separators as the characters that they name.

        Raises
        ------
        ValueError
            For a column with two uses, marks that are no single character, or an encoding that Python does not know.
        """
        if isinstance(one_hot, Mapping):
            classes = {str(name): tuple(map(str, found)) for name, found in one_hot.items()}
        else:
            classes = dict.fromkeys(_listed(one_hot), ())
        made = cls(drop=_listed(drop), columns=_listed(columns), one_hot=classes, **settings)
        made._check()
        sep = made.sep
        return made if sep is None else replace(made, sep=_SEPARATORS.get(sep.lower(), sep))

    def _check(self) -> None:
        for name in ("sep", "decimal", "thousands"):
            mark = getattr(self, name)
            if mark is not None and len(_SEPARATORS.get(mark.lower(), mark) if name == "sep" else mark) != 1:
                raise ValueError(f"{name} must be one character, got {mark!r}")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands must be different marks, got {self.decimal!r} for both")
        if self.comment == "":
            raise ValueError("comment must be what lines of comment begin with, got an empty text")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                raise ValueError(
                    f"encoding must be one that Python knows, such as latin-1, cp1252 or utf-16, got {self.encoding!r}"
                ) from None
        uses = [
            ("ids", self.named_ids),
            ("drop", self.drop),
            ("columns", self.columns),
            ("one_hot", tuple(self.one_hot)),
        ]
        for use, these in uses:
            for other, those in uses:
                if use < other and (both := set(these) & set(those)) and {use, other} != {"columns", "one_hot"}:
                    raise ValueError(f"a column has one use: {min(both)!r} is in {use}= and in {other}=")

    @property
    def named_ids(self) -> tuple[str, ...]:
        """The column of names, as a list of at most one."""
        return () if self.ids is None else (self.ids,)

    @property
    def named(self) -> tuple[str, ...]:
        """The names of all columns of which something is said."""
        return (*self.named_ids, *self.drop, *self.columns, *self.one_hot)

    @property
    def given(self) -> list[str]:
        """The names of the settings that say something."""
        settings = [each.name for each in fields(self) if each.name not in ("may_lack", "remembered")]
        return [name for name in settings if getattr(self, name) not in (None, (), {})]

    @property
    def told(self) -> dict[str, Any]:
        """What was said, as JSON has it."""
        values = {name: getattr(self, name) for name in self.given}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def of_texts(self) -> list[str]:
        """The names of those settings that say something of how a text is written."""
        return [name for name in self.given if name in ("sep", "decimal", "thousands", "encoding", "comment")]

    def refuse_for(self, what: str, but: Sequence[str] = ()) -> None:
        """Refuse what is said of columns and texts where there are none to choose.

        Parameters
        ----------
        what : str
            What there is in place of a table, for the message.
        but : sequence of str
            Settings that have a meaning there.

        Raises
        ------
        ValueError
            If anything else is said.
        """
        if these := [name for name in self.given if name not in but]:
            value = getattr(self, these[0])
            told = said(these[0], [value] if isinstance(value, str) else list(value))
            raise Unfit(f"{told} is for tables of numbers, got it for {what}; leave it out")

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse columns that a table with these names has not, or has twice where one is meant.

        Parameters
        ----------
        names : sequence of str
            The names of the columns of the table, in order.

        Raises
        ------
        ValueError
            With the name that is meant, where one is alike.
        """
        there = set(names)
        for name in self.named:
            if name not in there and name not in self.may_lack:
                close = get_close_matches(name, names, 1)
                told = f"did you mean {close[0]!r}? it has" if close else "it has"
                raise Unfit(f"it has no column {name!r}, got {said(self._use(name), [name])}; {told} {shown(names)}")
        for name in (*self.named_ids, *self.one_hot):
            if list(names).count(name) > 1:
                raise Unfit(f"{name!r} must be one column, and several are called so; rename them first")
        for name in self.one_hot:
            if any(other.startswith(name + JOIN) for other in names):
                raise Unfit(
                    f"columns that begin with '{name}{JOIN}' would be taken for classes of {name!r}; rename them"
                )

    def _use(self, name: str) -> str:
        return next(use for use in ("ids", "drop", "columns", "one_hot") if name in (getattr(self, use) or ()))

    def leaves_out(self, name: str) -> bool:
        """Whether a column is no feature, by what was said.

        Parameters
        ----------
        name : str
            The name of the column.

        Returns
        -------
        bool
            True of the names of rows, of what is dropped, and of what is not among chosen columns.
        """
        chosen = not self.columns or name in self.columns or name in self.one_hot
        return name in self.drop or name == self.ids or not chosen

    def learned(self, features: Iterable[str] | None) -> Self:
        """The choices for other tables: the classes as a fit found them, and every column may be absent.

        Parameters
        ----------
        features : iterable of str, or None
            The names of the features of the fit, such as "age" and "sex=F".

        Returns
        -------
        Choices
            The settings for tables that the fit is applied to.
        """
        found = [str(name) for name in (() if features is None else features)]
        one_hot = {
            name: tuple(each[len(name + JOIN) :] for each in found if each.startswith(name + JOIN))
            for name in self.one_hot
        }
        return replace(self, one_hot=one_hot, may_lack=self.named, remembered=True)

    def beside(self, others: "Choices") -> "Choices":
        """The choices, changed by what is said now: more columns to leave out, other uses of columns.

        Parameters
        ----------
        others : Choices
            What is said now.

        Returns
        -------
        Choices
            The settings, in which what is said now wins.
        """
        now = {name: getattr(others, name) for name in others.given}
        uses = (*others.named_ids, *others.columns, *others.one_hot)
        now["drop"] = (*(name for name in self.drop if name not in (*uses, *others.drop)), *others.drop)
        return replace(self, **now, may_lack=tuple(name for name in self.may_lack if name not in others.named))

    def of_parts(self) -> Self:
        """The choices for files side by side, each with columns of its own.

        Returns
        -------
        Choices
            The settings for one of the files: columns that are named need not be in it.
        """
        return replace(self, may_lack=(*self.drop, *self.columns, *self.one_hot))


NOTHING = Choices()  # said


def _listed(names: Columns) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(map(str, names)))


def shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(map(repr, names[:_SHOWN]))}{more}"


def said(setting: str, names: Sequence[str]) -> str:
    return f"{setting}={(names[0] if len(names) == 1 else list(names))!r}"
