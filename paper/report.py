"""What was measured beside what was published, as one document."""

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from paper.published import ERRATA, P1, P2, Place, Published, published
from paper.random_data import SHORTCUT
from paper.run import Report


@dataclass(frozen=True)
class Row:
    """One place: the published number, if there is one, and ours over the seeds."""

    experiment: str
    series: str
    x: int | str
    published: float | None
    mean: float
    sd: float | None
    min: float
    max: float
    seeds: int
    inside: bool | None
    z: float | None


def rows(report: Report) -> list[Row]:
    printed = {number.place: number for number in published()}
    known = [place for place in printed if place in report.runs]
    extra = [place for place in report.runs if place not in printed and place[0] != SHORTCUT]
    return [_row(place, report.runs[place], printed.get(place)) for place in known + extra]


def _row(place: Place, values: npt.NDArray[np.float64], number: Published | None) -> Row:
    mean, least, most = float(values.mean()), float(values.min()), float(values.max())
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    if number is None:
        return Row(*place, None, mean, sd, least, most, len(values), None, None)
    inside = number.value + number.half_unit >= least and number.value - number.half_unit <= most
    z = (number.value - mean) / sd if sd and place[1] not in (P1, P2) else None
    return Row(*place, number.value, mean, sd, least, most, len(values), inside, z)


def document(report: Report) -> dict[str, Any]:
    options = report.options
    return {
        "settings": {
            "only": list(options.only),
            "seeds": options.seeds,
            "quick": options.quick,
            "normalise": options.normalise,
        },
        "versions": {name: version(name) for name in ("shiftsvd", "numpy", "scipy", "scikit-learn")}
        | {"python": platform.python_version()},
        "sources": report.sources,
        "notes": report.notes,
        "checks": [
            {"name": c.name, "bound": c.bound, "measured": c.measured, "verdict": c.verdict} for c in report.checks
        ],
        "values": [asdict(row) for row in rows(report)],
        "errors_in_the_paper": list(ERRATA),
    }
