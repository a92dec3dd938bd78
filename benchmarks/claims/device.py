"""Matrices on a device of PyTorch: values, vectors and certificates beside NumPy's, and what crosses for each pass.

A CPU is enough. Real sets are read from the folder that SHIFTSVD_TEST_DATA names. Printed are, for each set, the
largest relative error of a value there and here, of 1 - |cos| between vectors, whether both converged, and what
crosses: for each pass, and beside that, which is random blocks, moments and the right vectors, once; then how often 60
spectra had an error above its bound.

Run: python -m benchmarks.claims.device    (needs PyTorch; in an environment of `make test-device`)
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

import shiftsvd as ss
from benchmarks.claims.middle import SETS, loaded, place

CHOSEN = ("pbmc10k", "bladder", "words64")


def tensor(X: sparse.csr_array) -> object:
    """A CSR as a tensor."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = (torch.from_numpy(np.array(part)) for part in (X.indptr, X.indices, X.data))
        return torch.sparse_csr_tensor(*parts, size=X.shape)


class Crossed:
    """Bytes that cross either way, counted by an adapter: small matrices, and what is as long as the short side."""

    def __init__(self, arrays: Any, n: int) -> None:
        self.small, self.long = [0, 0], [0, 0]
        self.n = n
        arrays.up, arrays.down = (self._counting(way, move) for way, move in enumerate((arrays.up, arrays.down)))

    def _counting(self, way: int, move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that moves an array, and takes down its size."""

        def moving(x: Any) -> Any:
            moved = move(x)
            counts = self.long if max(x.shape) >= self.n else self.small
            counts[way] += (moved if way else x).nbytes
            return moved

        return moving

    def told(self, passes: int) -> str:
        """Megabytes for each pass, and of all beside."""
        up, down = (size / passes / 1e6 for size in self.small)
        long = " and ".join(f"{size / 1e6:.1f}" for size in self.long)
        return f"{up:.2f} MB up, {down:.2f} MB down a pass of {passes}; beside that {long} MB in all"


def beside(name: str) -> str:
    """One set."""
    k, make = SETS[name]
    X = loaded(place(), name, make)
    T = ss.as_operator(tensor(X))
    crossed = Crossed(T.arrays, min(X.shape))  # type: ignore[attr-defined]
    F, G = (ss.svd(A, k, shift="mean", rng=0) for A in (T, X))
    S = ss.svd(X, k, shift="mean", rng=0, tol=1e-9).S
    values = [float(np.max(abs(R.S - S) / S)) for R in (F, G)]
    each = crossed.told(F.info.n_passes)  # before the left vectors are asked for
    apart = float(np.max(1 - abs(np.sum(F.U * G.U, axis=0))))
    errors = f"errors {values[0]:.1e} and {values[1]:.1e}, 1 - |cos| {apart:.1e}"
    converged = f"converged {F.info.converged} {G.info.converged}"
    return f"{name:10} {X.shape[0]} x {X.shape[1]}, k = {k}: {errors}, {converged}; {each}"


def spectra() -> str:
    """Sixty spectra, steep to flat: is every value as near as its bound says."""
    import torch

    late = unsure = 0
    for i in range(60):
        rng = np.random.default_rng(i)
        decay = 10 ** rng.uniform(-3, 0)
        S = np.exp(-decay * np.arange(80)) * 10 ** rng.uniform(-3, 3)
        U, V = (np.linalg.qr(rng.standard_normal((n, 80)))[0] for n in (600, 120))
        X = ((U * S) @ V.T).astype(np.float32 if i % 2 else np.float64)
        F = ss.svd(torch.from_numpy(X), 5, rng=0, solver="lanczos").to_host()
        exact = np.linalg.svd(X.astype(np.float64), compute_uv=False)[:5]
        assert F.info.value_errors is not None
        late += int(np.sum(abs(F.S - exact) / exact > F.info.value_errors + 1e-14))
        unsure += not F.info.converged
    return f"60 spectra: {late} values beyond their bounds, {unsure} fits that did not converge"


if __name__ == "__main__":
    for name in CHOSEN:
        print(beside(name), flush=True)
    print(spectra())
