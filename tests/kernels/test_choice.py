"""Which kernels run: the best instruction set, a lesser one, or SciPy."""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.closeness import assert_close
from tests.support.compiled import extension  # noqa: F401  # without it there is nothing to test
from tests.support.matrices import EPS

FIT = """
import json, logging, sys

lines = []
class Listen(logging.Handler):
    def emit(self, record):
        lines.append((record.levelname, record.getMessage()))
logging.getLogger("shiftsvd").addHandler(Listen())

import numpy as np
import scipy.sparse as sp
MISSING
import shiftsvd as ss
from shiftsvd import kernels

X = sp.random_array((300, 60), density=0.1, format="csr", rng=np.random.default_rng(1))
X = X.multiply(0.8 ** np.arange(60)).tocsr()
A = ss.centered(X)
F = ss.svd(A, 5, rng=0)
V = np.cos(np.arange(60 * 21)).reshape(60, 21)
single = ss.as_operator(X.astype(np.float32)).gram(V.astype(np.float32))
print(json.dumps({
    "set": kernels.instruction_set(),
    "S": F.S.tolist(),
    "gram": A.gram(V).tolist(),
    "single": single.tolist(),
    "squares": A.column_squares().tolist(),
    "log": lines,
}))
"""


def run_fit(missing: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same fit in a process of its own, perhaps with the extension gone."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTSVD_")} | environment
    code = FIT.replace("MISSING", 'sys.modules["shiftsvd.kernels._compiled"] = None' if missing else "")
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=env)


@cache
def fit_of(missing: bool = False, **environment: str) -> dict[str, Any]:
    """What such a fit found."""
    done = run_fit(missing, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_same_fit(found: dict[str, Any], want: dict[str, Any]) -> None:
    """Two fits agree to rounding."""
    for name, eps in (("S", EPS), ("gram", EPS), ("squares", EPS), ("single", np.finfo(np.float32).eps)):
        assert_close(found[name], want[name], 200 * eps * np.linalg.norm(want[name]), name)


LADDER = ["baseline", "AVX2", "AVX-512"]


@pytest.mark.parametrize("asked", ["baseline", pytest.param("avx2", marks=pytest.mark.long)])
def test_every_instruction_set_finds_the_same(asked):
    best = fit_of()
    limit = {"baseline": "baseline", "avx2": "AVX2"}[asked]
    found = fit_of(SHIFTSVD_ISA=asked)
    assert best["set"] in LADDER
    assert found["set"] == min(best["set"], limit, key=LADDER.index)
    assert_same_fit(found, best)


def test_kernels_off_are_scipys_and_find_the_same():
    found = fit_of(SHIFTSVD_KERNELS="off")
    assert found["set"] == "SciPy"
    assert not found["log"]
    assert_same_fit(found, fit_of())


@pytest.mark.long
def test_kernels_require_are_the_compiled_ones():
    found = fit_of(SHIFTSVD_KERNELS="require")
    assert found["set"] in LADDER
    assert found == fit_of()
    assert not found["log"]


def test_another_word_for_kernels_is_refused():
    done = run_fit(SHIFTSVD_KERNELS="fast")
    assert done.returncode != 0
    assert "ValueError: SHIFTSVD_KERNELS must be auto, require or off, got 'fast'" in done.stderr


def test_a_missing_extension_is_logged_once_and_done_without():
    found = fit_of(missing=True)
    assert found["set"] == "SciPy"
    ((level, message),) = found["log"]
    assert level == "WARNING"
    assert message.startswith("the compiled kernels are missing")
    assert "pip install --force-reinstall --no-cache-dir" in message
    assert_same_fit(found, fit_of())
    assert not fit_of(missing=True, SHIFTSVD_KERNELS="off")["log"]


def test_a_missing_extension_that_is_required_is_an_import_error():
    done = run_fit(missing=True, SHIFTSVD_KERNELS="require")
    assert done.returncode != 0
    assert "import of shiftsvd.kernels._compiled halted" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(("ModuleNotFoundError", "ImportError"))
