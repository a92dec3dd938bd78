"""VCF, BCF and BGEN become files of PLINK: the alleles that are counted, calls, dosages, and what is left out."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.io import convert, open_matrix
from shiftsvd.io.opening import read_file
from tests.support.cohort import ran
from tests.support.places import needs

HEAD = """##fileformat=VCFv4.2
##contig=<ID=1>
##FORMAT=<ID=GT,Number=1,Type=String,Description="calls">
"""
DS = '##FORMAT=<ID=DS,Number=1,Type=Float,Description="dosages">\n'
GP = '##FORMAT=<ID=GP,Number=G,Type=Float,Description="probabilities">\n'
HDS = '##FORMAT=<ID=HDS,Number=2,Type=Float,Description="of haplotypes">\n'
OUT = (".pgen", ".bed", ".h5ad")


def vcf(path: Path, *rows: str, head: str = HEAD + DS + GP + HDS, samples: str = "a b c d") -> Path:
    """A VCF of rows that are written with spaces: position, name, alleles, the fields, and what samples have."""
    pytest.importorskip("cyvcf2")
    lines = []
    for row in rows:
        position, name, first, second, fields, *own = row.split()
        lines.append("\t".join(["1", position, name, first, second, ".", ".", ".", fields, *own]))
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples.split()]
    path.write_text(head + "\n".join(["\t".join(columns), *lines]) + "\n")
    return path


def genotypes(path: Path, **how: Any) -> Any:
    """Samples x variants of what a file became, NaN where they are missing."""
    out = path.with_suffix(".pgen")
    convert(path, out, force=True, **how)
    pytest.importorskip("pgenlib")
    source = read_file(out, None, None, None).matrix
    return source.dosages().T


def same(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found, want, atol=1e-4)  # dosages are stored to 1 / 16384


def test_the_alternative_allele_is_counted_whatever_the_phase(tmp_path: Path) -> None:
    path = vcf(tmp_path / "a.vcf", "10 rs1 A G GT 0/0 0|1 1|0 1/1", "20 rs2 AT A GT 1/1 ./. .|. 0/0")
    same(genotypes(path), [[0, 2], [1, np.nan], [1, np.nan], [2, 0]])
    assert path.with_suffix(".pvar").read_text().splitlines()[1:] == ["1\t10\trs1\tA\tG", "1\t20\trs2\tAT\tA"]
    convert(path, tmp_path / "a.bed")
    assert (tmp_path / "a.bim").read_text() == "1\trs1\t0\t10\tG\tA\n1\trs2\t0\t20\tA\tAT\n"
    calls = read_file(tmp_path / "a.bed", None, None, None).matrix.calls(0, 2)
    np.testing.assert_array_equal(np.where(calls < 0, -1, calls).T, [[0, 2], [1, -1], [1, -1], [2, 0]])


def test_one_copy_counts_twice_and_half_calls_are_missing(tmp_path: Path) -> None:
    path = vcf(tmp_path / "a.vcf", "10 rs1 A G GT 0 1 . 1/1", "20 rs2 A G GT 0/. ./1 .|1 0/1")
    with pytest.warns(UserWarning, match="half-called genotypes, treated as missing: 3"):
        same(genotypes(path), [[0, np.nan], [2, np.nan], [np.nan, np.nan], [2, 1]])


def test_genotypes_of_three_copies_are_missing(tmp_path: Path) -> None:
    path = vcf(tmp_path / "a.vcf", "10 rs1 A G GT 0/0/1 1/1/1 0/1 0/0")
    with pytest.warns(UserWarning, match="genotypes with more than two allele copies, treated as missing: 2"):
        same(genotypes(path), [[np.nan], [np.nan], [1], [0]])


def test_sites_of_more_alleles_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = ["10 rs1 A G,T GT 0/2 0/1 1/1 0/0", "20 rs2 A G GT 0/1 0/1 1/1 0/0", "30 rs3 C . GT 0/0 0/0 ./. 0/0"]
    with pytest.warns(UserWarning, match=r"multiallelic variants removed \(to split them, use bcftools norm -m-\): 1"):
        same(genotypes(vcf(tmp_path / "a.vcf", *rows)), [[1, 0], [1, 0], [2, np.nan], [0, 0]])
    with pytest.raises(ValueError, match=r"b\.vcf must have at least one biallelic variant"):
        convert(vcf(tmp_path / "b.vcf", rows[0]), tmp_path / "b.pgen")
    assert not list(tmp_path.glob("b.p*"))


def test_dosages_are_read_and_calls_where_there_are_none(tmp_path: Path) -> None:
    rows = ["10 rs1 A G GT:DS 0/0:0.2 0/1:1.1 1/1 ./.:0.7", "20 rs2 A G GT:DS 0:0.1 1:0.9 1/1:1.7 0/1:."]
    path = vcf(tmp_path / "a.vcf", *rows)
    dosages = [[0.2, 0.2], [1.1, 1.8], [2, 1.7], [0.7, 1]]
    same(genotypes(path), dosages)
    same(genotypes(path, key="GT"), [[0, 0], [1, 2], [2, 2], [np.nan, 1]])
    needs("scanpy")  # which reads the names in the layout of AnnData
    convert(path, tmp_path / "a.h5ad")
    A, names = open_matrix(tmp_path / "a.h5ad")
    same(A @ np.eye(2), dosages)
    assert names.features is not None
    assert names.features.tolist() == ["rs1", "rs2"]
    done = ran("plink2", "--vcf", path, "dosage=DS", "--make-pgen", "--out", tmp_path / "theirs")
    assert "rror" not in done
    theirs = read_file(tmp_path / "theirs.pgen", None, None, None).matrix
    same(theirs.dosages().T, dosages)


def test_probabilities_and_haplotype_dosages_are_summed(tmp_path: Path) -> None:
    rows = ["10 rs1 A G GT:GP 0/0:0.9,0.1,0 1:0.2,0.8 1/1:. 0/1:0,0.49,0.49"]  # the last sum is rounded
    same(genotypes(vcf(tmp_path / "a.vcf", *rows), key="GP"), [[0.1], [1.6], [2], [1.5]])
    rows = ["10 rs1 A G GT:HDS 0|0:0.1,0.2 1:0.8 1|1:. 0|1:0,1"]
    same(genotypes(vcf(tmp_path / "b.vcf", *rows), key="HDS"), [[0.3], [1.6], [2], [1]])
    path = vcf(tmp_path / "c.vcf", "10 rs1 A G GT:GP 0/0:0,30,60 0/1:30,0,40 1/1:. 0/1:.")
    with pytest.raises(ValueError, match=r"c\.vcf, variant rs1: must have genotype probabilities that sum to 1"):
        convert(path, tmp_path / "c.pgen", key="GP")


def test_a_bed_has_calls_alone(tmp_path: Path) -> None:
    rows = ["10 rs1 A G DS 0.2 1.1 1.95 0.7"]
    head = HEAD.replace("ID=GT", "ID=XX") + DS
    with pytest.warns(UserWarning, match=r"dosages not within 0\.1 of 0, 1 or 2, written as missing in the \.bed.*: 2"):
        convert(vcf(tmp_path / "a.vcf", *rows, head=head), tmp_path / "a.bed")
    assert (read_file(tmp_path / "a.bed", None, None, None).matrix.calls(0, 1) < 0).tolist() == [
        [True, False, False, True]
    ]


def test_variants_without_names_are_called_by_place_and_alleles(tmp_path: Path) -> None:
    long = "A" * 2000
    path = vcf(tmp_path / "a.vcf", "10 . A G GT 0/0 0/1 1/1 0/0", f"20 . {long} G GT 0/0 0/1 1/1 0/0")
    convert(path, tmp_path / "a.pgen")
    _, names = open_matrix(tmp_path / "a.pgen")
    assert names.features is not None
    assert names.features.tolist() == ["1:10:A:G", "1:20"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("10 rs1 A G GT 0/0 0/2 0/1 1/1", "rs1: must have allele numbers 0 and 1 in the field GT, got 2"),
        ("10 rs1 A G GT:DS 0/0:0 0/0:0 0/1:1 1/1:2.5", r"rs1: must have dosages from 0 to .*, got 2.5 on"),
        ("10 rs1 A G GT:DS 0:0 0/0:0 0/1:1 1:1.9", r"rs1: must have dosages from 0 to .*, got 3.8 on"),
        ("10 rs1 A G GT:DS 0/0:-1 0/0:0 0/1:1 1/1:2", r"rs1: must have dosages from 0 to .*, got -1 on"),
        ("10 rs1 A G GT 0/0 zz 0/1 1/1", r"a\.vcf cannot be read"),
        ("10 rs1 A G GT 0/0 0/1 1/1", r"a\.vcf cannot be read"),
    ],
)
def test_what_is_no_genotype_is_refused(tmp_path: Path, row: str, said: str) -> None:
    path = vcf(tmp_path / "a.vcf", row)
    with pytest.raises(ValueError, match=said):
        convert(path, tmp_path / "a.pgen")
    assert [each.name for each in tmp_path.iterdir()] == ["a.vcf"]


def test_files_that_cannot_be_are_refused(tmp_path: Path) -> None:
    row = "10 rs1 A G GT 0/0 0/1 1/1 0/0"
    path = vcf(tmp_path / "a.vcf", row)
    head, lines = HEAD + DS, path.read_text()
    for name, text, said in [
        ("none.vcf", "", "none.vcf"),
        ("head.vcf", head, "head.vcf"),
        ("twice.vcf", lines.replace("\ta\tb", "\ta\ta"), "twice.vcf"),
        ("people.vcf", "\n".join("\t".join(line.split("\t")[:8]) for line in lines.splitlines()) + "\n", "of samples"),
        ("spaces.vcf", lines.replace("\ta\tb", "\ta b\tb"), "sample names without spaces, got 'a b'"),
        (
            "field.vcf",
            lines.replace("ID=GT", "ID=XX").replace("ID=DS", "ID=YY"),
            "the FORMAT field GT or DS in its header, got GP, HDS. Choose a declared field with key.",
        ),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises((ValueError, OSError), match=said):
            convert(tmp_path / name, tmp_path / "out.pgen")
    for how, said in [({"key": "XX"}, "key must be one of"), ({"orient": "rows"}, "orient applies to matrices")]:
        with pytest.raises(ValueError, match=said):
            convert(path, tmp_path / "out.pgen", **how)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("out*"))


def test_a_packed_file_without_its_end_is_refused(tmp_path: Path) -> None:
    path = vcf(tmp_path / "a.vcf", *(f"{10 + i} rs{i} A G GT 0/0 0/1 1/1 0/0" for i in range(2000)))
    cyvcf2 = pytest.importorskip("cyvcf2")
    for name, mode in (("b.bcf", "wb"), ("b.vcf.gz", "wz")):
        packed = tmp_path / name
        source = cyvcf2.VCF(str(path))
        writer = cyvcf2.Writer(str(packed), source, mode)
        for record in source:
            writer.write_record(record)
        writer.close()
        assert genotypes(shutil.copy(packed, tmp_path / f"copy-{name}")).shape == (4, 2000)
        whole = packed.read_bytes()
        for size in (len(whole) - 28, len(whole) // 2):
            packed.write_bytes(whole[:size])
            with pytest.raises(ValueError, match=r"is truncated: the last block"):
                convert(packed, tmp_path / "out.pgen")


def test_what_exists_is_replaced_only_where_that_is_said(tmp_path: Path) -> None:
    path = vcf(tmp_path / "a.vcf", "10 rs1 A G GT 0/0 0/1 1/1 0/0")
    (tmp_path / "out.psam").write_text("mine")
    with pytest.raises(FileExistsError, match=r"out\.psam exists"):
        convert(path, tmp_path / "out.pgen")
    convert(path, tmp_path / "out.pgen", force=True)
    assert sorted(each.name for each in tmp_path.glob("out*")) == ["out.pgen", "out.psam", "out.pvar"]
    with pytest.raises(ValueError, match="compression must be"):
        convert(path, tmp_path / "b.pgen", compression="gzip")


def bgen(path: Path, samples: list[str] | None, *variants: tuple[Any, ...], **how: Any) -> Path:
    """A BGEN of variants that are given as the arguments of its writer."""
    package = pytest.importorskip("bgen")
    with package.BgenWriter(str(path), 4, samples=samples or [], **how) as writer:
        for *told, options in variants:
            writer.add_variant(*told, **options)
    Path(f"{path}.bgi").unlink(missing_ok=True)
    return path


P = np.array([[0.9, 0.1, 0], [0.2, 0.3, 0.5], [np.nan] * 3, [0, 0, 1]])
EXPECTED = [0.1, 1.3, np.nan, 2]
FOUR = ["a", "b", "c", "d"]


def test_dosages_of_bgen_are_those_of_the_second_allele(tmp_path: Path) -> None:
    phased = np.array([[1, 0, 0, 1], [0.3, 0.7, 0.4, 0.6], [1, 0, 1, 0], [np.nan] * 4])
    copies = {"ploidy": np.array([1, 1, 2, 2], np.uint8)}
    haploid = np.array([[1, 0, np.nan], [0.2, 0.8, np.nan], [0, 0.5, 0.5], [0, 0, 1]])
    variants = [
        ("v1", "rs1", "01", 10, ["A", "G"], P, {"bit_depth": 16}),
        ("v2", "rs2", "01", 20, ["A", "G", "T"], np.tile([1.0, 0, 0, 0, 0, 0], (4, 1)), {}),
        ("v3", "rs3", "01", 30, ["AT", "A"], phased, {"phased": True, "bit_depth": 16}),
        ("v4", ".", "0X", 40, ["A", "G"], haploid, {**copies, "bit_depth": 16}),
    ]
    path = bgen(tmp_path / "a.bgen", FOUR, *variants)
    with pytest.warns(UserWarning, match="variants that are not biallelic removed: 1"):
        found = genotypes(path)
    same(found, np.array([EXPECTED, [1, 1.3, 0, np.nan], [0, 1.6, 1.5, 2]]).T)
    told = (tmp_path / "a.pvar").read_text().splitlines()[1:]
    assert told == ["01\t10\trs1\tA\tG", "01\t30\trs3\tAT\tA", "0X\t40\tv4\tA\tG"]
    ran("plink2", "--bgen", path, "ref-first", "--max-alleles", "2", "--make-pgen", "--out", tmp_path / "theirs")
    theirs = read_file(tmp_path / "theirs.pgen", None, None, None).matrix
    same(theirs.dosages().T, found[:, :2])


@pytest.mark.parametrize("layout", [1, 2])
def test_samples_of_bgen_are_named_in_it_or_beside_it(tmp_path: Path, layout: int) -> None:
    variant = ("v1", "rs1", "1", 10, ["A", "G"], np.nan_to_num(P), {})
    how = {"layout": layout, "compression": "zlib"}
    convert(bgen(tmp_path / "a.bgen", FOUR, variant, **how), tmp_path / "a.pgen")
    assert (tmp_path / "a.psam").read_text() == "#FID\tIID\tSEX\n" + "".join(f"0\t{name}\tNA\n" for name in FOUR)
    path = bgen(tmp_path / "b.bgen", None, variant, **how)
    with pytest.raises(FileNotFoundError, match=r"b\.bgen holds no sample names, and .*b\.sample does not exist"):
        convert(path, tmp_path / "b.pgen")
    rows = ["ID_1 ID_2 missing sex", "0 0 0 D", *(f"f{i} p{i} 0 {i}" for i in range(4))]
    for beside, said in [
        (rows[:-1], r"b\.sample must list the 4 samples"),
        (["ID_1"], r"b\.sample must begin with two header lines"),
    ]:
        (tmp_path / "b.sample").write_text("\n".join(beside) + "\n")
        with pytest.raises(ValueError, match=said):
            convert(path, tmp_path / "b.pgen")
    (tmp_path / "b.sample").write_text("\r\n".join(rows) + "\r\n")
    convert(path, tmp_path / "b.pgen")
    assert (tmp_path / "b.psam").read_text().splitlines()[1:] == ["f0\tp0\tNA", "f1\tp1\t1", "f2\tp2\t2", "f3\tp3\tNA"]


def test_damaged_bgen_is_refused(tmp_path: Path) -> None:
    variants = [(f"v{i}", f"rs{i}", "1", 10 + i, ["A", "G"], P, {}) for i in range(5)]
    whole = bgen(tmp_path / "a.bgen", FOUR, *variants).read_bytes()
    for content in (b"", b"no genotypes", whole[:-9], whole[:100], whole[: len(whole) // 2]):
        (tmp_path / "b.bgen").write_bytes(content)
        with pytest.raises(ValueError, match=r"b\.bgen"):
            convert(tmp_path / "b.bgen", tmp_path / "b.pgen")
    assert not list(tmp_path.glob("b.p*"))


def test_without_the_package_the_line_of_plink2_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("a.vcf.gz", "cyvcf2"), ("a.bgen", "bgen")):
        (tmp_path / name).write_bytes(b"something")
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(ImportError, match=rf"{package}.*pip install 'shiftsvd\[.*plink2 --.*--make-pgen"):
            convert(tmp_path / name, tmp_path / "a.pgen")
