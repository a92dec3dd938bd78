"""Which samples and variants take part: by their definitions, and as plink2 and PLINK 1.9 choose them."""

from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.genetics import Selection, pca
from shiftsvd.genetics.files import Fileset
from shiftsvd.genetics.lists import LONG_RANGE
from shiftsvd.genetics.selection import Cohort, exact_p, selected
from shiftsvd.genetics.variants import read_founders
from shiftsvd.runs.memory import Resources
from tests.support.cohort import bed_reader, linked, ran, write


def chosen(paths: Path | list[Path], resources: Resources = Resources(), **filters: Any) -> Cohort:  # noqa: B008
    paths = [paths] if isinstance(paths, Path) else paths
    return selected(Fileset.of(paths), Selection(**filters), resources)


def names(cohort: Cohort) -> tuple[list[str], list[str]]:
    return cohort.files.variants.names.tolist(), cohort.files.samples.names.tolist()


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples and variants that fail every filter."""
    rng = np.random.default_rng(9)
    G = linked(160, 900, 5, 0.02, 0.1)
    G[::7] = np.where(rng.random(G[::7].shape) < 0.08, np.nan, G[::7])
    G[:, ::13] = np.where(rng.random(G[:, ::13].shape) < 0.1, np.nan, G[:, ::13])
    G[:, ::9] = np.where((G[:, ::9] == 1) & (rng.random(G[:, ::9].shape) < 0.6), 2, G[:, ::9])
    G[:, ::97] = 0
    return write(tmp_path_factory.mktemp("messy") / "a.bed", G, founders=0.9)


@pytest.mark.parametrize("program", ["plink2", "plink1.9"])
@pytest.mark.parametrize(
    "filters",
    [
        {"maf": 0.1},
        {"geno": 0.03},
        {"mind": 0.06},
        {"hwe": 1e-3},
        {"hwe": 1e-3, "hwe_midp": True},
        {"mind": 0.08, "geno": 0.05, "hwe": 1e-4, "maf": 0.05},
    ],
    ids=str,
)
def test_what_stays_is_what_plink_keeps(program: str, filters: dict[str, Any], messy: Path, tmp_path: Path) -> None:
    words = [word for name, value in filters.items() if name != "hwe_midp" for word in (f"--{name}", value)]
    words += ["midp"] if "hwe_midp" in filters else []
    kind = ["--make-just-bim", "--make-just-fam"] if program == "plink2" else ["--make-bed"]
    ran(program, "--bfile", messy.with_suffix(""), *words, *kind, "--out", tmp_path / "theirs")
    files = [(tmp_path / f"theirs.{kind}").read_text().splitlines() for kind in ("bim", "fam")]
    theirs = [[line.split()[1] for line in lines] for lines in files]
    ours = chosen(messy, **filters)
    assert list(names(ours)) == theirs
    assert all(ours.removed[name] > 0 for name in filters if name != "hwe_midp")


def test_frequencies_are_those_of_founders(messy: Path) -> None:
    G = bed_reader.open_bed(messy).read(dtype="float64")

    def frequent(rows: Any) -> set[int]:
        p = np.nanmean(G[rows], axis=0) / 2
        return set(np.flatnonzero(np.minimum(p, 1 - p) >= 0.3).tolist())

    everybody, founders = frequent(slice(None)), frequent(read_founders(messy))
    assert everybody != founders
    assert names(chosen(messy, maf=0.3))[0] == bed_reader.open_bed(messy).sid[sorted(founders)].tolist()


def test_proportions_are_asked_of_variants_on_autosomes(tmp_path: Path) -> None:
    G = np.random.default_rng(0).binomial(2, 0.5, (60, 6)).astype(float)
    G[:, [0, 5]] = 1  # heterozygous all of them
    path = write(tmp_path / "a.bed", G, chromosome=["1"] * 5 + ["X"])
    assert names(chosen(path, chromosomes="all", hwe=1e-6))[0] == [f"rs{j}" for j in range(1, 6)]


def test_a_p_value_at_the_limit_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", np.repeat([[0.0], [1], [2]], [1, 3, 9], axis=0))
    assert len(names(chosen(path, hwe=0.2, hwe_midp=True))[0]) == 1  # computed: 0.2 - 3e-17


def test_limits_may_be_numbers_of_numpy() -> None:
    assert Selection(maf=np.float32(0.25), mind=np.int64(1)).given == {
        "chromosomes": "autosomes",
        "maf": 0.25,
        "mind": 1,
    }


@pytest.mark.parametrize(("far", "stay"), [(2000, 1), (2001, 2)])
def test_a_window_of_kilobases_holds_what_is_as_far_as_it_is_long(far: int, stay: int, tmp_path: Path) -> None:
    G = np.random.default_rng(0).binomial(2, 0.5, (60, 6)).astype(float)
    G[:, 3] = G[:, 2]
    path = write(tmp_path / "a.bed", G, chromosome=["1"] * 6, bp_position=[1, 2, 3000, 3000 + far, 9000, 9999])
    assert np.count_nonzero(chosen(path, indep_pairwise=("2kb", 1, 0.9)).kept[[2, 3]]) == stay


@pytest.mark.parametrize("program", ["plink2", "plink1.9"])
@pytest.mark.parametrize("windows", [(50, 5, 0.2), (20, 20, 0.1), (7, 3, 0.8), (2, 1, 0.3), ("100kb", 1, 0.1)], ids=str)
def test_the_pruned_set_is_that_of_plink(program: str, windows: Any, messy: Path, tmp_path: Path) -> None:
    size = str(windows[0]).replace("kb", " kb").split()
    ran(program, "--bfile", messy.with_suffix(""), "--indep-pairwise", *size, *windows[1:], "--out", tmp_path / "t")
    theirs = (tmp_path / "t.prune.in").read_text().split()
    for limit in (None, "20MB"):  # blocks that are cut elsewhere
        assert names(chosen(messy, Resources(limit), indep_pairwise=windows))[0] == theirs


def by_hand(G: Any, chromosomes: Any, size: int, step: int, r2: float, order: int) -> list[int]:
    """Pruning as it is described, pair by pair, of genotypes without gaps."""
    p = G.mean(axis=0) / 2
    major, kept = np.maximum(p, 1 - p), [0 < p[j] < 1 for j in range(len(p))]

    def alike(i: int, j: int) -> bool:
        return bool(np.corrcoef(G[:, i], G[:, j])[0, 1] ** 2 > r2)

    for c in np.unique(chromosomes):
        lo, hi = np.flatnonzero(chromosomes == c)[[0, -1]] + [0, 1]
        start, end = lo, lo
        while end < hi:
            first, end = end, min(start + size, hi)
            if order == 2:
                for j in range(end - 1, first - 1, -1):
                    for i in range(j - 1, start - 1, -1):
                        if kept[i] and 0 < p[j] < 1 and alike(i, j):
                            goes = j if major[i] <= major[j] * (1 + 1e-12) else i
                            kept[goes] = False
                            if goes == j:
                                break
            again = order == 1
            while again:
                again = False
                for i in range(start, end):
                    j = next((j for j in range(i + 1, end) if kept[i] and kept[j] and alike(i, j)), None)
                    if j is not None:
                        again = True
                        kept[i if major[i] > major[j] * (1 + 1e-12) else j] = False
            start += step
    return [j for j, stays in enumerate(kept) if stays]


@pytest.mark.parametrize("order", [1, 2])
def test_pruning_is_what_its_words_say(order: int, tmp_path: Path) -> None:
    G = linked(60, 150, gaps=0)
    path = write(tmp_path / "a.bed", G)
    chromosomes = np.array([int(name) for name in chosen(path).whole.variants.chromosomes])
    ours = chosen(path, indep_pairwise=(12, 4, 0.25), indep_order=order)
    assert names(ours)[0] == [f"rs{j}" for j in by_hand(G, chromosomes, 12, 4, 0.25, order)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("seed", [0, 1])
def test_pruning_goes_by_the_samples_that_are_learned_on(order: int, seed: int, tmp_path: Path) -> None:
    """Frequencies, their ties and correlations are those of the unrelated founders alone."""
    rng = np.random.default_rng(seed)
    G = linked(30, 240, seed, gaps=0, switch=0.3)
    children = [rng.binomial(1, G[2 * i] / 2) + rng.binomial(1, G[2 * i + 1] / 2) for i in range(15)]
    G = rng.permutation(np.vstack([G, children, G[20:26]]))
    path = write(tmp_path / "a.bed", G, founders=0.9)
    cohort = chosen(path, unrelated=0.177, indep_pairwise=(12, 4, 0.2371), indep_order=order)
    assert cohort.learned is not None
    own = cohort.learned & read_founders(path)
    assert own.sum() < len(own) - 5
    chromosomes = np.array([int(name) for name in cohort.whole.variants.chromosomes])
    ours = names(cohort)[0]
    assert ours == [f"rs{j}" for j in by_hand(G[own], chromosomes, 12, 4, 0.2371, order)]
    assert ours != [f"rs{j}" for j in by_hand(G, chromosomes, 12, 4, 0.2371, order)]


@pytest.mark.parametrize("gaps", [0.0, 0.02])
def test_the_pruned_set_of_unrelated_samples_is_that_of_plink2_then_plink(gaps: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    G = linked(100, 1500, 3, gaps=0, switch=0.3)
    children = [rng.binomial(1, G[2 * i] / 2) + rng.binomial(1, G[2 * i + 1] / 2) for i in range(20)]
    G = rng.permutation(np.vstack([G, children]))
    G[rng.random(G.shape) < gaps] = np.nan
    path = write(tmp_path / "a.bed", G, founders=0.9)
    words = ["--maf", 0.05, "--king-cutoff", 0.177, "--make-bed"]
    ran("plink2", "--bfile", tmp_path / "a", *words, "--out", tmp_path / "b")
    ran("plink1.9", "--bfile", tmp_path / "b", "--indep-pairwise", 50, 5, 0.2, "--out", tmp_path / "t")
    ours = chosen(path, maf=0.05, unrelated=0.177, indep_pairwise=(50, 5, 0.2))
    assert names(ours)[0] == (tmp_path / "t.prune.in").read_text().split()


def test_the_exact_test_is_the_sum_over_all_tables() -> None:
    def by_tables(first: int, both: int, second: int, mid: bool) -> float:
        n, rare = first + both + second, min(2 * first + both, 2 * second + both)
        tables = {}
        for h in range(rare % 2, rare + 1, 2):
            a = (rare - h) // 2
            tables[h] = comb(n, a) * comb(n - a, h) * 2**h
        observed = tables[both]
        tail = sum(t for t in tables.values() if t < observed) + sum(t for t in tables.values() if t == observed) / (
            2 if mid else 1
        )
        return tail / sum(tables.values())

    rng = np.random.default_rng(0)
    counts = np.concatenate([rng.integers(0, 40, (200, 3)), [[0, 0, 0], [0, 0, 9], [5, 0, 5], [0, 60, 0], [1, 0, 0]]])
    for mid in (False, True):
        want = [by_tables(*map(int, row), mid) for row in counts]
        np.testing.assert_allclose(exact_p(*counts.T, mid_p=mid), want, rtol=1e-9)
    assert exact_p(*np.array([[200_000], [0], [200_000]]))[0] < 1e-300  # and no overflow


def test_files_name_samples_and_variants(messy: Path, tmp_path: Path) -> None:
    def file(name: str, *lines: str) -> Path:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / name

    both, alone = file("both", "f0 p1 more", "f9 p27", "f1 nobody"), file("alone", "p3", "nobody", "p4")
    assert names(chosen(messy, keep=both))[1] == ["p1", "p27"]
    assert chosen(messy, keep=both).absent == {"keep": 1}
    assert names(chosen(messy, keep=alone))[1] == ["p3", "p4"]
    assert chosen(messy, keep=alone).absent == {"keep": 1}
    assert names(chosen(messy, keep=file("head", "#FID\tIID", "f0\tp1")))[1] == ["p1"]
    assert names(chosen(messy, keep=file("short", "#IID\tSEX", "p1\t1", "p2\t2"), remove=["p2"]))[1] == ["p1"]
    assert len(names(chosen(messy, remove=both))[1]) == 158
    assert names(chosen(messy, keep=[("f0", "p1"), ("f0", "p3")]))[1] == ["p1"]  # p3 is in another family
    assert len(names(chosen(messy, remove=file("empty", ""), exclude=[]))[1]) == 160
    assert names(chosen(messy, keep=["p1"], remove=["p2"]))[1] == ["p1"]  # p2 is in the file
    some = file("some", "rs5 rs6", "", "rs9", "rs99999")
    assert names(chosen(messy, extract=some))[0] == ["rs5", "rs6", "rs9"]
    assert names(chosen(messy, extract=some, exclude=["rs6"]))[0] == ["rs5", "rs9"]
    # names that an earlier filter removed are in the files
    assert chosen(messy, extract=some, exclude=["rs5", "rs7"]).absent == {"extract": 1, "exclude": 0}
    assert chosen(messy, keep=["p1"], remove=["p2"]).absent == {"keep": 0, "remove": 0}
    positions = chosen(messy).whole.variants.positions.astype(int)
    region = file("range", f"chr2 {positions[310]} {positions[320]} label", "# 1 1 2")
    assert names(chosen(messy, extract_range=region))[0] == [f"rs{j}" for j in range(310, 321)]
    assert len(names(chosen(messy, exclude_range=region))[0]) == 889


@pytest.mark.parametrize(("here", "there", "count"), [("23", "X", 3), ("MT", "chr26", 3), ("23", "39", 0)])
def test_ranges_name_chromosomes_by_their_codes_too(here: str, there: str, count: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", linked(30, 6), chromosome=[here] * 6, bp_position=[1, 2, 3, 4, 5, 6])
    (tmp_path / "range").write_text(f"{there} 2 4\n")
    assert chosen(path, chromosomes="all", exclude_range=tmp_path / "range").removed == {"exclude_range": count}


@pytest.mark.parametrize("build", ["hg19", "hg38"])
def test_regions_of_long_range_linkage_go_with_their_ends(build: str, tmp_path: Path) -> None:
    regions = LONG_RANGE[build]
    assert len(regions) == 24
    ends = [(r.chromosome, place) for r in regions for place in (r.first - 1, r.first, r.last, r.last + 1)]
    G = np.random.default_rng(0).integers(0, 3, (12, len(ends)))
    path = write(tmp_path / "a.bed", G, chromosome=[f"chr{c}" for c, _ in ends], bp_position=[at for _, at in ends])
    stay = [f"rs{j}" for j in range(len(ends)) if j % 4 in (0, 3)]
    assert names(chosen(path, exclude_long_range=build))[0] == stay
    genes = {"hg19": [("2", 136_608_646), ("6", 31_500_000), ("8", 11_000_000)]}  # lactase, MHC, inversion of 8p23
    genes["hg38"] = [("2", 135_851_076), ("6", 31_500_000), ("8", 11_000_000)]
    for chromosome, at in genes[build]:
        assert any(r.chromosome == chromosome and r.first <= at <= r.last for r in regions)


def test_components_are_those_of_a_file_of_what_is_left(messy: Path, tmp_path: Path) -> None:
    filters: dict[str, Any] = {"mind": 0.08, "geno": 0.05, "maf": 0.05, "indep_pairwise": (50, 5, 0.3)}
    left = chosen(messy, **filters)
    G = np.asarray(bed_reader.open_bed(messy).read())[np.ix_(left.rows, left.kept)]
    alone = pca(write(tmp_path / "b.bed", G), 3)
    for stream in (False, True):
        found = pca(messy, 3, stream=stream, **filters)
        np.testing.assert_allclose(found.eigenvalues, alone.eigenvalues, rtol=1e-5)
        np.testing.assert_allclose(np.abs(found.eigenvectors), np.abs(alone.eigenvectors), atol=1e-4)
        assert found.samples.names.tolist() == left.files.samples.names.tolist()
        assert found.removed == left.removed
        assert found.n_used + found.n_filtered + found.n_monomorphic == 900


def test_files_by_chromosome_are_filtered_as_one(messy: Path, tmp_path: Path) -> None:
    G, all_of = bed_reader.open_bed(messy).read(), chosen(messy).whole.variants
    paths = []
    for c in ("1", "2", "3"):
        on = all_of.chromosomes == c
        own = {"sid": all_of.names[on].tolist(), "chromosome": [c] * int(on.sum())}
        own["bp_position"] = all_of.positions[on].astype(int).tolist()
        paths.append(write(tmp_path / f"{c}.bed", G[:, on], founders=0.9, **own))
    filters: dict[str, Any] = {"mind": 0.08, "geno": 0.05, "hwe": 1e-4, "maf": 0.05, "indep_pairwise": ("80kb", 1, 0.2)}
    assert names(chosen(paths, **filters)) == names(chosen(messy, **filters))


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"maf": 0.6}, r"maf must be a number in 0\.\.0\.5, got 0\.6"),
        ({"geno": -0.1}, r"geno must be a number in 0\.\.1, got -0\.1"),
        ({"hwe_midp": True}, "hwe_midp requires hwe"),
        ({"exclude_long_range": "hg17"}, 'must be "hg19" or "hg38", got \'hg17\''),
        ({"maf": "0.1"}, r"maf must be a number in 0\.\.0\.5, got '0\.1'"),
        ({"indep_pairwise": (50, 5)}, "indep_pairwise must be a window"),
        ({"indep_pairwise": (5, 50, 0.2)}, "at least as large as the step"),
        ({"indep_pairwise": ("50kb", 5, 0.2)}, "a step of 1 if the window is in kilobases, got 5"),
        ({"indep_pairwise": (50, 5, 1.2)}, r"and r\^2 in \[0, 1\)"),
        ({"maf": 0.5, "extract": ["rs97"]}, "has no variants left: maf removed the last 1"),
        ({"keep": ["p7"], "remove": ["p7"]}, "has no samples left: remove removed the last 1"),
        ({"keep": ["nobody"]}, r"keep must name at least one sample of .* begins with 'nobody', the file with 'p0'\."),
        ({"remove": [("p0", "p0")]}, r"remove must name .* begins with 'p0 p0', the file with 'f0 p0'\. Write names"),
        ({"extract": ["1:5"]}, r"extract must name at least one variant of .* begins with '1:5', the file with 'rs0'"),
        ({"exclude": ["1:5", "1:7"]}, r"exclude must name at least one variant of .*'1:5', the file with 'rs0'\."),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(filters: dict[str, Any], message: str, messy: Path) -> None:
    with pytest.raises(ValueError, match=message):
        chosen(messy, **filters)


def test_files_that_cannot_be_pruned_or_counted_are_refused(tmp_path: Path) -> None:
    G = linked(30, 40)
    path = write(tmp_path / "a.bed", G, chromosome=["1"] * 20 + ["2"] * 10 + ["1"] * 10)
    with pytest.raises(ValueError, match=r"sorted by position, but those of chromosome 1 are not"):
        chosen(path, indep_pairwise=(5, 1, 0.5))
    path = write(tmp_path / "b.bed", G, founders=0.0)
    assert len(names(chosen(path, geno=0.5))[0]) == 40
    with pytest.raises(ValueError, match=r"b\.bed must have at least 2 founders"):
        chosen(path, maf=0.01)
    # the founders are twins of earlier samples, so none of them is a training sample
    path = write(tmp_path / "d.bed", np.vstack([G, G[:3]]), father=["p"] * 30 + ["0"] * 3)
    with pytest.raises(ValueError, match=r"d\.bed must have at least 2 founders .* left for .*, got 0\. If"):
        chosen(path, unrelated=0.4, indep_pairwise=(5, 1, 0.5))
    path = write(tmp_path / "e.bed", G, chromosome=["X"] * 40)
    with pytest.raises(ValueError, match=r"kinship is computed from variants on autosomes, .*e\.bed has none left\."):
        chosen(path, chromosomes="all", unrelated=0.1)
    path = write(
        tmp_path / "c.bed", G, iid=["same"] * 2 + [f"p{i}" for i in range(28)], fid=[str(i) for i in range(30)]
    )
    with pytest.raises(ValueError, match="has the IID same without an FID"):
        chosen(path, keep=["same"])
    (tmp_path / "range").write_text("1 10\n")
    with pytest.raises(ValueError, match="range, line 1: must have a chromosome, a first and a last position"):
        chosen(path, exclude_range=tmp_path / "range")


@pytest.mark.parametrize("position", ["9" * 20, "--5", "1.5"])
def test_positions_that_are_no_integers_are_named(position: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", linked(30, 4))
    table = path.with_suffix(".bim")
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    rows[2][3] = position
    table.write_text("".join("\t".join(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=f"must be integers of at most 18 digits, got '{position}' for variant rs2"):
        chosen(path, indep_pairwise=(5, 1, 0.5))


def test_variants_without_a_place_are_pruned_as_plink_does(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", linked(60, 40), chromosome=["0"] * 10 + ["1"] * 30, bp_position=list(range(40)))
    assert not set(names(chosen(path, indep_pairwise=(5, 1, 0.99)))[0]) & {f"rs{j}" for j in range(10)}
