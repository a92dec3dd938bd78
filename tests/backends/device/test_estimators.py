"""Estimators take arrays on a device as scikit-learn's do: as NumPy's with a notice, or natively under dispatch."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context

import shiftsvd as ss
from shiftsvd.backends import device
from shiftsvd.estimators import features
from shiftsvd.runs import messages
from tests.backends.device.test_device import MAKE, kinds, numbers, strict, torch_of
from tests.support import fake_device


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device.ADAPTERS, "tests", fake_device.__name__)
    monkeypatch.setattr(messages, "said", set())


@pytest.fixture
def dispatch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(features, "get_config", lambda: {"array_api_dispatch": True})


@pytest.mark.parametrize("layout", ["dense", "csr", "csc", "coo"])
def test_tensors_of_the_host_are_taken_as_numpys_with_one_notice(layout: str) -> None:
    X = numbers((60, 12), "f8")
    T = torch_of(X, layout)
    with pytest.warns(UserWarning, match="torch arrays are converted to NumPy"):
        pca = ss.PCA(3, random_state=0).fit(T)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = pca.transform(T)
    want = ss.PCA(3, random_state=0).fit(X if layout == "dense" else sparse.csr_array(X))
    assert isinstance(pca.components_, np.ndarray)
    assert np.allclose(pca.components_, want.components_, atol=1e-6)
    assert np.allclose(scores, want.transform(X), atol=1e-6)


@pytest.mark.parametrize("make", [MAKE["fake csr"], MAKE["fake dense"], MAKE["strict"]], ids=["csr", "dense", "strict"])
def test_arrays_of_another_device_are_refused_unless_dispatched(make: Any) -> None:
    with pytest.raises(TypeError, match=r"estimators need an array on the host.*array_api_dispatch=True"):
        ss.PCA(3).fit(make(numbers((60, 12), "f8")))


@kinds
@pytest.mark.usefixtures("dispatch")
def test_what_is_learned_and_found_lies_where_the_data_do(make: Any, tmp_path: Path) -> None:
    X = numbers((60, 12), "f8")
    T, want = make(X), ss.PCA(3, random_state=0, solver="lanczos", tol=1e-10).fit(X)
    pca = ss.PCA(3, random_state=0, solver="lanczos", tol=1e-10)
    Z = pca.fit_transform(T)
    arrays = device.arrays_of(Z)
    assert arrays is not None
    assert type(arrays) is type(device.arrays_of(T))
    assert all(type(value) is type(Z) for value in (Z, pca.components_, pca.mean_, pca.singular_values_))
    assert np.allclose(arrays.down(pca.components_), want.components_, atol=1e-6)
    assert np.allclose(arrays.down(Z), want.transform(X), atol=1e-5)
    assert np.allclose(arrays.down(pca.inverse_transform(Z)), want.inverse_transform(want.transform(X)), atol=1e-5)
    assert np.allclose(arrays.down(pca.get_covariance()), want.get_covariance(), atol=1e-5)
    assert np.isclose(pca.score(T), want.score(X), rtol=1e-6)
    assert np.allclose(arrays.down(pca.score_samples(T)), want.score_samples(X), rtol=1e-5)
    assert np.allclose(pca.transform(X), want.transform(X), atol=1e-5)  # of data on the host, there
    pca.save(tmp_path / "m.safetensors")
    assert np.allclose(ss.load_model(tmp_path / "m.safetensors").components_, want.components_, atol=1e-6)
    if make is not strict:  # whose arrays hold their module
        assert np.allclose(pickle.loads(pickle.dumps(pca)).transform(X), want.transform(X), atol=1e-5)
    assert isinstance(pca.fit(X).components_, np.ndarray)


@pytest.mark.filterwarnings("ignore:.* arrays are converted to NumPy")
@pytest.mark.parametrize("namespace", ["array_api_strict", "torch"])
def test_scikit_learns_own_check_of_the_array_api_passes(namespace: str) -> None:
    pytest.importorskip(namespace)
    from sklearn.utils._array_api import yield_namespace_device_dtype_combinations as combinations
    from sklearn.utils.estimator_checks import check_array_api_input_and_values as check

    with config_context():
        for found, where, dtype in combinations():
            if found == namespace and str(where) in ("cpu", "None", "CPU_DEVICE"):
                try:
                    check("PCA", ss.PCA(3, random_state=0), found, where, dtype)
                except pytest.skip.Exception:
                    pytest.skip("SCIPY_ARRAY_API is not set")
