"""Components of a cohort beside plink2 and EIGENSOFT: vectors, allele weights, kinship, tests, scans; the command."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import chi2, kstest

import shiftsvd
from shiftsvd.cli import main
from shiftsvd.genetics import GenotypePCA, pca, tracy_widom, unrelated
from shiftsvd.genetics.components import robust_distances, selection_scan, upper_tail
from shiftsvd.genetics.files import Fileset
from shiftsvd.genetics.kinship import unrelated_mask
from shiftsvd.model_file import save_model
from shiftsvd.runs.memory import Resources
from tests.support.cohort import bed_reader, linked, ran, write

FILTERS: dict[str, Any] = {"geno": 0.05, "maf": 0.05, "indep_pairwise": (50, 5, 0.4)}
TABLE = Path("/usr/share/eigensoft/POPGEN/twtable")


def explicit(G: Any) -> Any:
    """Patterson's matrix, with 0 for what is missing, of variants with both alleles."""
    p = np.nanmean(G, axis=0) / 2
    p, G = p[(p > 0) & (p < 1)], G[:, (p > 0) & (p < 1)]
    return np.nan_to_num((G - 2 * p) / np.sqrt(2 * p * (1 - p)))


def table(path: Path) -> tuple[list[str], Any]:
    """The head of a file of PLINK, and the fields of its lines."""
    head, *lines = (line.split() for line in path.read_text().splitlines())
    return head, np.array(lines)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    G = linked(150, 1200, 2, switch=0.3)
    G[:50, :300] = np.where(np.random.default_rng(0).random((50, 300)) < 0.3, 2, G[:50, :300])  # structure
    return write(tmp_path_factory.mktemp("cohort") / "a.bed", G)


@pytest.fixture(scope="module")
def found(cohort: Path) -> GenotypePCA:
    return pca(cohort, 5, tol=1e-10, rng=0, tracy_widom=True, scan=True, **FILTERS)


def test_components_are_those_of_plink_on_the_same_filtered_set(
    cohort: Path, found: GenotypePCA, tmp_path: Path
) -> None:
    words = ["--bfile", cohort.with_suffix(""), "--geno", 0.05, "--maf", 0.05]
    ran("plink2", *words, "--indep-pairwise", 50, 5, 0.4, "--out", tmp_path / "t")
    words += ["--extract", tmp_path / "t.prune.in"]
    ran("plink2", *words, "--freq", "--pca", 5, "meanimpute", "allele-wts", "--out", tmp_path / "t")
    np.testing.assert_allclose(found.eigenvalues, np.loadtxt(tmp_path / "t.eigenval"), rtol=1e-5)
    theirs = table(tmp_path / "t.eigenvec")[1][:, 2:].astype(float)
    signs = np.sign((theirs * found.eigenvectors).sum(axis=0))
    assert np.abs(theirs * signs - found.eigenvectors).max() <= 1e-5
    found.save(tmp_path / "ours")
    (head, ours), (their_head, weights) = (
        table(tmp_path / "ours.eigenvec.allele"),
        table(tmp_path / "t.eigenvec.allele"),
    )
    assert head == their_head
    assert ours[:, :5].tolist() == weights[:, :5].tolist()
    ours, weights = ours[:, 5:].astype(float), weights[:, 5:].astype(float)
    np.testing.assert_allclose(ours * signs, weights, atol=1e-4)  # signs too, relative to those of .eigenvec


def test_scores_of_the_recipe_of_plink_are_those_of_the_eigenvec_file(
    cohort: Path, found: GenotypePCA, tmp_path: Path
) -> None:
    found.save(tmp_path / "ours")
    ran("plink2", "--bfile", cohort.with_suffix(""), "--freq", "--out", tmp_path / "f")
    how = ["2", "5", "header-read", "no-mean-imputation", "variance-standardize"]
    words = ["--read-freq", tmp_path / "f.afreq", "--score", tmp_path / "ours.eigenvec.allele", *how]
    ran("plink2", "--bfile", cohort.with_suffix(""), *words, "--score-col-nums", "6-10", "--out", tmp_path / "s")
    head, lines = table(tmp_path / "s.sscore")
    averages = np.column_stack([lines[:, head.index(f"PC{j}_AVG")].astype(float) for j in range(1, 6)])
    averages *= lines[:, [head.index("ALLELE_CT")]].astype(float) / (2 * found.n_used)  # missing genotypes as 0
    np.testing.assert_allclose(averages / (-np.sqrt(found.eigenvalues) / 2), found.eigenvectors, atol=1e-4)


def test_allele_weights_have_the_sign_of_plink(cohort: Path, found: GenotypePCA, tmp_path: Path) -> None:
    # The recipe by its formula: averages over both alleles of weights times standardized counts, 0 where missing.
    found.save(tmp_path / "ours")
    weights = table(tmp_path / "ours.eigenvec.allele")[1][:, 5:].astype(float)
    Z = explicit(bed_reader.open_bed(cohort).read()[:, found.used])
    averages = (Z @ weights[1::2] - Z @ weights[::2]) / (2 * found.n_used)
    np.testing.assert_allclose(averages / (-np.sqrt(found.eigenvalues) / 2), found.eigenvectors, atol=1e-4)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Parents with their children, and twins."""
    rng = np.random.default_rng(4)
    G = linked(110, 1500, 7, gaps=0, switch=0.4)
    children = [rng.binomial(1, G[2 * i] / 2) + rng.binomial(1, G[2 * i + 1] / 2) for i in range(20)]
    G = np.vstack([G, children, G[100:103]])
    G[rng.random(G.shape) < 0.03] = np.nan
    return write(tmp_path_factory.mktemp("families") / "a.bed", G), G


def test_kinship_is_that_of_plink(families: tuple[Path, Any], tmp_path: Path) -> None:
    path, G = families
    ours = unrelated(path, memory_limit="30MB")
    np.testing.assert_array_equal(ours.kinship, unrelated(path).kinship)
    het, low, high = (np.equal(G, value).astype(float) for value in (1, 0, 2))
    known = het + low + high
    squares = het @ (low + high).T + (low + high) @ het.T + 4 * (low @ high.T + high @ low.T)
    want = 0.5 - squares / (4 * np.minimum(het @ known.T, known @ het.T))
    np.testing.assert_allclose(ours.kinship, want, atol=1e-6)
    ran("plink2", "--bfile", path.with_suffix(""), "--make-king", "square", "--out", tmp_path / "t")
    np.testing.assert_allclose(ours.kinship, np.loadtxt(tmp_path / "t.king"), atol=1e-5)
    ran("plink2", "--bfile", path.with_suffix(""), "--king-cutoff", 0.177, "--out", tmp_path / "t")
    theirs = table(tmp_path / "t.king.cutoff.in.id")[1]
    assert int(unrelated(path, 0.177).unrelated.sum()) >= len(theirs)


def test_no_two_of_an_unrelated_set_are_related_and_chains_lose_few() -> None:
    chain = np.full((9, 9), 0.0)
    chain[np.arange(8), np.arange(1, 9)] = chain[np.arange(1, 9), np.arange(8)] = 0.25
    np.fill_diagonal(chain, 0.5)
    assert int(unrelated_mask(chain, 0.1).sum()) == 5  # every other one
    assert unrelated_mask(chain, 0.25).all()  # ties are not above
    star = np.where(np.eye(6, dtype=bool), 0.5, 0.0)
    star[0, 1:] = star[1:, 0] = 0.25
    assert unrelated_mask(star, 0.1).tolist() == [False] + 5 * [True]
    circle = np.where(np.abs(np.subtract.outer(np.arange(4), np.arange(4))) == 2, 0.0, 0.25)
    assert unrelated_mask(circle, 0.1).tolist() == [True, False, True, False]  # of equals, the last one goes first
    rng = np.random.default_rng(0)
    random = np.triu(rng.random((60, 60)) * 0.2, 1)
    random += random.T
    kept = unrelated_mask(random, 0.1)
    assert random[np.ix_(kept, kept)].max() <= 0.1


def test_relatives_are_projected_and_not_learned_from(families: tuple[Path, Any], tmp_path: Path) -> None:
    path, G = families
    for stream in (False, True):
        found = pca(path, 3, unrelated=0.177, stream=stream)
        learned = found.learned
        assert learned is not None
        assert 0 < int((~learned).sum()) == found.removed["unrelated"]
        alone = pca(write(tmp_path / "b.bed", G[learned]), 3)
        np.testing.assert_allclose(found.eigenvalues, alone.eigenvalues, rtol=1e-6)
        np.testing.assert_allclose(found.eigenvectors[learned], alone.eigenvectors, atol=1e-5)
        p = np.nanmean(G[learned], axis=0) / 2
        Z = ((G - 2 * p) / np.sqrt(np.maximum(2 * p * (1 - p), 1e-9)))[:, found.used]
        V = found.loadings[found.used]
        for i in np.flatnonzero(~learned):  # least squares over the genotypes that are not missing
            known = ~np.isnan(Z[i])
            scores = np.linalg.lstsq(V[known], Z[i, known], rcond=None)[0]
            want = scores / np.sqrt(found.eigenvalues * found.n_used)
            np.testing.assert_allclose(found.eigenvectors[i], want, atol=1e-5)
        np.testing.assert_allclose(found.frequencies, p, atol=1e-6)
    save_model(found, tmp_path / "m.safetensors")
    again = shiftsvd.load_model(tmp_path / "m.safetensors", GenotypePCA)
    assert again.learned.tolist() == learned.tolist()
    assert repr(again) == repr(found)


def test_saved_components_are_taken_by_the_command(found: GenotypePCA, cohort: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "m.safetensors", tmp_path / "scores.csv"
    save_model(found, file)
    result = CliRunner().invoke(main, ["transform", str(file), str(cohort), "-o", str(out)])
    assert result.exit_code == 0, result.output
    scores = np.loadtxt(out, delimiter=",", skiprows=1, usecols=range(1, 6))
    want = found.project(cohort).eigenvectors * np.sqrt(found.eigenvalues * found.n_used)
    np.testing.assert_allclose(scores, want, atol=1e-5 * np.abs(want).max())
    assert CliRunner().invoke(main, ["info", str(file), str(cohort)]).exit_code == 0
    np.save(tmp_path / "X.npy", np.ones((3, 4)))
    result = CliRunner().invoke(main, ["transform", str(file), str(tmp_path / "X.npy"), "-o", str(tmp_path / "Z.csv")])
    assert result.exit_code == 1
    assert "Pass a .bed or .pgen" in result.stderr


def test_more_samples_than_pairs_are_counted_of_are_refused(
    families: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ValueError, match=r"kinship of 133 samples needs about .* Raise memory_limit, or use fewer samples"
    ):
        unrelated(families[0], memory_limit=100_000)
    monkeypatch.setattr("shiftsvd.genetics.kinship.MAX_SAMPLES", 100)
    with pytest.raises(ValueError, match=r"kinship is limited to 100 samples, got 133. .* plink2 --king-cutoff"):
        unrelated(families[0])


def test_tracy_widom_is_that_of_eigensoft(found: GenotypePCA, cohort: Path, tmp_path: Path) -> None:
    G = bed_reader.open_bed(cohort).read(dtype="float64")[:, found.used]
    values = np.linalg.svd(explicit(G), compute_uv=False)[:-1] ** 2 / found.n_used
    np.savetxt(tmp_path / "values", values, fmt="%.15g")
    if not TABLE.exists():
        pytest.skip("EIGENSOFT is not installed")
    ran("twstats", "-t", TABLE, "-i", tmp_path / "values", "-o", tmp_path / "t")
    theirs = table(tmp_path / "t")[1][:5, 3:].astype(float)
    ours = found.tracy_widom
    assert ours is not None
    np.testing.assert_allclose(ours.statistics, theirs[:, 0], atol=6e-4)  # of three decimals
    held = theirs[:, 1] > 1e-8  # by their table; beyond it they take the leading term
    assert held.sum() > 3
    np.testing.assert_allclose(ours.p_values[held], theirs[held, 1], rtol=2e-3)
    np.testing.assert_allclose(ours.effective_markers, theirs[:, 2], rtol=1e-5)
    assert not ours.errors.any()


def test_the_law_is_that_of_tracy_and_widom() -> None:
    # Quantiles of F_1: Bejan (2005), table 1; its mean and variance: Bornemann (2010), table 4.
    np.testing.assert_allclose(upper_tail([0.45014328, 0.97931605, 2.02344928]), [0.1, 0.05, 0.01], rtol=1e-6)
    s = np.linspace(-10, 10, 81)
    above = upper_tail(s)
    mean = s[-1] - np.trapezoid(1 - above, s)
    np.testing.assert_allclose(mean, -1.2065335745820, atol=1e-6)
    assert (np.diff(above) <= 1e-15).all()
    tails = upper_tail([10.0, 20.0, 40.0])  # 1 - F_1(s) = exp(-2/3 s^1.5) / (4 sqrt(pi) s^0.75) (1 + O(s^-1.5))
    s = np.array([10.0, 20.0, 40.0])
    np.testing.assert_allclose(tails, np.exp(-2 / 3 * s**1.5) / (4 * np.sqrt(np.pi) * s**0.75), rtol=0.03)
    assert np.isnan(upper_tail([np.nan])).all()


def test_an_estimated_trace_says_how_far_it_may_be_off(
    cohort: Path, found: GenotypePCA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftsvd.genetics.components.MOST_EXACT", 10)
    estimated = pca(cohort, 5, tol=1e-8, rng=3, tracy_widom=True, **FILTERS).tracy_widom
    assert estimated is not None
    assert found.tracy_widom is not None
    off = np.abs(estimated.statistics - found.tracy_widom.statistics)
    assert (estimated.errors > 0).all()
    assert (off < 4 * estimated.errors).all()
    assert (estimated.errors < 0.5).all()


def test_noise_is_not_significant_and_structure_is(found: GenotypePCA) -> None:
    assert found.tracy_widom is not None
    assert found.tracy_widom.p_values[0] < 1e-10
    few = tracy_widom([3.0, 2.0], 10, 12.0, 20.0)
    assert few.effective_markers[0] == pytest.approx(
        12 * 12.0**2 / (10 * 20.0 - 12.0**2)
    )  # Patterson et al., equation 10
    assert np.isfinite(few.statistics[0])
    assert np.isnan(few.statistics[1])  # nine eigenvalues are left


def test_scans_are_regressions_on_the_components(cohort: Path, found: GenotypePCA) -> None:
    scan, U = found.scan, found.eigenvectors
    assert scan is not None
    G = bed_reader.open_bed(cohort).read(dtype="float64")
    for j in np.flatnonzero(found.used)[::100]:
        known = ~np.isnan(G[:, j])
        x = np.where(known, G[:, j] - G[known, j].mean(), 0)
        slopes = U.T @ x
        residuals = (x - U @ slopes)[known]
        variance = (residuals**2).sum() / (known.sum() - 5)
        want = slopes / np.sqrt((U[known] ** 2).sum(axis=0) * variance)
        np.testing.assert_allclose(scan.z_scores[j], want, atol=1e-8)
    assert np.isnan(scan.p_values[~found.used]).all()
    used = scan.statistics[found.used]
    np.testing.assert_allclose(scan.inflation, np.median(used) / chi2.ppf(0.5, 5))
    np.testing.assert_allclose(scan.p_values[found.used], chi2.sf(used / scan.inflation, 5))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_robust_distances_are_those_of_what_was_not_spoilt(k: int) -> None:
    rng = np.random.default_rng(k)
    mix = rng.standard_normal((k, k)) + 2 * np.eye(k)
    X = rng.standard_normal((6000, k)) @ mix
    X[:300] += 60
    distances = robust_distances(X)[300:]
    want = chi2.ppf(0.5, k) * distances / np.median(distances)
    assert kstest(want, chi2(k).cdf).statistic < 0.03
    assert np.median(robust_distances(X)[:300]) > 50 * np.median(distances)
    if k > 1:  # moved and turned, nearly the same
        other = robust_distances(X @ rng.standard_normal((k, k)) + 7)[300:]
        assert np.corrcoef(other, distances)[0, 1] > 0.98


def test_variants_under_selection_stand_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0.2, 0.8, 2000)
    groups = np.clip([p + rng.normal(0, 0.05, 2000) for _ in range(3)], 0.02, 0.98)
    groups[0, :20], groups[1, :20] = 0.05, 0.95
    G = rng.binomial(2, groups[np.arange(150) % 3]).astype(float)
    scan = pca(write(tmp_path / "a.bed", G), 2, scan=True).scan
    assert scan is not None
    assert set(np.argsort(scan.p_values)[:20]) == set(range(20))
    assert kstest(scan.p_values[20:], "uniform").statistic < 0.05


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("k", [1, 3])
def test_variants_that_cannot_be_tested_leave_the_scan_of_the_others(k: int, tmp_path: Path) -> None:
    G = linked(40, 300)
    U = pca(write(tmp_path / "a.bed", G), k, rng=0).eigenvectors
    want = selection_scan(Fileset.of([tmp_path / "a.bed"]), U, Resources())
    heterozygous, rare, unknown = np.ones((40, 1)), np.full((40, 1), np.nan), np.full((40, 1), np.nan)
    rare[:k, 0] = [0, *[2] * (k - 1)]
    scan = selection_scan(
        Fileset.of([write(tmp_path / "b.bed", np.hstack([heterozygous, G, rare, unknown]))]), U, Resources()
    )
    assert np.isfinite(want.inflation)
    np.testing.assert_allclose(scan.inflation, want.inflation)
    for found, alone in zip((scan.z_scores, scan.p_values), (want.z_scores, want.p_values), strict=True):
        np.testing.assert_allclose(found[1:-2], alone, rtol=1e-9)
        assert np.isnan(found[[0, -2, -1]]).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("k", "variants"), [(1, 40), (3, 40), (3, 4), (3, 3)])
def test_a_scan_of_variants_that_are_alike_has_no_answer(k: int, variants: int, tmp_path: Path) -> None:
    G = np.random.default_rng(0).integers(0, 3, (30, 3)).astype(float)[:, np.minimum(np.arange(variants), k - 1)]
    scan = pca(write(tmp_path / "a.bed", G.copy()), k, rng=0, scan=True).scan
    assert scan is not None
    assert np.isnan(scan.inflation)
    assert np.isnan(scan.p_values).all()


def done(*words: object) -> Any:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_filters_and_tells(cohort: Path, found: GenotypePCA, tmp_path: Path) -> None:
    out = tmp_path / "out"
    filters = ["--geno", 0.05, "--maf", 0.05, "--indep-pairwise", 50, 5, 0.4, "--autosome"]
    more = ["--tracy-widom", "--scan", "--scores", "csv", "--no-report", "--tol", 1e-9]
    result = done("fit", cohort, "-k", 5, *filters, *more, "-o", out)
    told = json.loads((out / "result.json").read_text())
    assert told["removed"] == found.removed
    for name, count in found.removed.items():
        assert f"--{name.replace('_', '-')}: {count} variants removed" in result.stderr
    np.testing.assert_allclose(told["genotypes"]["eigenvalues"], found.eigenvalues, rtol=1e-6)
    assert found.tracy_widom is not None
    assert found.scan is not None
    np.testing.assert_allclose(told["tracy_widom"]["statistics"], found.tracy_widom.statistics, atol=1e-3)
    np.testing.assert_allclose(told["genomic_inflation"], found.scan.inflation, rtol=1e-3)
    assert f"selection scan: genomic inflation factor {told['genomic_inflation']:.4g}" in result.stdout
    with (out / "components.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["feature", "chromosome", "position", "counted_allele", *(f"PC{j}" for j in range(1, 6))]
    used = np.flatnonzero(found.used)
    assert [row[0] for row in rows[1:]] == found.variants.names[used].tolist()
    assert [row[2] for row in rows[1:]] == found.variants.positions[used].tolist()
    assert {row[3] for row in rows[1:]} == {"A"}
    with (out / "scan.csv").open() as file:
        scan = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["p_value"]) for row in scan], found.scan.p_values[used], rtol=1e-2, atol=1e-6)
    with (out / "tracy_widom.csv").open() as file:
        tests = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["statistic"]) for row in tests], found.tracy_widom.statistics, atol=1e-3)
    ours, theirs = table(tmp_path / "out.eigenvec.allele")[1], found
    theirs.save(tmp_path / "theirs")
    assert ours[:, :5].tolist() == table(tmp_path / "theirs.eigenvec.allele")[1][:, :5].tolist()


def test_the_command_projects_relatives_in_the_order_of_the_file(families: tuple[Path, Any], tmp_path: Path) -> None:
    path, _ = families
    found = pca(path, 2, unrelated=0.177, tol=1e-8)
    words = ["--unrelated", 0.177, "--scores", "csv", "--no-report", "--tol", 1e-8]
    result = done("fit", path, "-k", 2, *words, "-o", tmp_path / "out")
    assert (
        f"--unrelated: {found.removed['unrelated']} related samples removed from the fit and projected" in result.stderr
    )
    _, lines = table(tmp_path / "out.eigenvec")
    assert lines[:, 1].tolist() == found.samples.names.tolist()
    np.testing.assert_allclose(lines[:, 2:].astype(float), found.eigenvectors, atol=1e-5)
    assert len((tmp_path / "out" / "scores.csv").read_text().splitlines()) == 134


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--maf", 0.7], "0.7 is not in the range"),
        (["--maf", "nan"], "must be a number, got nan"),
        (["--indep-pairwise", "nankb", 1, 0.2], "must be a window"),
        (["--indep-pairwise", "200kb", 0.2, "-q"], "needs three values, WINDOW STEP R2, such as 50 5 0.2 or"),
        (["--indep-pairwise", 5, 50, 0.2], "at least as large as the step"),
        (["--autosome", "--chromosomes", "all"], "contradict each other"),
        (["--hwe-midp"], "--hwe-midp requires --hwe"),
        (["--scan"], "--scan needs an output folder"),
        (["--keep", "nowhere"], "does not exist"),
        (["--tracy-widom", "--scale", "std"], "require --scale patterson"),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused_as_usage(words: list[Any], message: str, cohort: Path) -> None:
    result = CliRunner().invoke(main, ["fit", str(cohort), "-k", "2", *map(str, words)])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.filterwarnings("error")
def test_genotypes_that_do_not_differ_have_no_tests(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", np.ones((20, 30)))
    done("fit", path, "-k", 2, "--tracy-widom", "--scan", "--no-report", "-o", tmp_path / "out")
    told = json.loads((tmp_path / "out" / "result.json").read_text(), parse_constant=pytest.fail)
    assert told["tracy_widom"]["statistics"] == [None, None]
    assert told["genomic_inflation"] is None


def test_filters_are_for_genotypes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).standard_normal((9, 5)))
    result = CliRunner().invoke(main, ["fit", str(tmp_path / "a.npy"), "-k", "2", "--maf", "0.1"])
    assert result.exit_code == 2
    assert "--maf requires genotypes" in result.stderr


def test_the_test_is_printed_without_a_folder(cohort: Path) -> None:
    test = pca(cohort, 3, rng=0, tracy_widom=True).tracy_widom
    assert test is not None
    printed = done("fit", cohort, "-k", 3, "--tracy-widom").stdout
    head, *lines = printed[printed.index("component  Tracy-Widom") :].splitlines()
    assert head.split() == ["component", "Tracy-Widom", "p-value", "effective", "markers"]
    statistics = [float(line.split()[1]) for line in lines]
    np.testing.assert_allclose(statistics, test.statistics, atol=1e-2)
    assert "Tracy-Widom" not in done("fit", cohort, "-k", 3).stdout


def test_no_result_is_minus_zero(tmp_path: Path) -> None:
    """Tails beyond all digits, and loadings of constant columns whose signs are turned."""
    tails = upper_tail([1e2, 1e3, 1e6, 1e9, 40.0, 8.0, -60.0])
    assert not np.signbit(tails).any()
    rng = np.random.default_rng(0)
    G = np.repeat(rng.integers(0, 2, (12, 1)) * 2.0, 400, axis=1)  # two groups, and nothing else
    G[:, :200] = rng.integers(0, 3, (12, 200))
    G[:, 300:] = 0
    bed = write(tmp_path / "a.bed", G)
    for words in (["-k", 3, "--tracy-widom"], ["-k", 3]):
        done("fit", bed, *words, "--scores", "csv", "--no-report", "--force", "-o", tmp_path / "out")
        texts = [path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".csv", ".json", ".eigenvec")]
        assert len(texts) >= 5
        texts += [path.read_text() for path in tmp_path.glob("*.eigenvec.allele")]
        assert not any(re.search(r"(?<![\w.])-0(\.0*)?(?![\w.])", text) for text in texts)
