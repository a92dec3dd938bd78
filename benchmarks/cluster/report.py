"""The page of the cluster benchmarks, `cluster.md`, from what was measured.

The formulae of the model are those of `sweep` in `benchmarks/cluster/model.py`.

Run: python -m benchmarks.cluster.report
"""

from pathlib import Path

from benchmarks.cluster import model, records, tables

PAGE = Path(__file__).with_name("cluster.md")
INTRO = """# Dask arrays on clusters

Worker processes of one thread each on one machine (`LocalCluster`); the scheduler and the client are one process.
The matrix is CSR, float32, with 2,000 columns of which 8.75 % are stored, in chunks of 64 MB that are made inside
the tasks and never kept: rows of a pool of 20,000 log-normalised counts in 15 groups, drawn again and rescaled,
so that no two rows are the same and every sweep makes, checks and multiplies all bytes anew. 50 components of the
centred matrix. Errors are the largest relative ones of a singular value, against the Gram matrix in double
precision. A sweep is one read of all data; that for the means and the one that reads the components off are among
them. `python -m benchmarks.cluster.fits` measures the fits, `peers.py` the other packages, `model.py
measure` the constants of the model, and `simulation.py` the simulated sweeps; `report.py` writes
this page.
"""
FITS = """## Fits

One fit is stopped after 10 sweeps, the other ends when every value is certified to 1e-3.
"""
SCALING = """## One worker and two

The same fit on one process and on two, each with a core of its own.
"""
PEERS = """## Other packages

The same matrix, the same cluster, ten minutes at most, each in an environment of its own. Whoever takes sparse
chunks gets them; others get dense ones of the same bytes, and so six times as many. `svd_compressed` does not
centre: its error is against the matrix as it is; its power iterations are those with QR between them.
"""
MODEL = """## The model

The formulae are those of `sweep` in `benchmarks/cluster/model.py`. These constants were measured on one
core:
"""
LARGE = """What follows for 1e9 x 3e4 with 1e12 stored entries (8 TB), 50 components to 1e-3 by panels of 64
columns, on 100 workers that send 1.25 GB a second each. The parts of a sweep are in seconds; work, handling and
network go on at the same time.
"""
SIMULATED = """## The model against simulated sweeps

The real graph of one sweep in the real scheduler, with 100 workers of one thread, whose tasks sleep as long as a
block or an addition takes. Panels are 50 times smaller than those of 3e4 columns, and workers send them over a
network that is slower by as much; bytes are those of panels in full size. The workers live in two processes,
and share two cores with the scheduler, so that a task costs more than on a real cluster: the model takes that cost
from a sweep whose tasks do nothing, of {blocks:,} blocks. There a task costs {before:.2f} ms before any of them runs,
and then {handling:.2f} ms by the clock; the scheduler computes {scheduler_cpu:.2f} ms of CPU time, which is
{rate:,.0f} tasks a second.
"""


def page() -> str:
    """All sections of which something was measured."""
    fits, peers, sweeps, empty = map(records.load, ("fit", "peer", "sweep", "empty"))
    fits = sorted(fits, key=lambda r: (-r["gigabytes"], r["workers"]))
    parts = [INTRO, FITS, tables.fits(fits)] if fits else [INTRO]
    if {1, 2} <= {r["workers"] for r in fits}:
        parts += ["\n" + SCALING, tables.scaling(fits)]
    if peers:
        parts += ["\n" + PEERS, tables.peers(sorted(peers, key=lambda r: -r["gigabytes"]))]
    if records.load("block") and empty and fits:
        parts += ["\n" + MODEL, model.constants(), "\n" + LARGE, model.large()]
    if sweeps:
        parts += ["\n" + _simulated(empty[0]), tables.sweeps(sweeps)]
    return "\n".join(parts) + "\n"


def _simulated(empty: dict) -> str:
    """What the simulation is, with the cost of its tasks."""
    cost = {name: 1e3 * empty[name] for name in ("before", "handling", "scheduler_cpu")}
    return SIMULATED.format(blocks=empty["blocks"], rate=1 / empty["scheduler_cpu"], **cost)


def write() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    write()
