"""`shiftsvd estimate`: the options of a fit, the memory of its stages, and the one need of a fit that is refused."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd import front
from shiftsvd.backends.files import DiskRows
from shiftsvd.estimators import pca
from shiftsvd.runs import memory
from tests.support.commands import invoke, told, verbs
from tests.support.containers import Held
from tests.support.meter import measured

COMMAND = Path(sys.executable).with_name("shiftsvd")
NEEDED = re.compile(r"needs about ([\d.,]+ [kMG]?B), more than the limit of ([\d.,]+ [kMG]?B)")


def test_a_column_without_values_needs_em_in_an_estimate_as_in_a_fit(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((30, 8))
    X[:, 3] = np.nan
    np.save(tmp_path / "X.npy", X)
    said = [invoke(command, tmp_path / "X.npy", "-k", 2).stderr for command in ("fit", "estimate")]
    assert said[0] == said[1]
    assert "--missing em" in said[0]
    assert told("estimate", tmp_path / "X.npy", "-k", 2, "--missing", "em")["n_passes"] >= 1


def test_estimate_takes_every_option_of_fit() -> None:
    fit, estimate = (
        {name for each in verbs()[command].params for name in each.opts} for command in ("fit", "estimate")
    )
    assert fit == estimate


def test_stacked_files_scales_and_outputs_are_foreseen(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.standard_normal((300, 8), np.float32))
    (tmp_path / "b.csv").write_text("\n".join(",".join(f"{x:.3f}" for x in row) for row in rng.random((40, 8))))
    line = (tmp_path / "a.npy", tmp_path / "b.csv", "--stack", "rows", "-k", 3, "--scale", "std")
    facts = told("estimate", *line, "-o", tmp_path / "out")
    assert (facts["samples"], facts["features"]) == (340, 8)
    assert facts["peak_bytes"] >= told("estimate", *line)["peak_bytes"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--device=cpu", "--workers=2"])
def test_what_cannot_be_foreseen_is_refused(option: str, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.eye(9))
    told = invoke("estimate", tmp_path / "X.npy", "-k", 2, option)
    assert (told.exit_code, option.partition("=")[0] in told.stderr) == (2, True)


def need(limit: int) -> str:
    """What a fit of a wide file is told that it needs."""
    A = DiskRows(Held(np.random.default_rng(0).random((30, 50_000))), n_threads=2, memory_limit=limit)
    with pytest.raises(ValueError, match=NEEDED) as refused:
        ss.svd(A, 5, shift="mean", solver="lanczos", memory_limit=limit)
    found = NEEDED.search(str(refused.value))
    assert found is not None
    return found[1]


@pytest.mark.long
def test_what_is_needed_does_not_depend_on_the_limit_and_is_enough() -> None:
    needs = {need(limit) for limit in (1_000_000, 5_000_000, 9_000_000)}
    assert len(needs) == 1
    enough = needs.pop().replace(" ", "")
    A = DiskRows(Held(np.random.default_rng(0).random((30, 50_000))), n_threads=2, memory_limit=enough)
    assert ss.svd(A, 5, solver="lanczos", shift="mean", memory_limit=enough).info.converged


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("how", [{"preprocess": "tfidf", "shift": None}, {"preprocess": "sqrt"}, {"scale": "std"}])
@pytest.mark.parametrize(("shape", "k"), [((20_000, 1_000), 60), ((8_000, 6_000), 40), ((3_000, 20_000), 20)])
def test_the_limit_that_is_named_is_enough_for_the_blocks_that_it_reads(
    shape: tuple[int, int], k: int, how: dict[str, Any], n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = sparse.random_array(shape, density=0.005, format="csr", rng=0, dtype=np.float32)
    X.data = np.ceil(9 * X.data)

    def fit(limit: str) -> None:
        A = DiskRows(Held(X), n_threads=n_threads, memory_limit=limit)
        ss.PCA(k, **how, solver="lanczos", n_threads=n_threads, memory_limit=limit).fit(A)

    def checked(A: Any, k: int, solver: Any, tol: float, rng: Any, limit: Any, **other: Any) -> None:
        front.within(limit, A, k, solver, tol)
        raise KeyboardInterrupt  # it would be fitted now

    monkeypatch.setattr(pca, "decompose", checked)
    with pytest.raises(ValueError, match=NEEDED) as refused:
        fit("9MB")
    found = NEEDED.search(str(refused.value))
    assert found is not None
    with pytest.raises(KeyboardInterrupt):
        fit(found[1].replace(" ", "").replace(",", ""))


@pytest.mark.parametrize("more", [(), ("--preprocess", "sqrt"), ("--top-features", 1200)])
def test_an_estimate_is_refused_where_the_fit_is_and_names_what_memory_excludes(more: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((4_000, 1_500), np.float32))
    line = (tmp_path / "X.npy", "-k", 9, *more, "--memory")
    needed = []
    for command in ("fit", "estimate"):
        refused = invoke(command, *line, "1M")
        assert refused.exit_code == 1
        needed += NEEDED.findall(refused.stderr)
    assert needed[0] == needed[1]
    reason = re.sub(r"Gram \S+ s", "Gram 1 s", told("estimate", *line, "100M")["reason"])
    assert "Gram 1 s (excluded by the memory limit), BlockLanczos" in reason


@pytest.mark.parametrize("more", [(), ("--cache", "copies")])
def test_the_limit_that_is_named_is_enough_for_the_ranking_and_the_fit(
    more: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X = sparse.random_array((600, 8_000), density=0.4, format="csr", rng=0, dtype=np.float32)
    X.data = np.ceil(9 * X.data)
    sparse.save_npz("X.npz", X)
    invoke("convert", "X.npz", "X.h5ad")
    line = ("X.h5ad", "--preprocess", "log-normalize", "--top-features", 500, "-k", 3, "--threads", 2, *more)
    refused = [invoke(command, *line, "--memory", "8M").stderr for command in ("fit", "estimate")]
    needed = [found[0] for each in refused for found in NEEDED.findall(each)]
    assert len(needed) == 2
    assert needed[0] == needed[1]
    done = invoke("estimate", *line, "--memory", needed[0].replace(" ", ""))
    assert done.exit_code == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_the_peak_of_a_fit_is_in_the_memory_that_estimate_predicts() -> None:
    held = np.ones(2**23)
    own, peak = memory.own_bytes(), memory.peak_bytes()
    largest, mapped = memory._of_process("VmHWM", "RssFile")
    assert held[-1] == 1
    assert own is not None
    assert peak is not None
    assert largest is not None
    assert mapped is not None
    assert own - 2**20 <= peak <= max(1024 * (largest - mapped), own) + 2**24


@pytest.mark.parametrize("command", ["fit", "estimate"])
def test_a_refusal_counts_what_is_held_in_the_need_and_in_the_limit(command: str, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    import h5py

    X = sparse.random_array((400_000, 2000), density=0.0015, format="csr", rng=0, dtype=np.float32)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["shape"], group.attrs["encoding-type"] = X.shape, "csr_matrix"
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(X, name)
    refused = invoke(command, tmp_path / "X.h5", "-k", 40, "--memory", "11M", "--solver", "lanczos")
    found = NEEDED.search(refused.stderr)
    assert refused.exit_code == 1
    assert found is not None, refused.stderr
    assert found[2] == "11 MB"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("suffix", ["npy", "h5ad"])
def test_a_command_takes_what_was_foreseen(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / f"X.{suffix}"
    rng = np.random.default_rng(0)
    if suffix == "npy":
        np.save(path, rng.standard_normal((1_500_000, 3), np.float32))
    else:
        anndata = pytest.importorskip("anndata")
        adata = anndata.AnnData(sparse.random_array((400_000, 20), density=0.1, format="csr", rng=rng))
        adata.obs_names = [f"cell-{i}" for i in range(adata.n_obs)]
        adata.write_h5ad(path)
    words = [path, "-k", 2, "-o", tmp_path / "out"]
    facts = json.loads(measured([COMMAND, "estimate", *words, "--json"]).out)
    said = facts["total_bytes"]
    found = measured([COMMAND, "fit", *words, "--quiet"])
    assert found.code == 0, found.err
    assert 0.6 * said <= found.peak <= 1.1 * said


@pytest.mark.parametrize("case", ["complex", "one row", "groups"])
def test_an_estimate_refuses_what_a_fit_refuses(case: str, tmp_path: Path) -> None:
    X, options = np.random.default_rng(0).standard_normal((20, 6)), list[str]()
    path = tmp_path / "X.npy"
    if case == "groups":
        anndata = pytest.importorskip("anndata")
        path, options = tmp_path / "X.h5ad", ["--groups", "donor", "--solver", "shifted-randomized"]
        anndata.AnnData(X, obs={"donor": np.array(["a", "b"] * 10)}).write_h5ad(path)
    else:
        np.save(path, X + 1j if case == "complex" else X[:1])
    fit, estimate = (invoke(verb, path, "-k", 1, "-q", *options) for verb in ("fit", "estimate"))
    assert (fit.exit_code, estimate.exit_code) == (1, 1)
    assert estimate.stderr == fit.stderr
