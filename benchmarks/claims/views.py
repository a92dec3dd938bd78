"""Recommendations from views: recall@20 of `TruncatedSVD` and of implicit's ALS on check-ins, and their seconds.

A fifth of the check-ins of each user is held out. Both learn from the others, and rank the items that a user has not
seen; recall is the share of the held-out items of a user (of 20, if there are more) among the first 20, and its mean
over 5,000 users. ALS has the settings of its grid with the best recall, which favours it.

Run: python -m benchmarks.claims.views      (needs SHIFTSVD_TEST_DATA, and the package implicit)
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, csr_matrix, load_npz

import shiftsvd as ss

K, TOP, USERS, BLOCK, HELD = 64, 20, 5_000, 500, 0.2
Scores = Callable[[np.ndarray], np.ndarray]


def split(X: csr_array, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Check-ins to learn from, and a fifth that is held out."""
    held = np.random.default_rng(seed).random(X.nnz) < HELD
    i, j = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices
    parts = (csr_array((np.ones(k.sum(), np.float32), (i[k], j[k])), shape=X.shape) for k in (~held, held))
    return next(parts), next(parts)


def recall(scores: Scores, seen: csr_array, held: csr_array) -> float:
    """Mean share of the held-out items of a user among the first 20 that the user has not seen."""
    with_some = np.flatnonzero(np.diff(held.indptr))
    users = np.random.default_rng(1).choice(with_some, min(USERS, len(with_some)), replace=False)
    found = []
    for lo in range(0, len(users), BLOCK):
        block = users[lo : lo + BLOCK]
        S, known = scores(block), seen[block]
        S[np.repeat(np.arange(len(block)), np.diff(known.indptr)), known.indices] = -np.inf
        best = np.argpartition(-S, TOP, axis=1)[:, :TOP]
        for user, items in zip(block.tolist(), best, strict=True):
            own = held.indices[held.indptr[user] : held.indptr[user + 1]]
            found.append(len(np.intersect1d(own, items)) / min(len(own), TOP))
    return float(np.mean(found))


def by_svd(seen: csr_array, k: int, scaled: bool) -> Scores:
    """Views of a user, projected on the components of the views, each over the roots of both of its sums."""
    users, items = (np.sqrt(np.maximum(seen.sum(axis=axis), 1)) if scaled else 1.0 for axis in (1, 0))
    weights = seen.copy()
    if scaled:
        weights.data = weights.data / (np.repeat(users, np.diff(seen.indptr)) * items[seen.indices]).astype(np.float32)
    svd = ss.TruncatedSVD(k, warn_mean=False, random_state=0).fit(weights)
    Z, V = svd.transform(weights), svd.components_.T
    return lambda block: np.asarray(Z[block] @ V.T * items)


def by_als(seen: csr_array, k: int, alpha: float, regularization: float) -> Scores:
    """Alternating least squares of implicit, at its number of steps."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(k, alpha=alpha, regularization=regularization, random_state=0)
    model.fit(csr_matrix(seen), show_progress=False)
    return lambda block: np.asarray(model.user_factors[block] @ model.item_factors.T)


def main() -> None:
    """Print recall and seconds of each way."""
    X = csr_array(load_npz(Path(os.environ["SHIFTSVD_TEST_DATA"]) / "yelp_checkins.npz"))
    seen, held = split(X)
    print(f"{X.shape[0]:,} users x {X.shape[1]:,} places, {X.nnz:,} check-ins; {TOP} of unseen places\n")
    print(f"{'':44}recall@{TOP}   seconds", flush=True)
    popular = np.asarray(seen.sum(axis=0))
    ways: dict[str, Callable[[], Scores]] = {"popularity": lambda: lambda block: np.tile(popular, (len(block), 1))}
    ways[f"TruncatedSVD({K})"] = lambda: by_svd(seen, K, scaled=False)
    ways[f"TruncatedSVD({K}), scaled"] = lambda: by_svd(seen, K, scaled=True)
    for alpha, strength in ((1.0, 0.01), (10.0, 0.01), (10.0, 10.0), (40.0, 10.0)):
        label = f"ALS({K}, alpha={alpha:g}, regularization={strength:g})"
        ways[label] = lambda a=alpha, r=strength: by_als(seen, K, a, r)
    for name, learn in ways.items():
        started = time.perf_counter()
        scores = learn()
        seconds = time.perf_counter() - started
        print(f"{name:44}{recall(scores, seen, held):9.4f} {seconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
