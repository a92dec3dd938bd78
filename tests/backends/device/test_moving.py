"""The command moves what it holds to a card, and refuses what it cannot move in a line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends import device
from shiftsvd.cli import main
from shiftsvd.commands import facts, fitting, timing
from tests.backends.device.test_device import numbers


def invoke(*args: object) -> Any:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_card_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "X.npy", numbers((60, 12), "f8"))
    monkeypatch.setattr(device, "devices", list)
    result = invoke("fit", tmp_path / "X.npy", "-k", 2, "--device", "cuda:7", "--json")
    assert result.exit_code == 2
    assert "--device: device cuda:7" in result.output
    result = invoke("bench", tmp_path / "X.npy", "-k", 2, "--device", "cpu", "--device", "cuda:7")
    assert result.exit_code == 2
    assert "--device: device cuda:7" in result.output
    assert device.chosen("auto") == device.chosen("cpu") == "cpu"
    monkeypatch.setattr(device, "devices", lambda: ["cuda:0 A", "cuda:1 B"])
    monkeypatch.setattr(device, "find_spec", lambda name: name)
    assert device.chosen("auto") == device.chosen("cuda") == "cuda:0"
    assert device.chosen("cuda:1") == "cuda:1"
    with pytest.raises(ValueError, match=r"PyTorch sees cuda:0, cuda:1\. Use one of these"):
        device.chosen("cuda:2")


def test_info_lists_cards_with_what_is_known_of_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "devices", lambda: ["cuda:0 A", "cuda:1 B"])
    monkeypatch.setattr(facts, "products", lambda device: f"products of {device}")
    assert "cuda:0 A=products of cuda:0, cuda:1 B=products of cuda:1\n" in invoke("info").output


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host in the place of a card."""
    pytest.importorskip("torch", reason="PyTorch is not here: `make test-device` installs it")
    for module in (device, fitting, timing):
        monkeypatch.setattr(module, "HOST", "nowhere")
    monkeypatch.setattr(device, "chosen", lambda device: "cpu")


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("suffix", ["npy", "npz", "csc.npz"])
def test_a_file_is_fitted_where_it_was_moved(suffix: str, tmp_path: Path) -> None:
    X, path = numbers((60, 12), "f8"), tmp_path / f"X.{suffix}"
    if suffix == "npy":
        np.save(path, X)
    else:
        sparse.save_npz(path, sparse.csc_array(X) if suffix == "csc.npz" else sparse.csr_array(X))
    result = invoke("fit", path, "-k", 2, "--device", "cuda", "--json", "--tol", 1e-8)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert np.allclose(found["singular_values"], ss.PCA(2, tol=1e-8, random_state=0).fit(X).singular_values_, rtol=1e-7)


@pytest.mark.usefixtures("card")
def test_what_is_read_or_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "X.npz"
    sparse.save_npz(path, sparse.csr_array(abs(numbers((60, 12), "f8"))))
    result = invoke("fit", path, "-k", 2, "--device", "cuda", "--preprocess", "log-normalize")
    assert result.exit_code == 2
    assert "--device cuda needs data in memory without missing values or transformations." in result.output
    assert "Remove --preprocess." in result.output
    with pytest.raises(TypeError, match="is not in memory"):
        device.moved(ss.centered(ss.as_operator(numbers((60, 12), "f8"))), "cpu")


class OutOfMemoryError(RuntimeError):
    """As PyTorch raises it."""


@pytest.mark.usefixtures("card")
def test_a_fit_that_a_card_cannot_hold_ends_in_a_line_or_goes_on_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(A: Any, device: str) -> Any:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 80 GiB.")

    np.save(tmp_path / "X.npy", X := numbers((60, 12), "f8"))
    monkeypatch.setattr(fitting, "moved", full)
    given = "fit", tmp_path / "X.npy", "-k", 2, "--json", "--tol", 1e-8, "--device"
    refused = invoke(*given, "cuda")
    assert refused.exit_code == 1
    assert refused.stderr == "Error: The memory of cpu is too small for this fit. Use --device cpu.\n"
    done = invoke(*given, "auto")
    assert "The memory of cpu is too small for this fit. The fit runs on the CPU instead." in done.stderr
    found = json.loads(done.stdout)["singular_values"]
    assert np.allclose(found, ss.PCA(2, tol=1e-8, random_state=0).fit(X).singular_values_, rtol=1e-7)


@pytest.mark.usefixtures("card")
def test_bench_times_a_card_as_it_times_the_host(tmp_path: Path) -> None:
    path = tmp_path / "X.npz"
    sparse.save_npz(path, sparse.csr_array(numbers((60, 12), "f8")))
    result = invoke("bench", path, "-k", 2, "--device", "cuda", "--device", "auto", "--rounds", 1, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["solvers"]
    assert [(row["device"], row["solver"]) for row in rows] == [
        ("cpu", name) for name in ("auto", "lanczos", "gram", "randomized")
    ]
    assert all(row["difference"] < 1e-3 for row in rows)
