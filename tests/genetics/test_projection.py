"""Scores of samples that lack variants or genotypes: least squares, how far they may be off, and no shrinkage."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.genetics import GenotypePCA, Projection, Variants, pca, projection
from shiftsvd.genetics import projection as module
from shiftsvd.genetics.projection import least_squares, noise_covariance, segments
from tests.support.cohort import linked, write
from tests.support.populations import Cohort

pytest.importorskip("bed_reader")

M, N, K = 100, 3000, 3
SHARES = [0.1, 0.25, 0.5, 0.75]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projection")
    plain(Cohort.simulated(M, N)).written(folder / "reference.bed")
    plain(new()).written(folder / "new.bed")
    return folder


@pytest.fixture(scope="module")
def components(folder: Path) -> GenotypePCA:
    return pca(folder / "reference.bed", K, tol=1e-8)


def plain(cohort: Cohort) -> Cohort:
    """Without alleles of which letters cannot tell the strand."""
    cohort.first[:], cohort.second[:] = "A", "G"
    return cohort


def new(seed: int = 1, samples: int = 40) -> Cohort:
    return plain(Cohort.simulated(samples, N, seed=seed))


def standardised(components: GenotypePCA, G: Any) -> Any:
    """Genotypes of new samples in units of the scale, NaN where they are missing."""
    p = components.frequencies[components.used]
    return (G[:, components.used] - 2 * p) / np.sqrt(2 * p * (1 - p))


def regressed(components: GenotypePCA, G: Any) -> Any:
    """Scores by the definition: one regression for each sample on the loadings of the variants that it has."""
    X, V = standardised(components, G), components.loadings[components.used]
    there = ~np.isnan(X)
    scores = [np.linalg.lstsq(V[own], x[own], rcond=None)[0] for x, own in zip(X, there, strict=True)]
    return np.array(scores) / np.sqrt(components.eigenvalues * components.n_used)


def with_gaps(G: Any, share: float, seed: int = 5) -> Any:
    """Whatever the genotypes are, which are drawn from other seeds."""
    return np.where(np.random.default_rng([seed, 1]).random(G.shape) < share, np.nan, G)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("share", SHARES)
def test_absent_variants_are_regressed_away(components: GenotypePCA, tmp_path: Path, share: float) -> None:
    there = np.random.default_rng(3).random(N) < share
    cohort = new()
    found = components.project(cohort.some(there).written(tmp_path / "some.bed"))
    want = regressed(components, np.where(there, cohort.G, np.nan))
    np.testing.assert_allclose(found.eigenvectors, want, atol=1e-7)
    assert found.n_present.tolist() == [there[components.used].sum()] * len(cohort.G)
    whole = components.project(cohort.written(tmp_path / "whole.bed"))
    assert not whole.standard_errors.any()
    slope = np.sum(found.eigenvectors * whole.eigenvectors, axis=0) / np.sum(whole.eigenvectors**2, axis=0)
    np.testing.assert_allclose(slope, 1, atol=0.15)
    shrunk = components.project(tmp_path / "some.bed", project="mean")
    slope = np.sum(shrunk.eigenvectors * whole.eigenvectors, axis=0) / np.sum(whole.eigenvectors**2, axis=0)
    np.testing.assert_allclose(slope, share, atol=0.1)
    assert shrunk.standard_errors is None


def test_missing_genotypes_are_regressed_away_sample_by_sample(
    components: GenotypePCA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_GENOTYPES", 2000)
    G = new().G
    for i, share in enumerate(np.linspace(0, 0.97, len(G))):
        G[i] = with_gaps(G[i], share, seed=i)
    cohort = Cohort(G, *(getattr(new(), name) for name in ("chromosome", "position", "name", "first", "second")))
    found = components.project(cohort.written(tmp_path / "gaps.bed"))
    np.testing.assert_allclose(found.eigenvectors, regressed(components, G), atol=1e-7)
    np.testing.assert_array_equal(found.n_present, (~np.isnan(G[:, components.used])).sum(axis=1))
    assert not found.standard_errors[0].any()
    assert (np.diff(found.standard_errors[::8, 0]) > 0).all()
    few = components.project(tmp_path / "gaps.bed", memory_limit="40kB")  # some samples at a time
    np.testing.assert_allclose(few.eigenvectors, found.eigenvectors, atol=1e-12)
    np.testing.assert_allclose(few.standard_errors, found.standard_errors, atol=1e-12)


def observed(components: GenotypePCA, project: Any, folder: Path, draw: Any, n_draws: int = 20) -> tuple[Any, Any]:
    """Root mean squares of what scores are off by those of all variants, and of their standard errors."""
    cohort = new()
    want = components.project(folder / "new.bed", project=project).eigenvectors
    off, stated = [], []
    for seed in range(n_draws):
        found: Projection = components.project(draw(cohort, seed).written(folder / "draw.bed"), project=project)
        off.append(found.eigenvectors - want)
        stated.append(found.standard_errors)
    return np.sqrt(np.mean(np.square(off), axis=(0, 1))), np.sqrt(np.mean(np.square(stated), axis=(0, 1)))


def some_absent(share: float) -> Any:
    return lambda cohort, seed: cohort.some(np.random.default_rng([seed, 1]).random(N) < share)


def some_missing(share: float) -> Any:
    def draw(cohort: Cohort, seed: int) -> Cohort:
        columns = (cohort.chromosome, cohort.position, cohort.name, cohort.first, cohort.second)
        return Cohort(with_gaps(cohort.G, share, seed), *columns)

    return draw


@pytest.mark.long
@pytest.mark.parametrize(
    ("project", "draw"),
    [
        pytest.param("lsq", some_absent(0.1), id="a tenth there"),
        pytest.param("oadp", some_absent(0.5), id="half there"),
        pytest.param("lsq", some_absent(0.75), id="three quarters there"),
        pytest.param("oadp", some_missing(0.05), id="5 % missing"),
        pytest.param("lsq", some_missing(0.6), id="60 % missing"),
        pytest.param("oadp", some_missing(0.6), id="60 % missing, OADP"),
    ],
)
def test_the_spread_is_what_the_standard_error_says(
    components: GenotypePCA, folder: Path, project: Any, draw: Any
) -> None:
    off, stated = observed(components, project, folder, draw)
    np.testing.assert_allclose(off / stated, 1, atol=0.1)


def test_samples_without_genotypes_have_no_scores(components: GenotypePCA, tmp_path: Path) -> None:
    cohort = new(samples=5)
    cohort.G[1], cohort.G[3, 4:] = np.nan, np.nan
    path = cohort.written(tmp_path / "few.bed")
    for project in ("lsq", "oadp"):
        found = components.project(path, project=project)
        untold = np.isnan(found.eigenvectors).any(axis=1)
        assert untold[[0, 1, 2, 4]].tolist() == [False, True, False, False]
        assert found.n_present[1] == 0
        assert np.isnan(found.standard_errors[1]).all()
    assert not components.project(path, project="mean").eigenvectors[1].any()


# ---- OADP


def by_the_paper(U: Any, D: Any, V: Any, x: Any) -> Any:
    """One sample, with all matrices written out: augment, decompose, turn and scale back."""
    k = len(D)
    left, S, _ = np.linalg.svd(np.vstack([U * D @ V.T, x]), full_matrices=False)
    scores = left[:, :k] * S[:k]
    first, overlap, second = np.linalg.svd(scores[:-1].T @ (U * D))
    return overlap.sum() / np.sum(scores[:-1] ** 2) * scores[-1] @ first @ second


def test_oadp_is_that_of_the_matrices_written_out() -> None:
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((size, 4)))[0] for size in (30, 200))
    D = np.array([30.0, 14.0, 9.0, 8.5])
    X = rng.standard_normal((6, 200)) + 20 * rng.standard_normal((6, 4)) @ V.T
    X[5] = 5 * V[:, 1]  # within the space of the components
    got = projection.oadp_scores(X @ V, np.sum(X**2, axis=1), D)
    np.testing.assert_allclose(got, [by_the_paper(U, D, V, x) for x in X], rtol=1e-9, atol=1e-9)
    J = projection.oadp_derivatives(X @ V, np.sum(X**2, axis=1), D)
    moved = X + 1e-3 * V[:, 2]
    change = projection.oadp_scores(moved @ V, np.sum(moved**2, axis=1), D) - got
    np.testing.assert_allclose(change, 1e-3 * J[:, :, 2], rtol=1e-2, atol=1e-6)


def population_slopes(components: GenotypePCA, scores: Any) -> Any:
    """How far means of populations of other samples are, over those of the training samples."""
    training, others = ([values[j::4].mean(axis=0) for j in range(4)] for values in (components.eigenvectors, scores))
    return np.sum(np.multiply(training, others), axis=0) / np.sum(np.square(training), axis=0)


def test_samples_that_were_held_out_are_not_shrunk_by_oadp(tmp_path: Path) -> None:
    n = 8000  # a hundred times the samples
    components = pca(plain(Cohort.simulated(80, n)).written(tmp_path / "reference.bed"), K)
    held_out = plain(Cohort.simulated(80, n, seed=8)).written(tmp_path / "held_out.bed")
    shrunk = population_slopes(components, components.project(held_out).eigenvectors)
    whole = population_slopes(components, components.project(held_out, project="oadp").eigenvectors)
    assert (shrunk < 0.9).all()
    np.testing.assert_allclose(whole, 1, atol=0.06)
    half = plain(Cohort.simulated(80, n, seed=8)).some(np.arange(n) % 2 == 0).written(tmp_path / "half.bed")
    np.testing.assert_allclose(
        population_slopes(components, components.project(half, project="oadp").eigenvectors), 1, atol=0.1
    )


# ---- beside EIGENSOFT


# Debian has the program there, and a script of the same name on the path.
SMARTPCA = shutil.which("smartpca", path="/usr/lib/eigensoft") or shutil.which("smartpca")


@pytest.mark.skipif(SMARTPCA is None, reason="EIGENSOFT is not installed")
@pytest.mark.parametrize("share", [0.25, 0.6])
def test_scores_are_those_of_smartpca(tmp_path: Path, share: float) -> None:
    """It takes training samples and new ones in one file: those of the first population make the components."""
    # Frequencies are not quite estimated alike: populations of one size have components that this mixes.
    uneven = (0, 0, 0, 0, 1, 1, 1, 2, 2, 3)
    reference, others = (plain(Cohort.simulated(*which, pattern=uneven)) for which in ((M, N), (40, N, 7)))
    components = pca(reference.written(tmp_path / "reference.bed"), K)
    G = with_gaps(others.G, share)
    columns = [getattr(others, name) for name in ("chromosome", "position", "name", "first", "second")]
    Cohort(np.vstack([reference.G, G]), *columns).written(tmp_path / "all.bed")
    fam = [f"f{i} s{i} 0 0 1 {1 if i < M else 2}\n" for i in range(M + len(G))]
    (tmp_path / "all.fam").write_text("".join(fam))
    (tmp_path / "pops").write_text("Control\n")
    (tmp_path / "par").write_text(
        f"genotypename: all.bed\nsnpname: all.bim\nindivname: all.fam\nevecoutname: all.evec\nevaloutname: all.eval\n"
        f"poplistname: pops\nlsqproject: YES\nnumoutevec: {K}\nnumoutlieriter: 0\naltnormstyle: NO\nhiprec: YES\n"
        "familynames: NO\nfastmode: NO\n"
    )
    subprocess.run([str(SMARTPCA), "-p", "par"], cwd=tmp_path, check=True, capture_output=True)
    theirs = np.array([line.split()[1 : K + 1] for line in (tmp_path / "all.evec").read_text().splitlines()[1:]], float)
    ours = components.project(Cohort(G, *columns).written(tmp_path / "gaps.bed")).eigenvectors
    for j in range(K):
        assert abs(np.corrcoef(ours[:, j], theirs[M:, j])[0, 1]) > 0.999


# ---- the command


def done(*args: object) -> Any:
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result


def test_the_table_of_scores_tells_what_they_are_worth(components: GenotypePCA, folder: Path, tmp_path: Path) -> None:
    done("fit", folder / "reference.bed", "-k", K, "--tol", 1e-8, "-o", tmp_path / "out", "--no-report", "-q")
    model = tmp_path / "out" / "model.safetensors"
    cohort = new().some(np.arange(N) % 3 > 0)
    cohort.G[0, :500] = np.nan
    path = cohort.written(tmp_path / "some.bed")
    lengths = np.sqrt(components.eigenvalues * components.n_used)
    for project in ("lsq", "oadp"):
        out = tmp_path / f"{project}.csv"
        done("transform", model, path, "-o", out, "--project", project, "--dtype", "float64")
        head, *lines = out.read_text().splitlines()
        assert head == "sample,PC1,PC2,PC3,PC1_se,PC2_se,PC3_se,n_variants"
        rows = np.array([line.split(",")[1:] for line in lines], float)
        want = components.project(path, project=project)
        np.testing.assert_allclose(rows[:, :K], want.eigenvectors * lengths, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(rows[:, K : 2 * K], want.standard_errors * lengths, rtol=1e-3)
        np.testing.assert_array_equal(rows[:, 2 * K], want.n_present)
    assert done("transform", model, path, "-o", "-", "--project", "mean").stdout.startswith("sample,PC1,PC2,PC3,n_var")
    done("transform", model, path, "-o", tmp_path / "scores.npy")
    want = components.project(path).eigenvectors * lengths
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), want, atol=1e-3)
    pytest.importorskip("pyarrow")
    done("transform", model, path, "-o", tmp_path / "scores.parquet")
    done("inverse", model, tmp_path / "scores.parquet", "-o", tmp_path / "back.npy")  # which takes the scores alone
    back = ss.load_model(model, ss.PCA).inverse_transform(np.load(tmp_path / "scores.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "back.npy"), back, atol=1e-5)


def test_a_model_without_means_projects_too(folder: Path, tmp_path: Path) -> None:
    done("fit", folder / "reference.bed", "-k", K, "--shift", "none", "-o", tmp_path / "out", "--no-report", "-q")
    model = ss.load_model(tmp_path / "out" / "model.safetensors", ss.PCA)
    G, cohort = with_gaps(new().G, 0.3), new()
    columns = [getattr(cohort, name) for name in ("chromosome", "position", "name", "first", "second")]
    path = Cohort(G, *columns).written(tmp_path / "gaps.bed")
    done("transform", tmp_path / "out" / "model.safetensors", path, "-o", tmp_path / "scores.npy", "--dtype", "float64")
    V = model.components_.T.astype(np.float64)
    want = [np.linalg.lstsq(V[own], g[own], rcond=None)[0] for g, own in zip(G, ~np.isnan(G), strict=True)]
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "value"), [("project", "ols"), ("match", "rsid")])
def test_methods_that_there_are_not_are_refused(components: GenotypePCA, folder: Path, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of .*, got '{value}'"):
        components.project(folder / "new.bed", **{name: value})


# ---- chromosomes that are absent


def test_the_standard_error_knows_of_linkage_where_chromosomes_are_absent(tmp_path: Path) -> None:
    G, n = linked(240, 2200, gaps=0), 2200
    chromosome = 1 + np.arange(n) * 22 // n

    def written(name: str, rows: Any, there: Any) -> Path:
        own = {"chromosome": chromosome[there].astype(str), "bp_position": np.flatnonzero(there)}
        own |= {"sid": [f"rs{j}" for j in np.flatnonzero(there)]}
        return write(tmp_path / name, G[rows][:, there], **own)

    components = pca(written("reference.bed", slice(160), np.ones(n, bool)), 2)
    want = components.project(written("whole.bed", slice(160, None), np.ones(n, bool))).eigenvectors
    off, stated = [], []
    for seed in range(6):
        there = np.isin(chromosome, 1 + np.random.default_rng([seed, 1]).permutation(22)[:11])
        found = components.project(written("half.bed", slice(160, None), there))
        off.append(found.eigenvectors - want)
        stated.append(found.standard_errors)
    ratio = np.sqrt(np.mean(np.square(off)) / np.mean(np.square(stated)))
    assert 0.8 < ratio < 1.25  # without what is linked it would be 1.7


def test_stretches_are_neighbours_on_one_chromosome_whatever_the_order_of_the_file() -> None:
    rng = np.random.default_rng(0)
    n = 1000
    place = rng.permutation(n)
    names = np.array(["chr1", "02", "X", "3"])[place // 250]
    texts = np.full(n, "A", object)
    variants = Variants(names, names, place.astype(str), texts, texts)
    used = rng.random(n) < 0.8
    found = segments(variants, used)
    assert (found[~used] == -1).all()
    for c in range(found.max() + 1):
        own = np.sort(place[found == c])
        assert len(set(own // 250)) == 1
        assert used[(place >= own[0]) & (place <= own[-1])].sum() == len(own)  # nothing of another stretch between
        assert 12 <= len(own) <= 20
    nowhere = Variants(place.astype(str), names, np.full(n, "x"), texts, texts)  # a chromosome for each of them
    assert segments(nowhere, used).max() < 50


def test_standard_errors_of_few_variants_take_the_freedom_of_the_fit_into_account() -> None:
    rng, (n, k, m) = np.random.default_rng(0), (40, 6, 20_000)
    V = np.linalg.qr(rng.standard_normal((n, k)))[0]
    there = np.arange(n) < 30
    E = rng.standard_normal((m, n))  # what components do not tell, of equal variances
    gram, products = np.broadcast_to(V[there].T @ V[there], (m, k, k)), E[:, there] @ V[there]
    counts = np.full(m, float(there.sum()))
    found = least_squares(gram, products, (E[:, there] ** 2).sum(axis=1), counts, n)
    left = E[:, there] - found.scores @ V[there].T
    spread = np.einsum("ij,ja,jb->iab", left**2, V[there], V[there])
    stated = np.einsum("ikk->ik", noise_covariance(found, spread, counts)).mean(axis=0)
    observed = ((found.scores - E @ V) ** 2).mean(axis=0)
    np.testing.assert_allclose(stated, observed, rtol=0.12)
