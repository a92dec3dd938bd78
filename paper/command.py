"""Run the reproduction, write its outputs, print its checks."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from paper.figures import FORMATS, PANELS, all_figures
from paper.page import page
from paper.report import document
from paper.run import Options, Report, reproduce
from shiftsvd.runs.outputs import refuse, write_all
from shiftsvd.runs.progress import progress

PICTURED: Final = ("digits", "faces")


def run(settings: dict[str, Any], out: Path, json_file: Path | None, force: bool) -> bool:
    options = Options(**settings)
    extra = [] if json_file is None else [json_file]
    refuse([out / name for name in _names(options)] + extra, force)
    with tempfile.TemporaryDirectory(prefix="shiftsvd-paper-") as scratch, progress() as listen:
        report = reproduce(options, Path(scratch), listen)
    files = _files(report, out)
    files |= dict.fromkeys(extra, files[out / "results.json"])
    write_all(files)
    _say(report, out)
    return all(check.passed is not False for check in report.checks)


def _names(options: Options) -> list[str]:
    figures = [name for name in options.only if name in PICTURED]
    figures += ["random-data"] * bool(set(PANELS) & set(options.only))
    return ["paper.html", "results.json"] + [f"{name}.{kind}" for name in figures for kind in FORMATS]


def _files(report: Report, out: Path) -> dict[Path, bytes]:
    figures = all_figures(report.runs, report.pictures)
    text = json.dumps(document(report), indent=1, allow_nan=False, ensure_ascii=False)
    files = {"paper.html": page(report, figures), "results.json": text.encode(), **figures}
    return {out / name: content for name, content in files.items()}


def _say(report: Report, out: Path) -> None:
    for name, source in report.sources.items():
        click.echo(f"{name}: {source}")
    for note in report.notes:
        click.echo(f"note: {note}")
    for check in report.checks:
        click.echo(f"{check.verdict:<10}  {check.name}: {check.measured}  [{check.bound}]")
    failed = sum(check.passed is False for check in report.checks)
    unjudged = sum(check.passed is None for check in report.checks)
    why = " (fewer than 30 seeds, or other data than the bounds are for)" if unjudged else ""
    click.echo(f"{len(report.checks)} checks, {failed} failed, {unjudged} not judged{why}")
    click.echo(f"written: {out / 'paper.html'}")
