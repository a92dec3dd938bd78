"""Genotypes of PLINK 1: variants are the stored rows, samples the rows of the matrix, gaps their variant's mean."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import shiftsvd as ss
from shiftsvd.genetics.files import read_bed
from shiftsvd.genetics.variants import read_samples
from shiftsvd.io import open_matrix

bed_reader = pytest.importorskip("bed_reader")


def write(path: Path, n_samples: int = 23, n_variants: int = 41, **properties: list[str]) -> npt.NDArray[np.float64]:
    """Genotypes, samples x variants, with gaps (NaN), written to a file."""
    rng = np.random.default_rng(5)
    G = rng.integers(0, 3, (n_samples, n_variants)).astype(np.float64)
    G[rng.random(G.shape) < 0.1] = np.nan
    bed_reader.to_bed(path, G, properties=properties)
    return G


def filled(G: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Gaps filled with the mean of their variant."""
    return np.where(np.isnan(G), np.nanmean(G, axis=0), G)


@pytest.mark.parametrize("n_samples", [1, 4, 5, 6, 7, 23])
def test_genotypes_are_counts_with_means_in_their_gaps(n_samples: int, tmp_path: Path) -> None:
    G = write(tmp_path / "a.bed", n_samples)
    G[0, np.isnan(G).all(axis=0)] = 0  # nothing is known of these variants: zero
    opened = read_bed(tmp_path / "a.bed", None, None)
    X = opened.matrix.read(0, opened.matrix.shape[0])
    assert X.dtype == opened.matrix.dtype == np.float32
    np.testing.assert_array_equal(X, filled(G).T.astype(np.float32))


def test_names_are_those_beside_the_file(tmp_path: Path) -> None:
    samples, variants = [f"person{i}" for i in range(23)], [f"rs{j}" for j in range(41)]
    write(tmp_path / "a.bed", iid=samples, sid=variants)
    opened = read_bed(tmp_path / "a.bed", None, None)
    assert opened.samples == "columns"
    assert opened.columns is not None
    assert opened.columns.tolist() == samples
    assert opened.rows is not None
    assert opened.rows.tolist() == variants


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    write(tmp_path / "a.bed", fid=["f"] * 23, iid=["same"] * 2 + [f"i{i}" for i in range(21)])
    fam = tmp_path / "a.fam"
    fam.write_bytes(b"\xef\xbb\xbf" + fam.read_bytes())
    assert read_samples(tmp_path / "a.bed").families[0] == "f"
    names = open_matrix(tmp_path / "a.bed")[1].samples
    assert names is not None
    assert names[0] == "f_same"


def test_samples_of_the_same_name_are_told_apart_by_their_families(tmp_path: Path) -> None:
    write(tmp_path / "a.bed", 4, iid=["1", "2", "1", "2"], fid=["a", "a", "b", "b"])
    opened = read_bed(tmp_path / "a.bed", None, None)
    assert opened.columns is not None
    assert opened.columns.tolist() == ["a_1", "a_2", "b_1", "b_2"]


@pytest.mark.parametrize("stream", [True, False])
def test_open_matrix_puts_the_samples_in_the_rows(stream: bool, tmp_path: Path) -> None:
    G = write(tmp_path / "a.bed", iid=[f"person{i}" for i in range(23)])
    A, names = open_matrix(tmp_path / "a.bed", stream=stream)
    assert A.shape == G.shape
    np.testing.assert_allclose(A @ np.eye(41), filled(G), rtol=1e-6)
    assert names.samples is not None
    assert names.samples[3] == "person3"
    by_variant, _ = open_matrix(tmp_path / "a.bed", orient="rows", stream=stream)
    assert by_variant.shape == G.T.shape


def test_streamed_components_are_those_of_the_filled_matrix(tmp_path: Path) -> None:
    G = filled(write(tmp_path / "a.bed", 60, 200))
    A, _ = open_matrix(tmp_path / "a.bed", stream=True)
    expected = np.linalg.svd(G - G.mean(axis=0), compute_uv=False)[:5]
    np.testing.assert_allclose(ss.svd(A, 5, shift="mean", tol=1e-6).S, expected, rtol=1e-5)


@pytest.mark.parametrize("n_bytes", [1, 400, 10**6])
def test_ranges_of_variants_make_up_the_whole(n_bytes: int, tmp_path: Path) -> None:
    G = write(tmp_path / "a.bed")
    source = pickle.loads(pickle.dumps(read_bed(tmp_path / "a.bed", None, None).matrix))
    edges = source.edges(n_bytes)
    assert edges[0] == 0
    assert edges[-1] == 41
    assert max(np.diff(edges)) * 23 * 4 <= max(n_bytes, 23 * 4)
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(lambda rows: source.read(*rows), pairwise(edges)))
    np.testing.assert_array_equal(np.vstack(blocks), filled(G).T.astype(np.float32))


def test_some_variants_with_other_means_are_those_rows(tmp_path: Path) -> None:
    G = write(tmp_path / "a.bed")
    kept, means = np.arange(41) % 3 != 1, np.linspace(0, 2, 41)
    whole = read_bed(tmp_path / "a.bed", None, None).matrix
    source = whole.filled(means).at(kept)
    assert source.shape == (27, 23)
    assert source.stored == 27 * 23
    want = np.where(np.isnan(G), means, G).T[kept].astype(np.float32)
    np.testing.assert_array_equal(np.vstack([source.read(*rows) for rows in pairwise(source.edges(400))]), want)
    others = whole.at(kept)
    assert len({source.fingerprint, others.fingerprint, whole.fingerprint}) == 3
    assert others.filled(means[kept]).fingerprint == source.fingerprint


def refused(path: Path, match: str, name: str = "") -> None:
    with pytest.raises((ValueError, OSError), match=match) as error:
        read_bed(path, None, None)
    assert str(error.value).startswith(str(path.with_suffix(name) if name else path))


def test_sizes_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bed"
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    refused(path, "must have 249 bytes for the 41 variants of its .bim and the 23 samples of its .fam, got 248")
    path.write_bytes(content + b"\0")
    refused(path, "got 250")
    path.write_bytes(content)
    bim = path.with_suffix(".bim")
    bim.write_text("".join(bim.read_text().splitlines(keepends=True)[1:]))
    refused(path, "must have 243 bytes for the 40 variants")


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bed"
    write(path)
    content = path.read_bytes()
    path.write_bytes(b"\x6c\x1b\x00" + content[3:])
    refused(path, "must be variant-major. Rewrite it with plink --make-bed")
    with pytest.raises(ValueError, match="Rewrite it with plink --make-bed"):
        open_matrix(path)
    path.write_text("chr1\t100\t200\n")
    refused(path, "is not a PLINK 1 .bed file. Its first bytes must be 6c1b, got 6368")
    path.write_bytes(b"")
    refused(path, "is not a PLINK 1 .bed file")


@pytest.mark.parametrize("beside", [".fam", ".bim"])
def test_what_lies_beside_must_be_there_and_have_names(beside: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bed"
    write(path)
    other = path.with_suffix(beside)
    other.write_text("one two 0 0 1 2\nthree\n")
    refused(path, "line 2: must have 6 fields, got 1", beside)
    other.unlink()
    refused(path, f"a{beside} does not exist. Put a.bim and a.fam next to a.bed")


def test_one_matrix_takes_no_key(tmp_path: Path) -> None:
    write(tmp_path / "a.bed")
    with pytest.raises(ValueError, match=r'without a name\. Remove key="X"\.'):
        read_bed(tmp_path / "a.bed", "X", None)
