"""Transform entries, for example to residuals of null models, into operators that are sparse minus low rank."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shiftsvd.errors import Part, Setting
from shiftsvd.extend import merged
from shiftsvd.names import lazy, resolve

if TYPE_CHECKING:
    from shiftsvd.runs.messages import ValuesWarning as ValuesWarning
    from shiftsvd.transforms.base import Fitted as Fitted
    from shiftsvd.transforms.base import Transform as Transform
    from shiftsvd.transforms.chains import Select as Select
    from shiftsvd.transforms.chains import preprocess as preprocess
    from shiftsvd.transforms.counting import BM25 as BM25
    from shiftsvd.transforms.counting import CLR as CLR
    from shiftsvd.transforms.counting import PMI as PMI
    from shiftsvd.transforms.counting import LogNormalize as LogNormalize
    from shiftsvd.transforms.counting import TfIdf as TfIdf
    from shiftsvd.transforms.elementwise import Anscombe as Anscombe
    from shiftsvd.transforms.elementwise import Binarize as Binarize
    from shiftsvd.transforms.elementwise import Elementwise as Elementwise
    from shiftsvd.transforms.elementwise import FreemanTukey as FreemanTukey
    from shiftsvd.transforms.elementwise import Sqrt as Sqrt
    from shiftsvd.transforms.ranks import Ranks as Ranks
    from shiftsvd.transforms.residuals import DevianceResiduals as DevianceResiduals
    from shiftsvd.transforms.residuals import PearsonResiduals as PearsonResiduals

# To add a transformation, add its class to the imports above and to this table, and its name for `preprocess=` and
# `--preprocess` to NAMED. The command and model files read these tables; the help text lists the names in this order.
_HOMES: Final = {
    "shiftsvd.runs.messages": ("ValuesWarning",),
    "shiftsvd.transforms.base": ("Fitted", "Transform"),
    "shiftsvd.transforms.chains": ("Select", "preprocess"),
    "shiftsvd.transforms.counting": ("BM25", "CLR", "PMI", "LogNormalize", "TfIdf"),
    "shiftsvd.transforms.elementwise": ("Anscombe", "Binarize", "Elementwise", "FreemanTukey", "Sqrt"),
    "shiftsvd.transforms.ranks": ("Ranks",),
    "shiftsvd.transforms.residuals": ("DevianceResiduals", "PearsonResiduals"),
}
NAMED: Final = {
    "log-normalize": "LogNormalize",
    "pearson": "PearsonResiduals",
    "deviance": "DevianceResiduals",
    "pmi": "PMI",
    "tfidf": "TfIdf",
    "bm25": "BM25",
    "clr": "CLR",
    "ranks": "Ranks",
    "sqrt": "Sqrt",
    "freeman-tukey": "FreemanTukey",
    "anscombe": "Anscombe",
    "binarize": "Binarize",
}
__all__ = sorted(name for names in _HOMES.values() for name in names)

if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    __getattr__, __dir__ = lazy(__name__, _HOMES)


def places() -> dict[str, str]:
    """Return "module:Class" of each transformation, also of those in extensions, without importing any class."""
    return {name: f"{__name__}:{cls}" for name, cls in NAMED.items()} | merged("transforms")


def by_name() -> dict[str, type["Transform"]]:
    return {name: resolve(place) for name, place in places().items()}


@dataclass(frozen=True)
class SettingText(Setting):
    """A setting with different names in Python and in the command."""

    text: str = ""

    def __str__(self) -> str:
        return self.text


def shown(how: "Transform") -> Part:
    """Return the name of a transformation in messages: its class in Python, `--preprocess NAME` in the command."""
    cls, names = type(how).__name__, {cls: name for name, cls in by_name().items()}
    return SettingText("preprocess", names[type(how)], cls) if type(how) in names else cls
