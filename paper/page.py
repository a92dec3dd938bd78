"""paper.html: every published number beside ours, on one page that needs no other file."""

from base64 import b64encode
from typing import Any, Final

from jinja2 import Environment, PackageLoader

from paper import EXPERIMENTS
from paper.figures import PANELS
from paper.published import ALL, TABLE
from paper.report import Row, document, rows
from paper.run import Report

# A heading for each experiment, in the order of the paper.
TITLES: Final = {name: f"Figure {panel[:3]}: {panel[4:]}" for name, panel in PANELS.items()} | {
    name: f"Table 1: {name}" for name in EXPERIMENTS if name not in PANELS
}


def page(report: Report, figures: dict[str, bytes]) -> bytes:
    environment = Environment(loader=PackageLoader("paper", "."), autoescape=True, trim_blocks=True)
    environment.filters["number"] = number
    measured = rows(report)
    data = document(report)
    sections = {title: [row for row in measured if row.experiment == name] for name, title in TITLES.items()}
    text = environment.get_template("paper.html.j2").render(
        data=data,
        counts={
            verdict: sum(c["verdict"] == verdict for c in data["checks"]) for verdict in ("ok", "FAILED", "not judged")
        },
        sections={title: section for title, section in sections.items() if section},
        columns=columns(measured),
        compared=[row for row in measured if row.published is not None],
        figures={name[:-4]: _data_uri(content) for name, content in figures.items() if name.endswith(".svg")},
    )
    return str(text).encode()


def columns(measured: list[Row]) -> dict[str, dict[str, Row]]:
    names = {("words", x): f"n = {x}" for _, x in TABLE if x != ALL} | {(e, x): e for e, x in TABLE if x == ALL}
    found: dict[str, dict[str, Row]] = {names[column]: {} for column in TABLE}
    for row in measured:
        if (row.experiment, row.x) in names:
            found[names[row.experiment, row.x]][row.series] = row
    return {name: column for name, column in found.items() if column}


def number(value: Any) -> str:
    return "–" if value is None else f"{value:.5g}"


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + b64encode(svg).decode()
