"""The backend of scanpy, called as scverse-backends calls it: by name, with all arguments and defaults of the host."""

import enum
import inspect
import tomllib
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd.scanpy as sv
from shiftsvd.scanpy import backend
from tests.support.cells import annotated, assert_alike

pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings(
    "ignore:The 'future.infer_string' option is deprecated", "ignore:The entries look like raw counts"
)
ROOT = Path(__file__).parents[2]


class Empty(enum.Enum):
    """As in scanpy._utils."""

    token = enum.auto()


class Host:
    """A stub of the registry and the dispatch of scanpy."""

    def __init__(self) -> None:
        groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
        points = [EntryPoint(name, value, "scanpy.backends") for name, value in groups["scanpy.backends"].items()]
        self.backends: dict[str, Any] = {}
        for point in points:
            module = point.load()
            self.backends |= dict.fromkeys([module.name, *module.aliases], module)

    def pca(
        self,
        data: Any,
        n_comps: int | None = None,
        *,
        layer: str | None = None,
        obsm: str | None = None,
        zero_center: bool = True,
        svd_solver: str | None = None,
        chunked: bool = False,
        chunk_size: int | None = None,
        rng: Any = None,
        return_info: bool = False,
        mask_var: Any = Empty.token,
        use_highly_variable: bool | None = None,
        dtype: Any = "float32",
        key_added: str | None = None,
        copy: bool = False,
        backend: str,
        **more: Any,
    ) -> Any:
        given = {name: value for name, value in locals().items() if name not in ("self", "backend", "more")} | more
        own = self.backends[backend].pca
        assert not set(given) - set(inspect.signature(own).parameters)
        return own(**given)


@pytest.mark.parametrize("named", ["shiftsvd", "shifted-svd"])
def test_scanpy_calls_it_with_its_defaults(named: str) -> None:
    adata, want = annotated(), annotated()
    assert Host().pca(adata, 3, backend=named) is None
    sv.pca(want, 3)
    np.testing.assert_array_equal(adata.obsm["X_pca"], want.obsm["X_pca"])
    assert adata.uns["pca"]["params"]["mask_var"] == "highly_variable"


def test_its_own_arguments_and_those_of_scanpy_arrive() -> None:
    adata, want = annotated(), annotated()
    host = Host()
    host.pca(adata, 3, backend="shiftsvd", mask_var=None, rng=3, preprocess="log-normalize", scale=True, max_value=3)
    sv.pca(want, 3, mask_var=None, preprocess="log-normalize", scale=True, max_value=3)
    assert_alike(adata.obsm["X_pca"], want.obsm["X_pca"])
    copied = host.pca(adata, 2, backend="shiftsvd", copy=True, key_added="mine", rng=np.random.default_rng(0))
    assert copied.obsm["mine"].shape == (120, 2)
    scores, components, ratio, variance = host.pca(adata.X, 2, backend="shiftsvd", return_info=True)
    assert (scores.shape, components.shape, len(ratio), len(variance)) == ((120, 2), (2, 40), 2, 2)


def test_uns_tells_the_tolerance_and_the_bound() -> None:
    adata = annotated()
    sv.pca(adata, 3, tol=1e-5, mask_var=None, solver="lanczos", dtype="float64")
    found = adata.uns["pca"]
    X = adata.X.toarray().astype(float)
    S = np.linalg.svd(X - X.mean(axis=0))[1][:3]
    assert np.all(np.abs(np.sqrt(found["variance"] * 119) / S - 1) <= found["value_errors"])
    assert found["params"]["tol"] == 1e-5
    assert found["params"]["converged"]
    assert found["params"]["error_bound"] == found["value_errors"].max() <= 1e-5
    assert len(found["value_errors"]) == 3


def test_a_host_lists_it_without_importing_what_computes() -> None:
    module = import_module("shiftsvd.scanpy.backend")
    assert module is backend
    assert (module.name, list(module.aliases)) == ("shiftsvd", ["shifted-svd"])
    with pytest.raises(AttributeError, match="has no attribute 'umap'"):
        module.umap  # noqa: B018
