"""Other packages' PCA of Dask arrays, on the same cluster and matrix: time, memory, error, or why there is none.

Every run is a process of its own with a cluster of its own, in an environment of its own; after ten minutes it is
ended. Each peer gets chunks of the kind that it takes: SciPy's CSR, else dense ones of the same bytes.

Run: python -m benchmarks.cluster.peers [--gigabytes 20] [--workers 2] [--memory 1.5GB] [-k 50] [--peers NAME,NAME]
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import click

from benchmarks.cluster import records, report, tables
from benchmarks.peers.environments import ENVIRONMENTS, SCIPY, Unavailable, interpreter
from benchmarks.places import WORK

HEX = re.compile("-[0-9a-f-]{32,}")  # names of tasks
CAP = 600  # seconds that a run may take, with the making of its cluster
DASK = ["dask[array,distributed]==2026.8.0", SCIPY]
ENVIRONMENTS |= {
    "dask": DASK,
    "dask-ml": ["dask-ml==2025.1.0", "scikit-learn==1.6.1", *DASK],
    "scanpy": ["scanpy==1.11.5", *DASK],
}
# The name of a run in `peer.py`, and the environment that it needs; none: the one that runs this.
PEERS = {
    "shiftsvd": "",
    "svd_compressed, n_power_iter=0": "dask",
    "svd_compressed, n_power_iter=4": "dask",
    "dask-ml PCA, sparse": "dask-ml",
    "dask-ml PCA, randomized": "dask-ml",
    "dask-ml PCA, randomized, iterated_power=4": "dask-ml",
    "dask-ml PCA, full": "dask-ml",
    "scanpy, covariance_eigh": "scanpy",
}


def run(name: str, job: dict, environments: Path) -> dict:
    """What the process measured, or why there is nothing."""
    try:
        python = interpreter(PEERS[name], environments)
    except Unavailable as reason:
        return {"failed": str(reason)}
    command = [python, "-m", "benchmarks.cluster.peer", json.dumps({"name": name, **job})]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        out, errors = child.communicate(timeout=CAP)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # the workers, too
        child.communicate()
        return {"failed": f"more than {CAP // 60} minutes"}
    if child.returncode:
        said = [line for line in errors.strip().splitlines() if line and not line.startswith((" ", "2"))]
        return {"failed": HEX.sub("", (said or [f"ended by signal {-child.returncode}"])[-1])[:250]}
    return json.loads(out.splitlines()[-1])


@click.command()
@click.option("--gigabytes", default=20.0, show_default=True)
@click.option("--workers", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--memory", default="1.5GB", show_default=True, help="Limit of each worker.")
@click.option("-k", "k", default=50, show_default=True)
@click.option("--peers", default="", help="Only those whose names contain one of these, with commas between them.")
def main(gigabytes: float, workers: int, memory: str, k: int, peers: str) -> None:
    job = {"gigabytes": gigabytes, "workers": workers, "k": k, "memory": memory}
    for name in PEERS:
        if any(part in name for part in peers.split(",")):
            print(name, end="  ", flush=True)
            found = run(name, job, WORK / "environments")
            print(found.get("failed") or f"{found['seconds']:.0f} s, error {found['error']:.1e}", flush=True)
            records.save({"what": "peer", "name": name, **job, **found})
    print(tables.peers([r for r in records.load("peer") if r["gigabytes"] == gigabytes]))
    report.write()


if __name__ == "__main__":
    main()
