"""Match genes of two data sets by their ids, and by their symbols where an id is unknown."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from shiftsvd.extend.files import VERSIONED_ID, Features, Labels, Places, labels, without_version
from shiftsvd.extend.running import Refused, Setting, few, plural

# Columns of var with ids and with symbols, in order of preference; scanpy writes the first ones.
IDS: Final = ("gene_ids", "gene_id", "ensembl_id", "ensembl_ids", "ensembl_gene_id", "ensembl", "feature_id")
SYMBOLS: Final = (
    *("gene_symbols", "gene_symbol", "feature_name", "gene_name", "gene_names", "symbol", "symbols"),
    *("gene_short_name", "hgnc_symbol"),
)
TYPES: Final = "feature_types"  # the column of var with the feature type
_AMBIGUOUS: Final = -2
_FEWEST: Final = 3  # genes with the same id and other symbols that show that ids of two files are of different kinds


@dataclass(frozen=True, eq=False)
class GeneNames:
    """Ids and symbols of genes; "" if unknown."""

    ids: Labels
    symbols: Labels


def names_of_var(
    names: Labels, columns: Sequence[str], read: Callable[[str], Any]
) -> tuple[Labels | None, Labels | None]:
    """Return the ids and the symbols in the columns of var; its index is the kind that has no column."""
    ids, symbols = (_first_column(columns, kind, read) for kind in (IDS, SYMBOLS))
    if (ids is None) == (symbols is None):
        return ids, symbols
    column = symbols if ids is None else ids
    differs = names != column
    if 2 * np.count_nonzero(differs) <= len(names) or not _are_names(names):
        return ids, symbols
    if symbols is None:
        return ids, names
    like_ids = [VERSIONED_ID.match(f"{name}.0") is not None for name in names.tolist()]
    return np.where(differs | like_ids, names, ""), symbols


def features_of_var(
    path: Path, names: Labels, columns: Sequence[str], read: Callable[[str], Any], memory_limit: int | str | None
) -> Features | None:
    ids, symbols = names_of_var(names, columns, read)
    types = labels(path, map(str, read(TYPES)), memory_limit) if TYPES in columns else None
    unknown = ids is None and symbols is None and types is None
    return None if unknown else Features(names, ids, types, symbols=symbols)


def _first_column(columns: Sequence[str], known: Sequence[str], read: Callable[[str], Any]) -> Labels | None:
    places = {name.casefold(): name for name in reversed(columns)}
    found = (_texts(read(places[name])) for name in known if name in places)
    return next((texts for texts in found if texts is not None), None)


def _texts(values: Any) -> Labels | None:
    texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values.tolist()]
    missing = list(map(is_missing, texts))
    if not all(none or isinstance(value, str) for none, value in zip(missing, texts, strict=True)):
        return None  # numbers, such as places in a list, do not identify a gene
    known = ["" if none else value.strip() for none, value in zip(missing, texts, strict=True)]
    found: Labels = np.array(known, dtype=np.str_)
    return found if _are_names(found) else None


def is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _are_names(texts: Labels) -> bool:
    return any(text and not text.isdigit() for text in texts.tolist())


class Genes(NamedTuple):
    """Genes of a model or of a file: their names, and what is known of their ids and symbols."""

    names: Labels
    known: GeneNames

    @classmethod
    def of(cls, names: Any, ids: Labels | None = None, symbols: Labels | None = None) -> "Genes":
        texts: Labels = np.array([str(name) for name in names], dtype=np.str_)
        blank = np.full(len(texts), "")
        return cls(texts, GeneNames(blank if ids is None else ids, blank if symbols is None else symbols))

    def named(self, names: Any) -> "Genes":
        """Return the genes with these names, without ids and symbols if several genes have the name."""
        places, wanted = _unique(self.names.tolist()), [str(name) for name in names]
        j = np.array([places[name] for name in wanted], np.intp)
        ids, symbols = (np.where(j < 0, "", part[j]) for part in (self.known.ids, self.known.symbols))
        return Genes.of(wanted, ids, symbols)

    @property
    def has_kinds(self) -> bool:
        return bool(np.any(self.known.ids != "") or np.any(self.known.symbols != ""))

    def equals(self, other: "Genes") -> bool:
        pairs = zip((self.names, *vars(self.known).values()), (other.names, *vars(other.known).values()), strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    def apart(self, model: "Genes") -> Labels:
        """Return the names, changed where another gene of the model has them."""
        taken = set(model.names.tolist())
        called = zip(self.names.tolist(), self.called(slice(None)), strict=True)
        return np.array([longer if name in taken else name for name, longer in called], dtype=np.str_)

    @property
    def certain_ids(self) -> Labels:
        return np.where(self.known.ids == self.known.symbols, "", self.known.ids)

    def keys(self, own: Labels) -> list[str]:
        # A name of unknown kind, or one that stands for both kinds, may be an id or a symbol.
        unknown = (self.known.ids == "") & (self.known.symbols == "")
        return [str(key) for key in np.where(unknown, self.names, own).tolist()]

    def called(self, places: Any) -> list[str]:
        """Return the names with the id or symbol that they do not show."""
        rows = zip(*(part[places].tolist() for part in (self.names, self.known.ids, self.known.symbols)), strict=True)
        return [_both(*row) for row in rows]


def _both(name: str, id_: str, symbol: str) -> str:
    others = [each for each in (symbol, id_) if each and each != name]
    return f"{name} ({', '.join(others)})" if others else name


class Match(NamedTuple):
    """The place in the model of each gene of a file (-1: none), and genes that could not be matched safely."""

    places: Places
    by_id: int
    by_symbol: int
    notes: tuple[str, ...]


def matched(model: Genes, file: Genes) -> Match:
    """Match by id, then by id without version, then by symbol unless both ids are known. Keys must be unique."""
    places, free = np.full(len(file.names), -1, np.intp), np.ones(len(model.names), bool)
    repeated, by_symbol, contrary = dict[str, None](), list[str](), list[str]()
    counts = [0, 0]
    model_ids, file_ids = model.certain_ids, file.certain_ids
    by_ids = [each.keys(each.known.ids) for each in (model, file)]
    by_symbols = [each.keys(each.known.symbols) for each in (model, file)]
    by_bare = [[without_version(key) for key in keys] for keys in by_ids]
    for step, (theirs, own) in enumerate((by_ids, by_bare, by_symbols)):
        in_model, in_file = _unique(theirs), _unique(own)
        in_model.pop("", None)
        for j in np.flatnonzero(places < 0).tolist():
            i = in_model.get(own[j])
            if i is None:
                continue
            if _AMBIGUOUS in (i, in_file[own[j]]):
                repeated[own[j]] = None
            elif step == 2 and model_ids[i] and file_ids[j]:
                contrary.append(f"{own[j]} ({model_ids[i]}, {file_ids[j]})")
            elif free[i]:
                places[j], free[i] = i, False
                counts[step // 2] += 1
                by_symbol += [by_symbols[1][j]] if step == 2 or not file_ids[j] else []
    _check_kinds(model, file, places)
    notes = [
        *_unmatched("name", "of several genes", list(repeated)),
        *_unmatched("gene", "with the same symbol, but another id,", contrary),
        *_of_numbered(by_symbol, set(by_symbols[1])),
        *_of_case(by_symbols[0], by_symbols[1], places),
    ]
    return Match(places, counts[0], counts[1], tuple(notes))


def _unmatched(what: str, why: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"{plural(len(names), what)} {why} cannot be matched: {few(names)}."


def _of_numbered(matched: list[str], known: set[str]) -> Iterator[str]:
    if numbered := [key for key in matched if _is_numbered(key, known)]:
        yield (
            f"{plural(len(numbered), 'symbol')} with an appended number ({few(numbered)}) may be another gene in each "
            "file, if repeated symbols were numbered in the order of the genes. Use files with ids."
        )


def _of_case(theirs: list[str], own: list[str], places: Places) -> Iterator[str]:
    folded = {key.casefold(): key for key in np.delete(theirs, places[places >= 0]).tolist() if key}
    rest = [own[j] for j in np.flatnonzero(places < 0).tolist()]
    if alike := [key for key in rest if key and folded.get(key.casefold(), key) != key]:
        pairs = [f"{key} and {folded[key.casefold()]}" for key in alike]
        yield f"Names that differ in case only are not matched, as in another species: {few(pairs)}."


def _unique(keys: list[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, key in enumerate(keys):
        places[key] = _AMBIGUOUS if key in places else place
    return places


def _is_numbered(key: str, known: set[str]) -> bool:
    base, dash, number = key.rpartition("-")  # as var_names_make_unique of AnnData numbers them
    return bool(dash) and number.isdigit() and base in known


def _check_kinds(model: Genes, file: Genes, places: Places) -> None:
    j = np.flatnonzero(places >= 0)
    i = places[j]
    a, b = model.known.symbols[i], file.known.symbols[j]
    both = (a != "") & (b != "") & (model.known.ids[i] != "") & (file.known.ids[j] != "")
    other = both & (np.char.lower(a) != np.char.lower(b)) if len(j) else both
    count = np.count_nonzero(other)
    if count >= _FEWEST and 2 * count > np.count_nonzero(both):
        pairs = [f"{x} and {y}" for x, y in zip(a[other].tolist(), b[other].tolist(), strict=True)]
        raise Refused(
            f"{count:,} of {np.count_nonzero(both):,} genes with the same id have different symbols ({few(pairs)}), so "
            "the ids of the model and of the file are of different kinds. To match by symbols alone, pass ",
            *(Setting("var_names", "gene_symbols"), "."),
        )
