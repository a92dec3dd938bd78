"""A figure as SVG for the inside of a page: it takes its colours and its width from there."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Final

# Colours that no figure has by chance; the page says what they are.
_INK: Final = {"#010203": "currentColor", "#040506": "var(--dim)"}
_LOOK: Final = {
    "svg.fonttype": "none",  # text stays text: searchable, and a tenth of the size
    "svg.hashsalt": "shiftsvd",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlecolor": "#010203",
    "axes.labelcolor": "#010203",
    "text.color": "#010203",
    "xtick.labelcolor": "#010203",
    "ytick.labelcolor": "#010203",
    "axes.edgecolor": "#040506",
    "xtick.color": "#040506",
    "ytick.color": "#040506",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


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


def inline_svg(figure: Any, number: int, title: str) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", dpi=150)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda tag: _fitting(tag[0], f"f{number}-"), text)  # the words between tags stay
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    return f'<svg role="img" aria-label="{escape(title)}" {box[0]}>' + text[text.index(">") + 1 :]


def _fitting(tag: str, prefix: str) -> str:
    for sentinel, colour in _INK.items():
        tag = tag.replace(sentinel, colour)
    tag = re.sub(r'\bid="', f'id="{prefix}', tag)
    return tag.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}')
