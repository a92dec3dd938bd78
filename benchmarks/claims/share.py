"""Where the processors' time of a fit goes: kernels, BLAS and LAPACK, NumPy, Python, the system.

Fits of the sets of middle.py follow each other in a process of its own, and Linux's perf samples which library each
thread is in. Printed are shares of the CPU time; what is neither kernel nor BLAS is the price of the rest.

Run: python -m benchmarks.claims.share [NAME ...]    (perf on the path: apt-get install linux-perf)
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

import shiftsvd as ss
from benchmarks.claims.middle import SETS, loaded, place

SECONDS = 4.0
KINDS = {
    "kernels": r"_compiled\b",
    "BLAS": r"openblas|libblas|liblapack|mkl",
    "NumPy": r"numpy|_core|_multiarray|_pocketfft|_generator|_sparsetools",
    "system": r"\[kernel|vdso",
}


def kind(library: str) -> str:
    """Which of the kinds a library is of; what has no other is Python itself, the C library, and SciPy's glue."""
    return next((name for name, pattern in KINDS.items() if re.search(pattern, library)), "Python")


def fits(name: str) -> None:
    """Fits until the time is over, once the other process has said so; prints how many there were, and seconds each."""
    k, make = SETS[name]
    X = loaded(place(), name, make)
    ss.PCA(k, random_state=0).fit(X)
    print("ready", flush=True)
    sys.stdin.readline()
    begun, n = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        ss.PCA(k, random_state=0).fit(X)
        n += 1
    print(n, (time.perf_counter() - begun) / n, flush=True)
    sys.stdin.readline()  # what the end of a process takes is none of it


def shares(name: str) -> tuple[dict[str, float], float]:
    """Of the CPU time of the fits, and seconds a fit."""
    command = [sys.executable, "-m", "benchmarks.claims.share", "--fits", name]
    with tempfile.NamedTemporaryFile() as file:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", file.name, "-p", str(child.pid)]
        perf = subprocess.Popen(record, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        child.stdin.write("go\n")
        child.stdin.flush()
        each = float(child.stdout.readline().split()[1])
        perf.send_signal(signal.SIGINT)
        perf.wait()
        child.communicate("done\n")
        report = ["perf", "report", "-i", file.name, "--sort", "dso", "--stdio"]
        told = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    found: Counter[str] = Counter()
    for percent, library in re.findall(r"^\s+([\d.]+)%\s+(\S+)", told, re.MULTILINE):
        found[kind(library)] += float(percent)
    return dict(found), each


def main(names: list[str]) -> None:
    if shutil.which("perf") is None:
        sys.exit("perf is needed: apt-get install linux-perf")
    columns = ("kernels", "BLAS", "NumPy", "Python", "system")
    print(f"{'':12}{'s a fit':>9}" + "".join(f"{column:>9}" for column in columns) + f"{'neither':>9}")
    for name in names:
        found, each = shares(name)
        rest = 100 - found.get("kernels", 0.0) - found.get("BLAS", 0.0)
        print(
            f"{name:12}{each:9.3f}" + "".join(f"{found.get(c, 0.0):8.0f}%" for c in columns) + f"{rest:8.0f}%",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fits"]:
        fits(sys.argv[2])
    else:
        main(sys.argv[1:] or list(SETS))
