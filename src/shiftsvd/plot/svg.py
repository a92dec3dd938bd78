"""A figure as SVG for the inside of a page: it takes its colours and its width from there."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Final

# Colours that no figure has by chance; the page says what they are.
_INK, _DIM = "#010203", "#040506"
_LOOK: Final = {
    "svg.fonttype": "none",  # text stays text: searchable, and a tenth of the size
    "font.size": 11,
    "axes.titlesize": 12,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), _DIM),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
}
_NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with style.context(["default", _LOOK]), warnings.catch_warnings():
        # The browser has the letters that the fonts here lack.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.subplots()


def inline_svg(figure: Any, title: str) -> str:
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": title}):  # what one figure refers to has other names in each
        figure.savefig(out, format="svg", dpi=150, metadata=_NO_METADATA)
    text = out.getvalue()
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[\w.]+"', "<g", text)  # figure_1, axes_1, ...: the same in each figure
    text = re.sub(r"<[^>]*>", _with_colours, text)  # the words between tags stay
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    return f'<svg role="img" aria-label="{escape(title)}" {box[0]}>' + text[text.index(">") + 1 :]


def _with_colours(tag: re.Match[str]) -> str:
    return tag[0].replace(_INK, "currentColor").replace(_DIM, "var(--dim)")
