"""Odd tables of banks, SAP, surveys, sheets and databases in several languages, each with the right matrix."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from math import nan
from pathlib import Path
from typing import Any

from tests.support.odd import Odd, Right
from tests.support.workbooks import in_sqlite, write_ods, write_xlsx

A = [12.5, 7.25, 9.75, 10.0, 8.5, 11.25, 6.0, 13.75, 9.5, 10.5]
B = [3.0, 5, 2, 8, 6, 4, 7, 11, 9, 1]
C = [1234.5, 980.06, 2100, 45.9, 12045.25, 333.33, 1000, 77.7, 5600.4, 150]
NAMES = [f"p{i}" for i in range(10)]
WHO = ["who", *NAMES]
P: Right = [("a", A), ("b", B)]
Form = Callable[[float], str]


def point(value: float) -> str:
    return f"{value:.10g}"


def comma(value: float) -> str:
    return point(value).replace(".", ",")


def spaced(value: float, mark: str = "\u202f") -> str:
    return f"{value:,.2f}".translate(str.maketrans({",": mark, ".": ","}))


def german(value: float) -> str:
    return spaced(value, ".")


def col(name: str, values: Sequence[float], form: Form = point) -> list[str]:
    return [name, *map(form, values)]


def text(*columns: Sequence[str], sep: str = ",") -> str:
    rows = zip(*columns, strict=True)
    return "".join(sep.join(f'"{c}"' if sep in c else c for c in row) + "\n" for row in rows)


a, b, c = col("a", A), col("b", B), col("c", C)
HALVES = [text(NAMES[rows], a[1:][rows], b[1:][rows]) for rows in (slice(5), slice(5, 10))]
SIGNED = [value * (-1) ** i for i, value in enumerate(C)]


def changed(values: Sequence[float], place: int, value: float = nan) -> list[float]:
    return [value if i == place else each for i, each in enumerate(values)]


def money() -> Iterator[tuple[str, str, Right]]:
    for sign in ("zł", "Kč", "₽", "₺", "Ft", "kr", "SEK"):
        yield f"amounts in {sign}", text(WHO, ["w", *(f"{spaced(v)} {sign}" for v in C)], b, sep=";"), [("w", C), P[1]]
    for before, behind in (("₩", ""), ("¥", ""), ("", "円"), ("", "元")):
        paid = ["w", *(f"{before}{v * 1000:,.0f}{behind}" for v in B)]
        yield f"amounts as {before}1,000{behind}", text(WHO, paid, a), [("w", [v * 1000 for v in B]), P[0]]
    days = ["Data", *(f"{i + 1:02}.03.2026" for i in range(10))]
    polish = text(days, ["Kwota", *(f"{spaced(v)} PLN" for v in SIGNED)], col("Saldo", C, spaced), sep=";")
    yield "a Polish bank", polish, [("Kwota", SIGNED), ("Saldo", C)]
    amounts = ["a", *(f"€{'-' * (i % 2)}{german(v)}" for i, v in enumerate(C))]
    yield "a minus behind the sign of the euro", text(WHO, amounts, b, sep=";"), [("a", SIGNED), P[1]]
    zero = ["a", *(" $-   " if i == 3 else f" ${v:,.2f} " for i, v in enumerate(C))]
    yield "zeros of accountants", text(WHO, zero, b), [("a", changed(C, 3)), P[1]]


def cells() -> Iterator[tuple[str, str, Right]]:
    for mark in ("–", "\u2010", "\u200e-"):
        yield f"minus as {mark!r}", text(WHO, ["a", *(mark + point(v) for v in A)], b), [("a", [-v for v in A]), P[1]]
    yield "hidden characters", text(WHO, ["a", *(f"\ufeff{point(v)}\u200b" for v in A)], b), P
    quoted = "who,a,b\n" + "".join(f'="{n}",="{point(x)}",="{y:g}"\n' for n, x, y in zip(NAMES, A, B, strict=True))
    yield "formulas of texts", quoted, P
    yield "apostrophes of sheets in front", text(WHO, ["a", *(f"'{point(v)}" for v in A)], b), P
    yield "millions among ones", text(WHO, ["a", *(f"{v} M" if v > 9 else point(v * 1e5) for v in A)], b), [P[1]]
    odd = changed(A, 3)
    for mark, decimal in (("1.5 M", "."), ("#ZAHL!", "."), ("1.5", ","), ("1,5", "."), ("–", ","), ("Err:502", ",")):
        written = ["a", *(mark if v != v else point(v).replace(".", decimal) for v in odd)]
        yield f"one {mark} among numbers with {decimal}", text(WHO, written, b, sep=";"), [("a", odd), P[1]]
    whole = changed([round(v * 100) for v in C], 3, 980)
    points = ["a", *(f"{v:,.0f}".replace(",", ".") for v in whole)]
    yield "points for thousands, and 980", text(WHO, points, col("b", A, comma), sep=";"), [("a", whole), ("b", A)]
    few = [12.5, 7.25, 9.75, 3.99]
    yield "commas without quotes", "\n".join(["a", *map(comma, few)]) + "\n", [("a", few)]


def lines() -> Iterator[tuple[str, str, Right]]:
    for label in ("Summa", "Összesen", "Ukupno", "小计", "*", "Alle", "Ensemble"):
        partial = text([*WHO, label], [*a, ""], [*b, point(sum(B))], [*c, point(sum(C))])
        yield f"partial sums called {label}", partial, [*P, ("c", C)]
    n = len(NAMES) // 2
    for label in ("*", ""):
        sums = [[*each[: n + 1], point(sum(v[:n])), *each[n + 1 :], point(sum(v[n:]))] for each, v in ((a, A), (b, B))]
        yield f"subtotals called {label!r}", text([*WHO[: n + 1], label, *WHO[n + 1 :], label], *sums), P
    yield "a count below", text(WHO, a, b) + "Number of patients,10,\n", P
    yield "n and percent below", text(WHO, a, b) + "n,10,10\n%,100,100\n", P
    yield "percent signs below the header", text(["who", "", *NAMES], ["a", "%", *a[1:]], ["b", "%", *b[1:]]), P
    yield "a drawn line below the header", text(["who", "---", *NAMES], ["a", "---", *a[1:]], ["b", "---", *b[1:]]), P
    yield "units and an empty line", "who,a,b\n,(kg),(°C)\n,,\n" + "".join(HALVES), P
    yield "a header again in capitals", "who,a,b\n" + HALVES[0] + "WHO,A,B\n" + HALVES[1], P
    yield "files joined with their marks", "\ufeffwho,a,b\n" + HALVES[0] + "\ufeffwho,a,b\n" + HALVES[1], P
    yield "a header again in another order", "who,a,b\n" + HALVES[0] + "who,b,a\n" + HALVES[1], []
    yield "empty lines of delimiters", "who,a,b\n" + HALVES[0] + ",,\n,,\n" + HALVES[1], P
    notes = "Source: registry\nNote: provisional\n* p < 0.05\n(1) estimate\nLast updated: 2026-01-01\n"
    yield "five footnotes", text(WHO, a, b) + notes, P
    yield "years above the names", ",2025,,2026\n" + text(WHO, a, b, c), [*P, ("c", C)]
    yield "no header, names of rows", "".join(HALVES), [("2", A), ("3", B)]
    decimals = text(["AT", "BE", "BG"], ["12.50", "7.25", "9.75"], ["3.25", "5", "2"])
    yield "no header, countries", decimals, [("2", [12.5, 7.25, 9.75]), ("3", [3.25, 5, 2])]
    yield "zero bytes below", text(WHO, a, b) + "\0" * 64, P
    yield "the end of a file of DOS", text(WHO, a, b) + "\x1a", P
    yield "years in steps", text(["Jahr", *(str(1990 + 5 * i) for i in range(10))], a, b), P
    yield "postcodes", text(["PLZ", *(str(10115 + 37 * i * i) for i in range(10))], a, b), P


def stored() -> Iterator[tuple[str, bytes, Right, str]]:
    head, rows = ["who", "a", "b", "c"], [list(row) for row in zip(NAMES, A, B, C, strict=True)]
    right: Right = [*P, ("c", C)]
    sums, blank = ["*", None, sum(B), sum(C)], [None] * 4
    tables: dict[str, list[list[Any]]] = {
        "partial sums": [head, *rows, sums],
        "empty rows": [head, *rows[:5], blank, blank, *rows[5:]],
        "years above the names": [["", "2025", None, "2026"], head, *rows],
        "texts of numbers": [head, *[[n, comma(x), y, spaced(z)] for n, x, y, z in rows]],
        "amounts": [head, *[[n, f"{comma(x)} €", y, z] for n, x, y, z in rows]],
        "a footnote": [head, *rows, ["Source: registry", None, None, None]],
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind, write in (("xlsx", write_xlsx), ("ods", write_ods)):
            for name, cells_of in tables.items():
                path = write(Path(folder) / f"a.{kind}", {"S": cells_of})
                yield f"{name} ({kind})", path.read_bytes(), right, f".{kind}"
        values = ", ".join(f"('{n}', {x}, {y}, {z})" for n, x, y, z in rows)
        made = f"CREATE TABLE t (who TEXT, a REAL, b REAL, c REAL); INSERT INTO t VALUES {values}"
        end = f", ('*', NULL, {sum(B)}, {sum(C)})"
        path = in_sqlite(Path(folder) / "a.sqlite", made + end)
        yield "partial sums (sqlite)", path.read_bytes(), right, ".sqlite"


def habits() -> list[Odd]:
    found = [Odd(name, content.encode(), right) for group in (money, cells, lines) for name, content, right in group()]
    return [*found, *(Odd(name, content, right, suffix=suffix) for name, content, right, suffix in stored())]
