"""The whole reproduction: data, runs on all cores, and what they say against the published numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from scipy.sparse import save_npz

from paper import EXPERIMENTS, DataError, images, random_data, tables
from paper.checks import Check, Setting, judge
from paper.corpus import Normalise, count_words, gensim_sample
from paper.metrics import Vector, paired_p
from paper.published import ALL, MSE_PLAIN, MSE_SHIFTED, P1, Place, Values
from paper.tables import Dataset, Picture
from paper.workers import Task, execute
from shiftsvd.events import Listener, silent
from shiftsvd.kernels import default_threads

N_CONTEXTS: Final = 1000
WORD_SIZES: Final = (1000, 10_000, 100_000, 300_000)
WORD_RANK, IMAGE_RANK = 100, 10
HEAVY: Final = 50_000  # rows from which a run takes a gigabyte: such runs are made one at a time


@dataclass(frozen=True)
class Options:
    """What to run, on which data."""

    only: tuple[str, ...] = EXPERIMENTS
    seeds: int = 30
    quick: bool = False
    lfw: Path | None = None
    faces: Path | None = None
    corpus: Path | None = None
    normalise: Normalise = "target"
    jobs: int = field(default_factory=default_threads)


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that was measured, and the verdicts."""

    options: Options
    runs: dict[Place, Vector]
    checks: list[Check]
    sources: dict[str, str]
    notes: list[str]
    pictures: list[Picture]


@dataclass(frozen=True, eq=False)
class Inputs:
    """The matrices of the table, in files, and what is to be said about them."""

    datasets: list[Dataset] = field(default_factory=list)
    heights: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def reproduce(options: Options, scratch: Path, listen: Listener = silent) -> Report:
    """Run the chosen experiments; `scratch` is an existing directory that the caller removes.

    Raises
    ------
    DataError
        If a file that was named cannot be used, before any experiment starts.
    """
    inputs = prepare(options, scratch, listen)
    runs = collect(execute(plan(options, inputs), options.jobs, listen), options.only)
    pictures = [
        tables.picture(data, inputs.heights[data.experiment])
        for data in inputs.datasets
        if data.experiment in inputs.heights
    ]
    checks = judge(runs, Setting(options.seeds, options.normalise))
    return Report(options, runs, checks, inputs.sources, inputs.notes, pictures)


def prepare(options: Options, scratch: Path, listen: Listener = silent) -> Inputs:
    inputs = Inputs()
    if "digits" in options.only:
        _add_images(inputs, "digits", images.digits(), scratch)
    if "faces" in options.only:
        _add_images(inputs, "faces", _faces(options, scratch, listen), scratch)
    if "words" in options.only:
        _add_words(inputs, options, scratch, listen)
    return inputs


def _faces(options: Options, scratch: Path, listen: Listener) -> images.Images:
    if options.lfw is not None:
        return images.read_tree(options.lfw, scratch, listen)
    if options.faces is not None:
        return images.read_npz(options.faces)
    return images.packaged_faces(scratch, download=not options.quick, listen=listen)


def _add_images(inputs: Inputs, experiment: str, faces: images.Images, scratch: Path) -> None:
    path = scratch / f"{experiment}.npy"
    if not path.exists():
        np.save(path, faces.pixels)
    n, m = faces.pixels.shape
    if min(n, m) < IMAGE_RANK:
        raise DataError(f"{experiment}: {n} images of {m} pixels ({faces.source}); at least {IMAGE_RANK} are needed")
    inputs.datasets.append(Dataset(experiment, ALL, path, n, IMAGE_RANK))
    inputs.heights[experiment] = faces.height
    inputs.sources[experiment] = f"{faces.source}: {n} images of {m} pixels"
    if min(n, m) > tables.LARGEST_GRAM:
        inputs.notes.append(f"{experiment}: no deterministic SVD of {n} x {m}, it would take too long")
    if faces.skipped:
        inputs.notes.append(f"{experiment}: {len(faces.skipped)} unreadable files were skipped")
        inputs.notes.extend(f"skipped {name}" for name in faces.skipped)


def _add_words(inputs: Inputs, options: Options, scratch: Path, listen: Listener) -> None:
    path = options.corpus or gensim_sample()
    if path is None:
        raise DataError("no text for the words: give --corpus FILE, or install gensim, which carries a sample")
    counts = count_words(path, N_CONTEXTS, max(WORD_SIZES), scratch=scratch, listen=listen)
    name = "gensim's sample of Wikipedia" if options.corpus is None else str(path)
    inputs.sources["words"] = f"{name}: {counts.n_tokens} words, {counts.n_types} different"
    sizes = [n for n in WORD_SIZES if n <= counts.n_types and not (options.quick and n > 10_000)]
    if len(sizes) < len(WORD_SIZES):
        why = "--quick" if options.quick else f"the text has {counts.n_types} different words"
        left_out = ", ".join(str(n) for n in WORD_SIZES if n not in sizes)
        inputs.notes.append(f"words: n = {left_out} left out ({why})")
    for n in sizes:
        save_npz(scratch / f"words-{n}.npz", counts.matrix(n, options.normalise), compressed=False)
        inputs.datasets.append(Dataset("words", n, scratch / f"words-{n}.npz", n, WORD_RANK))


def plan(options: Options, inputs: Inputs) -> list[Task]:
    tasks: list[Task] = []
    for data in inputs.datasets:
        weight, heavy = _cost(data)
        calls = [partial(tables.deterministic, data)]
        calls += [partial(tables.measure, data, seed) for seed in range(options.seeds)]
        tasks += [Task(call, weight, heavy) for call in calls]
    tasks += [Task(partial(random_data.measure, point), point.n / 1000) for point in _points(options)]
    if {"fig-e", "fig-f"} & set(options.only):
        gaps = [partial(random_data.shortcut_gap, name, q) for name in random_data.DRAWS for q in (0, 2, 20)]
        tasks += [Task(gap) for gap in gaps]
    return tasks


def _cost(data: Dataset) -> tuple[float, bool]:
    size = data.path.stat().st_size
    return max(1, data.rows * data.k / 2.5e5, size / 5e6), data.rows >= HEAVY or size > 1 << 29


def _points(options: Options) -> Iterator[random_data.Point]:
    figures = {name for name in options.only if name.startswith("fig-")}
    if "fig-f" in figures:
        figures.add("fig-e")
    for seed in range(options.seeds):
        for figure in sorted(figures):
            yield from random_data.points(figure, seed, options.quick)


def collect(results: Sequence[Values], only: Sequence[str] = EXPERIMENTS) -> dict[Place, Vector]:
    others = set(EXPERIMENTS) - set(only)  # (e) and (f) share runs
    lists: dict[Place, list[float]] = {}
    for values in results:
        for place, value in values.items():
            lists.setdefault(place, []).append(value)
    for experiment, row, x in list(lists):
        if row == MSE_SHIFTED:
            pair = (lists[experiment, MSE_SHIFTED, x], lists[experiment, MSE_PLAIN, x])
            lists[experiment, P1, x] = [paired_p(*pair)]
    return {place: np.array(values) for place, values in lists.items() if place[0] not in others}
