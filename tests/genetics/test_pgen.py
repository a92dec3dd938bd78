"""Genotypes of PLINK 2: the numbers of the .bed that they were made from, dosages, samples and variants in a mask."""

from pathlib import Path

import numpy as np
import pytest

from shiftsvd.cli import main
from shiftsvd.genetics import pca
from shiftsvd.io import open_matrix
from shiftsvd.io.opening import read_file
from tests.support.cohort import bed_reader, linked, write

pgenlib = pytest.importorskip("pgenlib")


def pgen(path: Path, bed: Path, dosages: np.ndarray | None = None, alt: str = "A") -> Path:
    """A .pgen of the genotypes of a .bed, or of these dosages (NaN: missing), with the same names."""
    G = bed_reader.open_bed(bed).read(dtype="int8").T.copy()
    G[G < 0] = -9
    n, m = G.shape
    with pgenlib.PgenWriter(str(path).encode(), m, variant_ct=n, dosage_present=dosages is not None) as writer:
        for j in range(n):
            if dosages is None:
                writer.append_biallelic(G[j])
            else:
                writer.append_dosages(np.nan_to_num(dosages[:, j], nan=-9).astype(np.float32))
    people = [line.split() for line in bed.with_suffix(".fam").read_text().splitlines()]
    lines = ["#FID\tIID\tPAT\tMAT", *("\t".join(row[:4]) for row in people)]
    path.with_suffix(".psam").write_text("\n".join(lines) + "\n")
    variants = [line.split() for line in bed.with_suffix(".bim").read_text().splitlines()]
    rows = [f"{row[0]}\t{row[3]}\t{row[1]}\t{row[5]}\t{alt}" for row in variants]
    path.with_suffix(".pvar").write_text("\n".join(["##fileformat=VCFv4.2", "#CHROM\tPOS\tID\tREF\tALT", *rows]) + "\n")
    return path


@pytest.fixture
def bed(tmp_path: Path) -> Path:
    return write(tmp_path / "a.bed", linked(60, 400, gaps=0.05), founders=0.9)


@pytest.mark.parametrize("stream", [False, True])
def test_the_matrix_is_that_of_the_bed(bed: Path, tmp_path: Path, stream: bool) -> None:
    A, names = open_matrix(pgen(tmp_path / "b.pgen", bed), stream=stream)
    B, want = open_matrix(bed)
    np.testing.assert_array_equal(A @ np.eye(400), B @ np.eye(400))
    assert names.samples is not None
    assert names.features is not None
    assert names.samples.tolist() == want.samples.tolist()
    assert names.features.tolist() == want.features.tolist()


def test_samples_are_read_in_any_order_and_any_of_them(bed: Path, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(60)
    for path in (bed, pgen(tmp_path / "b.pgen", bed)):
        source = read_file(path, None, None, None).matrix
        moved = source.at(samples=order)
        np.testing.assert_array_equal(moved.calls(3, 40), source.calls(3, 40)[:, order])
        np.testing.assert_allclose(moved.read(3, 40), source.read(3, 40)[:, order], rtol=1e-6)
        some = moved.at(samples=order < 20)
        np.testing.assert_array_equal(some.calls(0, 9), source.calls(0, 9)[:, order[order < 20]])
        assert moved.fingerprint != source.fingerprint


def test_components_and_filters_are_those_of_the_bed(bed: Path, tmp_path: Path) -> None:
    filters = {"mind": 0.1, "geno": 0.08, "hwe": 1e-3, "maf": 0.1, "indep_pairwise": (20, 2, 0.4), "unrelated": 0.2}
    ours, want = (pca(path, 3, rng=0, **filters) for path in (pgen(tmp_path / "b.pgen", bed), bed))  # type: ignore[arg-type]
    np.testing.assert_allclose(ours.eigenvalues, want.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(ours.eigenvectors, want.eigenvectors, atol=1e-5)
    assert ours.removed == want.removed
    assert ours.variants.first.tolist() == want.variants.first.tolist()


def test_projections_are_those_of_the_bed(bed: Path, tmp_path: Path) -> None:
    found = pca(bed, 3)
    for project in ("lsq", "mean"):
        want = found.project(bed, project=project).eigenvectors
        got = found.project(pgen(tmp_path / "b.pgen", bed), project=project).eigenvectors
        np.testing.assert_allclose(got, want, atol=1e-9)


def test_dosages_are_multiplied_and_calls_are_counted(bed: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dosages = np.clip(linked(60, 400, gaps=0.05) + rng.choice([0, 0.125, -0.125], (60, 400)), 0, 2)
    A, _ = open_matrix(pgen(tmp_path / "b.pgen", bed, dosages))
    filled = np.where(np.isnan(dosages), np.nanmean(dosages, axis=0), dosages)
    np.testing.assert_allclose(A @ np.eye(400), filled, atol=1e-4)  # dosages are stored to 1 / 16384


def test_the_command_takes_it(bed: Path, tmp_path: Path) -> None:
    from click.testing import CliRunner

    path, out = pgen(tmp_path / "b.pgen", bed), tmp_path / "out"
    words = ["fit", str(path), "-k", "2", "--maf", "0.05", "-o", str(out), "--no-report"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert Path(f"{out}.eigenvec").exists()
    model, scores = str(out / "model.safetensors"), str(tmp_path / "scores.csv")
    result = CliRunner().invoke(main, ["transform", model, str(bed), "-o", scores])
    assert result.exit_code == 0, result.output


def test_files_that_cannot_be_are_refused(bed: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"b\.pgen must have biallelic variants only, got the multiallelic variant rs0. .*--max-alleles",
    ):
        open_matrix(pgen(tmp_path / "b.pgen", bed, alt="A,T"))
    path = pgen(tmp_path / "c.pgen", bed)
    table = path.with_suffix(".pvar")
    table.write_text("".join(f"{line}\n" for line in table.read_text().splitlines()[:-1]))
    with pytest.raises(ValueError, match=r"c\.pgen"):
        open_matrix(path)
    path = pgen(tmp_path / "e.pgen", bed)
    people = path.with_suffix(".psam")
    people.write_text("".join(f"{line}\n" for line in people.read_text().splitlines()[:-1]))
    with pytest.raises(ValueError, match=r"e\.pgen must have .* samples of its \.psam, got .* Check that the three"):
        open_matrix(path)
    people.write_text("#FID SEX\nf 1\n")
    with pytest.raises(ValueError, match=r"e\.psam must have the columns IID, got a header without IID\. Write"):
        open_matrix(path)
    table.write_text("#CHROM POS ID ALT\n1 5 rs0 A\n")
    with pytest.raises(ValueError, match=r"c\.pvar must have the columns CHROM, .* got a header without REF\. Write"):
        open_matrix(path.with_name("c.pgen"))
    table.write_text("1 rs0 0 5 A G\n")
    path = path.with_name("c.pgen")
    with pytest.raises(ValueError, match=r"c\.pvar must have a header that starts with #CHROM, got '1 rs0'"):
        open_matrix(path)
    path = pgen(tmp_path / "d.pgen", bed)
    path.with_suffix(".psam").unlink()
    with pytest.raises(FileNotFoundError, match=r"d\.psam"):
        open_matrix(path)


@pytest.mark.parametrize(
    ("name", "how"), [("a b.vcf.gz", "--vcf '"), ("a.BCF", "--bcf "), ("a.vcf", "--vcf "), ("a.bgen", "--bgen ")]
)
def test_other_genotypes_are_refused_with_the_line_that_converts_them(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / name).write_text("##fileformat=VCFv4.2\n")
    with pytest.raises(ValueError, match=f"shiftsvd convert .*, or plink2 {how}.*--make-pgen"):
        open_matrix(tmp_path / name)
    with pytest.raises(ValueError, match=f"shiftsvd convert .*, or plink2 {how}.*--make-pgen"):
        pca(tmp_path / name)


def test_a_packed_table_of_variants_is_read(bed: Path, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = pgen(tmp_path / "b.pgen", bed)
    want = pca(path, 2, rng=0)
    plain, packed = path.with_suffix(".pvar"), path.with_suffix(".pvar.zst")
    text = plain.read_bytes()
    frames = [zstandard.ZstdCompressor().compress(part) for part in (text[:1000], text[1000:])]
    packed.write_bytes(b"".join(frames))
    plain.unlink()
    found = pca(path, 2, rng=0)
    assert found.variants.positions.tolist() == want.variants.positions.tolist()
    np.testing.assert_array_equal(found.eigenvalues, want.eigenvalues)
    for damaged in (frames[0], b"".join(frames)[:-9], b"no frame", frames[0] + b"\0" * 9):
        packed.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"b\.p"):
            open_matrix(path)
