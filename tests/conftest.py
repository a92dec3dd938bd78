"""Fixtures of all tests; one BLAS thread for each worker, and children that heed an interrupt."""

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from shiftsvd.runs import messages
from tests.support.blocks import cut_small
from tests.support.places import has
from tests.support.sampling import covering, fewest, seeing, thinned

# Packages that an extension alone uses count as not installed where its folder was taken out.
USED_BY = {
    "scanpy": ("anndata", "scanpy"),
    "xarray": ("xarray", "h5netcdf"),
    "genetics": ("bed_reader", "pgenlib", "cyvcf2", "bgen"),
}
for extension, packages in USED_BY.items():
    if not has(extension):
        sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]

threadpool_limits(1, "blas")  # those of several workers would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # and those of the processes that tests start
# Tests interrupt what they start, which would not heed it where they themselves were started in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-combination", action="store_true", help="of all parameters, not a sample of them")


def pytest_configure(config: pytest.Config) -> None:
    """How many examples hypothesis draws where a test does not say it."""
    settings.register_profile("sample", max_examples=50, deadline=None)
    settings.register_profile("every", max_examples=400, deadline=None)
    settings.load_profile("every" if config.getoption("--every-combination") else "sample")
    gc.disable()  # until all tests are there: their hundred thousands of objects live as long as the process


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # collections during the tests look at what the tests made alone
    gc.enable()


@pytest.hookimpl(trylast=True)  # of what -m and -k leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a sample of the cases: of combinations of parameters (tests/support/sampling.py), and by the mark one_in.

    Of tests that are known to see a fault, more combinations are kept.
    """
    if config.getoption("--every-combination"):
        return
    known = seeing()
    cases: dict[str, dict[tuple[object, ...], pytest.Item]] = defaultdict(dict)
    for item in items:
        if row := _row(item):
            cases[item.nodeid.partition("[")[0]][row] = item
    left_out = set()
    for test, of in cases.items():
        rows = list(of)
        if len(rows[0]) == 1:
            kept = rows
        elif test.removeprefix("tests/") not in known:
            kept = fewest(rows)
        else:
            kept = thinned(rows) if len(rows[0]) == 2 else covering(rows)
        mark = of[rows[0]].get_closest_marker("one_in")
        kept = kept[:: mark.args[0]] if mark else kept
        left_out |= {id(of[row]) for row in of.keys() - set(kept)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


def _row(item: pytest.Item) -> tuple[object, ...]:
    """Which value of each list of parameters a case has."""
    params = dict(getattr(getattr(item, "callspec", None), "params", {}))
    lists = [mark.args[0] for mark in item.iter_markers("parametrize")]
    names = [each.replace(",", " ").split() if isinstance(each, str) else each for each in lists]
    row = [tuple(id(params.pop(name, None)) for name in each) for each in names]
    return (*row, *map(id, params.values()))  # and of fixtures


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    """What a process says once, every test may hear."""
    messages.said.clear()


@pytest.fixture(autouse=True)
def empty_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Draw no figure of a report, which takes seconds, but for tests marked `figures` and fixtures of modules."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is None:
            patch.setattr("shiftsvd.report.drawn", _named)
            if has("genetics"):
                patch.setattr("shiftsvd.genetics.commands.write_png", lambda path, drawn: path.write_bytes(b""))
        yield


def _named(title: str, *_: object, **__: object) -> dict[str, object]:
    svg = f'<svg role="img" aria-label="{title}" viewbox="0 0 1 1"></svg>'
    return {"svg": svg, "links": [], "rest": []}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blocked loop of the library takes a few rows at a time, so that small matrices have many blocks."""
    cut_small(monkeypatch)
