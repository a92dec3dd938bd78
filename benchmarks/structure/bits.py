"""Hashes of the results of some sixty fits: what a change of structure must leave as it was.

python -m benchmarks.structure.bits > before.json     # and again after
python -m benchmarks.structure.bits --against before.json
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load_file

import shiftsvd as ss
from shiftsvd.io import open_matrix

M, N, K = 600, 180, 6  # rows, columns, components
SOLVERS = ("lanczos", "gram", "exact", "randomized", "shifted-randomized")


def digest(*arrays: object) -> str:
    """One hash of the bytes, types and shapes of arrays, numbers and texts."""
    total = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)  # type: ignore[arg-type]
        total.update(f"{values.dtype.str} {values.shape}".encode())
        total.update(values.tobytes() if values.dtype != object else repr(values.tolist()).encode())
    return total.hexdigest()[:16]


def counts(rng: np.random.Generator) -> sp.csr_array:
    """Counts with some full columns and rows, as cells have them."""
    rates = rng.gamma(0.3, 1.0, N) * rng.gamma(2.0, 0.5, (M, 1)) * 0.5
    rates[:, :3] += 5
    return sp.csr_array(np.log1p(rng.poisson(rates)).astype(np.float64))


def of_svd(F: ss.SVDResult) -> str:
    """What a factorization says, its info too."""
    return digest(F.U, F.S, F.Vh, F.info.n_passes, repr(F.info.value_errors), repr(F.info.missed_below))


def of_pca(p: ss.PCA, X: object) -> str:
    """What a fitted estimator says, and what it makes of its data."""
    return digest(p.components_, p.explained_variance_, p.mean_, p.noise_variance_, p.transform(X))


def decompositions(X: sp.csr_array, rng: np.random.Generator) -> Iterator[tuple[str, Callable[[], str]]]:
    """Kinds, shifts, scales and solvers."""
    kinds = {
        "csr": X,
        "csr32": X.astype(np.float32),
        "csc": sp.csc_array(X),
        "dense": X.toarray(),
        "dense32": X.toarray().astype(np.float32),
        "fortran": np.asfortranarray(X.toarray()),
        "wide": sp.csr_array(X.T),
        "complex": X.toarray() * (1 + 0.5j),
        "counts": sp.csr_array(np.expm1(X.toarray()).round().astype(np.int64)),
    }
    for kind, A in kinds.items():
        for solver in SOLVERS if kind in ("csr", "dense") else ("lanczos", "exact"):
            yield f"svd {kind} {solver}", lambda A=A, s=solver: of_svd(ss.svd(A, K, shift="mean", solver=s, rng=1))
    groups, covariate = rng.integers(0, 4, M), rng.standard_normal((M, 2))
    for name, shift in {
        "none": None,
        "rows": "rows",
        "both": "both",
        "vector": rng.random(N),
        "groups": ss.GroupMeans(groups),
        "covariates": ss.Covariates(covariate),
    }.items():
        yield f"shift {name}", lambda shift=shift: of_svd(ss.svd(X, K, shift=shift, solver="lanczos", rng=1))
    for scale in ("std", "pareto"):
        for kind in ("csr", "dense32"):
            yield (
                f"scale {scale} {kind}",
                lambda A=kinds[kind], s=scale: of_svd(ss.svd(A, K, shift="mean", scale=s, solver="lanczos", rng=1)),
            )
    weights = rng.random(M) + 0.1
    yield (
        "weights",
        lambda: of_svd(ss.svd(X, K, shift="mean", scale="std", sample_weight=weights, solver="lanczos", rng=1)),
    )
    yield "share", lambda: of_svd(ss.svd(X, 0.3, shift="mean", solver="lanczos", rng=1))
    yield "certify", lambda: of_svd(ss.svd(X, K, shift="mean", solver="randomized", certify=True, rng=1))
    yield "auto", lambda: of_svd(ss.svd(X, K, shift="mean", rng=1))
    holes = X.toarray()
    holes[rng.random((M, N)) < 0.2] = np.nan
    for missing in ("mean", "em"):
        yield (
            f"missing {missing}",
            lambda how=missing: of_svd(ss.svd(holes, K, shift="mean", missing=how, solver="lanczos", rng=1)),
        )


def estimators(X: sp.csr_array, rng: np.random.Generator) -> Iterator[tuple[str, Callable[[], str]]]:
    """Estimators, batches and what else is fitted."""
    D = X.toarray()
    for name, options in {
        "lanczos": {"solver": "lanczos"},
        "whiten": {"solver": "gram", "whiten": True},
        "scaled": {"solver": "lanczos", "scale": "std"},
        "share": {"n_components": 0.4},
    }.items():
        for kind, A in {"csr": X, "dense": D}.items():
            settings = {"n_components": K, "random_state": 1, **options}
            yield f"PCA {name} {kind}", lambda A=A, s=settings: of_pca(ss.PCA(**s).fit(A), A)

    def truncated() -> str:
        fitted = ss.TruncatedSVD(K, random_state=1).fit(X)
        return digest(fitted.transform(X), fitted.components_)

    def texts() -> str:
        words = [" ".join(f"w{j}" for j in np.flatnonzero(row)) for row in D > 1]
        fitted = ss.LSA(K, random_state=1).fit(words)
        return digest(fitted.transform(words))

    def correspondence() -> str:
        table = np.expm1(D).round() + 1
        fitted = ss.CorrespondenceAnalysis(K, random_state=1).fit(table)
        return digest(fitted.transform(table))

    def batches() -> str:
        p = ss.PCA(K, random_state=1)
        for lo in range(0, M, 150):
            p.partial_fit(D[lo : lo + 150])
        return of_pca(p, D)

    def distances() -> str:
        squares = ((D[:80, None] - D[None, :80]) ** 2).sum(axis=2)
        return digest(ss.PCoA(K, random_state=1).fit_transform(np.sqrt(squares)))

    def gaps() -> str:
        holes = np.where(rng.random((M, N)) < 0.2, np.nan, D)
        return of_pca(ss.PCA(K, missing="mean", solver="lanczos", random_state=1).fit(holes), holes)

    yield "TruncatedSVD", truncated
    yield "LSA", texts
    yield "correspondence", correspondence
    yield "partial_fit", batches
    yield "PCoA", distances
    yield "PCA missing", gaps


def files(X: sp.csr_array, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Data on disk, of Dask, and the command."""
    sp.save_npz(folder / "x.npz", X)
    np.save(folder / "x.npy", X.toarray())

    def of_file(solver: str, limit: str) -> str:
        A, _ = open_matrix(folder / "x.npy", memory_limit=limit)
        return of_svd(ss.svd(A, K, shift="mean", solver=solver, rng=1))

    def command(*options: str, file: str) -> str:
        out = Path(tempfile.mkdtemp(dir=folder))
        args = ["fit", str(folder / file), "-k", str(K), "-o", str(out), "--force", "--scores", "npy", "--no-report"]
        code = "from shiftsvd.cli import main; main()"
        subprocess.run([sys.executable, "-c", code, *args, *options], check=True, capture_output=True)
        model = load_file(out / "model.safetensors")
        return digest(*(model[name] for name in sorted(model)), np.load(out / "scores.npy"))

    def dask(sparse: bool, solver: str) -> str:
        import dask.array as da

        blocks = [X[lo : lo + 100] if sparse else X[lo : lo + 100].toarray() for lo in range(0, M, 100)]
        A = da.concatenate([da.from_array(b, chunks=b.shape, asarray=False) for b in blocks])
        return of_svd(ss.svd(A, K, shift="mean", solver=solver, rng=1))

    for solver in ("lanczos", "gram", "exact", "randomized"):
        yield f"disk {solver}", lambda s=solver: of_file(s, "700KB")
    yield "disk held", lambda: of_file("lanczos", "100MB")
    for sparse in (False, True):
        for solver in ("lanczos", "gram"):
            yield (
                f"dask {'sparse' if sparse else 'dense'} {solver}",
                lambda sparse=sparse, s=solver: dask(sparse, s),
            )
    yield "command npz", lambda: command(file="x.npz")
    yield "command scaled", lambda: command("--scale", "std", file="x.npz")
    yield "command file", lambda: command("--memory", "16M", "--solver", "lanczos", file="x.npy")


def all_fits(folder: Path) -> dict[str, str]:
    """The hash of each fit by its name; a fit that fails says how."""
    rng = np.random.default_rng(7)
    X = counts(rng)
    found: dict[str, str] = {}
    for name, fit in (*decompositions(X, rng), *estimators(X, rng), *files(X, folder)):
        try:
            found[name] = fit()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="hashes of before")
    before = parser.parse_args().against
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        found = all_fits(Path(folder))
    if before is None:
        print(json.dumps(found, indent=1))
        return
    earlier = json.loads(before.read_text())
    different = [name for name in {**earlier, **found} if earlier.get(name) != found.get(name)]
    for name in different:
        print(f"{name}: {earlier.get(name)} -> {found.get(name)}")
    print(f"{len(found)} fits, {len(different)} with other bits")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
