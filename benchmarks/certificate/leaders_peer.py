"""PRIMME's svds on matrices in files, by its methods: one line of JSON each. Needs NumPy, SciPy and primme only.

For the process that leaders.py starts in PRIMME's own environment.
"""

import json
import sys
import time

import numpy as np
import primme

METHODS = ("primme_svds_hybrid", "primme_svds_normalequations", "primme_svds_augmented")
MOST = 6_000  # products


def main(file: str, k: int, tol: float) -> None:
    """Every method, with its own test of convergence at `tol`, and with one relative to each value."""
    D = np.load(file)

    def relative(value, left, right, residual):
        """Whether the residual is at most `tol` of the value."""
        return residual <= tol * value

    for method in METHODS:
        for test, settings in (("tol ||A||", {"tol": tol}), ("tol sigma_j", {"tol": 1e-15, "convtest": relative})):
            started = time.perf_counter()
            told = {"method": method.removeprefix("primme_svds_"), "test": test}
            try:
                _, S, _, stats = primme.svds(
                    D,
                    k,
                    method=method,
                    maxiter=MOST,
                    maxBlockSize=1,
                    return_stats=True,
                    raise_for_unconverged=False,
                    **settings,
                )
                told |= {"values": np.sort(S)[::-1].tolist(), "matvecs": int(stats["numMatvecs"])}
            except Exception as error:
                told |= {"failed": f"{type(error).__name__}: {str(error)[:60]}"}
            print(json.dumps(told | {"seconds": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
