"""`shiftsvd fit` of a .bed: Patterson's matrix without being asked, and the files that PLINK users look for."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.genetics import GenotypeModel, GenotypePCA, pca
from shiftsvd.model_file import save_model
from tests.support.commands import done, invoke
from tests.support.genotype_files import others, streamed
from tests.support.genotypes import assert_same_up_to_signs, explicit, genotypes, write

pytest.importorskip("bed_reader")


@pytest.fixture
def G() -> Any:
    """Genotypes with gaps, two monomorphic variants, and one of which nothing is known."""
    G = genotypes(60, 300)
    G[:, 5], G[:, 6], G[:, 7] = 2, 0, np.nan
    G[3, 5] = np.nan
    return G


@pytest.fixture
def bed(tmp_path: Path, G: Any) -> Path:
    return write(tmp_path / "cohort.bed", G)


def test_the_matrix_is_that_of_patterson(bed: Path, G: Any) -> None:
    told = json.loads(done("fit", bed, "-k", 2, "--json", "--tol", 1e-8).stdout)
    genotypes_with_gaps = G.copy()
    G[:, 7] = 0
    Z, _ = explicit(G)
    S = np.linalg.svd(Z, compute_uv=False)
    np.testing.assert_allclose(told["singular_values"], S[:2], rtol=1e-6)
    np.testing.assert_allclose(told["explained_variance_ratio"], S[:2] ** 2 / (S**2).sum(), rtol=1e-6)
    assert (told["settings"]["shift"], told["settings"]["scale"], told["settings"]["missing"]) == (
        *("mean", "patterson"),
        "mean",
    )
    assert told["n_missing"] == np.isnan(genotypes_with_gaps).sum()
    assert "missing values replaced by the means" in told["variance_of"]
    assert json.loads(done("info", bed, "--json").stdout)["n_missing"] == told["n_missing"]
    variants = told["genotypes"]
    np.testing.assert_allclose(variants.pop("eigenvalues"), S[:2] ** 2 / 297, rtol=1e-6)
    assert variants == {"scale": "sqrt(2 p (1 - p))", "variants_used": 297, "monomorphic": 3, "not_on_autosomes": 0}
    assert "297 variants scaled by sqrt(2 p (1 - p)), 3 monomorphic and" in done("fit", bed, "-k", 2).stdout


@pytest.mark.one_in(2)
@pytest.mark.parametrize("in_file", [False, True], ids=["in memory", "in the file"])
def test_the_files_of_plink_lie_beside_the_folder(
    bed: Path, G: Any, tmp_path: Path, in_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_file:
        streamed(monkeypatch)
    out = tmp_path / "results" / "cohort.v1"
    result = done("fit", bed, "-k", 2, "-o", out, "--tol", 1e-8, "--json")
    outputs = json.loads(result.stdout)["outputs"]
    assert (outputs["eigenvec"], outputs["eigenval"]) == (f"{out}.eigenvec", f"{out}.eigenval")
    assert sorted(file.name for file in out.parent.iterdir()) == [
        "cohort.v1",
        "cohort.v1.eigenval",
        "cohort.v1.eigenvec",
        "cohort.v1.eigenvec.allele",
    ]
    lines = Path(f"{out}.eigenvec").read_text().splitlines()
    assert lines[0] == "#FID\tIID\tPC1\tPC2"
    assert [line.split("\t")[:2] for line in lines[1:]] == [[f"family{i % 3}", f"person{i}"] for i in range(60)]
    U = np.array([line.split("\t")[2:] for line in lines[1:]], float)
    np.testing.assert_allclose(np.linalg.norm(U, axis=0), 1, rtol=1e-6)
    G[:, 7] = 0
    Z, _ = explicit(G)
    want, S, _ = np.linalg.svd(Z, full_matrices=False)
    assert_same_up_to_signs(U, want[:, :2], 1e-5)
    np.testing.assert_allclose(np.loadtxt(f"{out}.eigenval"), S[:2] ** 2 / 297, rtol=1e-6)
    ours = pca(bed, 2)
    np.testing.assert_allclose(U, ours.eigenvectors, atol=1e-5)  # signs too
    model = ss.load_model(out / "model.safetensors")
    np.testing.assert_allclose(model.mean_, 2 * ours.frequencies, atol=1e-6)
    np.testing.assert_allclose(
        model.scale_[ours.used], np.sqrt(2 * ours.frequencies * (1 - ours.frequencies))[ours.used]
    )
    assert model.feature_names_in_[0] == "rs0"


def test_a_point_for_a_folder_is_the_folder_by_its_name(bed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bed.parent / "here").mkdir()
    monkeypatch.chdir(bed.parent / "here")
    done("fit", bed, "-k", 2, "-o", ".", "--no-report")
    assert (bed.parent / "here.eigenvec").exists()


@pytest.mark.long
def test_another_scale_may_be_asked_for(bed: Path, G: Any, tmp_path: Path) -> None:
    filled = np.where(np.isnan(G), np.nan_to_num(np.nanmean(np.where(np.isnan(G).all(axis=0), 0, G), axis=0)), G)
    centred = filled - filled.mean(axis=0)
    told = json.loads(done("fit", bed, "-k", 2, "--scale", "none", "--json", "-o", tmp_path / "out").stdout)
    np.testing.assert_allclose(told["singular_values"], np.linalg.svd(centred, compute_uv=False)[:2], rtol=1e-4)
    assert told["settings"]["scale"] is None
    assert not {"eigenvec", "eigenval"} & set(told["outputs"])
    assert "genotypes" not in told
    told = json.loads(done("fit", bed, "-k", 2, "--shift", "none", "--json").stdout)
    np.testing.assert_allclose(told["singular_values"], np.linalg.svd(filled, compute_uv=False)[:2], rtol=1e-4)
    told = json.loads(done("fit", bed, "-k", 2, "--orient", "rows", "--json").stdout)  # variants as samples
    assert (told["shape"], told["settings"]["scale"]) == ([300, 60], None)


def test_counts_of_alleles_in_other_files_may_be_scaled_alike(bed: Path, G: Any, tmp_path: Path) -> None:
    G[:, 7] = 0
    np.save(tmp_path / "G.npy", G)
    told = json.loads(
        done("fit", tmp_path / "G.npy", "-k", 2, "--scale", "patterson", "--missing", "mean", "--json").stdout
    )
    want = json.loads(done("fit", bed, "-k", 2, "--json").stdout)
    np.testing.assert_allclose(told["singular_values"], want["singular_values"], rtol=1e-4)
    assert told["genotypes"]["variants_used"] == 297
    np.save(tmp_path / "X.npy", 3 * np.nan_to_num(G))
    result = invoke("fit", tmp_path / "X.npy", "--scale", "patterson")
    assert result.exit_code == 1
    assert "--scale patterson requires allele counts from 0 to 2, got columns with means from 0 to " in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--missing", "em"), "replaced by the mean of their variant. Remove --missing."),
        (("--missing", "mean", "--unobserved"), "replaced by the mean of their variant"),
        (("--scale", "patterson", "--shift", "none"), "--scale patterson requires --shift mean"),
        (("--scale=allele",), "'allele' is not one of"),
        (("--orient", "rows", "--chromosomes", "all"), "--chromosomes requires genotypes"),
        (("--chromosomes", "X"), "'X' is not one of"),
    ],
)
def test_what_cannot_be_is_refused(bed: Path, options: Any, message: str) -> None:
    result = invoke("fit", bed, "-k", 2, *options)
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_a_limit_of_zero_is_a_limit(bed: Path, G: Any) -> None:
    told = json.loads(done("fit", bed, "-k", 2, "--geno", 0, "--json").stdout)
    assert told["removed"] == {"geno": np.isnan(G).any(axis=0).sum()}


def test_thresholds_of_filters_are_in_the_result_and_in_the_model(bed: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("rs1\nrs2\n")
    options = ("--maf", 0.05, "--geno", 0, "--hwe", 1e-9, "--hwe-midp", "--exclude", tmp_path / "some.txt")
    options += ("--indep-pairwise", "50", 5, 0.2, "--exclude-long-range", "hg38", "--unrelated", 0.4)
    told = json.loads(done("fit", bed, "-k", 2, *options, "--json", "-o", tmp_path / "out").stdout)
    found = told["settings"]
    wanted = {"maf": 0.05, "geno": 0, "hwe": 1e-9, "hwe_midp": True, "unrelated": 0.4, "exclude_long_range": "hg38"}
    assert wanted.items() <= found.items()
    assert (found["indep_pairwise"], found["exclude"]) == (["50", 5, 0.2], str(tmp_path / "some.txt"))
    assert not {"mind", "keep", "indep_order"} & set(found)
    model = ss.load_model(tmp_path / "out" / "model.safetensors", GenotypeModel)
    texts = {"indep_pairwise": "50 5 0.2", "exclude": str(tmp_path / "some.txt"), "chromosomes": "autosomes"}
    assert model.filters == wanted | texts
    assert json.loads(done("info", tmp_path / "out" / "model.safetensors", "--json").stdout)["filters"] == model.filters
    own = pca(bed, 2, **wanted, indep_pairwise=(50, 5, 0.2), exclude=["rs1", "rs2"])
    save_model(own, tmp_path / "own.safetensors")
    again = ss.load_model(tmp_path / "own.safetensors", GenotypePCA)
    assert again.filters == own.filters == wanted | texts | {"exclude": "2 names"}


@pytest.fixture
def sexed() -> Any:
    """Where the variants are that are not on autosomes."""
    return np.isin(np.arange(300), [0, 1, 2, 120, 121, 299])


@pytest.fixture
def with_sexes(tmp_path: Path, G: Any, sexed: Any) -> Path:
    return write(tmp_path / "sexes.bed", G, chromosome=np.where(sexed, "chrX", "chr1").tolist())


def scores(model: Path, file: Path, *options: object) -> Any:
    """What the command writes of these samples."""
    out = model.with_name("scores.npy")
    done("transform", model, file, "-o", out, "--force", "--dtype", "float64", *options)
    return np.load(out)


@pytest.mark.long
def test_variants_that_are_not_on_autosomes_are_left_out(with_sexes: Path, sexed: Any, tmp_path: Path) -> None:
    result = done("fit", with_sexes, "-k", 2, "-o", tmp_path / "out", "--json")
    told = json.loads(result.stdout)
    ours = pca(with_sexes, 2)
    np.testing.assert_allclose(told["genotypes"]["eigenvalues"], ours.eigenvalues, rtol=1e-4)
    assert (told["genotypes"]["variants_used"], told["genotypes"]["not_on_autosomes"]) == (ours.n_used, 6)
    assert (told["settings"]["chromosomes"], told["shape"]) == ("autosomes", [60, 294])
    assert "6 variants not on autosomes removed. To keep all, use --chromosomes all." in result.stderr
    names = ss.load_model(tmp_path / "out" / "model.safetensors").feature_names_in_.tolist()
    assert names == [f"rs{j}" for j in np.flatnonzero(~sexed)]
    assert "3 monomorphic and 6 not on autosomes" in done("fit", with_sexes, "-k", 2, "-q").stdout
    result = done("fit", with_sexes, "-k", 2, "--chromosomes", "all", "--json")
    told = json.loads(result.stdout)
    assert (told["genotypes"]["variants_used"], told["genotypes"]["not_on_autosomes"]) == (297, 0)
    assert "autosomes removed" not in result.stderr


@pytest.mark.parametrize(("chromosomes", "in_file"), [("autosomes", True), ("all", False)])
def test_scores_of_new_samples_are_projections(
    with_sexes: Path, sexed: Any, tmp_path: Path, chromosomes: str, in_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_file:
        streamed(monkeypatch)
    done("fit", with_sexes, "-k", 2, "-o", tmp_path / "out", "--tol", 1e-6, "--chromosomes", chromosomes)
    model = tmp_path / "out" / "model.safetensors"
    ours = pca(with_sexes, 2, tol=1e-8, chromosomes=chromosomes)
    own = {"chromosome": np.where(sexed, "chrX", "chr1").tolist()}
    new = others()
    for name, samples in (("new", new), ("one", new[:1])):
        file = write(tmp_path / f"{name}.bed", samples, **own)
        want = ours.project(file).eigenvectors * np.sqrt(ours.eigenvalues * ours.n_used)
        np.testing.assert_allclose(scores(model, file), want, atol=1e-6 * np.sqrt(ours.eigenvalues[0] * ours.n_used))
    order = np.random.default_rng(0).permutation(300)
    file = write(
        *(tmp_path / "moved.bed", new[:, order]),
        sid=[f"rs{j}" for j in order],
        bp_position=(1 + order).tolist(),
        chromosome=np.where(sexed[order], "23", "1").tolist(),
    )
    want = ours.project(tmp_path / "new.bed").eigenvectors * np.sqrt(ours.eigenvalues * ours.n_used)
    np.testing.assert_allclose(scores(model, file), want, atol=1e-6 * np.sqrt(ours.eigenvalues[0] * ours.n_used))


def _of_table(folder: Path) -> Path:
    ss.PCA(2).fit(np.random.default_rng(0).random((9, 4))).save(folder / "table.safetensors")
    return folder / "table.safetensors"


@pytest.mark.parametrize("options", [(), ("--scale", "none"), ("--shift", "none")])
def test_a_model_of_the_command_projects_in_python(bed: Path, tmp_path: Path, options: Any) -> None:
    done("fit", bed, "-k", 2, "-o", tmp_path / "out", *options)
    path, new = tmp_path / "out" / "model.safetensors", write(tmp_path / "new.bed", others())
    model = ss.load_model(path, GenotypeModel)
    found, wanted = model.project(new), scores(path, new)
    np.testing.assert_allclose(found.eigenvectors * model.singular_values_, wanted, rtol=1e-6)
    model.save(tmp_path / "again.safetensors")
    again = ss.load_model(tmp_path / "again.safetensors", GenotypeModel)
    np.testing.assert_array_equal(again.project(new).eigenvectors, found.eigenvectors)
    np.testing.assert_array_equal(scores(tmp_path / "again.safetensors", new), wanted)
    assert not isinstance(ss.load_model(_of_table(tmp_path)), GenotypeModel)


def test_the_model_says_what_it_does_with_gaps(bed: Path, tmp_path: Path) -> None:
    done("fit", bed, "-k", 2, "-o", tmp_path / "out")
    assert ss.load_model(tmp_path / "out" / "model.safetensors").missing == "mean"
    new = others()
    np.save(tmp_path / "new.npy", new)
    file = write(tmp_path / "new.bed", new)
    model = tmp_path / "out" / "model.safetensors"
    in_gaps = scores(model, file, "--project", "mean")
    np.testing.assert_allclose(scores(model, tmp_path / "new.npy"), in_gaps, atol=1e-4)
    done("fit", bed, "-k", 2, "-o", tmp_path / "off", "--shift", "none")
    model = tmp_path / "off" / "model.safetensors"
    blind = ss.load_model(model)
    del blind.variants_
    blind.save(tmp_path / "blind.safetensors")
    result = invoke("transform", tmp_path / "blind.safetensors", file, "-o", tmp_path / "no.npy", "--trust-order")
    assert result.exit_code == 1  # there is no mean
    assert "entries are missing (NaN)" in result.stderr
    assert len(scores(model, write(tmp_path / "full.bed", genotypes(7, 300, gaps=0)))) == 7


@pytest.mark.long
def test_names_that_are_to_be_trusted_must_be_those_of_the_model(with_sexes: Path, tmp_path: Path) -> None:
    done("fit", with_sexes, "-k", 2, "-o", tmp_path / "out")
    model = ss.load_model(tmp_path / "out" / "model.safetensors")
    del model.variants_
    model.save(tmp_path / "blind.safetensors")
    fewer = write(tmp_path / "fewer.bed", genotypes(7, 280))
    result = invoke("transform", tmp_path / "blind.safetensors", fewer, "-o", tmp_path / "no.npy", "--trust-order")
    assert result.exit_code == 1
    assert "(limit 0 %): rs280, rs281, rs282" in result.stderr


def test_files_that_exist_are_not_replaced_and_nothing_is_left_half_done(bed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Path(f"{out}.eigenval").write_text("mine")
    result = invoke("fit", bed, "-k", 2, "-o", out)
    assert result.exit_code == 1
    assert "out.eigenval exists. Use --force" in result.stderr
    assert not out.exists()
    done("fit", bed, "-k", 2, "-o", out, "--force")
    assert len(Path(f"{out}.eigenval").read_text().splitlines()) == 2
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    fam = bed.with_suffix(".fam")
    fam.write_text("".join(" ".join(line.split()[:5]) + "\n" for line in fam.read_text().splitlines()))
    result = invoke("fit", bed, "-k", 3, "-o", out, "--force")
    assert result.exit_code == 1
    assert "cohort.fam, line 1: must have 6 fields" in result.stderr
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file != fam} == {
        file: content for file, content in before.items() if file != fam
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scores-scale", "sqrt"), "--scores-scale needs an output folder"),
        (("--dtype", "float64"), "--dtype needs an output folder"),
        (("--labels", __file__, "-o", "out", "--no-report"), "Remove --no-report."),
        (("--var-names", "gene_ids"), "--var-names has no effect on genotypes. Remove it."),
        (("--obs-query", "x == 1"), "--obs-query has no effect on genotypes. Remove it."),
    ],
)
def test_options_of_a_fit_without_effect_are_refused(bed: Path, options: Any, message: str) -> None:
    result = invoke("fit", bed, "-k", 2, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("options", [("--max-absent", 0.5), ("--feature-types", "all"), ("--drop", "x")])
def test_options_of_a_projection_without_effect_are_refused(bed: Path, tmp_path: Path, options: Any) -> None:
    done("fit", bed, "-k", 2, "-o", tmp_path / "out", "--no-report")
    result = invoke("transform", tmp_path / "out" / "model.safetensors", bed, "-o", "-", *options)
    assert result.exit_code in (1, 2)
    assert "genotypes. Remove" in result.stderr


def test_info_describes_genotypes_and_its_command_works(tmp_path: Path) -> None:
    G = genotypes(60, 300)
    places = {"chromosome": ["1"] * 200 + ["X"] * 90 + ["MT"] * 10, "sex": [i % 3 for i in range(60)]}
    names = {"sid": ["rs3094315", "rs3131972", *(f"rs{j}" for j in range(298))]}
    at = {"bp_position": [752566, 752721, *range(800_000, 800_298)]}
    bed = write(tmp_path / "a.bed", G, father=["0"] * 50 + ["f"] * 10, **places, **names, **at)
    told = json.loads(done("info", bed, "--json").stdout)
    assert (told["chromosomes"], told["not_on_autosomes"]) == ({"1": 200, "X": 90, "MT": 10}, 100)
    assert (told["genome_build"], told["founders"]) == ("GRCh37", 50)
    assert told["sex"] == {"unknown": 20, "male": 20, "female": 20}
    missing, p = np.isnan(G), np.nanmean(G[:50], axis=0) / 2
    for name, values in (("maf", np.minimum(p, 1 - p)), ("missing_by_variant", missing.mean(axis=0))):
        np.testing.assert_allclose([*told[name].values()], np.quantile(values, np.arange(5) / 4), rtol=6e-3)
    np.testing.assert_allclose(told["missing_by_sample"]["largest"], missing.mean(axis=1).max(), rtol=6e-3)
    text = done("info", bed).stdout
    assert "\nsamples_are         columns of the stored matrix\n" in text
    assert f"\nn_missing           {missing.sum()}\n" in text
    assert "density" not in text  # that of entries in the file, which says nothing of missing genotypes
    line = told["command"].split()
    assert "--indep-pairwise 50 5 0.2" in told["command"]
    assert "--missing" not in line
    assert told["command"].count("--exclude-long-range hg19") == 1
    done(*line[1:], "-k", 2)
    result = invoke("fit", bed, "-k", 2, "--exclude-long-range", "hg38")
    assert result.exit_code == 1
    assert "has positions of GRCh37, but --exclude-long-range hg38 removes regions of GRCh38" in result.stderr


def test_info_suggests_pruning_of_sorted_variants_only(tmp_path: Path) -> None:
    for name, positions in (("sorted", [*range(1, 301)]), ("not", [*range(1, 151), *range(300, 150, -1)])):
        chromosomes = ["1"] * 150 + ["2"] * 150
        bed = write(tmp_path / f"{name}.bed", genotypes(60, 300), chromosome=chromosomes, bp_position=positions)
        told = json.loads(done("info", bed, "--json").stdout)["command"]
        assert ("--indep-pairwise" in told) == (name == "sorted")
        done(*told.split()[1:], "-k", 2)


def test_info_describes_one_file_a_chromosome_together(tmp_path: Path) -> None:
    G = genotypes(60, 300)
    parts = [
        write(
            tmp_path / f"c{i}.bed", G[:, of].copy(), chromosome=[str(i)] * 150, sid=[f"rs{i}_{j}" for j in range(150)]
        )
        for i, of in ((1, slice(150)), (2, slice(150, None)))
    ]
    told = json.loads(done("info", *parts, "--stack", "columns", "--json").stdout)
    assert (told["chromosomes"], told["files"]) == ({"1": 150, "2": 150}, 2)
    np.testing.assert_allclose(told["missing_by_sample"]["largest"], np.isnan(G).mean(axis=1).max(), rtol=6e-3)
    done(*told["command"].split()[1:], "-k", 2)


def test_the_report_counts_filters_and_draws_relatives_as_projected(tmp_path: Path) -> None:
    G = genotypes(60, 300, gaps=0)
    G[7] = G[3]
    bed = write(tmp_path / "a.bed", G, pheno=[f"p{i % 2}" for i in range(60)])
    options = ("--maf", 0.1, "--unrelated", 0.3, "--tracy-widom", "--label-column", "PHENO1")
    done("fit", bed, "-k", 2, *options, "-o", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for part in ("<dt>--maf 0.1</dt>", "1 related sample removed from the fit", "<dt>Tracy-Widom test</dt>"):
        assert part in text
    assert "The projected sample is drawn as a diamond" in text


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_contributions_in_reports_are_those_of_the_samples_of_the_fit(tmp_path: Path, kind: str) -> None:
    G = genotypes(60, 300, gaps=0)
    G[3, :80] = 2  # far out, and so is its twin
    G[7] = G[3]
    bed, out = write(tmp_path / "a.bed", G), tmp_path / "out"
    fit = ("fit", bed, "-k", 3, "--unrelated", 0.3, "--contributions", "--scores", kind, "-o", out)
    done(*fit)
    (twin,) = [line.split()[1] for line in (tmp_path / "out.projected").read_text().splitlines()[1:]]
    names = [line.split()[1] for line in bed.with_suffix(".fam").read_text().splitlines()]
    Z = ss.load_model(out / "model.safetensors").project(bed, project="mean").eigenvectors
    shares = {name: row[:2] ** 2 for name, row in zip(names, Z, strict=True) if name != twin}
    again, new = (tmp_path / name for name in ("again.html", "new.html"))
    model = ("report", out / "model.safetensors", out / f"scores.{kind}")
    done(*model, "-o", again)
    done(*model, out / f"scores.{kind}", "-o", new)
    for path in (out / "report.html", again, new):
        text = path.read_text(encoding="utf-8")
        rows = re.findall(r"<tr><td>([^<]*)</td><td>[^<]*</td><td>([\d.]+) %</td><td>[^<]*</td><td>([\d.]+) %", text)
        if kind == "npy" and path != out / "report.html":
            assert rows[0][0].startswith("sample ")
            rows = [(names[int(name.removeprefix("sample ")) - 1], *row) for name, *row in rows]
        assert len(rows) == 15
        for name, *percents in rows:
            np.testing.assert_allclose([float(x) for x in percents], 100 * shares[name], atol=0.006)
        n_new = 1 if path != new else 61
        assert (f"{n_new} projected samples" if n_new > 1 else "The projected sample is drawn") in text


@pytest.mark.parametrize("few", [2**28, 6_000])
def test_info_counts_missing_genotypes_unless_it_samples(
    bed: Path, G: Any, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("shiftsvd.commands.facts.SAMPLED", 0)
    monkeypatch.setattr("shiftsvd.genetics.describing._MOST", few)
    told = json.loads(done("info", bed, "--json").stdout)
    assert told["n_missing"] == (np.isnan(G).sum() if few > G.size else None)
    assert (re.search("n_missing +not counted", done("info", bed).stdout) is None) == (few > G.size)


@pytest.mark.parametrize("options", [(), ("--format", "bed")])
@pytest.mark.parametrize("there", [True, False])
def test_a_prefix_as_for_plink_is_answered_with_the_name_of_the_file(
    bed: Path, options: tuple[str, ...], there: bool
) -> None:
    prefix = bed.with_suffix("")
    if there:
        prefix.mkdir()
    result = invoke("fit", prefix, "-k", 2, *options)
    assert result.exit_code == (1 if there else 2)
    assert " ".join(result.stderr.split()).endswith(f"Did you mean {bed}?")


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--maf", 0.1), "add axes: see --indep-pairwise, --unrelated"),
        (("--maf", 0.1, "--unrelated", 0.4, "--indep-pairwise", 50, 5, 0.9), "try --indep-pairwise 1000kb 1 0.1 and a"),
    ],
)
def test_where_all_axes_are_significant_only_filters_that_were_not_given_are_named(
    tmp_path: Path, options: tuple[Any, ...], remedy: str
) -> None:
    G = genotypes(60, 300, gaps=0)
    G[:30, :200] = 2 - G[:30, :200]
    told = done("fit", write(tmp_path / "a.bed", G), "-k", 1, "--tracy-widom", *options).stdout
    assert remedy in told
