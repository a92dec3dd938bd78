"""Fits on a card beside other packages there: ceilings first, then seconds, peak memory, error and bits of each set.

All data are made on the device by a seed: counts in groups, logarithms in single precision, as sets of cells have them.
Each line of the output is one JSON object; append them to benchmarks/device.jsonl, with the card and versions that the
first line names. Nothing of this has been run on a card yet.

Run: python -m benchmarks.device [--device cuda] [--share 1.0] [--rounds 3] [--only counts ...]
(--share makes fewer rows, so that `--device cpu --share 0.01` tries the script itself.)
"""

import json
import platform
import time
import warnings
from collections.abc import Callable
from hashlib import blake2b
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

    everybody = {"ours": lambda: ss.svd(X, K, shift="mean", rng=SEED).to_host(), "torch svd_lowrank": lowrank}
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
        if who == "ours":
            again = call()
            bits = [blake2b(F.S.tobytes() + F.Vh.tobytes()).hexdigest() for F in (found, again)]
            line |= {"converged": found.info.converged, "passes": found.info.n_passes, "same_bits": bits[0] == bits[1]}
        print(json.dumps(line), flush=True)


@click.command()
@click.option("--device", default="cuda", show_default=True)
@click.option("--share", default=1.0, show_default=True, help="Of the rows.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(SETS)), default=list(SETS))
def main(device: str, share: float, rounds: int, only: tuple[str, ...]) -> None:
    """Print a line for each set and contestant."""
    import torch

    card = torch.cuda.get_device_name() if device != "cpu" else platform.machine()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "numpy": np.__version__}
    print(json.dumps({"card": card, "date": time.strftime("%Y-%m-%d"), **versions, **ceilings(torch, device, rounds)}))
    for name in only:
        rows(torch, device, name, share, rounds)


if __name__ == "__main__":
    main()
