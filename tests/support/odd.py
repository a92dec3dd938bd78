"""A hundred odd tables as spreadsheets, statistics programs and instruments export them, each with the right matrix.

Run: python -m tests.support.odd [-v] prints how many are read right at once, after following a hint once, twice, never.
"""

import re
import shlex
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from shiftsvd.cli import main
from shiftsvd.commands.settings import Settings
from shiftsvd.io.opening import read_files

Right = list[tuple[str, Sequence[float]]]  # names and values of the columns of measurements
HEIGHT = (170.5, 165.2, 180.1, 175.4, 160.3, 168.8, 172.9, 158.6)
WEIGHT = (70.2, 59.4, 82.1, 77.0, 55.5, 64.3, 69.9, 52.7)
COUNT = (3.0, 5.0, 2.0, 8.0, 6.0, 4.0, 7.0, 11.0)
BASE: Right = [("height", HEIGHT), ("weight", WEIGHT), ("count", COUNT)]


@dataclass(frozen=True)
class Odd:
    """A table: its file and the columns of measurements (none: it must be refused)."""

    name: str
    content: bytes
    right: Right
    names: bool = True  # False if an encoding garbles the names
    either: bool = False  # whether it may be read in two ways, of which a reader chooses
    suffix: str = ".csv"


def shown(value: float, decimal: str = ".", form: str = "") -> str:
    return ("" if value != value else format(value, form) if form else f"{value:g}").replace(".", decimal)


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def lines(
    columns: Right = BASE,
    sep: str = ",",
    decimal: str = ".",
    first: tuple[str, Sequence[str]] | None = None,
    texts: dict[str, Sequence[str] | Callable[[float], str]] | None = None,
    cells: dict[tuple[int, str], str] | None = None,
) -> list[list[str]]:
    """Rows of cells: header and body; `texts` writes columns in another way, `cells` single cells (row from 0)."""
    texts, cells = texts or {}, cells or {}
    made = [] if first is None else [[first[0], *first[1]]]
    for name, values in columns:
        how = texts.get(name, lambda value: shown(value, decimal))
        column = [how(value) for value in values] if callable(how) else list(how)
        made.append([name, *(cells.get((i, name), cell) for i, cell in enumerate(column))])
    more = [name for name in texts if name not in dict(columns)]
    made += [[name, *texts[name]] for name in more]  # type: ignore[misc]
    return [list(row) for row in zip(*made, strict=True)]


def joined(rows: Sequence[Sequence[str]], sep: str = ",", eol: str = "\n") -> str:
    def quoted(cell: str) -> str:
        return f'"{cell}"' if sep in cell or "\n" in cell else cell

    return "".join(sep.join(map(quoted, row)) + eol for row in rows)


def table(above: str = "", below: str = "", sep: str = ",", eol: str = "\n", **how: Any) -> str:
    return above + joined(lines(sep=sep, **how), sep, eol) + below


def without(values: Sequence[float], *rows: int) -> list[float]:
    return [nan if i in rows else value for i, value in enumerate(values)]


def changed(**columns: Sequence[float]) -> Right:
    return [(name, columns.get(name, values)) for name, values in BASE]


IDS = ("id", [str(i + 1) for i in range(8)])
WHO = ("who", [f"p{i}" for i in range(8)])
EURO = [1234.5, 980.06, 2100.0, 45.9, 12045.25, 333.33, 1000.0, 77.7]
PERCENT = [17.7, 20.1, 3.4, 55.0, 61.2, 8.8, 9.9, 41.5]


def totals(label: str, first: tuple[str, Sequence[str]], sep: str = ",", decimal: str = ".", gap: str = "") -> str:
    sums = [shown(round(sum(values), 6), decimal) for _, values in BASE]
    return table(first=first, sep=sep, decimal=decimal, below=gap + joined([[label, *sums]], sep))


def encodings() -> Iterator[tuple[str, bytes, Right]]:
    accented: Right = [("größe", HEIGHT), ("poids", WEIGHT), ("âge", COUNT)]
    text = table(columns=accented, sep=";", decimal=",")
    for name in ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252"):
        yield f"encoding {name}", text.encode(name), accented
    yield "lines end with CRLF", table(eol="\r\n").encode(), BASE
    yield "lines end with CR", table(eol="\r").encode(), BASE


def delimiters() -> Iterator[tuple[str, str, Right]]:
    yield "semicolons and decimal commas", table(sep=";", decimal=","), BASE
    yield "semicolons and decimal points", table(sep=";"), BASE
    yield "tabs and decimal commas", table(sep="\t", decimal=","), BASE
    yield "pipes", table(sep="|"), BASE
    yield "a line for Excel", table("sep=;\n", sep=";", decimal=","), BASE
    yield "delimiters at the end of rows", "".join(line + ",\n" for line in table().splitlines()), BASE
    yield "all cells in quotes", "".join(",".join(f'"{c}"' for c in row) + "\n" for row in lines()), BASE
    yield (
        "decimal commas in quotes, commas between",
        "".join(",".join(f'"{c}"' for c in row) + "\n" for row in lines(decimal=",")),
        BASE,
    )
    wide = "".join("  ".join(f"{cell:>8}" for cell in row) + "\n" for row in lines())
    yield "columns aligned with blanks", wide, BASE
    yield "SAP list with pipes and rules", _sap(), BASE


def _sap() -> str:
    rows = ["|" + "|".join(f"{cell:>10}" for cell in row) + "|" for row in lines(decimal=",")]
    rule = "-" * len(rows[0])
    return "\n".join(["26.11.2026   Dynamische Listenausgabe", "", rule, rows[0], rule, *rows[1:], rule]) + "\n"


def titles() -> Iterator[tuple[str, str, Right]]:
    yield "one title", table("Patients of ward 3\n"), BASE
    yield "one padded title", table("Patients of ward 3,,\n"), BASE
    yield "two titles", table("Patients of ward 3\nExported 2026-11-26\n"), BASE
    yield "two padded titles", table("Patients of ward 3,,\nExported 2026-11-26,,\n"), BASE
    yield "two padded titles and a blank row", table("Patients of ward 3,,\nExported 2026-11-26,,\n,,\n"), BASE
    yield "three titles of different kinds", table("Klinik Süd,,\n\nStation:,3,\nStand:,26.11.2026,\n\n"), BASE
    yield "instrument block", table("Instrument;X200\nOperator;Mia\nSerial;00417\n\n", sep=";", decimal=","), BASE
    yield "instrument block with a number", table("Interval,0.5\nChannels,3\n"), BASE
    yield "comments with #", table("# made by R\n# on Monday\n"), BASE
    yield "comments with %", table("% made by Octave\n% on Monday\n"), BASE
    yield "comments with !", table("!Sample table\n!Version 2\n"), BASE
    yield "a footnote below", table(below="Source: registry\n"), BASE
    yield "a padded footnote below", table(below=",,\nSource: registry,,\n"), BASE
    yield "empty rows below", table(below=",,\n,,\n"), BASE
    rows = lines(first=WHO)
    units = joined([rows[0], ["", "cm", "kg", "n"], *rows[1:]])
    yield "units below the header", units, BASE
    question = joined([rows[0], ["Who?", "How tall, in cm?", "How heavy?", "How many?"], *rows[1:]])
    yield "labels below the header (SPSS)", question, BASE
    ids = [f'{{""ImportId"":""QID{i}""}}' for i in range(4)]
    three = [",".join(rows[0]), 'Who?,"How tall, in cm?",How heavy?,How many?', ",".join(f'"{i}"' for i in ids)]
    yield "three header rows (Qualtrics)", "\n".join(three) + "\n" + joined(rows[1:]), BASE


def total_rows() -> Iterator[tuple[str, str, Right]]:
    for label in ("Total", "Summe", "Gesamt", "Somme", "Totale"):
        yield f"numeric ids and a last row {label}", totals(label, IDS), BASE
    yield "text ids and a last row Total", totals("Total", WHO), BASE
    yield "German table with a last row Summe", totals("Summe", WHO, ";", ","), BASE
    yield "no ids and a last row of sums", table(below="1350.8,531.1,46\n".replace("1350.8", "1351.8")), BASE
    yield "unnamed total with an empty first cell", totals("", WHO), BASE
    yield "Suma total below an empty row", totals("Suma total", WHO, gap=",,,\n"), BASE
    yield "total with empty cells", table(first=WHO, below="Gesamt,,,46\n"), BASE
    yield "a last row of means", table(first=IDS, below="Mittelwert,168.975,66.3875,5.75\n"), BASE
    rows = lines(first=WHO)
    yield "a first row Total", joined([rows[0], ["Total", "1351.8", "531.1", "46"], *rows[1:]]), BASE
    yield (
        "total of columns that are no numbers",
        table(first=WHO, texts={"ward": list("abcabcab")}, below="Totaal,1351.8,531.1,46,\n"),
        BASE,
    )


def missing() -> Iterator[tuple[str, str, Right]]:
    right = changed(weight=without(WEIGHT, 2, 5))
    for mark in ("k.A.", "n.d.", "<LOD", "s/d", "n.b.", "#DIV/0!", "#N/A", "NA", "-", "n/a", ".", "NULL", "?", "99999"):
        yield f"missing values {mark}", table(cells={(2, "weight"): mark, (5, "weight"): mark}), right
    yield "one k.A. in German", table(sep=";", decimal=",", cells={(2, "weight"): "k.A.", (5, "weight"): ""}), right
    yield "two marks", table(cells={(2, "weight"): "k.A.", (5, "weight"): "entfällt"}), right
    yield "-999 for missing", table(cells={(2, "weight"): "-999", (5, "weight"): "-999"}), right
    yield "a column without values", table(texts={"notes": [""] * 8}), BASE
    far = 60
    columns = [(name, list(values) * far) for name, values in BASE]
    right = [(name, without(values, 300) if name == "weight" else values) for name, values in columns]
    yield "k.A. far below", table(columns=columns, cells={(300, "weight"): "k.A."}), right
    # Few cells beyond a limit are missing values; for many below it, info prints --censored half.
    right = [(name, without(values, 2, 5) if name == "weight" else values) for name, values in columns]
    beyond = {(2, "weight"): "<1", (5, "weight"): "<1"}
    yield "<1 below the limit of detection", table(columns=columns, cells=beyond), right
    beyond = {(2, "weight"): "< 0,05", (5, "weight"): ">100"}
    yield "< 0,05 and > 100", table(sep=";", decimal=",", columns=columns, cells=beyond), right


def notations() -> Iterator[tuple[str, str, Right]]:
    money = changed(weight=EURO)
    spelled: dict[str, Callable[[float], str]] = {
        "$ and thousands": lambda v: f"${v:,.2f}",
        "euros behind": lambda v: f"{v:.2f} €",
        "apostrophes": lambda v: f"{v:,.2f}".replace(",", "'"),
        "CHF in front": lambda v: f"CHF {v:.2f}",
        "points for thousands, commas for decimals": german,
        "no-break spaces": lambda v: f"{v:,.2f}".translate(str.maketrans(",.", "\u00a0,")),
        "narrow no-break spaces": lambda v: f"{v:,.2f}".translate(str.maketrans(",.", "\u202f,")),
        "blanks for thousands": lambda v: f"{v:,.2f}".translate(str.maketrans(",.", " ,")),
        "plus signs": lambda v: f"+{v:.2f}",
        "exponents": lambda v: f"{v:.6E}",
        "exponents of Fortran": lambda v: f"{v:.6E}".replace("E", "D"),
    }
    for name, how in spelled.items():
        yield name, table(columns=money, sep=";", texts={"weight": how}), money
    one = changed(weight=[980.06, *WEIGHT[1:]])
    yield "one $980.06", table(columns=one, cells={(0, "weight"): "$980.06"}), one
    thousand = changed(weight=[1234.0, *WEIGHT[1:]])
    yield "one 1,234 among decimals", table(columns=thousand, cells={(0, "weight"): "1,234"}), thousand
    yield (
        "one 1.234,5 among decimal commas",
        table(columns=changed(weight=[1234.5, *WEIGHT[1:]]), sep=";", decimal=",", cells={(0, "weight"): "1.234,5"}),
        changed(weight=[1234.5, *WEIGHT[1:]]),
    )
    whole = changed(weight=[1234.0, 5678.0, 2100.0, 3045.0, 12045.0, 4333.0, 1000.0, 7007.0])
    yield "whole numbers with commas", table(columns=whole, texts={"weight": lambda v: f"{v:,.0f}"}), whole
    alone = [(name, whole[1][1]) for name in ("a", "b")]
    groups = table(columns=alone, texts={"a": lambda v: f"{v:,.0f}", "b": lambda v: f"{v:,.0f}"})
    yield "nothing but whole numbers with commas", groups, alone
    share = changed(weight=PERCENT)
    yield (
        "percent with decimal commas",
        table(columns=share, sep=";", texts={"weight": lambda v: shown(v, ",") + " %"}),
        share,
    )
    yield "percent", table(columns=share, texts={"weight": lambda v: f"{v}%"}), share
    mixed = changed(weight=without(PERCENT, 2))
    yield "one percent among shares", table(columns=mixed, cells={(2, "weight"): "3.4%"}), mixed
    kg = changed(weight=[12.0, *WEIGHT[1:]])
    yield "one 12 kg", table(columns=kg, cells={(0, "weight"): "12 kg"}), kg
    yield "all in kg", table(texts={"weight": lambda v: f"{v:g} kg"}), BASE
    header: Right = [("height", HEIGHT), ("weight (kg)", WEIGHT), ("count", COUNT)]
    yield "kg in the header and in cells", table(columns=header, texts={"weight (kg)": lambda v: f"{v:g}kg"}), header
    yield "kg in the header only", table(columns=header), header
    grams = changed(weight=without(WEIGHT, 0, 3))
    yield (
        "kg and g",
        table(
            columns=grams, texts={"weight": lambda v: f"{v:g} kg"}, cells={(0, "weight"): "70 g", (3, "weight"): "7 g"}
        ),
        grams,
    )
    signed = changed(weight=[-v if i % 3 else v for i, v in enumerate(WEIGHT)])
    yield (
        "minus of typography",
        table(columns=signed, texts={"weight": lambda v: f"{v:g}".replace("-", "\u2212")}),
        signed,
    )
    behind = {"weight": lambda v: f"{abs(v):.2f}" + "-" * (v < 0)}
    yield "minus behind (SAP)", table(columns=signed, texts=behind), signed
    brackets = {"weight": lambda v: f"${v:.2f}" if v > 0 else f"(${-v:.2f})"}
    yield "negative amounts in brackets", table(columns=signed, texts=brackets), signed
    odd = changed(weight=without(WEIGHT, 4))
    for cell in ("1_000", "0x1F", "12:30", "1-Mar", "5..3", "abc", "70 / 80", "#REF!"):
        yield f"one {cell}", table(cells={(4, "weight"): cell}), odd
    yield (
        "a typing error far below",
        table(columns=[(n, list(v) * 60) for n, v in BASE], cells={(400, "count"): "l2"}),
        [(n, without(list(v) * 60, 400) if n == "count" else list(v) * 60) for n, v in BASE],
    )


def headers() -> Iterator[tuple[str, str, Right]]:
    yield "no header", joined(lines()[1:]), [("1", HEIGHT), ("2", WEIGHT), ("3", COUNT)]
    twice: Right = [("height", HEIGHT), ("height", WEIGHT), ("count", COUNT)]
    yield "duplicated header", table(columns=twice), twice
    years: Right = [("2001", HEIGHT), ("2002", WEIGHT), ("2003", COUNT)]
    yield "years as header, ids", table(columns=years, first=WHO), years
    broken: Right = [("height\n(cm)", HEIGHT), ("weight, kg", WEIGHT), ("count", COUNT)]
    yield "header of two lines", table(columns=broken), broken
    blanks: Right = [(" height ", HEIGHT), ("weight ", WEIGHT), ("count", COUNT)]
    yield "blanks around names", table(columns=blanks), BASE
    yield "row names of R", joined([lines()[0], *([f"r{i}", *row] for i, row in enumerate(lines()[1:]))]), BASE
    yield "row numbers of R", table(first=("", IDS[1])), BASE
    yield "row numbers of pandas", table(first=("Unnamed: 0", [str(i) for i in range(8)])), BASE
    merged = ["who", "body", "", "other"]
    yield "merged cells above the header", joined([merged, *lines(first=WHO)]), BASE


def other_columns() -> Iterator[tuple[str, str, Right]]:
    days = [f"2026-01-{i + 1:02}" for i in range(8)]
    yield "dates", table(texts={"day": days}), BASE
    yield "German dates", table(sep=";", decimal=",", texts={"Tag": [f"{i + 1:02}.01.2026" for i in range(8)]}), BASE
    yield "days and months", table(texts={"day": [f"{i + 1:02}.03" for i in range(8)]}), BASE
    yield "times", table(texts={"time": [f"{8 + i}:30" for i in range(8)]}), BASE
    yield "ids of patients", table(first=("patient_id", [str(90017 + 31 * i) for i in range(8)])), BASE
    yield "ids with zeros", table(texts={"plz": [f"0{4103 + 31 * i}" for i in range(8)]}), BASE
    yield "text ids", table(first=WHO), BASE
    yield "sex", table(texts={"sex": list("FMFMFMMF")}), BASE
    yield "truth values", table(texts={"smoker": ["TRUE", "FALSE"] * 4}), BASE
    yield "remarks", table(texts={"remark": ["", "late", "", "see file 3, page 2", "", "", "late", "ok"]}), BASE
    yield "several labels", table(first=WHO, texts={"sex": list("FMFMFMMF"), "ward": list("aabbccdd")}), BASE
    yield (
        "labels and k.A.",
        table(texts={"sex": list("FMFMFMMF")}, cells={(2, "weight"): "k.A."}),
        changed(weight=without(WEIGHT, 2)),
    )
    yield "a class of a model", table(texts={"cluster": list("12312312")}), BASE


def others() -> Iterator[tuple[str, str, Right]]:
    """Tables that were written after the reader, to see whether it reads more than the tables that it was made for."""
    G: list[list[float]] = [[1.5, 2.5, 3.5], [2.5, 1.5, 7.5], [9.25, 8, 7], [4, 4.5, 6]]
    grid: Right = [(name, [row[i] for row in G]) for i, name in enumerate("abc")]
    yield (
        "plate reader",
        (
            "Plate:\tP1\nDate:\t2026-01-02\n\n\ta\tb\tc\nA1\t1.5\t2.5\t3.5\nA2\t2.5\t1.5\t7.5\nA3\t9.25\t8\t7\n"
            "A4\t4\t4.5\t6\n"
        ),
        grid,
    )
    yield (
        "OVRFLW among readings",
        "well,a,b,c\nA1,1.5,2.5,3.5\nA2,OVRFLW,1.5,7.5\nA3,9.25,8,7\nA4,4,4.5,6\n",
        [("a", [1.5, nan, 9.25, 4]), ("b", [2.5, 1.5, 8, 4.5]), ("c", [3.5, 7.5, 7, 6])],
    )
    yield (
        "psql",
        (
            " a    | b   | c \n------+-----+-----\n 1.5  | 2.5 | 3.5\n 2.5  | 1.5 | 7.5\n 9.25 | 8   | 7\n"
            " 4    | 4.5 | 6\n(4 rows)\n"
        ),
        grid,
    )
    yield (
        "markdown",
        "| a | b | c |\n|---|---|---|\n" + "".join("| " + " | ".join(shown(v) for v in r) + " |\n" for r in G),
        grid,
    )
    yield (
        "French money",
        "nom;a;b;c\nX;1 234,50 €;2,5;3,5\nY;-12,00 €;1,5;7,5\nZ;0,99 €;8;7\nW;4,00 €;4,5;6\n",
        [("a", [1234.5, -12, 0.99, 4]), ("b", [2.5, 1.5, 8, 4.5]), ("c", [3.5, 7.5, 7, 6])],
    )
    yield "Swiss", "n;a;b\nX;1’234.50;2\nY;12’000.00;1\nZ;99.00;8\n", [("a", [1234.5, 12000, 99]), ("b", [2, 1, 8])]
    yield "Indian lakh", 'n,a,b\nX,"12,34,567",2\nY,"3,45,678",1\nZ,"99,000",8\n', [("b", [2, 1, 8])]
    yield "percent with sign", "n,a,b\nX,+1.5 %,2\nY,-0.3 %,1\nZ,12 %,8\n", [("a", [1.5, -0.3, 12]), ("b", [2, 1, 8])]
    yield "temperatures", "n,a,b\nX,12.5 °C,2\nY,-3 °C,1\nZ,0 °C,8\n", [("a", [12.5, -3, 0]), ("b", [2, 1, 8])]
    yield "likert text", "n,a,b\nX,5 - very good,2\nY,1 - bad,1\nZ,3 - so so,8\n", [("b", [2, 1, 8])]
    yield "ranges", "n,a,b\nX,10-20,2\nY,20-30,1\nZ,30-40,8\n", [("b", [2, 1, 8])]
    yield "ISO week", "n,a,b\nX,2026-W01,2\nY,2026-W02,1\nZ,2026-W03,8\n", [("b", [2, 1, 8])]
    yield "versions", "n,a,b\nX,1.2.3,2\nY,1.2.4,1\nZ,2.0.0,8\n", [("b", [2, 1, 8])]
    yield "coordinates", "n,a,b\nX,48.1° N,2\nY,49.2° N,1\nZ,50.3° N,8\n", [("b", [2, 1, 8])]
    yield (
        "Italian totals",
        "voce;a;b\nuno;1,5;2\ndue;2,5;3\ntre;3,5;4\nTotale complessivo;7,5;9\n",
        [("a", [1.5, 2.5, 3.5]), ("b", [2, 3, 4])],
    )
    yield (
        "pivot Gesamtergebnis",
        "Zeilen;a;b\nuno;1,5;2\ndue;2,5;3\ntre;3,5;4\nGesamtergebnis;7,5;9\n",
        [("a", [1.5, 2.5, 3.5]), ("b", [2, 3, 4])],
    )
    yield (
        "subtotals",
        "who,a,b\nn1,1,2\nn2,3,4\nSubtotal,4,6\ns1,5,1\ns2,2,2\nSubtotal,7,3\nGrand Total,11,9\n",
        [("a", [1, 3, 5, 2]), ("b", [2, 4, 1, 2])],
    )
    yield "NaN strings", "a,b\n1,NaN\n2,3\n4,nan\n5,1\n", [("a", [1, 2, 4, 5]), ("b", [nan, 3, nan, 1])]
    yield (
        "keine Angabe spelled two ways",
        "a;b\n1;keine Angabe\n2;3\n4;k. A.\n5;1\n9;2\n",
        [("a", [1, 2, 4, 5, 9]), ("b", [nan, 3, nan, 1, 2])],
    )
    yield (
        "stars of significance",
        "a,b\n1.5*,2\n2.5**,3\n4.5,4\n3.5,1\n",
        [("a", [nan, nan, 4.5, 3.5]), ("b", [2, 3, 4, 1])],
    )
    yield "plus minus", "n,a,b\nX,1.5 ± 0.2,2\nY,2.5 ± 0.1,1\nZ,3.1 ± 0.2,8\n", [("b", [2, 1, 8])]
    yield "fractions", "n,a,b\nX,1/2,2\nY,3/4,1\nZ,1/4,8\n", [("b", [2, 1, 8])]
    yield "Excel epoch dates", "n,day,b\nX,45292,2\nY,45293,1\nZ,45294,8\n", [("b", [2, 1, 8])]
    yield "times hh:mm:ss", "n,a,b\nX,00:01:30,2\nY,00:02:10,1\nZ,00:00:50,8\n", [("b", [2, 1, 8])]
    yield "ja nein", "n;a;b\nX;ja;2\nY;nein;1\nZ;ja;8\nW;nein;3\n", [("b", [2, 1, 8, 3])]
    yield (
        "decimal comma, one point far below",
        "a;b\n" + "1,5;2\n" * 300 + "1.5;3\n",
        [("a", [1.5] * 300 + [nan]), ("b", [2.0] * 300 + [3])],
    )
    yield (
        "decimal point, one comma far below",
        "a,b\n" + "1.5,2\n" * 300 + '"1,5",3\n',
        [("a", [1.5] * 300 + [nan]), ("b", [2.0] * 300 + [3])],
    )
    yield (
        "ints, comma decimals far below",
        "a;b\n" + "1;2\n" * 300 + "1,5;3\n",
        [("a", [1.0] * 300 + [1.5]), ("b", [2.0] * 300 + [3])],
    )
    yield (
        "ints, 1.234 far below in German",
        "a;b\n" + "1;2,5\n" * 300 + "1.234;3\n",
        [("a", [1.0] * 300 + [1234]), ("b", [2.5] * 300 + [3])],
    )
    yield "kg far below", "a,b\n" + "1.5,2\n" * 300 + "9 kg,3\n", [("a", [1.5] * 300 + [9]), ("b", [2.0] * 300 + [3])]
    yield (
        "unit in one cell g, header kg",
        "m (kg),b\n1.5,2\n2.5,3\n900 g,4\n3.5,1\n",
        [("m (kg)", [1.5, 2.5, nan, 3.5]), ("b", [2, 3, 4, 1])],
    )
    yield "two currencies", "a,b\n$1.5,2\n€2.5,3\n$4,4\n$3.5,1\n", [("a", [1.5, nan, 4, 3.5]), ("b", [2, 3, 4, 1])]
    yield "single column", "x\n1.5\n2.5\n4\n", [("x", [1.5, 2.5, 4])]
    yield "truncated last row", "a,b,c\n1,2,3\n4,5,7\n7,8,1\n3\n", []
    yield (
        "quoted newlines header, total",
        'who,"a\n(kg)",b\nx,1.5,2\ny,2.5,3\nz,4.5,4\nTotal,8.5,9\n',
        [("a\n(kg)", [1.5, 2.5, 4.5]), ("b", [2, 3, 4])],
    )
    yield (
        "label named Total in data",
        "part,a,b\nTotal,1,5\nLeft,2,4\nTotal,3,9\nLeft,4,1\nTotal,5,3\n",
        [("a", [1, 2, 3, 4, 5]), ("b", [5, 4, 9, 1, 3])],
    )
    yield "sample called Sum, not last", "who,a\nx,1.5\nSum41,2.5\nz,4\n", [("a", [1.5, 2.5, 4])]
    yield "empty column between", "a,,b\n1.5,,2\n2.5,,3\n4,,1\n", [("a", [1.5, 2.5, 4]), ("b", [2, 3, 1])]
    yield "Stata dot a", "a,b\n1.5,.a\n2.5,3\n4,.b\n3,2\n", [("a", [1.5, 2.5, 4, 3]), ("b", [nan, 3, nan, 2])]
    yield "no final newline", "a,b\n1.5,2\n2.5,3\n4,1", [("a", [1.5, 2.5, 4]), ("b", [2, 3, 1])]
    yield (
        "semicolon, thousands as points only",
        "a;b\n1.234;2,5\n5.678;3,5\n12.500;1,5\n",
        [("a", [1234, 5678, 12500]), ("b", [2.5, 3.5, 1.5])],
    )
    yield "three decimals only", "a,b\n1.234,2\n5.678,3\n2.500,1\n", [("a", [1.234, 5.678, 2.5]), ("b", [2, 3, 1])]
    yield "gene dates", "gene,a,b\n1-Mar,1.5,2\nSEPT2,2.5,3\nTP53,4,1\n", [("a", [1.5, 2.5, 4]), ("b", [2, 3, 1])]
    yield "barcode ints", "ean,a\n4006381333931,1.5\n4006381333948,2.5\n4006381333955,4\n", [("a", [1.5, 2.5, 4])]
    yield (
        "units in title row 2 with %",
        "who,a,b\n,%,mg/L\nx,1.5,2\ny,2.5,3\nz,4,1\n",
        [("a", [1.5, 2.5, 4]), ("b", [2, 3, 1])],
    )
    yield (
        "comment line in the middle",
        "a,b\n1.5,2\n# recalibrated\n2.5,3\n4,1\n",
        [("a", [1.5, 2.5, 4]), ("b", [2, 3, 1])],
    )
    yield "ragged short rows", "a,b,c\n1,2\n4,5,6\n7,8\n", []
    yield "SPSS system missing", "a;b\n1,5;#NULL!\n2,5;3\n4,5;1\n", [("a", [1.5, 2.5, 4.5]), ("b", [nan, 3, 1])]
    yield "-1 missing flags", "a,b\n1.5,-1\n2.5,3\n4,1\n3,2\n", [("a", [1.5, 2.5, 4, 3]), ("b", [-1, 3, 1, 2])]
    yield (
        "school grades",
        "n,grade,b\nX,2-,2\nY,1+,1\nZ,3,8\nW,2,3\n",
        [("grade", [nan, nan, 3, 2]), ("b", [2, 1, 8, 3])],
    )
    yield (
        "accounting brackets, no currency",
        "n,a,b\nX,(12.50),2\nY,8.00,1\nZ,3.25,8\nW,(1.00),3\n",
        [("a", [nan, 8, 3.25, nan]), ("b", [2, 1, 8, 3])],
    )


def exports() -> Iterator[tuple[str, str, Right]]:
    """Habits of SPSS, R, SAP, Qualtrics and instruments: statistics and notes below, headers and groups between."""
    pair: Right = [("a", list(HEIGHT[:6])), ("b", list(WEIGHT[:6]))]
    rows = [f"p{i},{HEIGHT[i]},{WEIGHT[i]}\n" for i in range(6)]
    body, top = "".join(rows), "who,a,b\n"
    two = [f"R{i // 2},x{i},{HEIGHT[i]},{WEIGHT[i]}\n" for i in range(6)]
    yield "a total with its label in a later column", "region,who,a,b\n" + "".join(two) + "R9,Total,,408.5\n", pair
    noted = "".join(row.partition(",")[2].strip() + ",ok\n" for row in rows)
    yield "a mean with its label in the last column", "a,b,note\n" + noted + "170,68,Mean\n", pair
    numbered = "".join(f"{i // 2},{row}" + f"{i // 2},Total,9,\n" * (i % 2) for i, row in enumerate(rows))
    yield "numbered totals", "year,who,a,b\n" + numbered, [("year", [0, 0, 1, 1, 2, 2]), *pair]
    groups = [f"R{i},Total,{HEIGHT[2 * i]},\n" for i in range(3)]
    yield (
        "totals of groups in a later column",
        "region,who,a,b\n" + "".join(two[2 * i] + two[2 * i + 1] + groups[i] for i in range(3)),
        pair,
    )
    for word in ("R{} Total", "R{} Ergebnis", "Somme R{}", "Grand total"):
        parts = (two[2 * i] + two[2 * i + 1] + f"{word.format(i)},,1.5,2\n" for i in range(3))
        yield f"totals of groups, {word}", "region,who,a,b\n" + "".join(parts), pair
    yield "means and deviations below", top + body + "Mean,170.05,68.08\nSD,7.1,10.4\n", pair
    spanish = "Media,170.05,68.08\nDesv. est.,7.1,10.4\nM\u00edn,160.3,55.5\nM\u00e1x,180.1,82.1\n"
    yield "statistics in Spanish below", top + body + spanish, pair
    for last in ("SD,7.1,10.4", "N,6,6", "Total (n=6),1020.3,", "Total 2026,1020.3,", "n=6", "n=6,,"):
        yield f"a last row {last}", top + body + last + "\n", pair
    yield "headings of groups", top + "Group A,,\n" + "".join(rows[:3]) + "Group B,,\n" + "".join(rows[3:]), pair
    yield "the header again", top + "".join(rows[:3]) + top + "".join(rows[3:]), pair
    nameless = "".join(row.partition(",")[2] for row in rows)
    yield (
        "the header again, without names of rows",
        "a,b\n" + nameless + "a,b\n" + nameless,
        [(n, [*v, *v]) for n, v in pair],
    )
    yield (
        "a unit below a single column",
        "who,a\n,[cm]\n" + "".join(row.rpartition(",")[0] + "\n" for row in rows),
        pair[:1],
    )
    for note in ("Source: registry, 2026", "Source: registry, Berlin, 2026", "Quelle: Amt;2026"):
        yield f"a note, {note}", top + body + note + "\n", pair
    yield "a table of write.table", '"a" "b"\n' + "".join(f'"p{i}" {HEIGHT[i]} {WEIGHT[i]}\n' for i in range(6)), pair
    yield (
        "seconds since 1970",
        "time,a,b\n" + "".join(f"{1767225600 + 61 * i}{row[2:]}" for i, row in enumerate(rows)),
        pair,
    )
    words = ("good", "average", "poor"), ("media", "tech", "retail")
    for three in words:
        rated = "".join(f"{row.strip()},{three[(i + 2) % 3]}\n" for i, row in enumerate(rows))
        yield f"categories {', '.join(three)}", "who,a,b,q\n" + rated, pair
    states = "".join(f"{name}{row[2:]}" for name, row in zip(("SC", "SD", "TN", "TX", "MN", "ME"), rows, strict=True))
    yield "states, of which one is SD", "state,a,b\n" + states, pair
    comma = "".join(f"p{i};{HEIGHT[i]:.4E};{WEIGHT[i]:.4E}\n" for i in range(6)).replace(".", ",")
    yield "exponents with decimal commas", "who;a;b\n" + comma, pair


def attacks() -> Iterator[tuple[str, str, Right]]:
    """Tables that were written to be misread: other languages, notations of numbers, and habits of exports."""
    A, B = [1.5, 2.5, 4.0, 3.5, 9.25, 7.0], [2.0, 3.0, 1.0, 8.0, 5.0, 11.0]
    P: Right = [("a", A), ("b", B)]
    H = ["who", "a", "b"]
    R = [[f"p{i}", f"{A[i]:g}", f"{B[i]:g}"] for i in range(6)]

    def t(head: Sequence[str], body: Sequence[Sequence[str]], sep: str = ",", below: str = "") -> str:
        return "".join(sep.join(cells) + "\n" for cells in (head, *body)) + below

    def rows(
        first: Callable[[float], str] = lambda v: f"{v:g}", second: Callable[[float], str] = lambda v: f"{v:g}"
    ) -> list[list[str]]:
        return [[f"p{i}", first(A[i]), second(B[i])] for i in range(6)]

    def row(name: str, text: str, right: Right = P) -> tuple[str, str, Right]:
        return name, text, right

    yield row(
        "mixed line ends", "who,a,b\r\n" + "".join(",".join(r) + ("\r\n" if i % 2 else "\n") for i, r in enumerate(R))
    )
    yield row("quotes within quotes", t(H, [[f'"the ""p{i}"" one, here"', *r[1:]] for i, r in enumerate(R)]))
    yield row("quotes within cells", t(H, [[f'{i}" pipe', *r[1:]] for i, r in enumerate(R)]))
    yield row("three names alike", t(["who", "x", "x", "x"], [[*r, r[1]] for r in R]), [("x", A), ("x", B), ("x", A)])
    yield row(
        "blocks of blank columns", t(["who", "a", "", "", "b", "", ""], [[r[0], r[1], "", "", r[2], "", ""] for r in R])
    )
    yield row("footer with a date", t(H, R, below="Stand: 26.11.2026,,\n"))
    yield row("footer with a date alone", t(H, R, below="26.11.2026,,\n"))
    yield row("footer of printed on", t(H, R, below="\nPrinted on 2026-11-26 12:30\n"))
    yield row(
        "apostrophes and points",
        t(H, rows(lambda v: f"{v * 1000:,.2f}".replace(",", "'"))),
        [("a", [v * 1000 for v in A]), P[1]],
    )
    yield row(
        "thin spaces as thousands",
        t(H, rows(lambda v: f"{v * 10000:,.0f}".replace(",", "\u2009"))),
        [("a", [v * 10000 for v in A]), P[1]],
    )
    yield row("plus minus errors with ±", t(H, rows(lambda v: f"{v} ± 0.1")), [P[1]])
    yield row("errors in brackets", t(H, rows(lambda v: f"{v}(3)")), [P[1]])
    yield row(
        "scientific with comma",
        t(H, rows(lambda v: f"{v:.3E}".replace(".", ","), lambda v: f"{v:.1f}".replace(".", ",")), sep=";"),
    )
    yield row("scientific with x 10^", t(H, rows(lambda v: f"{v} x 10^3")), [P[1]])
    yield row(
        "booleans 0 1", t([*H, "ok"], [[*r, "01"[i % 2]] for i, r in enumerate(R)]), [*P, ("ok", [0, 1, 0, 1, 0, 1])]
    )
    yield row(
        "Excel dates with times",
        t(["who", "date", "a", "b"], [[r[0], f"{45292 + 7.25 * i}", *r[1:]] for i, r in enumerate(R)]),
    )
    yield row(
        "percent column without sign in header", t(["who", "a [%]", "b"], rows(lambda v: f"{v}%")), [("a [%]", A), P[1]]
    )
    yield row(
        "percent and empty",
        t(H, [[r[0], r[1] + "%" if i != 2 else "", r[2]] for i, r in enumerate(R)]),
        [("a", [*A[:2], nan, *A[3:]]), P[1]],
    )
    yield row("trailing delimiters rows of two", t(H, [[*r, "", ""] for r in R]))
    yield row("very long names", t(["who", "a" * 300, "b" * 300], R), [("a" * 300, A), ("b" * 300, B)])
    yield row(
        "transposed",
        t(["var", *(f"p{i}" for i in range(6))], [["a", *(f"{v:g}" for v in A)], ["b", *(f"{v:g}" for v in B)]]),
        [(f"p{i}", [A[i], B[i]]) for i in range(6)],
    )
    yield row(
        "transposed with units",
        t(
            ["var", "unit", *(f"p{i}" for i in range(6))],
            [["a", "kg", *(f"{v:g}" for v in A)], ["b", "mm", *(f"{v:g}" for v in B)]],
        ),
        [(f"p{i}", [A[i], B[i]]) for i in range(6)],
    )
    yield row("Swedish total", t(H, [*R, ["Totalt", "27.75", "30"]]))
    yield row("Japanese total", t(H, [*R, ["合計", "27.75", "30"]]))
    yield row("Turkish total without sums", t(H, [*R, ["Toplam", "27.8", "30"]]))
    yield row("Finnish mean", t(H, [*R, ["Keskiarvo", "4.6", "5"]]))
    yield row(
        "Arabic digits",
        t(H, rows(second=lambda v: f"{v:g}".translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")))),
        [P[0]],
    )
    yield row("survey multi-select", t([*H, "q1"], [[*r, '"red;blue"' if i % 2 else "red"] for i, r in enumerate(R)]))
    yield row(
        "instrument with flags",
        t(H, [[r[0], r[1] + (" H" if i == 3 else ""), r[2]] for i, r in enumerate(R)]),
        [("a", [*A[:3], nan, *A[4:]]), P[1]],
    )
    yield row("blank lines between rows", "who,a,b\n" + "\n".join(",".join(r) + "\n" for r in R))
    yield row("header in quotes with blanks after commas", 'who, "a", "b"\n' + "".join(", ".join(r) + "\n" for r in R))
    yield row("minus with blank", t(H, rows(lambda v: f"- {v}")), [("a", [-v for v in A]), P[1]])
    yield row("decimals by middle dot", t(H, rows(lambda v: f"{v}".replace(".", "·"))), [P[1]])
    yield row(
        "thousands in one column, decimals in the other (de)",
        t(H, rows(lambda v: f"{v * 1000:,.0f}".replace(",", "."), lambda v: f"{v:.1f}".replace(".", ",")), sep=";"),
        [("a", [v * 1000 for v in A]), P[1]],
    )


def misread() -> Iterator[tuple[str, str, Right]]:
    """Tables whose first hint or first reading was once wrong."""
    A, B = [12.5, 7.25, 9.75, 10.5, 8.5, 11.25], [3.0, 5.0, 2.0, 8.0, 6.0, 4.0]
    P: Right = [("a", A), ("b", B)]
    rows = [f"p{i},{A[i]},{B[i]:g}\n" for i in range(6)]
    body = "".join(rows)
    for price in ("€ {},-", "{},- €", "CHF {}.-", "{}.-"):
        paid = "".join(f"p{i};{price.format(int(B[i]))};{A[i]}\n" for i in range(6))
        yield f"prices such as {price}", "who;b;a\n" + paid, [P[1], P[0]]
    halves = [f"{'NS'[i // 3]},x{i},{A[i]},{B[i]:g}\n" for i in range(6)]
    totals = ["N Total,,29.5,10\n", "S Total,,30.25,18\n"]
    yield (
        "totals of a group that is called N",
        "area,who,a,b\n" + "".join([*halves[:3], totals[0], *halves[3:], totals[1], "Grand Total,,59.75,28\n"]),
        P,
    )
    sums = ["N,,29.5,10\n", "S,,30.25,18\n"]
    yield (
        "subtotals without a label in a later column",
        "area,who,a,b\n" + "".join([*halves[:3], sums[0], *halves[3:], sums[1], ",,59.75,28\n"]),
        P,
    )
    top = f"Polska,{sum(A)},{sum(B):g}\n"
    yield "the sum of the others in the first row", f"who,a,b\n{top}{body}", P
    yield (
        "the sum of the others in a first row without names",
        "a,b\n" + "".join(line.partition(",")[2] for line in f"{top}{body}".splitlines(keepends=True)),
        P,
    )
    sap = "".join(f"|{1000 + i} |p{i}|{A[i]}|{B[i]:g}|\n" for i in range(6))
    right: Right = [("Werk", [1000.0 + i for i in range(6)]), *P]
    yield "a total * of one column", f"|Werk|who|a|b|\n{sap}|*||{sum(A)}||\n", right
    yield "another table below", f"who,a,b\n{body},,\nproduct,price,stock\nq1,3.5,10\nq2,4.5,20\n", []
    parts = "".join(f"p{i},{A[i]},{B[i]}\n".replace(".", ",") for i in range(6))
    yield "decimal commas between commas", "who,a,b\n" + parts, []
    nameless = "".join(line.partition(",")[2] + "\n" for line in parts.splitlines())
    yield "decimal commas between commas, without names", "a,b\n" + nameless, []
    thousands = "".join(f"p{i},{i + 1},{37 * i:03},{A[i]}\n" for i in range(6))
    yield "separators of thousands between commas", "who,n,a\n" + thousands, []
    printed = "".join(f"{i + 1} p{i} {A[i]} {B[i]}\n" for i in range(6))
    yield (
        "numbered rows without a header",
        printed,
        [("1", [1.0, 2, 3, 4, 5, 6]), ("3", A), ("4", B)],
    )
    yield "another delimiter", "who،a،b\n" + body.replace(",", "،"), []
    for label in ("Og\u00f3\u0142em", "\u0627\u0644\u0645\u062c\u0645\u0648\u0639", "\u0915\u0941\u0932"):
        yield f"a last row {label} without sums", f"who,a,b\n{body}{label},60,27\n", P
    means = (
        ("\u015arednia", "Odch. std."),
        ("\u0421\u0440\u0435\u0434\u043d\u0435\u0435", "\u0421\u0442. \u043e\u0442\u043a\u043b."),
        ("M\u00e9dia", "Desvio padr\u00e3o"),
    )
    for one, other in (*means, ("Ortalama", "Std. Sapma"), ("Gemiddelde", "Standaardafwijking")):
        yield f"{one} and {other} below", f"who,a,b\n{body}{one},9.96,4.67\n{other},1.9,2.2\n", P
    blanks = "".join(f"p{i} {A[i]} {B[i]}\n".replace(".", ",") for i in range(6))
    yield "decimal commas between blanks", "who a b\n" + blanks, P
    half = "".join(f"p{i},{A[i]}\n".replace(".", ",") for i in range(6))
    yield "decimal commas between commas, one number", "id,a\n" + half, []
    days = "".join(f"2026/1/{i + 1},{A[i]},{B[i]:g}\n" for i in range(6))
    station = "day,Tokyo,Tokyo\ndate,mean (°C),mean (°C)\n,quality,number\n" + days
    yield "a name that repeats above labels", station, [("Tokyo", A), ("Tokyo", B)]
    yield "lines of JSON", "".join(f'{{"who": "p{i}", "a": {A[i]}, "b": {B[i]}}}\n' for i in range(6)), []


def made() -> list[Odd]:
    of_forms = (delimiters, titles, total_rows, missing, notations, headers)
    groups = (*of_forms, other_columns, others, exports, attacks, misread)
    found = [Odd(name, content, right, names=name == "encoding utf-8-sig") for name, content, right in encodings()]
    tables = (
        Odd(name, text.encode(), right, either=name in EITHER) for group in groups for name, text, right in group()
    )
    return [*found, *tables]


# Measure: read each as the command does, and follow the options that it suggests.

# Tables that may be read in two ways, of which the reader chooses one.
EITHER = ("nothing but whole numbers with commas", "label named Total in data")
_OPTION = re.compile(
    r"(?<![\w-])--(?:ids|drop|columns|one-hot|sep|decimal|thousands|encoding|comment|label-column|na|skip|censored"
    r"|keep-total)\b"
)


_FLAG = "--keep-total"


def suggested(stderr: str) -> list[list[str]]:
    """Return what a reader may do: take one alternative of each sentence."""
    sentences = [
        found
        for each in re.split(r"\b[Uu]se (?=--)|\bmeans? (?=--)|, (?=--na )", stderr)
        if (found := alternatives(each))
    ]
    ways: list[list[str]] = [[]] if sentences else []
    for found in sentences:
        ways = [way if more[0] in way[::2] and more == way[-2:] else [*way, *more] for way in ways for more in found][
            :64
        ]
    return ways


def alternatives(text: str) -> list[list[str]]:
    found: list[list[str]] = []
    end = 0
    for match in _OPTION.finditer(text):
        between = text[end : match.start()]
        together = bool(found) and re.fullmatch(r" (and )?", between) is not None
        words = [match[0]]
        end = match.end()
        if match[0] == _FLAG:
            found += [words] if found else []  # it is an alternative, or tells how to undo what was done
            continue
        value = re.match(r"""[ =]((?:'[^']*'|"[^"]*"|\\.|[^\s'"])+)""", text[match.end() :])
        if value is None:
            continue
        word = value[1] if value[1][-1:] in "'\"" else value[1].rstrip(".,;:)") or value[1][0]
        words += shlex.split(word)
        end = match.end() + 1 + len(word)
        if together:
            found[-1] += words
        elif words not in found:
            found.append(words)
    return found


def read(path: Path, options: Sequence[str]) -> tuple[Right | None, str]:
    words = [str(path), "-k", "1", "--missing", "mean", *options]
    label = ["-o", str(path.parent / "out"), "--no-report", "--force"] if "--label-column" in options else []
    result = CliRunner().invoke(main, ["fit", *words, *label])
    if result.exit_code != 0:
        return None, result.stderr
    command = main.get_command(None, "fit")  # type: ignore[arg-type]
    given = command.make_context("fit", [*words, *label]).params
    settings = Settings.of(given).changed(labelled=given.get("label_column") is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = read_files([path], None, settings.choices)
    source = opened.matrix
    X = np.asarray(source if isinstance(source, np.ndarray) else source.read(0, source.shape[0]), float)
    names = [str(j + 1) for j in range(X.shape[1])] if opened.columns is None else opened.columns.tolist()
    return [(name, X[:, j].tolist()) for j, name in enumerate(names) if "=" not in name], result.stderr


def close(found: Sequence[float], right: Sequence[float], *, or_missing: bool = False) -> bool:
    if len(found) != len(right):
        return False
    a, b = np.array(found), np.array(right)
    return bool(np.all(np.isclose(a, b, rtol=1e-9, equal_nan=True) | (np.isnan(a) & or_missing)))


def judge(each: Odd, found: Right) -> str:
    """Return "right", "part" (columns excluded or cells missing, else right), or "wrong"."""
    wanted = list(each.right)
    part = False
    for name, values in found:
        match = next(
            (
                i
                for i, (other, right) in enumerate(wanted)
                if (other == name or not each.names) and close(values, right)
            ),
            None,
        )
        if match is None:
            match = next(
                (
                    i
                    for i, (other, right) in enumerate(wanted)
                    if other == name and close(values, right, or_missing=True)
                ),
                None,
            )
            part = True
        if match is None:
            return "wrong"
        del wanted[match]
    return "part" if part or wanted else "right"


@dataclass(frozen=True)
class Course:
    """Rounds until the right matrix (None: never), silent errors, wrong results after a hint, and loops."""

    rounds: int | None
    silent: bool = False
    misled: bool = False
    loops: bool = False
    first: str = ""


def merged(options: Sequence[str], more: Sequence[str]) -> list[str]:
    """Add options; those that take one value replace the earlier ones."""
    once = {"--decimal", "--thousands", "--sep", "--encoding", "--ids", "--label-column", "--skip", "--censored"}
    if "--comment" not in repeatable():
        once.add("--comment")
    kept, left = list[str](), list(options)
    while left:
        n = 1 if left[0] == _FLAG else 2
        if not (left[0] in once and left[0] in more):
            kept += left[:n]
        left = left[n:]
    return [*kept, *more]


def repeatable() -> set[str]:
    command = main.get_command(None, "fit")  # type: ignore[arg-type]
    return {name for each in command.params if getattr(each, "multiple", False) for name in each.opts}


def follow(each: Odd, folder: Path, most: int = 3) -> Course:
    path = folder / f"table{each.suffix}"
    path.write_bytes(each.content)
    states: list[list[str]] = [[]]
    seen: set[tuple[str, ...]] = {()}
    misled = loops = False
    first = ""
    for n_rounds in range(most + 1):
        following: list[list[str]] = []
        for options in states:
            found, stderr = read(path, options)
            first = first or stderr.strip()
            if not each.right:
                return Course(0 if found is None else None, silent=found is not None, first=first)
            verdict = "refused" if found is None else judge(each, found)
            if verdict == "right":
                return Course(n_rounds, misled=misled, first=first)
            hints = suggested(stderr)
            if verdict == "wrong" and not hints:
                if n_rounds == 0:
                    return Course(None, silent=True, first=first)
                misled |= not each.either
            for more in hints:
                state = merged(options, more)
                key = tuple(state)
                if found is None and (key == tuple(options) or key in seen):
                    loops = True
                elif key not in seen:
                    seen.add(key)
                    following.append(state)
        states = following[:12]
        if not states:
            break
    return Course(None, misled=misled, loops=loops, first=first)


def measure(cases: Sequence[Odd] | None = None) -> dict[str, Course]:
    from tests.support.habits import habits  # which imports this module, as the next one does
    from tests.support.printouts import printouts

    with tempfile.TemporaryDirectory() as folder:
        found = [*made(), *habits(), *printouts()] if cases is None else cases
        return {each.name: follow(each, Path(folder)) for each in found}


def summary(courses: dict[str, Course]) -> str:
    rounds = Counter(course.rounds for course in courses.values())
    counted = ", ".join(f"{rounds[n]} after {n}" for n in (1, 2, 3))
    ends = Counter(
        name for course in courses.values() for name in ("silent", "misled", "loops") if getattr(course, name)
    )
    return (
        f"{len(courses)} tables: {rounds[0]} right at once, {counted}, {rounds[None]} never; "
        f"silently wrong {ends['silent']}, misled {ends['misled']}, loops {ends['loops']}"
    )


if __name__ == "__main__":
    courses = measure()
    if "-v" in sys.argv:
        for name, course in courses.items():
            marks = "".join(f" {mark.upper()}" for mark in ("silent", "misled", "loops") if getattr(course, mark))
            print(f"{course.rounds}{marks:8} {name}: {course.first[:300]}")
    print(summary(courses))
