"""Fits on a card beside other packages there: ceilings first, then seconds, peak memory, error and bits of each set.

All data are made on the device by a seed: counts in groups, logarithms in single precision, as sets of cells have them.
Of each set, one product ``A^T A V`` comes first, of our kernel and of the library: seconds, and the bits of two runs.
Before all sets, small matrices tell whether the bits of our kernel on the card are those of NumPy's twin of it. Each
line of the output is one JSON object; append them to benchmarks/device.jsonl, with the card and versions that the first
line names. Nothing of this has been run on a card yet; where there is none, it says so and ends.

Run: python -m benchmarks.device [--device cuda] [--share 1.0] [--rounds 3] [--only counts ...]
(--share makes fewer rows, so that `--device cpu --share 0.01` tries the script itself.)
"""

import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from statistics import median
from typing import Any

import click
import numpy as np

import shiftsvd as ss

K, GROUPS, SEED = 50, 15, 0
# Rows, columns, and the share of entries that are stored.
SETS = {
    "counts": (60_000, 2_000, 0.085),
    "atlas": (300_000, 2_000, 0.085),
    "two billion": (982_000, 28_000, 0.073),
}
AT_ONCE = 2**27  # entries of a dense block in the making
WIDTHS = (8, 16, 32)  # columns of the panels of single products


def made(torch: Any, device: str, m: int, n: int, density: float) -> Any:
    """A CSR tensor of logarithms of counts, block by block: which entries are stored depends on group and column."""
    generator = torch.Generator(device).manual_seed(SEED)
    popular = torch.exp(torch.randn(n, generator=generator, device=device))
    shares = popular * torch.exp(0.8 * torch.randn(GROUPS, n, generator=generator, device=device))
    shares = (shares * density / shares.mean()).clamp(max=0.999)
    data, indices, counts = [], [], []
    for lo in range(0, m, step := max(1, AT_ONCE // n)):
        rows = min(step, m - lo)
        group = torch.randint(GROUPS, (rows,), generator=generator, device=device)
        stored = torch.rand(rows, n, generator=generator, device=device) < shares[group]
        places = stored.nonzero()
        size = torch.rand(len(places), generator=generator, device=device)
        data.append(torch.log1p(1 - 2 * torch.log(size)))
        indices.append(places[:, 1].to(torch.int32))
        counts.append(stored.sum(dim=1))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), torch.cat(counts).cumsum(0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joined = torch.cat(indices).to(torch.int64)
        return torch.sparse_csr_tensor(indptr, joined, torch.cat(data), size=(m, n), check_invariants=False)


def timed(torch: Any, device: str, call: Callable[[], Any], rounds: int) -> tuple[float, float, Any]:
    """Median seconds, gigabytes at the peak, and what the last call gave; one call before that warms up."""
    on_card, times, found = device != "cpu", [], call()
    if on_card:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(rounds):
        started = time.perf_counter()
        found = call()
        if on_card:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return median(times), torch.cuda.max_memory_allocated() / 1e9 if on_card else 0.0, found


def ceilings(torch: Any, device: str, rounds: int) -> dict[str, float]:
    """What the device does at best: gigabytes a second of a copy and of a sum, and of the bus."""
    x = torch.ones(2**26 if device == "cpu" else 2**30, device=device)
    size, host = x.numel() * 4 / 1e9, np.ones(2**26, np.float32)
    copy = timed(torch, device, lambda: x.clone(), rounds)[0]
    total = timed(torch, device, lambda: x.sum(), rounds)[0]
    bus = timed(torch, device, lambda: torch.from_numpy(host).to(device, copy=True), rounds)[0]
    return {"copy_gb_s": 2 * size / copy, "sum_gb_s": size / total, "bus_gb_s": host.nbytes / 1e9 / bus}


@contextmanager
def by_library() -> Iterator[None]:
    """Matrices that are made meanwhile take the products of the library."""
    before = os.environ.get("SHIFTSVD_KERNELS")
    os.environ["SHIFTSVD_KERNELS"] = "off"
    try:
        yield
    finally:
        os.environ.pop("SHIFTSVD_KERNELS")
        if before is not None:
            os.environ["SHIFTSVD_KERNELS"] = before


def operator(X: Any) -> Any:
    """The centred matrix, with what its products need made."""
    A: Any = ss.centered(ss.as_operator(X))
    A.gram(np.ones((X.shape[1], 1), np.float32))
    return A


def products(torch: Any, device: str, name: str, X: Any, rounds: int) -> None:
    """One ``A^T A V``, whose panels cross the bus, by our kernel and by the library."""
    started = time.perf_counter()
    operators = {"our kernel": operator(X)}
    made_in = time.perf_counter() - started
    if operators["our kernel"]._own is None:
        operators.clear()
    with by_library():
        operators["library"] = operator(X)
    for width in WIDTHS:
        V = np.random.default_rng(0).standard_normal((X.shape[1], width)).astype(np.float32)
        for who, A in operators.items():
            seconds, peak, Z = timed(torch, device, partial(A.gram, V), rounds)
            line = {"set": name, "product": who, "width": width, "seconds": seconds, "peak_gb": peak}
            line |= {"same_bits": bool(np.array_equal(Z, A.gram(V)))}
            print(json.dumps(line | ({"made_in": made_in} if who == "our kernel" else {})), flush=True)


def bits_of_the_twin(torch: Any, device: str) -> None:
    """Whether our kernel has NumPy's bits on the card, of small matrices with all that can be beside them."""
    from scipy import sparse

    from shiftsvd.backends.device import arrays_of
    from shiftsvd.backends.device.kernel import Chunks
    from tests.support import chunk_twin

    rng, same = np.random.default_rng(0), {}
    for data, panel, width in (("f4", "f4", 7), ("f4", "f4", 16), ("f4", "f4", 30), ("f4", "f8", 16), ("f8", "f8", 5)):
        X = sparse.random_array((5000, 700), density=0.05, format="csr", rng=rng, dtype=np.dtype(data))
        V, D, w = (rng.standard_normal(shape).astype(panel) for shape in ((702, width), (5000, 2), (5000, 1)))
        parts = tuple(
            torch.from_numpy(x).to(device) for x in (X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64))
        )
        card: Any = arrays_of(parts[0]).card()  # type: ignore[union-attr]
        C = Chunks(card, parts, (X.dtype, np.dtype(np.int64)), X.shape)
        given = [torch.from_numpy(x).to(device) for x in (V, D, w)]
        Z = C.gram([given[0]], given[1], given[2], V.dtype)
        same[f"{data} {panel} {width}"] = bool(np.array_equal(Z.cpu().numpy(), chunk_twin.gram(C, X, V, D, w[:, 0])))
    print(json.dumps({"bits_of_the_twin": same}), flush=True)


def by_the_library(X: Any) -> Any:
    """Our fit, with the products of the library."""
    with by_library():
        return ss.svd(X, K, shift="mean", rng=SEED).to_host()


def contestants(torch: Any, X: Any) -> dict[str, Callable[[], Any]]:
    """Ours, and what other packages do on the same card, each giving singular values on the host."""
    m, n = X.shape
    ones = torch.ones(m, 1, dtype=X.dtype, device=X.device)

    def gram_in_single() -> Any:
        """As rapids-singlecell and cuML: the covariance from X^T X minus the mean's square, in single precision."""
        G = (X.mT @ X).to_dense()
        mean = (X.mT @ ones) / m
        return (torch.linalg.eigvalsh(G - m * mean @ mean.mT)[-K:].flip(0).clamp(min=0) ** 0.5).cpu().numpy()

    def lowrank() -> Any:
        """Two iterations, centred."""
        mean = ((X.mT @ ones) / m).mT
        return torch.svd_lowrank(X, q=K + 10, niter=2, M=mean.expand(m, n))[1][:K].cpu().numpy()

    everybody = {
        "ours": lambda: ss.svd(X, K, shift="mean", rng=SEED).to_host(),
        "ours, products of the library": lambda: by_the_library(X),
        "torch svd_lowrank": lowrank,
    }
    if n <= 5000:
        everybody["gram in single"] = gram_in_single
    try:
        import cupy
        from cupyx.scipy import sparse
        from cupyx.scipy.sparse.linalg import svds
    except ImportError:
        return everybody
    parts = (cupy.from_dlpack(part) for part in (X.values(), X.col_indices(), X.crow_indices()))
    C = sparse.csr_matrix(tuple(parts), shape=(m, n))
    everybody["cupyx svds (does not centre)"] = lambda: np.sort(
        cupy.asnumpy(svds(C, K, return_singular_vectors=False))
    )[::-1]
    return everybody


def rows(torch: Any, device: str, name: str, share: float, rounds: int) -> None:
    """All contestants on one set, a line each."""
    m, n, density = SETS[name]
    X = made(torch, device, max(200, int(m * share)), n, density)
    products(torch, device, name, X, rounds)
    exact = ss.svd(X, K, shift="mean", rng=SEED, tol=1e-9).to_host().S
    for who, call in contestants(torch, X).items():
        line: dict[str, Any] = {
            "set": name,
            "rows": X.shape[0],
            "columns": n,
            "entries": X.values().numel(),
            "who": who,
        }
        try:
            seconds, peak, found = timed(torch, device, call, rounds)
        except (RuntimeError, MemoryError) as error:
            print(json.dumps(line | {"failed": str(error).splitlines()[0]}), flush=True)
            continue
        S = getattr(found, "S", found)
        line |= {"seconds": seconds, "peak_gb": peak, "error": float(np.max(abs(S - exact) / exact))}
        if who.startswith("ours"):
            hashes = [blake2b(F.S.tobytes() + F.Vh.tobytes()).hexdigest() for F in (found, call())]
            line |= {"converged": found.info.converged, "passes": found.info.n_passes}
            line |= {"same_bits": hashes[0] == hashes[1]}
        print(json.dumps(line), flush=True)


@click.command()
@click.option("--device", default="cuda", show_default=True)
@click.option("--share", default=1.0, show_default=True, help="Of the rows.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(SETS)), default=list(SETS))
def main(device: str, share: float, rounds: int, only: tuple[str, ...]) -> None:
    """Print a line for each set and contestant."""
    if find_spec("torch") is None:
        print("no card: PyTorch is not here; run it in an environment that has it")
        return
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        print("no card: PyTorch sees none; --device cpu --share 0.01 tries the script itself")
        return
    card = torch.cuda.get_device_name() if device != "cpu" else platform.machine()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "numpy": np.__version__}
    print(json.dumps({"card": card, "date": time.strftime("%Y-%m-%d"), **versions, **ceilings(torch, device, rounds)}))
    if device != "cpu":
        bits_of_the_twin(torch, device)
    for name in only:
        rows(torch, device, name, share, rounds)


if __name__ == "__main__":
    main()
