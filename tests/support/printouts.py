"""Odd tables that programs print, pivot, concatenate or export in several languages, each with the right matrix."""

from collections.abc import Iterator, Sequence
from math import nan

import numpy as np

from tests.support.habits import (
    HALVES,
    NAMES,
    WHO,
    A,
    B,
    C,
    P,
    a,
    b,
    c,
    changed,
    col,
    comma,
    german,
    point,
    spaced,
    text,
)
from tests.support.odd import Odd, Right

Tables = Iterator[tuple[str, str, Right]]
ALL: Right = [*P, ("c", C)]
X = [A, B]


def aligned(rows: Sequence[Sequence[str]], width: int = 10) -> str:
    return "".join("".join(f"{cell:>{width}}" for cell in row) + "\n" for row in rows)


def transposed(*columns: Sequence[str]) -> list[list[str]]:
    return [list(row) for row in zip(*columns, strict=True)]


def printed() -> Tables:
    labels = ["", *(f"[{i + 1},]" for i in range(10))]
    nameless = aligned(transposed(labels, ["[,1]", *a[1:]], ["[,2]", *b[1:]]))
    yield "a matrix as R prints it", nameless, [("[,1]", A), ("[,2]", B)]
    yield "a named matrix as R prints it", aligned(transposed(labels, a, b)), P
    numbers = ["", *(f"[{i + 1}]" for i in range(10))]
    yield "a matrix with brackets around the row numbers", text(numbers, a, b), P
    wrapped = aligned(transposed(["", *NAMES], a, b)) + aligned(transposed(["", *NAMES], c, col("d", A)))
    yield "a data frame that R wraps", wrapped, []
    yield "a matrix that R wraps", nameless + nameless.replace("[,1]", "[,3]").replace("[,2]", "[,4]"), []
    grid = np.array(X).T
    yield "an array as NumPy prints it", f"{grid}\n", []
    yield "an array as NumPy represents it", f"{grid!r}\n", []
    yield "an array with commas as NumPy prints it", np.array2string(grid, separator=", ") + "\n", []
    yield "an array as JSON", f"{grid.tolist()}\n", []
    framed = aligned(transposed(["", *map(str, range(10))], a, b))
    yield "a data frame as pandas prints it", framed, P
    yield "a data frame with its size as pandas prints it", framed + "\n[10 rows x 2 columns]\n", P
    tibble = "# A tibble: 10 × 3\n" + aligned([["", "who", "a", "b"], ["", "<chr>", "<dbl>", "<dbl>"]])
    cells = zip(map(str, range(1, 11)), NAMES, a[1:], b[1:], strict=True)
    yield "a tibble as R prints it", tibble + aligned(list(cells)), []
    rows = zip(NAMES, a[1:], b[1:], strict=True)
    line = "+------+-------+-------+\n"
    body = "".join(f"| {n:<4} | {x:>5} | {y:>5} |\n" for n, x, y in [("who", "a", "b"), *rows])
    top, _, rest = body.partition("\n")
    yield "a table as MySQL prints it", line + top + "\n" + line + rest + line + "10 rows in set (0.00 sec)\n", P


def header_lines() -> Tables:
    yield "years below the names", "who,a,b\n,2020,2021\n" + "".join(HALVES), P
    yield "years and a label below the names", "who,a,b\nyear,2020,2021\n" + "".join(HALVES), P
    yield "column numbers below the names", "who,a,b,c\n1,2,3,4\n" + text(NAMES, a[1:], b[1:], c[1:]), ALL
    nameless = text(a[1:], b[1:], c[1:])
    yield "column numbers below names of numbers", "a,b,c\n1,2,3\n" + nameless, ALL
    yield "column numbers in brackets below the names", "who,a,b\n(1),(2),(3)\n" + "".join(HALVES), P
    yield "column numbers above the names", "1,2,3\nwho,a,b\n" + "".join(HALVES), P
    yield (
        "numbered samples are no column numbers",
        "a,b\n1,2\n2,5\n3,1\n4,9\n",
        [("a", [1, 2, 3, 4]), ("b", [2, 5, 1, 9])],
    )
    quarters = "who,2024,,2025,\n,Q1,Q2,Q1,Q2\n" + text(NAMES, a[1:], b[1:], c[1:], a[1:])
    yield "merged years above quarters", quarters, [("2024", A), ("", B), ("2025", C), ("", A)]
    yield "a header with one name less, of two", "s,a\n" + text(NAMES, a[1:], b[1:]), [("s", A), ("a", B)]
    yield (
        "a header with one name less, of whole numbers",
        "s,a\n" + "".join(f"x{i},3{i},5{9 - i}\n" for i in range(6)),
        [
            ("s", [30 + i for i in range(6)]),
            ("a", [59 - i for i in range(6)]),
        ],
    )
    yield "a header with two names less", "a\n" + text(NAMES, a[1:], b[1:]), []
    yield "a header with one name more", "who,a,b,c\n" + "".join(HALVES), []
    three = 'StartDate,Q1,Q2\nStart Date,How old?,"How tall, in cm?"\n' + ",".join(
        f'"{{""ImportId"":""{i}""}}"' for i in ("startDate", "QID1", "QID2")
    )
    days = [f"2026-01-{i + 1:02} 09:00:00" for i in range(10)]
    yield "three header rows with a date (Qualtrics)", three + "\n" + text(days, a[1:], b[1:]), [("Q1", A), ("Q2", B)]
    lines = three.replace("How old?", '"How\nold?"')
    yield (
        "three header rows with a line break (Qualtrics)",
        lines + "\n" + text(days, a[1:], b[1:]),
        [
            ("Q1", A),
            ("Q2", B),
        ],
    )
    yield "one unit for all columns", "who,a,b\n,number,number\n" + "".join(HALVES), P
    yield "units in brackets and a type", "who,a,b\n[-],[kg],[m]\nstr,float,int\n" + "".join(HALVES), P
    yield "names and descriptions in two languages", "who,a,b\nName,Alter,Größe\nname,age,size\n" + "".join(HALVES), P


def ends() -> Tables:
    means, medians = [sum(v) / 10 for v in X], [float(np.median(v)) for v in X]
    below = {"means": means, "rounded means": [round(v, 1) for v in means], "medians": medians}
    for what, values in below.items():
        row = ",".join(map(point, values)) + "\n"
        yield f"a last row of {what} without a name", text(a, b) + row, P
        yield f"a last row of {what} with an empty name", text(WHO, a, b) + f",{row}", P
    yield (
        "a last row of means with a number for a name",
        text(["id", *map(str, range(1, 11))], a, b) + ("," + ",".join(map(point, means)) + "\n"),
        [("id", list(range(1, 11))), *P],
    )
    thirds = ",".join(str(sum(v[:3]) / 3) for v in (C, A))
    yield (
        "a last row of means with all digits and a number for a name",
        text(["id", "10", "25", "30"], c[:4], a[:4]) + f",{thirds}\n",
        [("id", [10, 25, 30]), ("c", C[:3]), ("a", A[:3])],
    )
    ordinary = [10.0, 5.5]
    yield (
        "a last row that is no mean",
        text(a, b) + ",".join(map(point, ordinary)) + "\n",
        [(name, [*values, last]) for (name, values), last in zip(P, ordinary, strict=True)],
    )
    yield "Media and Dev. std. below", text(WHO, a, b) + "Media,9.9,5.6\nDev. std.,2.3,3.4\n", P
    yield "a total for Russia", text(WHO, a, b) + f"Всего по России,{sum(A):.0f},{sum(B):.0f}\n", P
    answers = [[f"q{j}", *(str((i * j) % 5 + 1) for i in range(29)), "3"] for j in (1, 2)]
    named: Right = [(name, list(map(float, cells))) for name, *cells in answers]
    rows = ["", *(f"r{i}" for i in range(30))]
    yield "a last row of answers that are the medians of the others", text(rows, *answers), named
    yield "a loose total for Russia", text(WHO, a, b) + f"Всего по России,{sum(A) + 0.4},{sum(B) - 0.5}\n", P
    yield "a percentage of the total below", text(WHO, a, b) + f"Total,{sum(A)},{sum(B):g}\n% of total,100,100\n", P
    pivot = [*(f"{g},{r}" for g, h in zip("NS", HALVES, strict=True) for r in h.splitlines(keepends=True))]
    n, s = sum(A[:5]), sum(A[5:])
    m, t = sum(B[:5]), sum(B[5:])
    padded = [pivot[0], *(line[1:] for line in pivot[1:5]), pivot[5], *(line[1:] for line in pivot[6:])]
    sums = (f"N Total,,{n},{m:g}\n", f"S Total,,{s},{t:g}\n", f"Grand Total,,{n + s},{m + t:g}\n")
    yield (
        "a pivot table with merged groups",
        "area,who,a,b\n" + "".join([*padded[:5], sums[0], *padded[5:], *sums[1:]]),
        P,
    )
    yield "a footnote with a star", text(WHO, a, b) + "* provisional figures\n** revised\n", P
    yield "a note of three lines in quotes", text(WHO, a, b) + '"Note: these figures\nare provisional,\nsee text"\n', []
    yield "a legend below an empty line", text(WHO, a, b) + "\nLegend,,\na,age,years\nb,size,m\n", []
    yield "an end mark", text(WHO, a, b) + "-- End of report --\n", P
    yield "a count of records", text(WHO, a, b) + "10 records\n", P
    yield "another header and its rows", text(WHO, a, b) + "\n" + text(WHO, c, a), []


def notations() -> Tables:
    wide = str.maketrans("0123456789.,-", "０１２３４５６７８９．，－")
    yield "digits of full width", text(WHO, ["a", *(point(v).translate(wide) for v in A)], b), P
    yield (
        "exponents with commas",
        text(WHO, ["c", *(f"{v:.7E}".replace(".", ",") for v in C)], b, sep=";"),
        [("c", C), P[1]],
    )
    signed = [v if i % 2 else -v for i, v in enumerate(C)]
    brackets = ["c", *(f"{v:,.2f}" if v > 0 else f"({-v:,.2f})" for v in signed)]
    yield "negatives in brackets with thousands", text(WHO, brackets, b), [P[1]]
    for mark in ("\u2009", "\u202f", "\u00a0", "\u2007", "\u205f"):
        thousands = ["c", *(spaced(v, mark) for v in C)]
        yield f"thousands with {mark!r}", text(WHO, thousands, b, sep=";"), [("c", C), P[1]]
    shares = text(WHO, ["a", *(f"{v}%" for v in A)], ["b", *(f"{v:g} %" for v in B)], c)
    yield "percent in two of three columns", shares, ALL
    shares = ["a", *(f"{point(v)}%" if i % 2 else point(v) for i, v in enumerate(A))]
    yield "percent in half of the cells", text(WHO, shares, b), [P[1]]
    days = ["day", *(f"{i + 1:02}/01/2026" if i % 2 else f"2026-01-{i + 1:02}" for i in range(10))]
    yield "dates of two kinds", text(days, a, b), P
    months = ["Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt"]
    yield (
        "months in words",
        text(["month", *(f"{m} 2026" for m in months)], a, b),
        P,
    )
    marked = "who,a,b\n" + HALVES[0] + "\ufeff" + HALVES[1]
    yield "a byte order mark in the middle", marked, P
    quoted = "who,a,b\n" + "".join(f'"{n}\nline 2",{x},{y:g}\n' for n, x, y in zip(NAMES, A, B, strict=True))
    yield "quoted newlines in names", quoted, P
    coded = text(WHO, a, ["sex", *(f"{i % 2 + 1} {('male', 'female')[i % 2]}" for i in range(10))])
    yield "value labels of SPSS", coded, P[:1]
    coded = text(WHO, a, ["q", *(f"({i % 5 + 1}) agree {i % 5}" for i in range(10))])
    yield "value labels in brackets", coded, P[:1]
    yield "German numbers with quotes", text(WHO, ["c", *map(german, C)], ["a", *map(comma, A)]), [("c", C), P[0]]
    mixed = ["a", *(comma(v) if i % 2 else point(v) for i, v in enumerate(A))]
    yield "points and commas in one column", text(WHO, mixed, b, sep=";"), [P[1]]
    yield "a plus behind", text(WHO, ["a", *(f"{point(v)}+" for v in A)], b), [P[1]]
    yield (
        "approximate numbers",
        text(WHO, ["a", *("~" * (i == 3) + point(v) for i, v in enumerate(A))], b),
        [
            ("a", changed(A, 3)),
            P[1],
        ],
    )
    yield (
        "estimates of a model with stars",
        text(WHO, ["a", *(point(v) + "***" * (i % 3 == 0) for i, v in enumerate(A))], b),
        [P[1]],
    )
    yield (
        "Persian digits",
        text(WHO, ["a", *(point(v).translate(str.maketrans("0123456789.", "۰۱۲۳۴۵۶۷۸۹٫")) for v in A)], b),
        [P[1]],
    )


def exports() -> Tables:
    marks = {"de": "Summe", "fr": "Total général", "pt": "Total Geral", "pl": "Suma końcowa", "tr": "Genel Toplam"}
    for language, label in marks.items():
        sums = f"{label};{comma(sum(A))};{comma(sum(C))}\n"
        amounts = text(WHO, col("a", A, comma), col("c", C, comma), sep=";")
        yield f"LibreOffice ({language})", amounts + sums, [P[0], ALL[2]]
    rule = "-" * 34 + "\n"
    rows = "".join(f"|{n:<10}|{comma(x):>10}|{german(z):>10}|\n" for n, x, z in zip(NAMES, A, C, strict=True))
    head = f"|{'who':<10}|{'a':>10}|{'c':>10}|\n"
    total = f"|{'*':<10}|{comma(sum(A)):>10}|{german(sum(C)):>10}|\n"
    sap = "Liste\n\n" + rule + head + rule + rows + rule + total + rule
    yield "a SAP list with rules and a total", sap, [P[0], ALL[2]]
    block = "Device;X-200\nOperator;Mia\nInterval [s];0,5\nStart;26.11.2026 08:00\n\n[Data]\n"
    units = "time;a;b\n[s];[V];[mA]\n" + text(
        [f"{i / 2:g}".replace(".", ",") for i in range(10)], a[1:], b[1:], sep=";"
    )
    time = [i / 2 for i in range(10)]
    yield "an instrument with metadata and units", block + units.replace(".", ","), [("time", time), *P]
    turned = text(["", *NAMES], a, b)
    yield (
        "a transposed table",
        "\n".join(",".join(r) for r in zip(*(line.split(",") for line in turned.split()), strict=True)) + "\n",
        [(name, [x, y]) for name, x, y in zip(NAMES, A, B, strict=True)],
    )
    ragged = "who,a,b\n" + "".join(
        f"{n},{x}\n" if i == 4 else f"{n},{x},{y:g}\n" for i, (n, x, y) in enumerate(zip(NAMES, A, B, strict=True))
    )
    yield "a row without its last cell", ragged, []
    longer = "who,a,b\n" + "".join(
        f"{n},{x},{y:g}{',late' * (i == 4)}\n" for i, (n, x, y) in enumerate(zip(NAMES, A, B, strict=True))
    )
    yield "a row with a remark", longer, []
    yield "merged cells of names", text(["ward", "N", *[""] * 4, "S", *[""] * 4], WHO, a, b), P
    yield (
        "merged cells of numbers",
        text(WHO, ["year", "2020", *[""] * 4, "2021", *[""] * 4], a, b),
        [
            ("year", [2020, nan, nan, nan, nan, 2021, nan, nan, nan, nan]),
            *P,
        ],
    )
    yield (
        "exports one below the other, with titles",
        "who,a,b\n" + HALVES[0] + "Report of 2026\nwho,a,b\n" + HALVES[1],
        P,
    )
    yield "page breaks with headers", "who,a,b\n" + HALVES[0] + "\fwho,a,b\n" + HALVES[1], P
    yield "texts with a blank between semicolons", text(WHO, col("a", A, "about {:g}".format), sep=";"), []
    low = [-value for value in A]
    for mark, values in (("-99.9", A), ("999.9", A), ("9999.99", A), ("1E20", A), ("-999", low), ("-999.9", low)):
        marked = ["a", *(mark if i == 4 else point(value) for i, value in enumerate(values))]
        yield f"{mark} for missing, from {values[0]}", text(WHO, marked, b), [("a", changed(values, 4)), P[1]]
    for sign in "~^:\x1f":
        yield f"the delimiter {sign!r}", text(WHO, a, b, sep=sign), []
    yield (
        "lines of names and values",
        "".join(f"{n}: a={x}, b={y:g}\n" for n, x, y in zip(NAMES, A, B, strict=True)),
        [],
    )
    yield "a header below", "".join(HALVES) + "who,a,b\n", []
    yield (
        "a table of HTML",
        "<table>\n"
        + "".join(f"<tr><td>{n}</td><td>{x}</td></tr>\n" for n, x in zip(NAMES, A, strict=True))
        + "</table>\n",
        [],
    )
    yield "comments of REM", "REM exported, by X\n" + text(WHO, a, b), P
    yield (
        "names in quotes with a delimiter",
        '"who;x";"a;1";"b"\n' + text(NAMES, a[1:], b[1:], sep=";"),
        [("a;1", A), P[1]],
    )


def printouts() -> list[Odd]:
    groups = (printed, header_lines, ends, notations, exports)
    return [Odd(name, content.encode(), right) for group in groups for name, content, right in group()]
