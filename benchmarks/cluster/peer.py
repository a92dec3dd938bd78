"""One run of one package on a cluster of its own: prints what it took and how wrong it is.

For the processes that `peers.py` starts; needs Dask and the package alone.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from distributed import Client, LocalCluster
from scipy.sparse import csr_array, csr_matrix

from benchmarks.cluster import data, meter


@dataclass(frozen=True)
class Peer:
    """A function of the array and k that returns singular values; the chunks that it takes; whether it centres."""

    values: Callable
    chunks: type
    centred: bool = True


def shiftsvd(X, k: int) -> np.ndarray:
    """Ours, to 1e-3."""
    import shiftsvd as ss

    return ss.PCA(k, tol=1e-3, random_state=0).fit(X).singular_values_


def compressed(**settings) -> Callable:
    """The singular values of `dask.array.linalg.svd_compressed`, which does not centre."""

    def values(X, k: int) -> np.ndarray:
        from dask.array.linalg import svd_compressed

        return svd_compressed(X, k, compute=True, seed=0, **settings)[1].compute()

    return values


def dask_ml(**settings) -> Callable:
    """The singular values of `dask_ml.decomposition.PCA`."""

    def values(X, k: int) -> np.ndarray:
        from dask_ml.decomposition import PCA

        return np.asarray(PCA(k, random_state=0, **settings).fit(X).singular_values_)

    return values


def scanpy(X, k: int) -> np.ndarray:
    """The singular values of `scanpy.pp.pca` of an AnnData that holds a Dask array."""
    from anndata import AnnData
    from scanpy.preprocessing import pca

    adata = AnnData(X)
    pca(adata, n_comps=k, svd_solver="covariance_eigh")
    return np.sqrt(np.asarray(adata.uns["pca"]["variance"]) * (X.shape[0] - 1))


PEERS = {
    "shiftsvd": Peer(shiftsvd, csr_array),
    "svd_compressed, n_power_iter=0": Peer(compressed(n_power_iter=0), csr_matrix, centred=False),
    "svd_compressed, n_power_iter=4": Peer(compressed(n_power_iter=4, iterator="QR"), csr_matrix, centred=False),
    "dask-ml PCA, sparse": Peer(dask_ml(svd_solver="randomized"), csr_matrix),
    "dask-ml PCA, randomized": Peer(dask_ml(svd_solver="randomized"), np.ndarray),
    "dask-ml PCA, randomized, iterated_power=4": Peer(dask_ml(svd_solver="randomized", iterated_power=4), np.ndarray),
    "dask-ml PCA, full": Peer(dask_ml(svd_solver="full"), np.ndarray),
    "scanpy, covariance_eigh": Peer(scanpy, csr_matrix),
}


def main(job: dict) -> dict:
    """A cluster, a fit, and the comparison."""
    peer = PEERS[job["name"]]
    with (
        LocalCluster(
            n_workers=job["workers"], threads_per_worker=1, memory_limit=job["memory"], dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(data.pool)
        begun = set(client.run(meter.process).values())
        before = meter.memory()
        started = time.perf_counter()
        values = peer.values(data.array(job["gigabytes"], peer.chunks), job["k"])
        seconds = time.perf_counter() - started
        client_peak = meter.peak() - before
        client.wait_for_workers(job["workers"])  # one that was ended is started again
        worker_peaks = sorted(client.run(meter.peak).values())
        lost = len(begun - set(client.run(meter.process).values()))
    exact = data.exact_values(job["gigabytes"], peer.centred)[: job["k"]]
    return {
        "seconds": seconds,
        "error": float(np.max(np.abs(values / exact - 1))),
        "worker_peaks": worker_peaks,
        "lost_workers": lost,
        "client_growth": client_peak,
        "centred": peer.centred,
        "dense": peer.chunks is np.ndarray,
    }


if __name__ == "__main__":
    # By its name, so that the workers can import what is in here.
    from benchmarks.cluster.peer import main as by_name

    print(json.dumps(by_name(json.loads(sys.argv[1]))))
