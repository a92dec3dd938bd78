"""Plot loadings along the genome, with the names of their peaks."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import Places
from shiftsvd.extend.operators import Panel, Vector
from shiftsvd.extend.plots import BLUE, CRISP, GREY, LETTER, write_names
from shiftsvd.genetics.variants import Variants, canonical

DRAWN: Final = 4  # components
_MOST: Final = 20_000  # variants with the largest loadings, which are drawn
_PEAKS: Final = 5  # names
_PEAK: Final = 4.0  # least loading of a peak, in root mean squares of all loadings
_LONGEST: Final = 8  # characters of the name of a chromosome; of a longer one, the end
_APART: Final = 0.02  # least distance of two peaks, as a share of the genome
_SPACE: Final = 0.005  # between chromosomes, as a share of the genome
_WIDTH, _HEIGHT, _USED = 9.0, 2.1, 0.88  # inches of the picture and of one component; share of the width of the axes


class Genome(NamedTuple):
    """Places of variants along the genome, chromosome by chromosome."""

    x: Vector
    chromosome: Places  # index into the names
    names: list[str]
    ends: Panel  # first and last place of each chromosome

    @classmethod
    def of(cls, variants: Variants) -> "Genome":
        (codes,) = canonical(variants.chromosomes)
        shown = {code: _shown(str(name)) for code, name in zip(codes, variants.chromosomes, strict=True)}
        order = sorted(
            shown, key=lambda code: (not code, not code.isdecimal(), int(code) if code.isdecimal() else 0, code)
        )
        index = {code: i for i, code in enumerate(order)}
        chromosome = np.array([index[code] for code in codes], np.intp)
        place = np.array([float(text) if text.isdecimal() else 0.0 for text in variants.positions.tolist()])
        x, ends = np.zeros(len(place)), np.zeros((len(order), 2))
        own = [np.flatnonzero(chromosome == i) for i in range(len(order))]
        spans = [float(np.ptp(place[at])) for at in own]
        step = sum(spans) / max(sum(len(at) for at, span in zip(own, spans, strict=True) if span), 1) or 1.0
        for at, span in zip(own, spans, strict=True):
            if not span:  # unknown positions: in the order of the file
                place[at] = step * np.arange(len(at))
        gap = _SPACE * sum(np.ptp(place[at]) for at in own)
        start = 0.0
        for i, at in enumerate(own):
            x[at] = start + place[at] - place[at].min()
            ends[i] = start, x[at].max()
            start = ends[i, 1] + gap
        return cls(x, chromosome, [shown[code] for code in order], ends)

    def draw(self, loadings: Vector, component: int, names: npt.NDArray[Any], ax: Any) -> None:
        size = np.abs(loadings)
        there = np.sort(np.argsort(-size, kind="stable")[:_MOST])
        colours = np.array([BLUE, GREY])[self.chromosome[there] % 2]
        ax.scatter(self.x[there], size[there], s=5, c=colours, linewidths=0, rasterized=len(there) > CRISP)
        width = max(float(self.ends.max(initial=0)), 1.0)
        ax.set_xlim(-0.01 * width, 1.01 * width)
        ax.set_ylim(0, 1.25 * float(size.max(initial=0)) or 1)
        some = f" ({_MOST:,} largest of {len(size):,})" if len(size) > _MOST else ""
        ax.set(title=f"Loadings of PC{component} along the genome", xlabel="chromosome" + some, ylabel="|loading|")
        self._write_chromosomes(ax, width)
        peaks = self.peaks(size, width)
        write_names(ax, np.column_stack([self.x[peaks], size[peaks]]), [str(name) for name in names[peaks]])

    def peaks(self, size: Vector, width: float) -> list[int]:
        # The largest of n normal numbers is about sqrt(2 log n) standard deviations.
        least = max(_PEAK, np.sqrt(2 * np.log(2 * len(size)))) * float(np.sqrt(np.mean(size**2)))
        found = list[int]()
        for j in np.argsort(-size, kind="stable"):
            if size[j] <= least or len(found) == _PEAKS:
                break
            if all(abs(self.x[j] - self.x[i]) > _APART * width for i in found):
                found.append(int(j))
        return found

    def _write_chromosomes(self, ax: Any, width: float) -> None:
        inches, free = _USED * ax.figure.get_figwidth(), -np.inf
        ticks = []
        for name, (lo, hi) in zip(self.names, self.ends, strict=True):
            middle, half = (lo + hi) / 2 / width * inches, LETTER[0] * (len(name) + 1) / 2
            if middle - half >= free:
                ticks.append(((lo + hi) / 2, name))
                free = middle + half
        ax.set_xticks([at for at, _ in ticks], [name for _, name in ticks], fontsize="x-small", parse_math=False)
        for before, after in zip(self.ends[:-1, 1], self.ends[1:, 0], strict=True):
            ax.axvline((before + after) / 2, color=GREY, linewidth=0.3, alpha=0.5)


def _shown(name: str) -> str:
    text = name[3:] if name[:3].lower() == "chr" else name
    text = text.lstrip("0") or "0"
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def figures(variants: Variants, loadings: Panel) -> Iterator[tuple[str, Any]]:
    genome = Genome.of(variants)
    for j, values in enumerate(loadings.T[:DRAWN]):
        yield f"Loadings of component {j + 1} along the genome", partial(genome.draw, values, j + 1, variants.names)


def write_png(path: Path, drawn: Iterable[tuple[str, Any]]) -> None:
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parts = [draw for _, draw in drawn]
    with style.context("default"):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * len(parts)), layout="constrained")
        FigureCanvasAgg(figure)
        for draw, ax in zip(parts, figure.subplots(len(parts), squeeze=False)[:, 0], strict=True):
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_title("", fontsize="medium")
            draw(ax)
        figure.savefig(path, format="png", dpi=150, metadata={"Software": None})
