"""Labels of samples, relatives, scores in one scale, and loadings along the genome, as files of the command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd import load_model
from shiftsvd.genetics import GenotypePCA, Variants, pca, unrelated
from shiftsvd.genetics.commands import _significant
from shiftsvd.genetics.figures import Genome, figures, write_png
from shiftsvd.model_file import save_model
from tests.support.commands import done, invoke
from tests.support.genotypes import genotypes, write

pytest.importorskip("bed_reader")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty samples: the second is the twin of the first, the fourth the child of the third and the sixth."""
    rng, G = np.random.default_rng(1), genotypes(40, 900, gaps=0)
    G[1], G[3] = G[0], rng.binomial(1, G[2] / 2) + rng.binomial(1, G[5] / 2)
    G[rng.random(G.shape) < 0.03] = np.nan
    return write(tmp_path_factory.mktemp("family") / "a.bed", G)


def rows(path: Path | str) -> list[list[str]]:
    return [line.split("\t") for line in Path(path).read_text().splitlines()]


def numbers(path: Path | str, columns: slice) -> Any:
    return np.array([row[columns] for row in rows(path)[1:]], float)


def test_relatives_and_projected_samples_are_files(family: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done("fit", family, "-k", 2, "--unrelated", 0.1, "-o", out, "--no-report")
    head, *pairs = rows(f"{out}.kin0")
    assert head == ["#FID1", "IID1", "FID2", "IID2", "NSNP", "HETHET", "IBS0", "KINSHIP"]
    found, G = unrelated(family, 0.1), pca(family, 2).samples.names.tolist()
    want = np.argwhere(np.triu(found.kinship > 0.1, 1))
    assert [[G.index(pair[1]), G.index(pair[3])] for pair in pairs] == want.tolist()
    assert {("person0", "person1"), ("person2", "person3"), ("person3", "person5")} <= {(p[1], p[3]) for p in pairs}
    assert all(row[0] == f"family{G.index(row[1]) % 3}" for row in pairs)
    from bed_reader import open_bed

    X = open_bed(family).read()
    for row, (i, j) in zip(pairs, want, strict=True):
        known = ~np.isnan(X[i] + X[j])
        shares = ((X[i] == 1) & (X[j] == 1)).sum() / known.sum(), (np.abs(X[i] - X[j]) == 2).sum() / known.sum()
        assert int(row[4]) == known.sum()
        np.testing.assert_allclose(np.array(row[5:], float), [*shares, found.kinship[i, j]], rtol=1e-5)
    assert [row[1] for row in rows(f"{out}.projected")[1:]] == found.samples.names[~found.unrelated].tolist()
    pca(family, 2, unrelated=0.1).save(tmp_path / "python")
    for kind in ("projected", "kin0"):
        assert rows(tmp_path / f"python.{kind}") == rows(f"{out}.{kind}")


@pytest.mark.parametrize("how", [(), ("--scale", "std"), ("--shift", "none")])
def test_projected_samples_have_the_scores_of_transform(tmp_path: Path, how: tuple[str, ...]) -> None:
    G = genotypes(60, 600, gaps=0)
    G[50] = G[3]
    rng = np.random.default_rng(2)
    G[rng.random(G.shape) < 0.02] = np.nan
    G[50, rng.random(600) < 0.5] = np.nan
    bed, out = write(tmp_path / "a.bed", G), tmp_path / "out"
    unit = () if how else ("--scores-scale", "unit")
    done("fit", bed, "-k", 3, "--unrelated", 0.2, "--scores", "csv", *unit, *how, "-o", out)
    model, found = out / "model.safetensors", {}
    for project in ("lsq", "mean"):
        file = tmp_path / f"{project}.csv"
        done("transform", model, bed, "--project", project, "--trust-ambiguous", *unit, "-o", file)
        found[project] = np.loadtxt(file, delimiter=",", skiprows=1, usecols=range(1, 4))
    projected = np.arange(60) == 50
    assert [row[1] for row in rows(f"{out}.projected")[1:]] == ["person50"]
    scores = np.loadtxt(out / "scores.csv", delimiter=",", skiprows=1, usecols=range(1, 4))
    size = np.abs(scores).max()
    np.testing.assert_allclose(scores[projected], found["lsq"][projected], atol=1e-5 * size)
    assert np.abs(scores - found["mean"])[projected].max() > 0.05 * size
    values = np.ones(3) if unit else json.loads((out / "result.json").read_text())["singular_values"]
    np.testing.assert_allclose(np.linalg.norm(scores[~projected], axis=0), values, rtol=1e-4)
    if unit:
        np.testing.assert_allclose(numbers(f"{out}.eigenvec", slice(2, 5)), scores, atol=1e-5)


def test_a_projected_sample_with_too_few_genotypes_has_no_scores(tmp_path: Path) -> None:
    G = genotypes(40, 300, gaps=0)
    G[7], G[7, :2], G[8:20, :2] = np.nan, 1, 1
    bed, out = write(tmp_path / "a.bed", G), tmp_path / "out"
    told = done("fit", bed, "-k", 2, "--unrelated", 0.3, "-o", out)
    assert "the scores of 1 sample with too few variants of the model are NaN" in told.stderr
    assert np.isnan(numbers(f"{out}.eigenvec", slice(2, 4))).any(axis=1).nonzero()[0].tolist() == [7]
    told = done("transform", out / "model.safetensors", bed, "-o", tmp_path / "scores.csv")
    assert "the scores of 1 sample with too few variants of the model are NaN" in told.stderr
    with pytest.warns(UserWarning, match="the scores of 1 sample"):
        found = pca(bed, 2, unrelated=0.3)
    assert np.isnan(found.eigenvectors).any(axis=1).nonzero()[0].tolist() == [7]
    save_model(found, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors", GenotypePCA)
    np.testing.assert_array_equal(again.eigenvectors, found.eigenvectors)
    found.eigenvectors[6] = np.nan
    with pytest.raises(ValueError, match="eigenvectors must be finite for training samples, got 1"):
        save_model(found, tmp_path / "bad.safetensors")


def test_samples_that_mind_removes_are_a_file(tmp_path: Path) -> None:
    G = genotypes(12, 200)
    G[[3, 7], :80] = np.nan
    path = write(tmp_path / "a.bed", G)
    done("fit", path, "-k", 2, "--mind", 0.3, "-o", tmp_path / "o", "--no-report")
    everyone = pca(path, 2).samples
    want = [["#FID", "IID"], *([everyone.families[i], everyone.names[i]] for i in (3, 7))]
    assert rows(tmp_path / "o.mindrem.id") == want
    fit = pca(path, 2, mind=0.3)
    fit.save(tmp_path / "python")
    assert rows(tmp_path / "python.mindrem.id") == want


def test_no_relatives_are_files_with_a_header_only(tmp_path: Path) -> None:
    done(
        "fit",
        write(tmp_path / "a.bed", genotypes(9, 300)),
        "--unrelated",
        0.4,
        "-k",
        2,
        "-o",
        tmp_path / "o",
        "-q",
        "--no-report",
    )
    assert [len(rows(tmp_path / name)) for name in ("o.kin0", "o.projected")] == [1, 1]


def test_kinship_is_printed_in_ten_lines(family: Path) -> None:
    text = str(unrelated(family))
    assert len(text.splitlines()) <= 10
    assert "closest pair:        family0 person0 and family1 person1, 0." in text
    assert "twins or duplicates: 1\n" in text
    blind = write(family.with_name("blind.bed"), np.where(np.arange(3)[:, None] == 1, 0, genotypes(3, 60, gaps=0)))
    assert "removed samples:" in str(unrelated(blind))  # a kinship without heterozygous genotypes is NaN
    one = write(family.with_name("one.bed"), genotypes(1, 30, gaps=0) * 0 + 1)
    assert "removed samples:     0" in str(unrelated(one))


@pytest.mark.parametrize("scale", ["unit", "sqrt", "eigen"])
def test_scores_and_eigenvec_have_one_scale(family: Path, tmp_path: Path, scale: str) -> None:
    out, new = tmp_path / "out", tmp_path / "new.eigenvec"
    how = ("--scores-scale", scale, "-q")
    fit_only = ("--no-report", *how)
    document = json.loads(
        done("fit", family, "-k", 3, "--scores", "csv", "-o", out, "--json", "--tol", 1e-8, *fit_only).stdout
    )
    values = np.array(document["genotypes"]["eigenvalues"])
    scores = np.loadtxt(out / "scores.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3))
    np.testing.assert_allclose(numbers(f"{out}.eigenvec", slice(2, None)), scores, rtol=1e-5, atol=1e-7)
    want = {"unit": 1, "sqrt": np.sqrt(values), "eigen": values}[scale]
    np.testing.assert_allclose(np.linalg.norm(scores, axis=0), want * np.ones(3), rtol=1e-5)
    fit = pca(family, 3, tol=1e-8)
    fit.save(tmp_path / "python", scores_scale=scale)  # type: ignore[arg-type]
    np.testing.assert_allclose(numbers(tmp_path / "python.eigenvec", slice(2, None)), scores, atol=1e-5 * np.max(want))
    done("transform", out / "model.safetensors", family, "-o", new, "--dtype", "float64", *how)
    assert rows(new)[0] == ["#FID", "IID", "PC1", "PC2", "PC3", "PC1_se", "PC2_se", "PC3_se"]
    assert [row[:2] for row in rows(new)] == [row[:2] for row in rows(f"{out}.eigenvec")]
    projection = fit.project(family)
    for part, there in ((slice(2, 5), projection.eigenvectors), (slice(5, 8), projection.standard_errors)):
        np.testing.assert_allclose(numbers(new, part), there * want, atol=1e-4 * np.max(want))
    done("transform", out / "model.safetensors", family, "-o", tmp_path / "new.csv", "--dtype", "float64", *how)
    table = np.loadtxt(tmp_path / "new.csv", delimiter=",", skiprows=1, usecols=range(1, 7))
    np.testing.assert_allclose(numbers(new, slice(2, 8)), table, rtol=1e-7, atol=1e-9)


def test_an_eigenvec_without_an_option_is_that_of_plink(family: Path, tmp_path: Path) -> None:
    done("fit", family, "-k", 2, "-o", tmp_path / "out", "-q", "--no-report", "--tol", 1e-8)
    model = tmp_path / "out" / "model.safetensors"
    done("transform", model, family, "-o", tmp_path / "new.eigenvec", "--project", "mean")
    assert rows(tmp_path / "new.eigenvec")[0] == ["#FID", "IID", "PC1", "PC2"]
    old = numbers(tmp_path / "out.eigenvec", slice(2, None))
    np.testing.assert_allclose(numbers(tmp_path / "new.eigenvec", slice(2, None)), old, atol=1e-5)
    np.save(tmp_path / "X.npy", genotypes(4, 900, gaps=0))
    result = invoke("transform", model, tmp_path / "X.npy", "-o", tmp_path / "x.eigenvec")
    assert result.exit_code == 1
    assert "A .eigenvec requires genotypes" in result.stderr
    assert not (tmp_path / "x.eigenvec").exists()
    done("fit", family, "--shift", "none", "-k", 2, "-o", tmp_path / "off", "-q")
    assert invoke("fit", family, "--scale", "std", "--scores-scale", "unit", "-k", 2).exit_code == 2
    assert invoke("fit", tmp_path / "X.npy", "--scores-scale", "unit", "-k", 2).exit_code == 2


LABELS = {
    "pairs": ("#FID\tIID\tpop\n", "{f}\t{i}\t{p}\n"),
    "no families": ("#FID\tIID\tpop\n", "0\t{i}\t{p}\n"),
    "names": ("sample pop\n", "{i} {p}\n"),
    "commas": ("IID,pop\n", '{i},"{p}"\n'),
    "other columns": ("age;pop;iid\n", "7;{p};{i}\n"),
}


@pytest.mark.parametrize("form", LABELS)
def test_labels_are_those_of_the_ids(family: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, line = LABELS[form]
    order, file = np.random.default_rng(0).permutation(40), tmp_path / "labels"
    lines = [line.format(f=f"family{i % 3}", i=f"person{i}", p=f"pop{i % 5}") for i in order if i != 7]
    file.write_text(head + "".join(lines) + line.format(f="x", i="nobody", p="pop1") + lines[0])
    seen: dict[str, Any] = {}
    monkeypatch.setattr("shiftsvd.report.write", lambda *args, **how: (args[0].write_text(""), seen.update(how)))
    more = ("--label-column", "pop") if form == "other columns" else ()
    keep = tmp_path / "keep"
    keep.write_text("\n".join(f"person{i}" for i in range(30)))
    how = ("--keep", keep, "--unrelated", 0.1, "--labels", file, *more)
    result = done("fit", family, "-k", 2, "-o", tmp_path / "out", "--report", *how)
    want = ["missing" if i == 7 else f"pop{i % 5}" for i in range(30)]
    assert np.asarray(seen["colors"]).tolist() == want
    assert (seen["colors"].name, len(seen["figures"])) == ("pop", 2)
    assert "1 id of the genotypes without a label: " in result.stderr
    assert "1 id of the labels not among the genotypes: " in result.stderr
    assert "1 line repeated with the same label" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("person1 a\nperson2 b\n", "must have a header"),
        ("IID pop age\nperson1 a 3\n", "Choose one with --label-column"),
        ("IID pop\nperson1 a b\n", "line 2: must have the 2 fields of the header, got 3"),
        ("IID pop\nperson1 a\n\nperson1 b\n", "line 4: person1 has the label 'b', but 'a'"),
        ("IID pop\nsomebody a\n", "has no label of any sample"),
        ("FID IID pop\nfamily2 person0 a\n", "has no label of any sample"),
    ],
)
def test_labels_without_an_answer_are_refused(family: Path, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "labels.txt"
    file.write_text(text)
    result = invoke("fit", family, "-k", 2, "--labels", file, "-o", tmp_path / "out")
    assert (result.exit_code, (tmp_path / "out").exists()) == (1, False)
    assert message in result.stderr


def test_one_name_in_two_families_needs_the_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.report.write", lambda path, *_, **__: path.write_text(""))
    bed = write(tmp_path / "a.bed", genotypes(4, 60), iid=["a", "a", "b", "c"], fid=["f", "g", "f", "f"])
    for text, code in (("IID pop\na x\n", 1), ("FID IID pop\nf a x\ng a y\n", 0), ("IID pop\nb x\nc y\n", 0)):
        (tmp_path / "labels").write_text(text)
        result = invoke("fit", bed, "-k", 2, "--labels", tmp_path / "labels", "-o", tmp_path / f"{code}", "--force")
        assert result.exit_code == code, result.output


def test_a_column_of_the_fam_is_a_label(family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("shiftsvd.report.write", lambda *args, **how: (args[0].write_text(""), seen.update(how)))
    done("fit", family, "-k", 2, "--label-column", "FID", "-o", tmp_path / "out")
    assert np.asarray(seen["colors"]).tolist() == [f"family{i % 3}" for i in range(40)]
    result = invoke("fit", family, "-k", 2, "--label-column", "pop", "-o", tmp_path / "out", "--force")
    assert "a.fam has no column 'pop'. Its columns are FID, IID, PAT, MAT, SEX, PHENO1" in result.stderr


def test_significant_axes_are_one_line() -> None:
    assert _significant([0.0, 1e-3, None, 0.01], ()).endswith(": 2, PC1 to PC2")
    assert _significant([0.0], ()).endswith("see --indep-pairwise, --unrelated, --maf")
    assert _significant([0.5, 0.0], ()).endswith(": 0, none")


def placed(chromosomes: list[str], positions: list[int]) -> Variants:
    n = len(positions)
    names, alleles = np.array([f"rs{j}" for j in range(n)]), np.full(n, "A", object)
    return Variants(np.array(chromosomes), names, np.array(positions).astype(str), alleles, alleles)


def test_chromosomes_follow_each_other_along_the_genome() -> None:
    variants = placed(["chr10", "chr2", "X", "chr2", "0", "0", "chrUn_gl000220"], [5, 400, 7, 100, 0, 0, 3])
    genome = Genome.of(variants)
    assert genome.names == ["2", "10", "X", "…l000220", "0"]
    order = np.argsort(genome.x, kind="stable")
    assert variants.names[order].tolist() == ["rs3", "rs1", "rs0", "rs2", "rs6", "rs4", "rs5"]
    assert np.all(np.diff(genome.x[order]) > 0)
    assert genome.x[1] - genome.x[3] == 300


def test_peaks_have_names_and_no_words_overlap(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rng, n = np.random.default_rng(0), 2200
    loadings = rng.standard_normal((n, 2))
    for j, size in ((100, 9), (101, 8.5), (300, 8.8), (2199, 9), (1500, -8)):
        loadings[j, 0] = size
    variants = placed([str(1 + 22 * j // n) for j in range(n)], [1000 * (j % 100 + 1) for j in range(n)])
    seen: list[Any] = []
    kept = [(title, lambda ax, draw=draw: (draw(ax), seen.append(ax))) for title, draw in figures(variants, loadings)]
    write_png(tmp_path / "a.png", kept)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    ax, without = seen
    texts = ax.texts + ax.get_xticklabels()
    assert {text.get_text() for text in ax.texts} == {"rs100", "rs300", "rs2199", "rs1500"}
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(ax.figure.bbox.fully_contains(*corner) for box in boxes for corner in (box.min, box.max))
    assert not without.texts
