"""Components of genotypes: the explicit matrix of Patterson, missing genotypes, other samples, PLINK's files."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd
from shiftsvd.genetics import GenotypePCA, pca
from shiftsvd.genetics.variants import autosomal
from shiftsvd.model_file import save_model
from shiftsvd.runs.messages import Notice

bed_reader = pytest.importorskip("bed_reader")
from tests.support.commands import invoke
from tests.support.genotypes import assert_same_up_to_signs, explicit, genotypes, write


@pytest.mark.parametrize("stream", [False, True])
def test_results_are_those_of_the_explicit_matrix(
    stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftsvd.backends.files.LEAST_BLOCK", 2**14)
    monkeypatch.setattr("shiftsvd.backends.files.BLOCK", 2**14)
    G = genotypes(90, 700)
    G[:, 5], G[:, 6], G[:, 7] = 2, 0, np.nan
    G[3, 5] = np.nan
    found = pca(write(tmp_path / "a.bed", G), 2, stream=stream)
    G[:, 7] = 0
    Z, p = explicit(G)
    U, S, Vh = np.linalg.svd(Z, full_matrices=False)
    np.testing.assert_allclose(found.eigenvalues, S[:2] ** 2 / Z.shape[1], rtol=1e-6)
    np.testing.assert_allclose(found.explained_variance_ratio, S[:2] ** 2 / (S**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(found.frequencies, p, atol=1e-7)
    assert_same_up_to_signs(found.eigenvectors, U[:, :2], 1e-5)
    assert_same_up_to_signs(found.loadings[found.used], Vh[:2].T, 1e-5)
    assert not found.loadings[5:8].any()
    assert repr(found) == "<2 components of 90 samples x 697 variants (removed: 3 monomorphic, 0 not on autosomes)>"


def test_names_come_with_the_numbers(tmp_path: Path) -> None:
    found = pca(write(tmp_path / "a.bed", genotypes(20, 60)), 2)
    assert found.samples.families[:4].tolist() == ["family0", "family1", "family2", "family0"]
    assert found.samples.names[-1] == "person19"
    assert found.variants.names[59] == "rs59"
    assert found.variants.positions[59] == "60"
    assert found.variants.first[0] == "A"
    assert found.variants.second[0] == "G"


def test_the_suffix_may_be_left_out(tmp_path: Path) -> None:
    G = genotypes(20, 60)
    with_suffix = pca(write(tmp_path / "a.v2.bed", G), 2)
    np.testing.assert_array_equal(pca(tmp_path / "a.v2", 2).eigenvalues, with_suffix.eigenvalues)
    (tmp_path / "a.v2.bed").rename(tmp_path / "a.v2.BED")
    again = pca(tmp_path / "a.v2.BED", 2)
    np.testing.assert_array_equal(again.eigenvalues, with_suffix.eigenvalues)
    projected = again.project(tmp_path / "a.v2.BED", project="mean")
    np.testing.assert_allclose(projected.eigenvectors, again.eigenvectors, atol=1e-6)


def test_the_sexes_are_not_the_first_component(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    men = np.arange(90) % 2 == 0  # and in the three populations alike
    p = rng.uniform(0.1, 0.9, 400)
    X = np.where(men[:, None], 2 * rng.binomial(1, p, (90, 400)), rng.binomial(2, p, (90, 400)))
    Y = np.where(men[:, None], 2 * rng.binomial(1, 0.5, (90, 200)), 0)
    G = np.hstack([genotypes(90, 900), X, Y])
    found = pca(write(tmp_path / "a.bed", G, chromosome=["1"] * 900 + ["23"] * 400 + ["24"] * 200), 2)
    assert np.abs(np.corrcoef(men, found.eigenvectors.T)[0, 1:]).max() < 0.3
    everything = pca(tmp_path / "a.bed", 2, chromosomes="all")
    assert np.abs(np.corrcoef(men, everything.eigenvectors.T)[0, 1:]).max() > 0.9


@pytest.mark.parametrize("stream", [False, True])
def test_other_chromosomes_are_as_if_they_were_not_there(stream: bool, tmp_path: Path) -> None:
    G = genotypes(60, 400)
    G[:, 7] = 2
    sexed = np.isin(np.arange(400), [0, 1, 50, 120, 121, 122, 300, 399])
    chromosome = np.where(sexed, "chrX", "chr2")
    path = write(tmp_path / "a.bed", G, chromosome=chromosome.tolist())
    found = pca(path, 3, stream=stream)
    names = [f"rs{j}" for j in np.flatnonzero(~sexed)]
    alone = pca(write(tmp_path / "b.bed", G[:, ~sexed], sid=names), 3, stream=stream)
    np.testing.assert_allclose(found.eigenvalues, alone.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(found.explained_variance_ratio, alone.explained_variance_ratio, rtol=1e-6)
    np.testing.assert_allclose(found.eigenvectors, alone.eigenvectors, atol=1e-5)
    np.testing.assert_allclose(found.loadings[~sexed], alone.loadings, atol=1e-5)
    assert (found.n_used, found.n_left_out, found.n_monomorphic) == (391, 8, 1)
    assert not found.used[sexed].any()
    assert not found.loadings[~found.used].any()
    np.testing.assert_allclose(found.frequencies, np.nanmean(G.astype(np.float64), axis=0) / 2, atol=1e-7)
    assert "391 variants (removed: 1 monomorphic, 8 not on autosomes)" in repr(found)
    projected = found.project(path, project="mean")
    np.testing.assert_allclose(projected.eigenvectors, found.eigenvectors, atol=1e-6)
    assert projected[2:6] == (391, 0, 0, 0)
    everything = pca(path, 3, chromosomes="all", stream=stream)
    assert (everything.n_used, everything.n_left_out) == (399, 0)
    save_model(found, tmp_path / "a.safetensors")
    assert shiftsvd.load_model(tmp_path / "a.safetensors", GenotypePCA).n_left_out == 8


def test_autosomes_are_told_by_their_names() -> None:
    out = ["X", "y", "XY", "MT", "M", "PAR1", "par2", "23", "24", "25", "26", "chrX", "CHRY", "chrM", "chr23", "0X"]
    kept = ["0", "1", "22", "01", "chr22", "Chr1", "", "Un", "contig_17", "HLA", "2A"]
    human = autosomal(np.array(out + kept))
    np.testing.assert_array_equal(human, [False] * len(out) + [True] * len(kept))
    dog = autosomal(np.array(["1", "23", "chr26", "38", "X", "MT"]))  # which has 38 autosomes
    np.testing.assert_array_equal(dog, [True, True, True, True, False, False])


def test_chromosomes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", genotypes(20, 60), chromosome=["X"] * 40 + ["MT"] * 20)
    with pytest.raises(
        ValueError, match=r'a\.bed must have variants on autosomes, got variants on MT, X\..*chromosomes="all"'
    ):
        pca(path)
    assert pca(path, 2, chromosomes="all").n_used == 60
    with pytest.raises(ValueError, match='chromosomes must be "autosomes" or "all", got \'X\''):
        pca(path, chromosomes="X")


def test_populations_are_told_apart(tmp_path: Path) -> None:
    found = pca(write(tmp_path / "a.bed", genotypes(90, 2000)), 2)
    groups = [found.eigenvectors[first::3] for first in range(3)]
    spread = max(np.linalg.norm(group - group.mean(axis=0), axis=1).max() for group in groups)
    centres = np.array([group.mean(axis=0) for group in groups])
    apart = min(np.linalg.norm(centres[i] - centres[j]) for i in range(3) for j in range(i))
    assert spread < 0.3 * apart


def test_training_samples_are_projected_onto_themselves(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", genotypes(60, 300))
    found = pca(path, 3)
    again = found.project(path, project="mean")  # what is missing is the mean in a fit, too
    np.testing.assert_allclose(again.eigenvectors, found.eigenvectors, atol=1e-6)
    assert again[2:6] == (300, 0, 0, 0)
    assert again.samples.names[0] == "person0"


def test_alleles_are_matched_by_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.genetics.projection._BLOCK_GENOTYPES", 250)
    G, new = genotypes(60, 300), genotypes(7, 300, seed=4)
    found = pca(write(tmp_path / "a.bed", G), 3)
    rng = np.random.default_rng(1)
    order = rng.permutation(300)[:280]  # the others are absent
    kept, swap, other = new[:, order], np.arange(280) % 4 == 1, np.arange(280) % 10 == 0
    path = write(
        tmp_path / "b.bed",
        np.where(swap, 2 - kept, kept),
        sid=[f"rs{j}" for j in order],
        bp_position=(1 + order).tolist(),
        allele_1=np.where(other, "C", np.where(swap, "G", "A")).tolist(),
        allele_2=np.where(swap, "A", "G").tolist(),
    )
    projected = found.project(path, project="mean")
    mismatched = int(np.count_nonzero(other))
    assert projected[2:6] == (280 - mismatched, int(np.count_nonzero(swap & ~other)), 20, mismatched)
    p = found.frequencies
    Z = (new - 2 * p) / np.sqrt(2 * p * (1 - p))
    dropped = np.setdiff1d(np.arange(300), order[~other])
    Z[:, dropped] = 0
    want = np.where(np.isnan(Z), 0, Z) @ found.loadings / np.sqrt(found.eigenvalues * found.n_used)
    np.testing.assert_allclose(projected.eigenvectors, want, atol=1e-7)


def test_an_allele_that_a_small_file_does_not_know_is_that_of_the_training(tmp_path: Path) -> None:
    G = genotypes(60, 100, gaps=0)
    found = pca(write(tmp_path / "a.bed", G), 2)
    # One sample: where it is homozygous, PLINK knows one allele, and calls the other one 0.
    one = G[:1].copy()
    first = np.where(one[0] == 0, "0", "A")
    second = np.where(one[0] == 2, "0", "G")
    swapped = one[0] == 2  # as PLINK writes it: the rarer, unknown one is the first
    path = write(
        tmp_path / "b.bed",
        np.where(swapped, 2 - one, one),
        allele_1=np.where(swapped, second, first).tolist(),
        allele_2=np.where(swapped, first, second).tolist(),
    )
    projected = found.project(path)
    np.testing.assert_allclose(projected.eigenvectors, found.eigenvectors[:1], atol=1e-6)
    assert projected.n_flipped == np.count_nonzero(swapped)
    assert projected.n_mismatched == 0


def test_variants_without_names_are_matched_by_place(tmp_path: Path) -> None:
    G = genotypes(60, 100)
    path = write(tmp_path / "a.bed", G, sid=["."] * 100)
    found = pca(path, 2)
    np.testing.assert_allclose(found.project(path, project="mean").eigenvectors, found.eigenvectors, atol=1e-6)
    path = write(tmp_path / "b.bed", G, sid=["."] * 100, chromosome=["chr1"] * 100)
    np.testing.assert_allclose(found.project(path, project="mean").eigenvectors, found.eigenvectors, atol=1e-6)


def test_small_letters_are_the_same_alleles(tmp_path: Path) -> None:
    G = genotypes(60, 100)
    found = pca(write(tmp_path / "a.bed", G), 2)
    swapped = np.arange(100) % 2 == 1
    path = write(
        tmp_path / "b.bed",
        np.where(swapped, 2 - G, G),
        allele_1=np.where(swapped, "g", "a").tolist(),
        allele_2=np.where(swapped, "a", "g").tolist(),
    )
    projected = found.project(path, project="mean")
    np.testing.assert_allclose(projected.eigenvectors, found.eigenvectors, atol=1e-6)
    assert projected[2:6] == (100, 50, 0, 0)


def test_a_component_of_one_variant_is_projected(tmp_path: Path) -> None:
    G = genotypes(12, 3, gaps=0)
    found = pca(write(tmp_path / "a.bed", G[:, :1].copy()), 1)
    new = write(tmp_path / "b.bed", G)
    for project in ("mean", "lsq"):
        again = found.project(new, project=project)
        np.testing.assert_allclose(again.eigenvectors, found.eigenvectors, atol=1e-6)
    assert np.isfinite(found.project(new, project="oadp").eigenvectors).all()


def test_components_of_nothing_take_nothing(tmp_path: Path) -> None:
    G = genotypes(12, 300, gaps=0)
    G[6:] = G[:6]  # rank 5 after centring
    path = write(tmp_path / "a.bed", G)
    found = pca(path, 11)
    projected = found.project(path).eigenvectors
    np.testing.assert_allclose(projected[:, :5], found.eigenvectors[:, :5], atol=1e-5)
    assert not projected[:, 5:].any()


@pytest.mark.filterwarnings("error")
def test_no_variance_is_no_share_of_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", np.ones((5, 9), np.float32))  # all are heterozygous
    found = pca(path, 2)
    assert not found.eigenvalues.any()
    assert not found.explained_variance_ratio.any()
    assert not found.project(path).eigenvectors.any()


def test_variants_that_cannot_be_matched_are_refused(tmp_path: Path) -> None:
    G = genotypes(60, 100)
    found = pca(write(tmp_path / "a.bed", G), 2)
    other = write(tmp_path / "b.bed", G, sid=[f"snp{j}" for j in range(100)], chromosome=["7"] * 100)
    absent = r"b\.bed has no usable variants of the 100 .* name: 100 .* use the same rsIDs.* different alleles: 0"
    with pytest.raises(ValueError, match=absent):
        found.project(other)
    strange = write(tmp_path / "d.bed", G, allele_1=["C"] * 100)
    with pytest.raises(ValueError, match=r" name: 0 .* different alleles: 100 .*--ref-from-fa"):
        found.project(strange)
    coded = write(tmp_path / "e.bed", G, allele_1=["1"] * 100, allele_2=["2"] * 100)
    with pytest.raises(ValueError, match=r" different alleles: 100 \(write A, C, G and T in place of numbers"):
        found.project(coded)


@pytest.mark.parametrize("k", [0, 20, 60])
def test_numbers_of_components_that_cannot_be_are_refused(k: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", genotypes(20, 60))
    with pytest.raises(
        ValueError, match=rf"k must be an integer in 1\.\.19 for 20 samples x 60 variants in use of .*a\.bed, got {k}"
    ):
        pca(path, k)


@pytest.mark.parametrize("k", ["2", 2.0, True, None])
def test_a_number_of_components_is_an_integer(k: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", genotypes(20, 60))
    with pytest.raises(ValueError, match=rf"k must be an integer in 1\.\.19 .* got {k!r}"):
        pca(path, k)


def test_samples_of_which_nothing_can_be_said_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", genotypes(1, 60, gaps=0))
    with pytest.raises(ValueError, match=r"a\.bed must have at least 2 samples, got 1\. To project single samples"):
        pca(path, 1)
    path = write(tmp_path / "c.bed", genotypes(9, 60, gaps=0))
    few = r"c\.bed must have at least 2 samples, got 1 of 9 after the filters\. Relax the filters of samples\."
    with pytest.raises(ValueError, match=few):
        pca(path, 1, keep=["person3"])
    (tmp_path / "one").write_text("person3\n")
    assert re.search(few, invoke("fit", path, "-k", 1, "--keep", tmp_path / "one").stderr)
    path = write(tmp_path / "b.bed", np.zeros((5, 9), np.float32), chromosome=["1"] * 6 + ["X"] * 3)
    with pytest.raises(
        ValueError, match=r"b\.bed has no variant .* 6 variants are monomorphic\. 3 variants not on autosomes were"
    ):
        pca(path, 1)


def test_files_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.bed does not exist"):
        pca(tmp_path / "none")
    path = write(tmp_path / "a.bed", genotypes(20, 60))
    bim = path.with_suffix(".bim")
    bim.write_text("".join(" ".join(line.split()[:4]) + "\n" for line in bim.read_text().splitlines()))
    with pytest.raises(ValueError, match=r"a\.bim, line 1: must have 6 fields, got 4"):
        pca(path)


def without_centimorgans(text: str) -> str:
    return "".join("\t".join(np.delete(line.split(), 2)) + "\n" for line in text.splitlines())


TABLES: dict[str, tuple[str, Callable[[str], str]]] = {
    "empty lines at the end": (".fam", lambda text: text + "\n  \n\n"),
    "a head": (".fam", lambda text: "#FID IID PAT MAT SEX PHENO1\n" + text),
    "lines of Windows": (".fam", lambda text: text.replace("\n", "\r\n")),
    "tabs for spaces, and none at the end": (".fam", lambda text: text.replace(" ", "\t").rstrip()),
    "a mark of UTF-8": (".fam", lambda text: "\ufeff" + text),
    "empty lines after variants": (".bim", lambda text: text + "\n\n"),
    "no centimorgans": (".bim", without_centimorgans),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_as_plink_reads_them(tmp_path: Path, name: str) -> None:
    path, (suffix, changed) = write(tmp_path / "a.bed", genotypes(20, 60)), TABLES[name]
    expected, table = pca(path, 3), path.with_suffix(suffix)
    table.write_text(changed(table.read_text()), encoding="utf-8", newline="")
    found = pca(path, 3)
    np.testing.assert_array_equal(found.eigenvectors, expected.eigenvectors)
    for column, other in zip((*found.samples, *found.variants), (*expected.samples, *expected.variants), strict=True):
        assert column.tolist() == other.tolist()
    if shutil.which("plink1.9"):
        subprocess.run(["plink1.9", "--bfile", path.with_suffix(""), "--freq"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("suffix", [".fam", ".bim"])
def test_an_empty_line_between_others_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / "a.bed", genotypes(20, 60))
    table = path.with_suffix(suffix)
    table.write_text(table.read_text().replace("\n", "\n\n", 1))
    with pytest.raises(ValueError, match=rf"a\{suffix}, line 2: must not be empty"):
        pca(path)


def test_samples_of_one_family_and_name_are_told_of(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bed", genotypes(20, 60))
    expected, fam = pca(path, 3), path.with_suffix(".fam")
    lines = fam.read_text().splitlines(keepends=True)
    fam.write_text("".join([*lines[:-1], lines[0]]))
    with pytest.warns(Notice, match=r"a\.bed has 1 duplicate sample name, .* in the order of the file"):
        found = pca(path, 3)
    np.testing.assert_array_equal(found.eigenvectors, expected.eigenvectors)


def test_the_files_are_those_of_plink(tmp_path: Path) -> None:
    found = pca(write(tmp_path / "a.bed", genotypes(20, 60)), 3)
    found.save(tmp_path / "out" / "a.v1")
    lines = (tmp_path / "out" / "a.v1.eigenvec").read_text().splitlines()
    assert lines[0] == "#FID\tIID\tPC1\tPC2\tPC3"
    assert lines[2].split("\t")[:2] == ["family1", "person1"]
    numbers = np.array([line.split("\t")[2:] for line in lines[1:]], float)
    np.testing.assert_allclose(numbers, found.eigenvectors, rtol=1e-8)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out" / "a.v1.eigenval"), found.eigenvalues, rtol=1e-8)
    with pytest.raises(FileExistsError, match=r"a\.v1\.eigenvec exists"):
        found.save(tmp_path / "out" / "a.v1")
    found.save(tmp_path / "out" / "a.v1", force=True)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "a.v1.eigenval",
        "a.v1.eigenvec",
        "a.v1.eigenvec.allele",
    ]


def test_a_model_file_holds_all_that_projections_take(tmp_path: Path) -> None:
    G = genotypes(60, 300)
    G[:, 5] = 2  # monomorphic
    first = ["A" if j % 3 else "ACGT" * (j + 1) for j in range(300)]  # an insertion may be longer than any name
    path = write(tmp_path / "a.bed", G, allele_1=first)
    found = pca(path, 3)
    save_model(found, tmp_path / "a.safetensors", source="a.bed")
    again = shiftsvd.load_model(tmp_path / "a.safetensors", GenotypePCA)
    assert repr(again) == repr(found)
    for name, value in vars(found).items():
        loaded = getattr(again, name)
        parts = zip(loaded, value, strict=True) if isinstance(value, tuple) else [(loaded, value)]
        for got, want in parts:
            if isinstance(want, np.ndarray):
                assert (got.dtype, got.tolist()) == (want.dtype, want.tolist()), name
    order = np.random.default_rng(0).permutation(300)[:250]
    swapped = np.arange(250) % 2 == 1
    new = write(
        tmp_path / "b.bed",
        np.where(swapped, 2 - genotypes(7, 300, seed=4)[:, order], genotypes(7, 300, seed=4)[:, order]),
        sid=[f"rs{j}" for j in order],
        bp_position=(1 + order).tolist(),
        allele_1=["G" if swap else first[j] for j, swap in zip(order, swapped, strict=True)],
        allele_2=[first[j] if swap else "G" for j, swap in zip(order, swapped, strict=True)],
    )
    projected, want = again.project(new), found.project(new)
    assert projected.eigenvectors.tobytes() == want.eigenvectors.tobytes()
    assert projected[2:10] == want[2:10]
    assert projected.standard_errors.tobytes() == want.standard_errors.tobytes()
    assert projected.n_flipped > 100
    again.save(tmp_path / "again")
    found.save(tmp_path / "found")
    assert (tmp_path / "again.eigenvec").read_bytes() == (tmp_path / "found.eigenvec").read_bytes()
    with pytest.raises(ValueError, match="the model must be PCA, got GenotypePCA"):
        shiftsvd.PCA.load(tmp_path / "a.safetensors")


PROCESS = """
import sys
from pathlib import Path
import numpy as np
import shiftsvd.genetics
found = shiftsvd.genetics.pca(sys.argv[1], 10, stream=True, memory_limit="500MB")
np.savez(sys.argv[2], eigenvalues=found.eigenvalues, eigenvectors=found.eigenvectors)
lines = Path("/proc/self/status").read_text().splitlines()
print(1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))))
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_two_thousand_samples_of_a_hundred_thousand_variants_in_bounded_memory(tmp_path: Path) -> None:
    m, n, step = 2000, 100_000, 5000
    G = np.empty((m, n), np.int8, order="F")
    K, n_used = np.zeros((m, m)), 0
    for lo in range(0, n, step):  # the matrix that is never formed would take 1.6 GB
        part = genotypes(m, step, seed=lo)
        G[:, lo : lo + step] = np.nan_to_num(part, nan=-127)
        Z, _ = explicit(part)
        K, n_used = K + Z @ Z.T, n_used + Z.shape[1]
    path = write(tmp_path / "a.bed", G)
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(path), str(tmp_path / "found.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values, vectors = np.linalg.eigh(K / n_used)
    found = np.load(tmp_path / "found.npz")
    worst, peak = np.abs(found["eigenvalues"] / values[::-1][:10] - 1).max(), int(done.stdout)
    print(f"{m} x {n}, 2 % missing: eigenvalues within {worst:.1e} of the explicit ones, peak {peak / 1e6:.0f} MB")
    np.testing.assert_allclose(found["eigenvalues"], values[::-1][:10], rtol=1e-6)
    assert_same_up_to_signs(found["eigenvectors"][:, :2], vectors[:, ::-1][:, :2], 1e-6)
    assert peak < 700e6  # of which 150 are Python and the libraries
