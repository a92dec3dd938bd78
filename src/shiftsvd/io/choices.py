"""Settings for tables: the columns that are features, and the notation of text files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Final, Literal, Self, get_args

from shiftsvd.errors import Refused, Setting, few, refuse
from shiftsvd.io.base import Notation

_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
# Settings of text files.
OF_TEXTS: Final = (*("sep", "decimal", "thousands", "encoding", "comment", "skip", "na", "censored", "keep_total"),)
_OF_FITS: Final = ("may_lack", "remembered", "decimals", "features", "units")  # no settings of a user
_SHOWN = 8  # names of columns in an error
JOIN = "="  # between the name of a column and one of its classes: sex=F

Columns = str | Iterable[str]
Censored = Literal["missing", "half"]


@dataclass(frozen=True)
class Choices:
    """Settings of `open_matrix` for tables.

    Parameters
    ----------
    ids, drop, columns, one_hot, sep, decimal, thousands, encoding, comment, skip, na, censored, keep_total : optional
        As in `open_matrix`, with names as tuples. `one_hot` maps each column to its classes in order; an empty tuple
        takes the classes from the table.
    may_lack : tuple of str
        Columns whose absence is no error.
    remembered : bool
        Whether the settings come from a fit; the features of the fit then select the columns.
    decimals : dict
        Names of columns and the decimal marks that a fit found in them, for files in which no cell shows its mark.
    features : tuple of str
        Names of the features of a fit, for triplets: those without a triplet are 0, others are removed.
    units : dict or None
        Units of the columns of a fit that have one in their cells; other units are refused. None: not known.

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
    comment: str | tuple[str, ...] | None = None
    skip: int = 0
    na: tuple[str, ...] = ()
    censored: Censored = "missing"
    keep_total: bool = False
    may_lack: tuple[str, ...] = ()
    remembered: bool = False
    decimals: dict[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    units: dict[str, str] | None = None

    @classmethod
    def of(
        cls,
        drop: Columns = (),
        columns: Columns = (),
        one_hot: Columns | Mapping[str, Iterable[str]] = (),
        comment: Columns | None = (),
        na: Columns = (),
        **settings: Any,
    ) -> Self:
        """Validate arguments as `open_matrix` takes them, and return the choices.

        Parameters
        ----------
        drop, columns, one_hot, comment, na : optional
            As `open_matrix` takes them.
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
        begins = () if comment is None else _listed(comment)
        if (sep := settings.get("sep")) is not None:
            settings["sep"] = _SEPARATORS.get(sep.lower(), sep)
        made = cls(
            drop=_listed(drop),
            columns=_listed(columns),
            one_hot=classes,
            comment=begins[0] if len(begins) == 1 else begins or None,
            na=tuple(map(str.strip, _listed(na))),
            **settings,
        )
        made._check()
        return made

    def _check(self) -> None:
        for name in ("sep", "decimal", "thousands"):
            mark = getattr(self, name)
            if mark is not None and len(mark) != 1:
                raise refuse(name, "be one character", mark)
        if self.decimal is not None and self.decimal == self.thousands:
            both = f" must be different characters, got {self.decimal!r} for both"
            raise Refused(Setting("decimal"), " and ", Setting("thousands"), both)
        if "" in self.comments:
            raise Refused(Setting("comment"), " must be the text that comment lines begin with, got an empty text")
        if isinstance(self.skip, bool) or not isinstance(self.skip, int) or self.skip < 0:
            raise refuse("skip", "be a number of lines, at least 0", self.skip)
        if self.censored not in get_args(Censored):
            raise refuse("censored", 'be "missing" or "half"', self.censored)
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                known = "be an encoding of Python, such as latin-1, cp1252 or utf-16"
                raise refuse("encoding", known, self.encoding) from None
        uses = {"ids": self.named_ids, "drop": self.drop, "columns": self.columns, "one_hot": tuple(self.one_hot)}
        for use, other in combinations(uses, 2):
            both_uses = set(uses[use]) & set(uses[other])
            if both_uses and (use, other) != ("columns", "one_hot"):
                name = min(both_uses)
                raise Refused(
                    *(f"column {name!r} must have one use, but is in ", Setting(use), " and in ", Setting(other))
                )

    @property
    def named_ids(self) -> tuple[str, ...]:
        """Name of the column of row names, as a tuple; empty if `ids` is None."""
        return () if self.ids is None else (self.ids,)

    @property
    def comments(self) -> tuple[str, ...]:
        """Beginnings of lines to skip, as a tuple."""
        return (self.comment,) if isinstance(self.comment, str) else self.comment or ()

    @property
    def named(self) -> tuple[str, ...]:
        """The names of all columns that a setting names."""
        return (*self.named_ids, *self.drop, *self.columns, *self.one_hot)

    @property
    def given(self) -> list[str]:
        """Names of the settings that differ from their defaults."""
        settings = [each.name for each in fields(self) if each.name not in _OF_FITS]
        return [name for name in settings if getattr(self, name) not in (None, (), {}, 0, "missing")]

    @property
    def told(self) -> dict[str, Any]:
        """Settings that differ from their defaults, as values for JSON."""
        values = {name: getattr(self, name) for name in self.given}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def of_texts(self) -> list[str]:
        """Names of the given settings that describe the notation of a text file."""
        return [name for name in self.given if name in OF_TEXTS]

    def refuse_for(self, what: str, but: Sequence[str] = ()) -> None:
        """Raise `ValueError` if settings for tables are given for another kind of file.

        Parameters
        ----------
        what : str
            Kind of file, for the message.
        but : sequence of str
            Settings that are valid for this kind.

        Raises
        ------
        ValueError
            If any other setting is given.
        """
        if these := [name for name in self.given if name not in but]:
            value = getattr(self, these[0])
            given = naming(these[0], list(value)) if isinstance(value, tuple | dict) else Setting(these[0], value)
            raise Refused(given, f" applies to tables of numbers only, not to {what}. Remove this setting.")

    def check_names(self, names: Sequence[str]) -> None:
        """Raise `ValueError` for named columns that a table lacks, or has more than once.

        Parameters
        ----------
        names : sequence of str
            Names of the columns of the table, in order.

        Raises
        ------
        ValueError
            The message suggests the closest name of the table, if one is similar.
        """
        there = set(names)
        for name in self.named:
            if name not in there and name not in self.may_lack:
                use = next(use for use in ("ids", "drop", "columns", "one_hot") if name in (getattr(self, use) or ()))
                if not name:
                    raise Refused(Setting(use), " must not hold an empty name. Remove the extra comma.")
                close = get_close_matches(name, names, 1)
                hint = f"Did you mean {close[0]!r}? " if close else ""
                raise Refused(
                    *(f"the table has no column {name!r}, got ", Setting(use, name)),
                    f". {hint}The columns are {shown(names)}.",
                )
        for name in (*self.named_ids, *self.one_hot):
            if (count := list(names).count(name)) > 1:
                raise Refused(f"{name!r} must be the name of one column, but {count:,} columns have it. Rename them.")
        for name in self.one_hot:
            if other := next((other for other in names if other.startswith(name + JOIN)), None):
                raise Refused(
                    *(f"the column {other!r} has a name like the columns into which ", Setting("one_hot", name)),
                    f" encodes categories: '{name}{JOIN}' and a category. Rename this column in the file.",
                )

    def leaves_out(self, name: str) -> bool:
        """Return True if these settings exclude a column from the features.

        Parameters
        ----------
        name : str
            The name of the column.

        Returns
        -------
        bool
            True for the column of row names, for dropped columns, and for columns that `columns` does not list.
        """
        chosen = not self.columns or name in self.columns or name in self.one_hot
        return name in self.drop or name == self.ids or not chosen

    def learned(self, features: Iterable[str] | None, notation: Notation | None = None) -> Self:
        """Return the settings for new tables: with the classes of the fit; absent columns are no error.

        Parameters
        ----------
        features : iterable of str, or None
            Names of the features of the fit, such as "age" and "sex=F".
        notation : Notation or None
            The units and the column of row names of the fit.

        Returns
        -------
        Choices
            The settings for tables that the fit is applied to. They skip no lines: other files have other titles.
        """
        found = [str(name) for name in (() if features is None else features)]
        one_hot = {
            name: tuple(each[len(name + JOIN) :] for each in found if each.startswith(name + JOIN))
            for name in self.one_hot
        }
        learned = replace(self, one_hot=one_hot, skip=0, remembered=True)
        if notation is not None:
            learned = replace(learned, ids=self.ids or notation.ids, units=dict(notation.units))
        return replace(learned, may_lack=learned.named)

    def beside(self, others: "Choices") -> "Choices":
        """Return these settings, updated by others: more columns to drop, more missing values, other uses of columns.

        Parameters
        ----------
        others : Choices
            Settings that take precedence.

        Returns
        -------
        Choices
            The updated settings.
        """
        now = {name: getattr(others, name) for name in others.given}
        uses = (*others.named_ids, *others.columns, *others.one_hot)
        if self.ids in (*others.drop, *others.columns, *others.one_hot):
            now.setdefault("ids", None)
        now["na"] = tuple(dict.fromkeys((*self.na, *others.na)))
        now["drop"] = (*(name for name in self.drop if name not in (*uses, *others.drop)), *others.drop)
        return replace(self, **now, may_lack=tuple(name for name in self.may_lack if name not in others.named))

    def of_parts(self) -> Self:
        """Return the settings for each of several files side by side, which have different columns.

        Returns
        -------
        Choices
            The settings of one file; every column but `ids` may be absent.
        """
        return replace(self, may_lack=(*self.drop, *self.columns, *self.one_hot))


NOTHING = Choices()


def _listed(names: Columns) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(map(str, names)))


def shown(names: Sequence[str], most: int = _SHOWN) -> str:
    return few(map(repr, names), most)


def naming(setting: str, names: Sequence[str]) -> Setting:
    return Setting(setting, names[0] if len(names) == 1 else list(names))
