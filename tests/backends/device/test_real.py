"""Real data on a device of PyTorch: values, vectors and certificates are those of NumPy to the tolerance."""

import gzip
import os
import warnings
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from tests.backends.device.test_device import on_card
from tests.backends.device.test_panels import one_thread  # noqa: F401


def real(name: str) -> Path:
    """A file of the folder of real data."""
    file = Path(os.environ.get("SHIFTSVD_TEST_DATA", "")) / name
    if "SHIFTSVD_TEST_DATA" not in os.environ or not file.exists():
        pytest.skip(f"SHIFTSVD_TEST_DATA names no folder with {name}")
    return file


def counts(name: str) -> sparse.csr_array:
    """Counts of cells, as logarithms."""
    X = sparse.csr_array(sparse.load_npz(real(f"{name}_counts.npz")), dtype=np.float32)[:3000]
    X.data = np.log1p(X.data)
    return X


def text() -> sparse.csr_array:
    """Counts of words in stretches of an encyclopaedia, in double precision."""
    places: dict[str, int] = {}
    i, j = [], []
    with gzip.open(real("enwiki_100MB.txt.gz"), "rt", encoding="utf-8", errors="replace") as file:
        for at, line in enumerate(islice(file, 6000)):
            words = line.split()
            i += [at] * len(words)
            j += [places.setdefault(word, len(places)) for word in words]
    return sparse.csr_array(sparse.coo_array((np.ones(len(i)), (i, j))))


def tensor(X: sparse.csr_array, place: str) -> Any:
    """The same matrix as a tensor."""
    torch = import_module("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = (torch.from_numpy(np.array(part)).to(place) for part in (X.indptr, X.indices, X.data))
        return torch.sparse_csr_tensor(*parts, size=X.shape)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu", *(["cuda"] if on_card("torch") else [])])
@pytest.mark.parametrize("name", ["pbmc10k", "bladder", "text"])
def test_values_vectors_and_certificates_are_those_of_the_host(name: str, place: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not here: `make test-device` installs it")
    X, k, tol = text() if name == "text" else counts(name), 15, 1e-4
    F, G = (ss.svd(given, k, shift="mean", solver="lanczos", tol=tol, rng=0) for given in (tensor(X, place), X))
    exact = ss.svd(X, k + 5, shift="mean", solver="lanczos", tol=1e-8, rng=1)
    U, S, Vh = F.to_host()  # type: ignore[attr-defined]
    assert F.info.converged is G.info.converged is True
    for values, info in ((S, F.info), (G.S, G.info)):
        assert np.all(np.abs(values - exact.S[:k]) <= info.value_errors * exact.S[:k] * (1 + 1e-6) + 1e-8 * exact.S[0])
        assert np.all(info.value_errors <= tol)
    assert np.allclose(F.info.missed_below, G.info.missed_below, rtol=0.1)
    # Of vectors whose values lie close together, the space: what is told of the sine bounds the part outside.
    inside = np.linalg.norm(exact.Vh.astype(float) @ Vh.conj().T.astype(float), axis=0)
    assert np.all(np.sqrt(np.maximum(1 - inside**2, 0)) <= F.info.vector_errors + 1e-3)
    assert np.allclose(U.T @ U, np.eye(k), atol=1e-5)
