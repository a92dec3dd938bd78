"""Genotypes in a file for each chromosome are those of the one file: components, alleles and projections."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("bed_reader")

from shiftsvd.genetics import pca
from tests.support.genotypes import genotypes, write

M, N = 50, 230


def files(folder: Path, G: Any, name: str, **own: Any) -> tuple[list[Path], Path]:
    """Genotypes in a file for each of 22 chromosomes and X, and in one."""
    where = np.sort(np.arange(N) % 23)
    told = {
        "sid": np.array([f"rs{j}" for j in range(N)]),
        "bp_position": np.arange(1, N + 1),
        "chromosome": np.array([*map(str, range(1, 23)), "X"])[where],
        "allele_1": np.array(["A", "C"])[np.arange(N) % 2],
        "allele_2": np.array(["G", "T"])[np.arange(N) % 2],
        **own,
    }
    paths = []
    for i in range(23):
        here = {key: values[where == i].tolist() for key, values in told.items()}
        paths.append(write(folder / f"{name}{i}.bed", np.ascontiguousarray(G[:, where == i]), **here))
    return paths, write(folder / f"{name}.bed", G, **{key: values.tolist() for key, values in told.items()})


@pytest.mark.parametrize("stream", [False, True])
def test_chromosomes_side_by_side_are_the_one_file(stream: bool, tmp_path: Path) -> None:
    paths, one = files(tmp_path, genotypes(M, N), "old")
    found, want = (pca(bed, 4, tol=1e-9, stream=stream) for bed in (paths, one))
    np.testing.assert_allclose(found.eigenvalues, want.eigenvalues, rtol=1e-5)  # genotypes are in single precision
    np.testing.assert_allclose(found.frequencies, want.frequencies, rtol=1e-6)
    np.testing.assert_array_equal(found.used, want.used)
    assert found.n_left_out == want.n_left_out == N // 23
    for part in ("samples", "variants"):
        for ours, theirs in zip(getattr(found, part), getattr(want, part), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    # New samples count other alleles here and there, lie in files of their own, and these in another order.
    G = genotypes(9, N, seed=4)
    swapped = np.arange(N) % 3 == 0
    alleles = np.where(np.arange(N) % 2, "C", "A"), np.where(np.arange(N) % 2, "T", "G")
    own = {"allele_1": np.where(swapped, alleles[1], alleles[0]), "allele_2": np.where(swapped, alleles[0], alleles[1])}
    new, whole = files(tmp_path, np.where(swapped, 2 - G, G), "new", **own)
    projections = [model.project(bed) for model, bed in ((found, new[::-1]), (found, whole), (want, whole))]
    for other in projections[1:]:
        signs = np.sign(np.sum(projections[0].eigenvectors * other.eigenvectors, axis=0))
        np.testing.assert_allclose(projections[0].eigenvectors * signs, other.eigenvectors, atol=1e-4)
        assert projections[0][2:10] == other[2:10]
    assert projections[0].n_flipped > 0


def test_other_samples_in_one_of_the_files_are_refused(tmp_path: Path) -> None:
    paths, _ = files(tmp_path, genotypes(M, N), "old")
    fam = paths[5].with_suffix(".fam")
    fam.write_text(fam.read_text().replace("person7", "nobody"))
    model = pca(paths[:5], 2)
    for act in (pca, model.project):
        with pytest.raises(ValueError, match=r"^\S+old5.bed must have the .*old0.bed"):
            act(paths)
    with pytest.raises(ValueError, match="at least one path"):
        pca([])


def test_new_samples_may_be_in_another_order_in_each_file(tmp_path: Path) -> None:
    model = pca(files(tmp_path, genotypes(M, N), "old")[0], 2)
    G, order = genotypes(9, N, seed=4), np.random.default_rng(0).permutation(9)
    paths, whole = files(tmp_path, G, "new")
    moved, _ = files(tmp_path, G[order], "moved")
    own = paths[0].with_suffix(".fam").read_text().splitlines(keepends=True)
    for path in moved:
        path.with_suffix(".fam").write_text("".join(own[i] for i in order))
    found = model.project([paths[0], *moved[1:]])
    np.testing.assert_allclose(found.eigenvectors, model.project(whole).eigenvectors, atol=1e-9)
