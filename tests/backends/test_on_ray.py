"""The adapter for Ray of the benchmarks: the values and bits of the fit in memory and of any number of workers."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import shiftsvd as ss
from shiftsvd.io import open_matrix
from tests.support.chunked import matrix, write_h5ad

pytestmark = pytest.mark.long
pytest.importorskip("ray")


@pytest.fixture(scope="module")
def on_ray() -> Any:
    on_ray = pytest.importorskip("benchmarks.cluster.on_ray")
    on_ray.ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield on_ray.on_ray
    on_ray.ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # of Ray, about its own processes and files
@pytest.mark.parametrize("solver", ["lanczos", "gram", "exact"])
def test_values_are_those_in_memory(solver: str, on_ray: Any, tmp_path: Any) -> None:
    A, _ = open_matrix(write_h5ad(tmp_path), stream=True, memory_limit="1MB")
    fitted, expected = (ss.PCA(4, solver=solver, tol=1e-8, random_state=0).fit(X) for X in (on_ray(A), matrix()))
    assert_allclose(fitted.singular_values_, expected.singular_values_, rtol=1e-6)
    assert_allclose(fitted.transform(matrix()), expected.transform(matrix()), rtol=1e-4, atol=1e-4)


def test_transformed_entries_and_products_are_those_of_the_file(on_ray: Any, tmp_path: Any) -> None:
    A, _ = open_matrix(write_h5ad(tmp_path), stream=True)
    B = on_ray(ss.preprocess(A, ss.LogNormalize(100.0)))
    V = np.random.default_rng(0).standard_normal((A.shape[1], 3))
    assert_allclose(B.matmat(V), B.file.matmat(V), rtol=1e-12)
    assert_allclose(B.rmatmat(B.matmat(V)), B.gram(V), rtol=1e-5)
