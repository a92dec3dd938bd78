"""Fits on a card beside other packages there: ceilings first, then seconds, peak memory, error and bits of each set.

All data are made on the device by a seed: counts in groups, logarithms in single precision, as sets of cells have them.
Of each set, one product ``A^T A V`` comes first, of our kernel and of the library: seconds, and the bits of two runs.
Errors of packages that do not centre are those to the matrix as it is. The exact values are ours with tol=1e-9; up to
5,000 columns they are also the square roots of the eigenvalues of a Gram matrix, which is summed in double precision
from dense blocks. Each line of the output is one JSON object; benchmarks/device.jsonl keeps them, with the card and
versions that each first line names: of 2026-11-26, four runs of all contestants while a block of our kernel had 512
threads, and then four of some with 768 threads; of 2026-11-27, where a fit on an H100 spent its time before moments
were computed by our kernel and short bases stayed in main memory, and then two runs on an H200 with both. The first of
these was cut off at 1 M rows, before the packages that do not change. Where there is no card, it says so and ends.

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
from functools import cache, partial
from hashlib import blake2b
from importlib.util import find_spec
from statistics import median
from typing import Any

import click
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA

import shiftsvd as ss

K, GROUPS, SEED = 50, 15, 0
# Rows, columns, and the share of entries that are stored.
SETS = {
    "counts": (60_000, 2_000, 0.085),
    "words": (100_000, 50_000, 0.004),
    "counts, 1 M rows": (1_000_000, 2_000, 0.085),
    "counts, 10 M rows": (10_000_000, 2_000, 0.085),
    "two billion": (982_000, 28_000, 0.073),
}
AT_ONCE = 2**27  # entries of a dense block in the making
WIDTHS = (8, 16, 32)  # columns of the panels of single products
HOST, ARPACK = 2**29, 10**7  # most entries that are also kept on the host, and fitted by scikit-learn there
TOL = 1e-4  # of cupyx's svds, as ours and RAFT's are by default


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
        data.append(torch.log1p(1 - 2 * torch.log1p(-size)))
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
    found = {"copy_gb_s": 2 * size / copy, "sum_gb_s": size / total}
    for name, there in {"bus_gb_s": torch.from_numpy(host), "pinned_bus_gb_s": pinned(torch, device, host)}.items():
        bus = timed(torch, device, partial(there.to, device, copy=True), rounds)[0]
        found[name] = host.nbytes / 1e9 / bus
    return found


def pinned(torch: Any, device: str, host: Any) -> Any:
    """A copy that a card may read directly."""
    return torch.from_numpy(host) if device == "cpu" else torch.from_numpy(host).pin_memory()


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


def where(torch: Any, name: str, X: Any, rounds: int) -> None:
    """What one fit asks of the card: launches, copies, waits, and the seconds of its kernels by name."""
    from torch.profiler import ProfilerActivity, profile

    def fit() -> Any:
        return ss.svd(X, K, shift="mean", rng=SEED).to_host()

    seconds = timed(torch, str(X.device), fit, rounds)[0]
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        fit()
    events = profiled.key_averages()
    on_card = [event for event in events if event.device_type.name == "CUDA"]
    calls = {
        event.key: event.count for event in events if event.key.startswith(("cuda", "cu")) and event not in on_card
    }
    kernels: dict[str, tuple[int, float]] = {}
    for event in on_card:  # of a template, all kernels together
        short = event.key.partition("<")[0].removeprefix("void ")
        count, spent = kernels.get(short, (0, 0.0))
        kernels[short] = count + event.count, spent + event.self_device_time_total / 1e6
    dearest = dict(sorted(kernels.items(), key=lambda item: -item[1][1])[:8])
    line = {"set": name, "seconds": seconds, "on_card": sum(spent for _, spent in kernels.values())}
    print(json.dumps({"where": line, "calls": calls, "kernels": dearest}), flush=True)


def by_the_library(X: Any) -> Any:
    """Our fit, with the products of the library."""
    with by_library():
        return ss.svd(X, K, shift="mean", rng=SEED, solver="lanczos").to_host()


def gram_in_double(torch: Any, X: Any) -> Any:
    """The leading singular values of the centred matrix, from dense blocks of rows in double precision."""
    m, n = X.shape
    G, total = (torch.zeros(shape, dtype=torch.float64, device=X.device) for shape in ((n, n), (n,)))
    places, columns, values = X.crow_indices(), X.col_indices(), X.values()
    for lo in range(0, m, step := AT_ONCE // n):
        hi = min(m, lo + step)
        begin, end = int(places[lo]), int(places[hi])
        part = (places[lo : hi + 1] - begin, columns[begin:end], values[begin:end].double())
        D = torch.sparse_csr_tensor(*part, size=(hi - lo, n), check_invariants=False).to_dense()
        G += D.mT @ D
        total += D.sum(0)
    G -= torch.outer(total, total) / m
    return torch.linalg.eigvalsh(G)[-K:].flip(0).clamp(min=0).sqrt().cpu().numpy()


def contestants(torch: Any, X: Any) -> dict[str, tuple[bool, Callable[[], Any]]]:
    """Ours, and what other packages do on the same card: whether they centre, and a call."""
    m, n = X.shape
    ones = torch.ones(m, 1, dtype=X.dtype, device=X.device)

    def from_the_host() -> Any:
        """Ours, of a matrix of SciPy on the host, whose parts are sent first."""
        parts = (torch.from_numpy(part).to(X.device) for part in (H.indptr, H.indices, H.data))
        return ss.svd(
            torch.sparse_csr_tensor(*parts, size=H.shape, check_invariants=False), K, shift="mean", rng=SEED
        ).to_host()

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
        "ours, centred": (True, lambda: ss.svd(X, K, shift="mean", rng=SEED).to_host()),
        "ours, tol=1e-6": (True, lambda: ss.svd(X, K, shift="mean", rng=SEED, tol=1e-6).to_host()),
        "ours, not centred": (False, lambda: ss.svd(X, K, rng=SEED).to_host()),
        "ours, products of the library": (True, lambda: by_the_library(X)),
        "torch svd_lowrank": (True, lowrank),
    }
    if X.values().numel() < HOST:
        H = csr_matrix(
            tuple(part.cpu().numpy() for part in (X.values(), X.col_indices().int(), X.crow_indices())), shape=(m, n)
        )
        everybody["ours, from the host"] = True, from_the_host
        everybody["ours, on the CPU"] = True, lambda: ss.svd(H, K, shift="mean", rng=SEED)
        if H.nnz < ARPACK:
            everybody["scikit-learn arpack, on the CPU"] = (
                True,
                lambda: PCA(K, svd_solver="arpack", tol=TOL, random_state=SEED).fit(H).singular_values_,
            )
    if n <= 5000 and X.values().numel() < HOST:
        everybody["gram in single"] = True, gram_in_single
    return everybody | by_cupy(X)


def by_cupy(X: Any) -> dict[str, tuple[bool, Callable[[], Any]]]:
    """Lanczos of CuPy and of RAFT, where they are installed."""
    if find_spec("cupy") is None:
        return {}
    import cupy
    from cupyx.scipy import sparse
    from cupyx.scipy.sparse.linalg import LinearOperator, svds

    (m, n), stored = X.shape, X.values().numel()
    if stored >= 2**31:
        return {}
    indices, indptr = (cupy.from_dlpack(part.int()) for part in (X.col_indices(), X.crow_indices()))
    C = sparse.csr_matrix((cupy.from_dlpack(X.values()), indices, indptr), shape=(m, n))
    mean = cupy.asarray(C.sum(axis=0)).ravel() / m

    def centred() -> Any:
        """The mean is subtracted in products; adjoints of sparse products are slow, so the transpose is made once."""
        T = C.T.tocsr()
        A = LinearOperator(
            C.shape,
            matvec=lambda v: C @ v - mean @ v,
            rmatvec=lambda w: T @ w - mean * w.sum(),
            matmat=lambda V: C @ V - mean @ V,
            rmatmat=lambda W: T @ W - cupy.outer(mean, W.sum(axis=0)),
            dtype=C.dtype,
        )
        return values(svds(A, K, tol=TOL, return_singular_vectors=True)[1])

    def values(S: Any) -> Any:
        return np.sort(cupy.asnumpy(S))[::-1].astype(float)

    found: dict[str, tuple[bool, Callable[[], Any]]] = {
        "cupyx svds": (True, centred),
        "cupyx svds, not centred": (False, lambda: values(svds(C, K, tol=TOL)[1])),
    }
    if find_spec("pylibraft") is not None:
        from pylibraft.sparse.linalg import svds as raft

        for solver in ("lanczos", "randomized"):
            found[f"RAFT {solver}, not centred"] = (
                False,
                lambda how=solver: values(raft(C, K, solver=how, seed=SEED)[1]),
            )
    return found


def rows(torch: Any, device: str, name: str, share: float, rounds: int, who: tuple[str, ...]) -> None:
    """The contestants on one set whose names begin so, a line each."""
    m, n, density = SETS[name]
    X = made(torch, device, max(200, int(m * share)), n, density)

    @cache
    def exact(centred: bool) -> Any:
        return ss.svd(X, K, shift="mean" if centred else None, rng=SEED, tol=1e-9).to_host().S

    if "products".startswith(who):
        products(torch, device, name, X, rounds)
    if "where".startswith(who) and device != "cpu":
        where(torch, name, X, rounds)
    if n <= 5000:
        values = gram_in_double(torch, X)
        print(json.dumps({"set": name, "exact_apart": float(np.max(abs(values - exact(True)) / values))}), flush=True)
    for contestant, (centred, call) in contestants(torch, X).items():
        if not contestant.startswith(who):
            continue
        line: dict[str, Any] = {
            "set": name,
            "rows": X.shape[0],
            "columns": n,
            "entries": X.values().numel(),
            "who": contestant,
        }
        try:
            seconds, peak, found = timed(torch, device, call, rounds)
        except (RuntimeError, MemoryError, ValueError, TypeError) as error:
            print(json.dumps(line | {"failed": str(error).splitlines()[0]}), flush=True)
            continue
        S = getattr(found, "S", found)
        line |= {"seconds": seconds, "peak_gb": peak, "error": float(np.max(abs(S - exact(centred)) / exact(centred)))}
        if contestant.startswith("ours"):
            hashes = [blake2b(F.S.tobytes() + F.Vh.tobytes()).hexdigest() for F in (found, call())]
            line |= {"converged": found.info.converged, "passes": found.info.n_passes, "solver": found.info.solver}
            line |= {"same_bits": hashes[0] == hashes[1]}
        print(json.dumps(line), flush=True)


@click.command()
@click.option("--device", default="cuda", show_default=True)
@click.option("--share", default=1.0, show_default=True, help="Of the rows.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(SETS)), default=list(SETS))
@click.option("--who", multiple=True, default=("",), help="Contestants whose names begin so; 'products' too.")
def main(device: str, share: float, rounds: int, only: tuple[str, ...], who: tuple[str, ...]) -> None:
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
    for name in only:
        rows(torch, device, name, share, rounds, who)


if __name__ == "__main__":
    main()
