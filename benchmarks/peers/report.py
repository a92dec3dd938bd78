"""Tables of the runs as CSV and Markdown, and charts of time against error."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np

from benchmarks.peers.contestants import CONTESTANTS, DEFAULT, GOAL, THREADS, Case

COLUMNS = (
    *("row", "contestant", "settings", "rounds", "seconds", "cpu_seconds", "peak_mb", "passes", "certified"),
    *("value_error", "own_error", "angle", "ratio", "version", "reason"),
)
HEAD = "| | seconds | CPU seconds | peak MB | passes | value error | angle | times ours |"
BEST = "| | shiftsvd, s | peak MB | error | best peer | s | peak MB | error | times ours |"
FLOOR = 1e-15


def write(records: list[dict], work: Path, results: Path, charts: Path) -> None:
    """results.csv, results.md and a chart for every row."""
    lines = summary(records)
    with (results / "results.csv").open("w", newline="") as out:
        table = csv.DictWriter(out, COLUMNS)
        table.writeheader()
        table.writerows(lines)
    parts = [INTRODUCTION.format(threads=THREADS, cores=os.cpu_count()), beside_the_best(lines)]
    for row in dict.fromkeys(line["row"] for line in lines):
        case = Case(**json.loads((work / row / "case.json").read_text())["case"])
        mine = [line for line in lines if line["row"] == row]
        parts += [markdown(case, mine)]
        charts.mkdir(parents=True, exist_ok=True)
        draw(case, [line for line in mine if not line["reason"]], charts / f"peers-{row}.png")
        if row == "counts":
            shutil.copyfile(charts / "peers-counts.png", charts / "peers.png")
    parts.append("Versions: " + ", ".join(sorted({line["version"] for line in lines if line["version"]})) + ".\n")
    (results / "results.md").write_text("\n".join(parts))


INTRODUCTION = """# Benchmark results

Written by `python -m benchmarks.peers.run`. {threads} threads of {cores} cores. Every run in a process of its own, the
contestants in turn; medians. Peak MB is by how much the process grew beyond X. Value error is the largest relative
error of the k singular values, angle the largest between the subspaces in radians, both against a float64 reference.
Times ours: seconds divided by those of `shiftsvd PCA()`; a star after the passes: certified.
"""


def summary(records: list[dict]) -> list[dict]:
    """Medians of the rounds: a line for each row and contestant, in the order of the tables."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        if record["round"] != "search" and record["contestant"] in CONTESTANTS:
            groups.setdefault((record["row"], record["contestant"]), []).append(record)
    places = list(CONTESTANTS)
    rows = list(dict.fromkeys(row for row, _ in groups))
    order = sorted(groups, key=lambda key: (rows.index(key[0]), places.index(key[1])))
    lines = [line(*key, groups[key]) for key in order]
    ours = {one["row"]: one["seconds"] for one in lines if one["contestant"] == DEFAULT and not one["reason"]}
    for one in lines:
        if not one["reason"] and one["row"] in ours:
            one["ratio"] = one["seconds"] / ours[one["row"]]
    return lines


def line(row: str, name: str, runs: list[dict]) -> dict:
    """One line: medians of time and memory, the worst of the errors."""
    found: dict = dict.fromkeys(COLUMNS, "") | {"row": row, "contestant": name}
    failed = [run["failed"] for run in runs if "failed" in run]
    if failed:
        return found | {"reason": failed[0]}
    angles = [run["angle"] for run in runs]
    own = "value_error" if CONTESTANTS[name].centred else "uncentred_error"
    return found | {
        "settings": ", ".join(f"{key}={value}" for key, value in runs[0]["settings"].items()),
        "rounds": len(runs),
        "seconds": float(np.median([run["seconds"] for run in runs])),
        "cpu_seconds": float(np.median([run["cpu"] for run in runs])),
        "peak_mb": float(np.median([run["megabytes"] for run in runs])),
        "passes": "" if runs[0]["passes"] is None else runs[0]["passes"],
        "certified": "" if runs[0]["converged"] is None else all(run["converged"] for run in runs),
        "value_error": max(run["value_error"] for run in runs),
        "own_error": max(run[own] for run in runs),
        "angle": "n/a" if None in angles else max(angles),
        "version": runs[0]["version"],
    }


def beside_the_best(lines: list[dict]) -> str:
    """Ours beside the quickest peer whose values are right to the goal: a line for each row, and the means of all."""
    cells = [
        f"## Beside the best peer whose errors are below {GOAL:.0e}\n",
        BEST,
        "|---|" + 3 * "---:|" + "---|" + 4 * "---:|",
    ]
    ratios = []
    for ours in (one for one in lines if one["contestant"] == DEFAULT and not one["reason"]):
        row = [one for one in lines if one["row"] == ours["row"] and not one["reason"]]
        right = [one for one in row if not one["contestant"].startswith("shiftsvd") and one["value_error"] <= GOAL]
        if right:
            best = min(right, key=lambda one: one["seconds"])
            ratios.append(best["seconds"] / ours["seconds"])
            name = best["contestant"] + (f" ({best['settings']})" if best["settings"] else "")
            cells.append(f"| {ours['row']} | {_told(ours)} | {name} | {_told(best)} | {ratios[-1]:.2f} |")
    mean = f"\nGeometric mean {np.exp(np.mean(np.log(ratios))):.2f}, least {min(ratios):.2f}." if ratios else ""
    return "\n".join(cells) + mean + "\n"


def _told(one: dict) -> str:
    """Seconds, peak and error of a line."""
    return f"{one['seconds']:.3g} | {one['peak_mb']:,.0f} | {one['value_error']:.0e}"


def title(case: Case) -> str:
    """What the matrix is."""
    fill = f"{100 * case.stored / case.m / case.n:.2g} % nonzero" if case.sparse else "dense"
    return f"{case.m:,} x {case.n:,}, {fill}, {case.dtype}, {case.k} components: {case.about}"


def markdown(case: Case, lines: list[dict]) -> str:
    """The table of a row."""
    cells = [f"## {case.name}\n\n{title(case)}\n", HEAD, "|---|" + 7 * "---:|"]
    for one in lines:
        name = one["contestant"] + (f" ({one['settings']})" if one["settings"] else "")
        if one["reason"]:
            cells.append(f"| {name} | - | | | | | | {one['reason'].replace('|', ' ')} |")
            continue
        error = f"{one['value_error']:.0e}"
        if not CONTESTANTS[one["contestant"]].centred:
            error += f" ({one['own_error']:.0e} off the values without centring)"
        angle = one["angle"] if isinstance(one["angle"], str) else f"{one['angle']:.1g}"
        passes = f"{one['passes']}{'*' if one['certified'] is True else ''}"
        ratio = f"{one['ratio']:.3g}" if one["ratio"] else ""
        numbers = f"{one['seconds']:.3g} | {one['cpu_seconds']:.3g} | {one['peak_mb']:,.0f}"
        cells.append(f"| {name} | {numbers} | {passes} | {error} | {angle} | {ratio} |")
    return "\n".join(cells) + "\n"


def draw(case: Case, lines: list[dict], file: Path) -> None:
    """Time against error, both logarithmic, every contestant with its name."""
    from matplotlib.figure import Figure

    if not lines:
        return
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="largest relative error of a singular value")
    x = [one["seconds"] for one in lines]
    y = [max(one["own_error"], FLOOR) for one in lines]
    axes.set_xlim(min(x) / 1.6, max(x) * 6)
    axes.set_ylim(min(y) / 6, max(*y, 1e-3) * 6)
    axes.axhline(1e-4, color="0.8", linewidth=0.8, zorder=0)
    axes.grid(color="0.95", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    colours = ["C0" if one["contestant"].startswith("shiftsvd") else "0.35" for one in lines]
    axes.scatter(x, y, c=colours, s=26, zorder=3)
    axes.set_title(title(case), fontsize=9)
    figure.canvas.draw()
    _label(axes, list(zip(x, y, [label(one) for one in lines], colours, strict=True)))
    figure.savefig(file, dpi=140)


def label(one: dict) -> str:
    """The name of a contestant in a chart."""
    note = "" if CONTESTANTS[one["contestant"]].centred else " (not centred; off its own values)"
    return one["contestant"] + note


def _label(axes, points: list[tuple[float, float, str, str]]) -> None:
    """Put each name where it covers no other name and no point."""
    centres = [axes.transData.transform(point[:2]) for point in points]
    taken = [(px - 5, py - 5, px + 5, py + 5) for px, py in centres]
    steps = sorted(((dx, dy) for dx in (6, -6, 24, -24) for dy in range(-160, 161, 5)), key=lambda s: np.hypot(*s))
    for point in sorted(points):
        # A last resort, where there is no room at all: beside the point, over whatever is there.
        step = next((step for step in steps if _fits(axes, point, step, taken)), steps[0])
        taken.append(_placed(axes, point, step)[1])
        if np.hypot(*step) > 13:
            line = {"arrowstyle": "-", "color": "0.7", "lw": 0.5, "shrinkA": 0, "shrinkB": 3}
            axes.annotate("", point[:2], step, textcoords="offset points", arrowprops=line)


def _placed(axes, point: tuple[float, float, str, str], step: tuple[int, int]):
    """A name at so many points from its place, and the pixels that it covers."""
    x, y, name, colour = point
    style = {"fontsize": 7.5, "color": colour, "ha": "left" if step[0] > 0 else "right", "va": "center"}
    text = axes.annotate(name, (x, y), step, textcoords="offset points", **style)
    return text, text.get_window_extent().extents


def _fits(axes, point: tuple[float, float, str, str], step: tuple[int, int], taken: list) -> bool:
    """Whether a name there lies in the frame and covers nothing."""
    text, box = _placed(axes, point, step)
    text.remove()
    frame = axes.get_window_extent()
    inside = frame.x0 <= box[0] and box[2] <= frame.x1 and frame.y0 <= box[1] and box[3] <= frame.y1
    return inside and not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
