"""Eight tables as people have them, each with what opens it, and by hand; `benchmarks/claims/tables.py` prints them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RNG_SEED = 5


@dataclass(frozen=True)
class People:
    """A table that somebody has: how it is written, how it is opened, and how pandas reads it by hand."""

    name: str
    write: Callable[[Path], None]
    options: dict[str, Any]
    by_hand: Callable[[Any, Path], Any]
    says: tuple[str, ...] = ()  # what is told without any option, in the words of the command
    before: dict[str, Any] = field(default_factory=dict)  # options that help, but do not suffice
    then: tuple[str, ...] = ()  # what is told with them


def _numbers(m: int, n: int) -> np.ndarray:
    return np.round(np.random.default_rng(RNG_SEED).normal(100, 40, (m, n)), 2)


def _german(value: float) -> str:
    """1234.5 as 1.234,50."""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def _bank(path: Path) -> None:
    X = _numbers(40, 3) * 50
    lines = ["Buchungsnummer;Wertstellung;Betrag;Saldo;Gebühr"]
    lines += [f"B{i:03};{1 + i % 28:02}.03.2024;{';'.join(map(_german, row))}" for i, row in enumerate(X)]
    lines += [f"Summe;;{';'.join(map(_german, X.sum(axis=0)))}"]
    path.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")


def _bank_by_hand(pd: Any, path: Path) -> Any:
    frame = pd.read_csv(path, sep=";", decimal=",", thousands=".", index_col=0, encoding="utf-8-sig")
    return frame.iloc[:-1].drop(columns="Wertstellung")


def _latin(path: Path) -> None:
    lines = ["né;größe;Gewicht", *(";".join(map(repr, row)) for row in _numbers(30, 3).tolist())]
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")


def _dates(path: Path) -> None:
    rows = _numbers(30, 2).tolist()
    lines = ["high,day,low", *(f"{a},2024-05-{i + 1:02},{b}" for i, (a, b) in enumerate(rows))]
    path.write_text("\n".join(lines) + "\n")


def _ids(path: Path) -> None:
    rows = _numbers(50, 3).tolist()
    lines = [
        "patient_id,age,weight,height",
        *(f"{9_000_017 + 31 * i},{','.join(map(str, row))}" for i, row in enumerate(rows)),
    ]
    path.write_text("\n".join(lines) + "\n")


def _classes(path: Path) -> None:
    rows = _numbers(45, 2).tolist()
    lines = [
        "length,species,width",
        *(f"{a},{('setosa', 'virginica', 'versicolor')[i % 3]},{b}" for i, (a, b) in enumerate(rows)),
    ]
    path.write_text("\n".join(lines) + "\n")


def _classes_by_hand(pd: Any, path: Path) -> Any:
    frame = pd.read_csv(path)
    indicators = pd.get_dummies(frame["species"], prefix="species", prefix_sep="=", dtype=float)
    return pd.concat([frame[["length"]], indicators, frame[["width"]]], axis=1)


def _spreadsheet(path: Path) -> None:
    rows = _numbers(30, 3).tolist()
    lines = ["Größe\tGewicht\tAlter", *("\t".join(str(x).replace(".", ",") for x in row) for row in rows)]
    path.write_text("\r\n".join(lines) + "\r\n", encoding="utf-16", newline="")


def _quoted(path: Path) -> None:
    rows = _numbers(30, 2).tolist()
    lines = [
        'address,"height\n(cm)",weight',
        *(f'"Main St {i}\nFlat ""{i}"", 2nd",{a},{b}' for i, (a, b) in enumerate(rows)),
    ]
    path.write_text("\n".join(lines) + "\n")


def _wide(path: Path, n: int = 12_000) -> None:
    X = _numbers(12, n)
    lines = [",".join(["", *(f"cg{j:08}" for j in range(n))])]
    lines += [f"s{i}," + ",".join(map(repr, row)) for i, row in enumerate(X.tolist())]
    path.write_text("\n".join(lines) + "\n")


PEOPLE = (
    People(
        "bank.csv",
        _bank,
        {"drop": "Wertstellung"},
        _bank_by_hand,
        ("the date", "--drop Wertstellung"),
        {"drop": "Wertstellung"},
        ("the last row is a total ('Summe')", "--keep-total"),
    ),
    People(
        "latin.csv",
        _latin,
        {"encoding": "cp1252"},
        lambda pd, path: pd.read_csv(path, sep=";", encoding="latin-1"),
        ("is not encoded in UTF-8", "--encoding cp1252"),
    ),
    People(
        "dates.csv",
        _dates,
        {"ids": "day"},
        lambda pd, path: pd.read_csv(path, index_col="day"),
        ("'day' (the date '2024-05-01')", "--ids day", "--drop day"),
    ),
    People(
        "ids.csv",
        _ids,
        {"ids": "patient_id"},
        lambda pd, path: pd.read_csv(path, index_col="patient_id"),
        ("warning:", "'patient_id' looks like identifiers", "--ids patient_id"),
    ),
    People(
        "classes.csv",
        _classes,
        {"one_hot": "species"},
        _classes_by_hand,
        ("'species' (the text 'setosa')", "--one-hot species", "--drop species"),
    ),
    People(
        "spreadsheet.csv",
        _spreadsheet,
        {},
        lambda pd, path: pd.read_csv(path, sep="\t", decimal=",", encoding="utf-16"),
    ),
    People(
        "quoted.csv",
        _quoted,
        {},
        lambda pd, path: pd.read_csv(path, index_col=0),
        ("the first column 'address' is used for row names",),
    ),
    People(
        "wide.csv",
        _wide,
        {},
        lambda pd, path: pd.read_csv(path, index_col=0),
        ("the first column is used for row names, because this column has no name",),
    ),
)


def spelled(options: dict[str, Any]) -> list[str]:
    """Options of the command."""
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
