"""The same genotypes in other people's files: swapped alleles, other strands, another order, names, chromosomes."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import shiftsvd as ss
from shiftsvd.cli import main
from shiftsvd.genetics import pca
from shiftsvd.genetics.matching import build_of
from shiftsvd.genetics.variants import read_variants
from tests.support.populations import COMPLEMENT, Cohort

pytest.importorskip("bed_reader")

M, N = 60, 400
HALF = np.random.default_rng(9).random(N) < 0.5
OTHER_HALF = np.random.default_rng(10).random(N) < 0.5
ORDER = np.random.default_rng(11).permutation(N)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference, and components of it by the command; new samples of the same populations."""
    folder = tmp_path_factory.mktemp("alleles")
    reference().written(folder / "reference.bed")
    done("fit", folder / "reference.bed", "-k", 3, "--tol", 1e-8, "-o", folder / "out", "--no-report", "-q")
    new().written(folder / "new.bed")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return folder / "out" / "model.safetensors"


def reference() -> Cohort:
    return Cohort.simulated(M, N)


def new() -> Cohort:
    return Cohort.simulated(20, N, seed=1)


def invoke(*args: object) -> Any:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def done(*args: object) -> Any:
    result = invoke(*args)
    assert result.exit_code == 0, result.output
    return result


def table(model: Path, file: Path | list[Path], *options: object) -> tuple[list[str], Any, str]:
    """Head and numbers of the table that the command writes, and what it says."""
    files = file if isinstance(file, list) else [file]
    result = done("transform", model, *files, "-o", "-", "--dtype", "float64", *options)
    lines = result.stdout.splitlines()
    return lines[0].split(","), np.array([line.split(",")[1:] for line in lines[1:]], float), result.stderr


def assert_same_scores(folder: Path, model: Path, cohort: Cohort, *options: object) -> str:
    """By the command and in Python, for the file as it is now and as it was."""
    file = cohort.written(folder / "other.bed")
    _, want, _ = table(model, folder / "new.bed", *options)
    _, got, said = table(model, file, *options)
    np.testing.assert_allclose(got, want, atol=1e-6, rtol=1e-6)
    components, trust = pca(folder / "reference.bed", 3), "--trust-ambiguous" in options
    ours, theirs = (components.project(bed, trust_ambiguous=trust) for bed in (folder / "new.bed", file))
    np.testing.assert_allclose(theirs.eigenvectors, ours.eigenvectors, atol=1e-6)
    assert theirs.n_used == ours.n_used
    lengths = np.sqrt(components.eigenvalues * components.n_used)
    np.testing.assert_allclose(got[:, :3], theirs.eigenvectors * lengths, atol=1e-3)
    return said


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda c: c.swapped(HALF), "with swapped alleles"),
        (lambda c: c.swapped(np.ones(N, bool)), "with swapped alleles"),
        (lambda c: c.complemented(HALF), "on the other strand"),
        (lambda c: c.complemented(HALF).swapped(OTHER_HALF), "on the other strand"),
        (lambda c: c.some(ORDER), "0 with swapped alleles"),
        (lambda c: c.some(ORDER[::-1]).swapped(HALF).complemented(OTHER_HALF), "on the other strand"),
    ],
    ids=["swapped", "all swapped", "other strand", "both", "order", "everything"],
)
def test_scores_do_not_depend_on_how_the_file_counts(folder: Path, model: Path, harm: Any, told: str) -> None:
    said = assert_same_scores(folder, model, harm(new()))
    n = int(reference().ambiguous.sum())
    assert told in said
    assert f"{N - n} of the {N} variants of the model" in said
    assert f"{n} ambiguous" in said


def test_trusted_strands_keep_all_variants(folder: Path, model: Path) -> None:
    said = assert_same_scores(folder, model, new().swapped(HALF).some(ORDER), "--trust-ambiguous")
    assert f"{N} of the {N} variants of the model ({HALF.sum()} with swapped alleles, 0 on the other strand" in said
    assert "Removed: 0 ambiguous" in said


def test_scores_of_the_file_of_the_fit_are_those_of_the_fit_if_it_is_trusted(folder: Path, model: Path) -> None:
    file, differ = folder / "reference.bed", "If this is the file of the fit, its scores differ from those of the fit"
    _, _, said = table(model, file)
    assert f"{differ}, because ambiguous variants are removed. Use --trust-ambiguous --project mean" in said
    _, got, said = table(model, file, "--trust-ambiguous", "--project", "mean", "--scores-scale", "unit")
    assert differ not in said
    want = pca(file, 3, tol=1e-8).eigenvectors
    np.testing.assert_allclose(np.abs(got[:, :3]), np.abs(want), atol=1e-5)
    assert differ not in table(model, new().swapped(HALF).written(folder / "other.bed"))[2]


def test_alleles_that_are_not_looked_at_would_be_another_answer(folder: Path, model: Path) -> None:
    components = pca(folder / "reference.bed", 3)
    cohort = new().swapped(HALF)
    blind = replace(cohort, first=new().first, second=new().second).written(folder / "blind.bed")
    want = components.project(folder / "new.bed").eigenvectors
    got = components.project(blind).eigenvectors
    assert max(abs(np.corrcoef(want[:, j], got[:, j])[0, 1]) for j in range(3)) < 0.9


@pytest.mark.parametrize(
    "names",
    [
        lambda c: "chr" + c,
        lambda c: "Chr" + c,
        lambda c: np.char.zfill(c, 2),
        lambda c: "chr" + np.char.zfill(c, 2),
    ],
)
def test_chromosomes_have_several_names(folder: Path, model: Path, names: Any) -> None:
    cohort = replace(new(), chromosome=names(new().chromosome), name=np.full(N, ".", object))
    said = assert_same_scores(folder, model, cohort)
    assert "0 by name only" in said


@pytest.mark.parametrize(
    ("here", "there"), [("X", "23"), ("MT", "26"), ("M", "chrM"), ("XY", "25"), ("PAR1", "25"), ("Y", "chr24")]
)
def test_codes_of_chromosomes_are_their_letters(tmp_path: Path, here: str, there: str) -> None:
    cohort = reference()
    where = np.arange(N) % 5 == 0
    nameless = replace(cohort, name=np.full(N, ".", object))
    old = replace(nameless, chromosome=np.where(where, here, cohort.chromosome)).written(tmp_path / "old.bed")
    other = replace(nameless, chromosome=np.where(where, there, cohort.chromosome)).written(tmp_path / "other.bed")
    found = pca(old, 2, chromosomes="all").project(other, trust_ambiguous=True)
    assert (found.n_used, found.n_absent) == (N, 0)


def test_numbers_of_other_species_are_no_letters(tmp_path: Path) -> None:
    cohort = replace(reference(), name=np.full(N, ".", object))
    dog = np.where(np.arange(N) % 5 == 0, "38", np.where(np.arange(N) % 5 == 1, "23", cohort.chromosome))
    old = replace(cohort, chromosome=dog).written(tmp_path / "old.bed")
    other = replace(cohort, chromosome=np.where(dog == "23", "X", dog)).written(tmp_path / "other.bed")
    found = pca(old, 2, chromosomes="all").project(other, trust_ambiguous=True)
    assert found.n_absent == np.count_nonzero(dog == "23")


@pytest.mark.filterwarnings("ignore:.*the genome builds differ:UserWarning")
def test_names_find_variants_where_positions_are_not_known_or_of_another_build(folder: Path, model: Path) -> None:
    rng = np.random.default_rng(0)
    for position, chromosome in (
        (np.zeros(N, int), new().chromosome),
        (np.zeros(N, int), np.full(N, "0")),
        (new().position + 30_000_000, new().chromosome),
        (np.where(rng.random(N) < 0.02, new().position[ORDER], new().position + 30_000_000), new().chromosome),
        (np.ones(N, int), new().chromosome),
    ):
        cohort = replace(new(), position=position, chromosome=chromosome).some(ORDER).swapped(HALF)
        assert "0 by name only" not in assert_same_scores(folder, model, cohort)


def test_names_find_variants_at_a_position_that_stands_for_an_unknown_one(tmp_path: Path) -> None:
    one = np.full(N, "1")
    found = pca(replace(reference(), chromosome=one).written(tmp_path / "old.bed"), 3)
    whole = replace(new(), chromosome=one)
    want = found.project(whole.written(tmp_path / "whole.bed"), trust_ambiguous=True)
    unplaced = replace(whole, position=np.where(np.arange(N) % 3 == 0, 1, whole.position))
    got = found.project(unplaced.written(tmp_path / "unplaced.bed"), trust_ambiguous=True)
    assert (got.n_used, got.n_absent, got.n_by_name) == (want.n_used, 0, 134)
    np.testing.assert_allclose(got.eigenvectors, want.eigenvectors, atol=1e-9)


def test_names_alone_find_variants_on_chromosomes_of_other_names(folder: Path, model: Path) -> None:
    contigs = np.array([f"NC_{int(name):06d}.11" for name in new().chromosome])
    file = replace(new(), chromosome=contigs).written(folder / "contigs.bed")
    told = invoke("transform", model, file, "-o", folder / "no.csv").stderr
    assert f"Absent by position and name: {N} (if" in told
    assert "if the files have other names of chromosomes, rename them, or use --match name)" in told
    found, want = (pca(folder / "reference.bed", 3).project(bed, match="name") for bed in (file, folder / "new.bed"))
    assert (found.n_used, found.n_mismatched, found.n_by_name) == (want.n_used, 0, want.n_used)
    np.testing.assert_array_equal(found.eigenvectors, want.eigenvectors)


def test_positions_of_another_build_match_no_variant_by_chance(folder: Path) -> None:
    """Of three variants in four the file has the name; others lie, with the same alleles, where the model has them."""
    components, named = pca(folder / "reference.bed", 3), np.arange(N) % 4 > 0
    elsewhere = np.where(named, new().position + 30_000_000, new().position)
    name = np.where(named, new().name, [f"other{j}" for j in range(N)])
    file = replace(new(), name=name.astype(object), position=elsewhere).written(folder / "built.bed")
    with pytest.warns(
        UserWarning, match=r"300 of 300 variants .* the genome builds differ \(model: unknown, .*unknown\)"
    ):
        found = components.project(file, trust_ambiguous=True)
    assert (found.n_used, found.n_by_name, found.n_absent) == (300, 300, 100)
    asked = components.project(file, match="name", trust_ambiguous=True)  # without a notice
    np.testing.assert_array_equal(found.eigenvectors, asked.eigenvectors)


def test_a_build_is_named_by_the_positions_of_known_variants(tmp_path: Path) -> None:
    places = [("rs3094315", "1", 752566, 817186), ("rs429358", "19", 45411941, 44908684), ("rs4680", "22", 1, 19963748)]
    for column, build, count in ((2, "GRCh37", 2), (3, "GRCh38", 3), (2, None, 1)):
        there = [(name, chromosome, both[column - 2]) for name, chromosome, *both in places[:count]]
        name, chromosome, position = (np.array(each, object) for each in zip(*there, strict=True))
        cohort = replace(reference().some(np.arange(count)), name=name, chromosome=chromosome, position=position)
        assert build_of(read_variants(cohort.written(tmp_path / "a.bed"))) == build


def test_positions_find_variants_that_have_other_names(folder: Path, model: Path) -> None:
    renamed = np.array([f"chip_{j}" for j in range(N)], object)
    assert "0 by name only" in assert_same_scores(folder, model, replace(new(), name=renamed).some(ORDER))
    assert_same_scores(folder, model, replace(new(), name=new().name[ORDER]))  # alleles tell that names are wrong


def test_names_of_absent_variants_do_not_find_others(folder: Path, model: Path) -> None:
    """Two studies that number their variants from 1 have different variants of the same name."""
    components = pca(folder / "reference.bed", 3)
    kept = np.arange(N) % 2 == 0
    misnamed = new().some(kept)
    misnamed = replace(misnamed, name=new().name[~kept])
    found = components.project(misnamed.written(folder / "misnamed.bed"))
    want = components.project(new().some(kept).written(folder / "kept.bed"))
    assert (found.n_by_name, found.n_absent) == (0, N - kept.sum())
    np.testing.assert_allclose(found.eigenvectors, want.eigenvectors, atol=1e-9)


def test_numbers_that_every_study_gives_are_no_names(tmp_path: Path) -> None:
    numbered = replace(reference(), name=np.array([f"sid{j + 1}" for j in range(N)], object))
    found = pca(numbered.written(tmp_path / "old.bed"), 3)
    want = found.project(numbered.some(np.arange(100)).written(tmp_path / "known.bed"))
    cohort = replace(numbered.some(ORDER), name=numbered.name)
    there = ORDER < 100
    unknown = replace(cohort, position=np.where(there, cohort.position, 0))
    got = found.project(unknown.written(tmp_path / "new.bed"))
    assert (got.n_used, got.n_by_name, got.n_absent) == (want.n_used, 0, N - 100)
    np.testing.assert_allclose(got.eigenvectors, want.eigenvectors, atol=1e-9)
    nowhere = replace(cohort, position=np.zeros(N, int)).written(tmp_path / "nowhere.bed")
    with pytest.raises(ValueError, match="has no usable variants of the 400"):
        found.project(nowhere)


def test_names_and_positions_that_contradict_each_other_are_refused(folder: Path, tmp_path: Path) -> None:
    alike = replace(reference(), chromosome=np.full(N, "1"))
    alike = replace(alike, first=np.full(N, "A", object), second=np.full(N, "G", object))
    found = pca(alike.written(tmp_path / "old.bed"), 3)
    file = replace(alike, name=alike.name[ORDER]).written(tmp_path / "new.bed")
    with pytest.raises(ValueError, match=r"new\.bed: names and positions conflict for \d+ of 400 variants"):
        found.project(file)
    by_position, by_name = (found.project(file, match=match) for match in ("position", "name"))
    want = found.project(tmp_path / "old.bed")
    np.testing.assert_allclose(by_position.eigenvectors, want.eigenvectors, atol=1e-9)
    assert by_name.n_by_name == N
    assert np.abs(by_name.eigenvectors - want.eigenvectors).max() > 0.01


def test_sites_with_several_alleles_are_told_apart_by_them(tmp_path: Path) -> None:
    cohort = reference()
    pairs = [("A", "G"), ("A", "C"), ("A", "ATG"), ("AT", "A")]
    sites = replace(
        cohort,
        position=1000 + np.arange(N) // 4,
        chromosome=np.full(N, "1"),
        name=np.full(N, ".", object),
        first=np.array([pairs[j % 4][0] for j in range(N)], object),
        second=np.array([pairs[j % 4][1] for j in range(N)], object),
    )
    found = pca(sites.written(tmp_path / "old.bed"), 3)
    want = found.project(tmp_path / "old.bed")
    assert (want.n_used, want.n_unclear) == (N, 0)
    got = found.project(sites.some(ORDER).swapped(HALF).written(tmp_path / "new.bed"))
    np.testing.assert_allclose(got.eigenvectors, want.eigenvectors, atol=1e-9)
    assert (got.n_used, got.n_mismatched) == (N, 0)


def test_one_variant_twice_is_told_by_its_name_or_left_out(tmp_path: Path) -> None:
    cohort = reference()
    found = pca(cohort.written(tmp_path / "old.bed"), 3)
    twice = np.r_[np.arange(N), 0:10]
    copies = cohort.some(twice)
    copies.G[:, N:] = 2 - copies.G[:, N:]  # wrong
    names = copies.name.copy()
    names[N:] = [f"copy{j}" for j in range(10)]
    by_name = found.project(replace(copies, name=names).written(tmp_path / "named.bed"), trust_ambiguous=True)
    want = found.project(tmp_path / "old.bed", trust_ambiguous=True)
    np.testing.assert_allclose(by_name.eigenvectors, want.eigenvectors, atol=1e-9)
    unclear = found.project(copies.written(tmp_path / "same.bed"), trust_ambiguous=True)
    assert (unclear.n_used, unclear.n_unclear, unclear.n_absent) == (N - 10, 10, 0)
    without = found.project(cohort.some(np.arange(10, N)).written(tmp_path / "less.bed"), trust_ambiguous=True)
    np.testing.assert_allclose(unclear.eigenvectors, without.eigenvectors, atol=1e-9)


def test_an_allele_that_no_new_sample_has_is_told_by_the_other_one(tmp_path: Path) -> None:
    cohort = reference()
    found = pca(cohort.written(tmp_path / "old.bed"), 3)
    want = found.project(tmp_path / "old.bed")
    one = replace(cohort, G=cohort.G[:1])
    for unknown in ("0", "."):
        for told in (one, one.complemented(HALF), one.swapped(OTHER_HALF)):
            homozygous = told.G[0] != 1
            first = np.where(homozygous & (told.G[0] == 0), unknown, told.first)
            second = np.where(homozygous & (told.G[0] == 2), unknown, told.second)
            file = replace(told, first=first, second=second).written(tmp_path / "one.bed")
            got = found.project(file)
            assert (got.n_used, got.n_mismatched) == (want.n_used, 0)
            np.testing.assert_allclose(got.eigenvectors, want.eigenvectors[:1], atol=1e-9)


def test_other_alleles_are_left_out_and_counted(folder: Path, model: Path) -> None:
    cohort = new()
    both = zip(cohort.first, cohort.second, strict=True)
    third = np.array([next(x for x in "ACGT" if x not in (a, b, COMPLEMENT[a])) for a, b in both], object)
    other = (np.arange(N) % 10 == 0) & ~cohort.ambiguous
    file = replace(cohort, second=np.where(other, third, cohort.second)).written(folder / "others.bed")
    n = int(other.sum())
    assert f"{n} with different alleles" in table(model, file)[2]
    found = pca(folder / "reference.bed", 3).project(file)
    assert (found.n_mismatched, found.n_used) == (n, N - n - int(cohort.ambiguous.sum()))


def test_what_cannot_be_matched_is_refused_in_a_line(folder: Path, model: Path) -> None:
    strange = replace(new(), chromosome=np.full(N, "7"), name=np.array([f"x{j}" for j in range(N)], object))
    strange = replace(strange, position=strange.position + 500_000_000)
    result = invoke("transform", model, strange.written(folder / "strange.bed"), "-o", folder / "no.csv")
    assert result.exit_code == 1
    assert f"has no usable variants of the {N} in the model. Absent by position and name: {N} (" in result.stderr
    assert result.stderr.count("\n") == 1
    ambiguous = new().some(new().ambiguous)
    result = invoke("transform", model, ambiguous.written(folder / "ambiguous.bed"), "-o", folder / "no.csv")
    assert result.exit_code == 1
    assert "pass --trust-ambiguous" in result.stderr


def test_models_without_alleles_refuse_genotypes_unless_told(folder: Path, model: Path) -> None:
    old = ss.load_model(model)
    del old.variants_
    old.save(folder / "old.safetensors", force=True)
    result = invoke("transform", folder / "old.safetensors", folder / "new.bed", "-o", "-")
    assert result.exit_code == 1
    assert "does not record which alleles it counts" in result.stderr
    assert "--trust-order" in result.stderr
    _, got, _ = table(folder / "old.safetensors", folder / "new.bed", "--trust-order")
    _, want, _ = table(model, folder / "new.bed", "--trust-ambiguous")
    np.testing.assert_allclose(got, want[:, :3], atol=1e-4)
    assert invoke("transform", model, folder / "new.bed", "-o", "-", "--trust-order").exit_code == 1
    for options in (("--project", "lsq"), ("--match", "name"), ("--trust-ambiguous",)):
        files = folder / "old.safetensors", folder / "new.bed"
        result = invoke("transform", *files, "-o", "-", "--trust-order", *options)
        assert result.exit_code == 2
        assert f"Remove {options[0]}" in result.stderr


def test_options_of_genotypes_are_refused_for_other_files(folder: Path, model: Path) -> None:
    np.save(folder / "new.npy", new().G)
    for options in (("--project", "lsq"), ("--match", "name"), ("--trust-ambiguous",), ("--trust-order",)):
        result = invoke("transform", model, folder / "new.npy", "-o", "-", *options)
        assert result.exit_code == 2
        assert f"{options[0]} requires genotypes" in result.stderr


def test_files_by_chromosome_are_the_one_file(folder: Path, model: Path) -> None:
    _, want, _ = table(model, folder / "new.bed")
    moved = new().some(ORDER).swapped(HALF)
    files = [
        moved.some(np.isin(moved.chromosome, list(own))).written(folder / f"part{i}.bed")
        for i, own in enumerate((("3", "22", "7"), ("1", "2"), tuple(map(str, (*range(4, 7), *range(8, 22))))))
    ]
    _, got, _ = table(model, files, "--stack", "columns")
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_chromosomes_that_are_absent_are_warned_of(folder: Path, model: Path) -> None:
    cohort = new()
    for there, warned in (
        (cohort.chromosome.astype(int) < 12, True),
        (np.random.default_rng(3).random(N) < 0.5, False),
    ):
        _, _, said = table(model, cohort.some(there).written(folder / "part.bed"))
        assert ("lacks whole segments" in said) == warned
    few = cohort.some(np.arange(N) % 4 == 0).written(folder / "few.bed")
    assert "warning: " in table(model, few)[2]
    assert "has only" in table(model, few)[2]
    assert "Check the standard errors of the scores" in table(model, few)[2]
    assert "Use --project lsq." in table(model, few, "--project", "mean")[2]


def plinked(program: str, file: Path, *options: str) -> Path:
    """What PLINK makes of a file."""
    out = file.with_name("plinked")
    command = [program, "--bfile", str(file.with_suffix("")), *options, "--make-bed", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out.with_suffix(".bed")


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("plink1.9", ()),  # the rarer allele becomes the first
        ("plink1.9", ("--output-chr", "chrMT")),
        ("plink1.9", ("--flip", "flipped.txt")),
        ("plink1.9", ("--a1-allele", "firsts.txt", "2", "1")),
        ("plink2", ("--ref-allele", "force", "firsts.txt", "2", "1")),
        ("plink2", ("--set-all-var-ids", "@:#:$r:$a", "--output-chr", "chrM")),
    ],
)
def test_files_that_plink_has_changed_give_the_same_scores(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, program: str, options: tuple[str, ...]
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    monkeypatch.chdir(folder)
    cohort = new()
    Path("flipped.txt").write_text("".join(f"{name}\n" for name in cohort.name[HALF]))
    firsts = zip(cohort.name, np.where(OTHER_HALF, cohort.first, cohort.second), strict=True)
    Path("firsts.txt").write_text("".join(f"{name}\t{allele}\n" for name, allele in firsts))
    _, want, _ = table(model, folder / "new.bed")
    _, got, said = table(model, plinked(program, folder / "new.bed", *options))
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert "0 absent from the file, 0 with different alleles, 0 with dup" in said


def test_a_model_says_what_it_knows_of_variants(model: Path) -> None:
    told = json.loads(done("info", model, "--json").stdout)
    assert told["variants"] == {"known": N, "ambiguous": int(reference().ambiguous.sum())}
    variants = ss.load_model(model).variants_
    assert variants.first.tolist() == reference().first.tolist()
    assert variants.positions.tolist() == reference().position.astype(str).tolist()


def test_a_model_and_a_file_are_held_against_each_other(folder: Path, model: Path) -> None:
    file = new().swapped(HALF).some(np.arange(N) % 4 > 0).written(folder / "some.bed")
    told = json.loads(done("info", model, file, "--json").stdout)
    found = pca(folder / "reference.bed", 3).project(file)
    assert told["matched"] == found.n_used
    assert (told["flipped"], told["absent"], told["ambiguous"]) == (found.n_flipped, N // 4, found.n_ambiguous)
    # no variant in common is an answer, too: info has no option that could add any
    told = json.loads(done("info", model, new().some(new().ambiguous).written(folder / "none.bed"), "--json").stdout)
    assert (told["matched"], told["ambiguous"]) == (0, np.count_nonzero(new().ambiguous))
