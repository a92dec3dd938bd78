"""`shiftsvd influence` of genotypes: bounds hold the angles of refits without a sample, or without a population."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import shiftsvd as ss
from tests.support.commands import done, invoke
from tests.support.genotypes import explicit, genotypes, write

pytest.importorskip("bed_reader")

M, N, K = 60, 200, 2
GONE, RELATED = 4, (9, 30)  # samples: removed by name; one of a pair of twins is projected


class Case:
    """A cohort with gaps, twins, variants on X and a monomorphic one, and its fit."""

    def __init__(self, folder: Path, *options: object) -> None:
        G = genotypes(M, N, gaps=0.03)
        G[RELATED[0]] = G[RELATED[1]]
        G[:, 11] = 2
        chromosome = ["X" if j < 10 else "1" for j in range(N)]
        second = ["G" if j % 3 else "T" for j in range(N)]
        self.names = {"chromosome": chromosome, "allele_1": ["A"] * N, "allele_2": second}
        self.G, self.bed = G, write(folder / "a.bed", G, **self.names)
        (folder / "gone").write_text(f"person{GONE}\n")
        (folder / "few").write_text("rs50 rs77\n")
        self.out = folder / "out"
        words = ("--remove", folder / "gone", "--exclude", folder / "few", "--unrelated", 0.3, "--no-report", "-q")
        done("fit", self.bed, "-k", K, "--tol", 1e-8, *words, *options, "-o", self.out)
        self.model = self.out / "model.safetensors"
        loaded: Any = ss.load_model(self.model)
        self.learned = np.delete(np.arange(M), GONE)[loaded.learned]
        assert len(self.learned) == M - 2
        kept = np.setdiff1d(np.arange(10, N), (50, 77))
        self.Z = explicit(G[self.learned][:, kept])[0]

    def angles(self, out: Any) -> tuple[Any, float]:
        """Angles of the components to those of the samples that `out` does not mark, and of their spaces."""
        V, W = (np.linalg.svd(Z - Z.mean(axis=0))[2][:K] for Z in (self.Z, self.Z[~out]))
        cosines = np.linalg.svd(V @ W.T, compute_uv=False)
        return np.degrees(np.arccos(np.minimum(np.abs((V * W).sum(axis=1)), 1))), np.degrees(np.arccos(cosines[-1]))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def assert_bounds(table: Path, case: Case, index: str, masks: dict[str, Any]) -> None:
    written = pd.read_csv(table, index_col=index)
    assert list(written.index) == list(masks)
    for label, out in masks.items():
        angles, space = case.angles(out)
        for name, angle in (("PC1", angles[0]), ("PC2", angles[1]), ("space", space)):
            least, most = written.loc[label, [f"{name}_at_least", f"{name}_at_most"]]
            assert least - 1e-3 <= angle <= most + 1e-3
            assert most - least < 15


def of_samples(case: Case) -> dict[str, Any]:
    return {f"person{i}": case.learned == i for i in case.learned}


def test_bounds_hold_the_angles_of_refits_without_a_sample(case: Case, tmp_path: Path) -> None:
    result = done("influence", case.model, case.bed, "--widest", 5, "-o", tmp_path / "a.csv")
    assert_bounds(tmp_path / "a.csv", case, "sample", of_samples(case))
    assert "Without sample person" in result.stdout


def test_bounds_hold_the_angles_of_refits_without_a_population(case: Case, tmp_path: Path) -> None:
    populations = [f"pop{i % 3}" for i in range(M)]
    rows = (f"person{i} {name} x{i % 2}\n" for i, name in enumerate(populations))
    (tmp_path / "labels").write_text("#IID pop other\n" + "".join(rows))
    how = ("--leave-out", "pop", "--labels", tmp_path / "labels")
    done("influence", case.model, case.bed, *how, "--widest", 5, "-o", tmp_path / "a.csv")
    own = np.array(populations)[case.learned]
    assert_bounds(tmp_path / "a.csv", case, "pop", {name: own == name for name in ("pop0", "pop1", "pop2")})
    done("influence", case.model, case.bed, "--leave-out", "FID", "-o", tmp_path / "b.csv")  # of the .fam
    assert list(pd.read_csv(tmp_path / "b.csv")["FID"]) == ["family0", "family1", "family2"]


def test_other_orders_and_alleles_are_the_same_genotypes(case: Case, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(N)
    swapped = np.arange(N) % 3 == 1
    first, second = (np.array(case.names[name]) for name in ("allele_1", "allele_2"))
    names = {"allele_1": np.where(swapped, second, first)[order].tolist()}
    names |= {"allele_2": np.where(swapped, first, second)[order].tolist(), "sid": [f"rs{j}" for j in order]}
    names |= {"chromosome": np.array(case.names["chromosome"])[order].tolist(), "bp_position": (order + 1).tolist()}
    G = np.where(swapped, 2 - case.G, case.G)[:, order]
    other = write(tmp_path / "b.bed", G, **names)
    assert invoke("influence", case.model, other, "--widest", 5, "-o", tmp_path / "b.csv").exit_code == 0
    assert_bounds(tmp_path / "b.csv", case, "sample", of_samples(case))


@pytest.mark.parametrize("options", [("--scale", "std"), ("--scale", "none"), ("--shift", "none")], ids=str)
def test_other_fits_have_bounds(tmp_path: Path, options: Any) -> None:
    case = Case(tmp_path, *options)
    told = json.loads(done("influence", case.model, case.bed, "--widest", 1, "--json").stdout)
    assert told["shape"][0] == M - 2
    assert all(turn["at_most"] - turn["at_least"] < 2 for turn in told["turns"])


def test_what_cannot_be_is_refused_in_a_line(case: Case, tmp_path: Path) -> None:
    few = write(tmp_path / "few.bed", case.G[:, :150].copy(), **{name: own[:150] for name, own in case.names.items()})
    own = ss.genetics.pca(case.bed, 2)
    ss.save_model(own, tmp_path / "own.safetensors")
    half = write(tmp_path / "half.bed", case.G[:30].copy(), **case.names)
    (tmp_path / "labels").write_text("#IID pop\n" + "".join(f"person{i} p{i % 2}\n" for i in range(20)))
    np.save(tmp_path / "G.npy", np.nan_to_num(case.G))
    labels = ("--labels", tmp_path / "labels")
    for words, message in (
        ((case.model, few), "few.bed has 137 of the 187 variants"),
        ((case.model, half), "influence needs the 58 rows of the fit, got 30"),
        ((tmp_path / "own.safetensors", case.bed), "own.safetensors"),
        ((case.model, case.bed, "--leave-out", "pop"), "has no column 'pop'"),
        ((case.model, case.bed, "--leave-out", "pop", *labels), "The column 'pop' is empty for 39 samples: "),
        ((case.model, case.bed, *labels), "--labels requires --leave-out"),
        ((case.model, tmp_path / "G.npy", "--leave-out", "pop", *labels), "--labels requires genotypes"),
    ):
        result = invoke("influence", *words)
        assert result.exit_code in (1, 2)
        assert message in result.stderr
        assert len(result.stderr.splitlines()) <= 4
