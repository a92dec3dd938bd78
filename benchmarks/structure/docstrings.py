"""Check the docstrings of public names with numpydoc.

Public is what the pages of the reference list, with the members of classes; a member that a base class has is
documented there, and inherited, as a method that answers a generic function inherits the docstring of that. Of
numpydoc's checks all of GL, SS, PR, RT and YD hold, and SA and EX for functions and classes; ES01 does not, nor SA01
and EX01 of methods and properties, where filler would stand.

Run: python -m benchmarks.structure.docstrings    (exit code 1 if it finds anything; part of `make lint`)
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator

from benchmarks.places import ROOT
from shiftsvd.algebra.generic import FUNCTIONS

LEFT_OUT = {"ES01"}
NOT_OF_MEMBERS = {"SA01", "EX01"}


def public() -> Iterator[tuple[str, bool]]:
    """Yield every public name with a docstring, and whether it is a member of a class."""
    pages = [ROOT / "docs" / "api" / "index.rst", *sorted((ROOT / "src" / "shiftsvd").glob("*/docs/index.rst"))]
    module = None  # what stands above the first module are links to pages
    for line in (line for page in pages for line in ("", *page.read_text(encoding="utf-8").splitlines())):
        if found := re.match(r"\.\. (?:currentmodule:: (\S+)|toctree::)", line):
            module = found[1]
        elif module and (found := re.match(r"\s{3,}([A-Za-z_][\w.]*)\s*$", line)):
            name = f"{module}.{found[1]}"
            yield name, False
            yield from ((f"{name}.{member}", True) for member in members(resolved(name)))


def resolved(name: str) -> object:
    first, *rest = name.split(".")
    found: object = importlib.import_module(first)
    for i, part in enumerate(rest):
        if not hasattr(found, part):
            importlib.import_module(".".join([first, *rest[: i + 1]]))
        found = getattr(found, part)
    return found


def members(cls: object) -> Iterator[str]:
    """Public methods and properties that a class of this package is the first to define."""
    if inspect.isclass(cls) and cls.__module__.startswith("shiftsvd"):
        inherited = {name for base in cls.__mro__[1:] for name in vars(base)}
        inherited |= {name for name, asked in FUNCTIONS.items() if getattr(cls, name, asked).__doc__ == asked.__doc__}
        for name in vars(cls):
            if own(cls, name) and not name.startswith("_") and name not in inherited:
                yield name


def own(cls: type, name: str) -> bool:
    """Whether that is a property or a method of this package: set_fit_request and the like are of scikit-learn."""
    value = getattr(cls, name)
    return isinstance(value, property) or (inspect.isroutine(value) and value.__module__.startswith("shiftsvd"))


def findings(names: list[tuple[str, bool]]) -> Iterator[str]:
    from numpydoc.docscrape import get_doc_object
    from numpydoc.validate import validate

    for name, member in names:
        found = resolved(name)
        without = LEFT_OUT | (NOT_OF_MEMBERS if member else set())
        # A protocol is implemented, and never called to make one; an inherited `__init__` is documented where it is.
        inherits = isinstance(found, type) and "__init__" not in vars(found)
        without |= {"PR01"} if inherits or getattr(found, "_is_protocol", False) else set()
        for code, message in validate(get_doc_object(found))["errors"]:
            if code not in without:
                yield f"{name}: {code} {message}"


def main() -> int:
    names = list(public())
    found = list(findings(names))
    for one in found:
        print(one)
    print(f"{len(found)} findings in the docstrings; {len(names)} public names")
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
