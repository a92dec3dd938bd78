"""Our own products on a card: their text runs on the host, thread by thread, and gives the bits that NumPy gives."""

import logging
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.device import arrays_of, device_operator, kernel, products_of
from shiftsvd.backends.device import matrices as on_device
from shiftsvd.backends.device.kernel import Chunks, cut
from tests.backends.device.test_device import MAKE, ON_CARD, near, numbers, shifted
from tests.support import chunk_twin as twin
from tests.support.fake_device import Far, FarCSR
from tests.support.host_card import BACKWARDS, FORWARDS, RANDOM, CardArrays, HostCard, built, chunks_of

ROWS, THREADS = 24, 64
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
TURNS = (FORWARDS, BACKWARDS, RANDOM)


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    """What cannot be compiled for the host is skipped here, once."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("needs a C++ compiler")


def same_as_the_twin(C: Chunks, X: sparse.csr_array, V: np.ndarray, D: np.ndarray, w: np.ndarray | None) -> bool:
    """Whether each product has the twin's bits, in as many columns at a time as the kernel takes."""
    sides, weights = Far(D) if D.shape[1] else None, None if w is None else Far(w[:, None])
    cuts = [slice(lo, hi) for lo, hi, _ in cut(V.shape[1], V.dtype)]
    Y = np.hstack([twin.gathered(C, X, V[:, part], D) for part in cuts])
    top, bottom = Far(V[: X.shape[1]]), Far(V[X.shape[1] :])
    pairs = [
        (C.gathered([top, bottom], sides, V.dtype), Y),
        (C.scattered(Far(Y), sides, V.dtype), np.hstack([twin.scattered(C, X, Y[:, part], D) for part in cuts])),
        (C.gram([top, bottom], sides, weights, V.dtype), np.hstack([twin.gram(C, X, V[:, p], D, w) for p in cuts])),
    ]
    W, centres, none = Y[:, :4].astype(np.float64), V[: X.shape[1], 0].astype(np.float64), np.zeros((len(Y), 0))
    for power in range(3):
        apart = sparse.csr_array(((X.data - centres[X.indices]) ** power, X.indices, X.indptr), shape=X.shape)
        found = C.powers(Far(W), Far(centres), power)
        pairs.append((found, twin.scattered(C, apart, W, none)))
    return all(found.near.dtype == want.dtype and np.array_equal(found.near, want) for found, want in pairs)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, ...]:
    """A matrix with empty rows and columns, a panel, dense columns beside, and weights or none."""
    m, n, sides = draw(st.integers(1, 100)), draw(st.integers(1, 50)), draw(st.integers(0, 3))
    data, panel, most = draw(st.sampled_from([(SINGLE, SINGLE, 40), (SINGLE, DOUBLE, 8), (DOUBLE, DOUBLE, 4)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.standard_normal((m, n)) * (rng.random((m, n)) < draw(st.sampled_from([0.0, 0.05, 0.3, 1.0])))
    X[rng.random(m) < 0.2], X[:, rng.random(n) < 0.2] = 0, 0
    V, D = rng.standard_normal((n + sides, draw(st.integers(1, most)))), rng.standard_normal((m, sides))
    w = rng.random(m).astype(panel) if draw(st.booleans()) else None
    return sparse.csr_array(X.astype(data)), V.astype(panel), D.astype(panel), w


@settings(deadline=None, derandomize=True)
@given(problems(), st.sampled_from([1, 3, kernel.BLOCKS]), st.sampled_from(TURNS), st.integers(0, 99))
def test_every_sum_has_the_order_of_the_twin_whoever_comes_first(
    problem: Any, blocks: int, turns: int, seed: int
) -> None:
    X, V, D, w = problem
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernel, "BLOCKS", blocks)
        assert same_as_the_twin(chunks_of(X, HostCard(turns, seed), ROWS, THREADS), X, V, D, w)


@pytest.mark.skipif(not ON_CARD, reason="no CUDA device")
@pytest.mark.parametrize("kind", [kind for kind in ON_CARD if kind.endswith("dense")])
@pytest.mark.parametrize(
    ("data", "panel", "width"),
    [("f4", "f4", 7), ("f4", "f4", 16), ("f4", "f4", 30), ("f4", "f8", 16), ("f8", "f8", 5), ("f8", "f8", 50)],
)
def test_a_card_gives_the_bits_of_the_twin(kind: str, data: str, panel: str, width: int) -> None:
    rng = np.random.default_rng(0)
    X = sparse.random_array((5000, 700), density=0.05, format="csr", rng=rng, dtype=np.dtype(data))
    V, D, w = (rng.standard_normal(shape).astype(panel) for shape in ((702, width), (5000, 2), (5000, 1)))
    arrays: Any = arrays_of(MAKE[kind](V))
    parts = tuple(arrays.up(x) for x in (X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)))
    C = Chunks(arrays.card(), parts, (X.dtype, np.dtype(np.int64)), X.shape)
    there = [arrays.up(x) for x in (V, D, w)]
    for _ in range(3):
        found = arrays.down(C.gram(there[:1], there[1], there[2], V.dtype))
        cuts = [slice(lo, hi) for lo, hi, _ in cut(width, V.dtype)]
        assert np.array_equal(found, np.hstack([twin.gram(C, X, V[:, part], D, w[:, 0]) for part in cuts]))


@pytest.mark.parametrize("n", [2**16, 2**16 + 1])
def test_columns_of_16_bits_and_beyond_are_told_apart(n: int) -> None:
    rng = np.random.default_rng(0)
    X = sparse.random_array((ROWS, n), density=1e-4, format="lil", rng=rng, dtype=np.float32)
    X[3, n - 1] = 2
    X = sparse.csr_array(X)
    C = chunks_of(X, HostCard(), ROWS, THREADS, index=np.int32)
    assert C.named == (np.uint16 if n == 2**16 else np.int32)
    V, D = rng.standard_normal((n + 1, 17)).astype(np.float32), np.ones((ROWS, 1), np.float32)
    assert np.array_equal(C.gathered([Far(V)], Far(D), SINGLE).near, twin.gathered(C, X, V, D))
    if n > 2**16:
        assert np.array_equal(C.gram([Far(V)], Far(D), None, SINGLE).near, twin.gram(C, X, V, D, None))


@pytest.mark.long
def test_entries_of_one_sign_lose_no_more_than_a_chunk_does() -> None:
    rng = np.random.default_rng(0)
    X = sparse.csr_array((rng.random((100_000, 2)) + 1).astype(np.float32))
    V = np.ones((2, 17), np.float32)  # the widest rows: the fewest groups, and the longest sums
    C = chunks_of(X, HostCard(), kernel.ROWS, 32)
    Z = C.gram([Far(V)], None, None, SINGLE).near
    assert np.array_equal(Z, twin.gram(C, X, V, np.zeros((100_000, 0), np.float32), None))
    D = X.toarray().astype(np.float64)
    exact, groups = D.T @ (D @ V.astype(np.float64)), 4
    roundings = [-(-terms // groups) + np.log2(groups) for terms in (2, kernel.ROWS)]
    assert np.all(abs(Z - exact) <= sum(roundings) * np.finfo(SINGLE).eps / 2 * exact)
    assert np.all(abs(Z - exact) <= np.finfo(SINGLE).eps * exact)  # and what chunks lose is not of one sign
    alone = np.cumsum((X.data.reshape(-1, 2) * (D @ V[:, :1])).astype(np.float32)[:, 0])[-1]
    assert abs(alone - exact[0, 0]) > 10 * np.finfo(SINGLE).eps * exact[0, 0]  # one long sum loses more


LINES = kernel.SOURCE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", [i for i, line in enumerate(LINES, 1) if "__syncthreads();" in line])
def test_no_barrier_can_be_left_out(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCKS", 1)  # which takes one chunk after the other
    rng = np.random.default_rng(0)
    # Warps have different numbers of columns, with and without those beside, and of entries.
    X = sparse.csr_array(rng.random((100, 101)) * (rng.random((100, 101)) < np.linspace(0.1, 1, 101)), dtype=np.float32)
    V, D = rng.standard_normal((103, 8)).astype(np.float32), rng.standard_normal((100, 2)).astype(np.float32)

    def right(turns: int, seed: int) -> bool:
        there = HostCard(turns, seed, filling=0, without=line)
        try:
            return same_as_the_twin(chunks_of(X, there, ROWS, THREADS), X, V, D, None)
        except MemoryError:
            return False

    orders = [(FORWARDS, 0), (BACKWARDS, 0), *((RANDOM, seed) for seed in range(12))]
    assert not all(right(turns, seed) for turns, seed in orders)


def compiled_by_nvcc(folder: Path, kinds: tuple[str, str, int], *how: str) -> tuple[Path, str]:
    """What nvcc makes of the kernels, and what it says of them."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not here")
    sizes = {"DATA": kinds[0], "PANEL": kinds[1], "WIDTH": kinds[2], "INDEX": "long long", "COLUMN": "unsigned short"}
    sizes |= {"THREADS": kernel.THREADS}
    named = [f"-D{key}={value}" for key, value in sizes.items()]
    call = [nvcc, *how, "-std=c++17", *named, "-o", str(folder / "chunks"), str(kernel.SOURCE)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "chunks", done.stderr


@pytest.mark.long
@pytest.mark.parametrize("kinds", [("float", "float", 32), ("double", "double", 8)])
def test_it_compiles_for_cards_and_hardly_spills(kinds: tuple[str, str, int], tmp_path: Path) -> None:
    cards = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in (80, 90)]
    _, said = compiled_by_nvcc(tmp_path, kinds, "-fatbin", "-Xptxas=-v", *cards)
    found = r"properties for (\w+)\n.* (\d+) bytes spill stores, (\d+) bytes spill loads"
    spills = [(int(stores), int(loads)) for name, stores, loads in re.findall(found, said) if name != "powers"]
    assert len(spills) == 6, said  # three kernels for two cards; `powers` is compiled for narrower panels
    assert max(max(pair) for pair in spills) <= 4  # measured: faster than fewer threads
    registers = max(int(used) for used in re.findall(r"Used (\d+) registers", said))
    assert registers * kernel.THREADS * 2 <= 65536  # two blocks on a processor


def test_panels_are_read_as_many_bytes_at_a_time_as_a_thread_can(tmp_path: Path) -> None:
    text = compiled_by_nvcc(tmp_path, ("float", "float", 16), "-ptx", "-arch=sm_80")[0].read_text()
    multiply = text[text.index(".entry multiply") :].partition(".entry add_up")[0]
    assert multiply.count("ld.global.v4.f32") > 4
    assert multiply.count("ld.shared.v4.f32") > 4
    assert not re.search(r"\b(atom|red)\.", text)


def test_the_runtime_compiler_takes_it_too() -> None:
    try:
        kernel.compiler()
    except OSError:
        pytest.skip("NVRTC is not here")
    options = ["DATA=float", "PANEL=float", "WIDTH=16", "INDEX=long long", "COLUMN=unsigned short"]
    sizes = [f"THREADS={kernel.THREADS}"]
    text, where = kernel.SOURCE.read_text(encoding="utf-8"), "--gpu-architecture=sm_80"
    assert kernel.compiled(text, (where, *(f"-D{option}" for option in options + sizes))).startswith(b"\x7fELF")
    with pytest.raises(RuntimeError, match=r'chunks.cu: .*identifier "PANEL" is undefined'):
        kernel.compiled(text, (where,))


# --- matrices ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of few rows, for small matrices."""
    monkeypatch.setattr(on_device, "Chunks", lambda *given, rows: Chunks(*given, rows=ROWS, threads=THREADS))


def on_card(X: np.ndarray, turns: int = FORWARDS) -> Any:
    """A matrix on the card that is the host."""
    return device_operator(FarCSR(sparse.csr_array(X)), CardArrays(HostCard(turns)), 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shift", ["none", "mean", "rank 2"])
def test_products_with_shifts_and_full_columns_are_those_of_the_host(dtype: str, shift: str) -> None:
    X = numbers((150, 24), dtype)
    A, D = shifted(on_card(X), X, shift)
    assert A._own is not None  # type: ignore[attr-defined]
    rng = np.random.default_rng(2)
    V, W, w = rng.standard_normal((24, 3)), rng.standard_normal((150, 3)), rng.random(150)
    near(A.matmat(V), D @ V, dtype)
    near(A.rmatmat(W), D.T @ W, dtype)
    near(A.gram(V), D.T @ (D @ V), dtype)
    near(A.gram(V, w), D.T @ (w[:, None] * (D @ V)), dtype)
    near(A.gram(V.astype(dtype), w), D.T @ (w[:, None] * (D @ V)), dtype, parts=2)
    near(A.column_squares(w), w @ D**2, dtype)
    near(A.matmat(1j * V), 1j * (D @ V), dtype)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_are_those_of_the_host(weighted: bool, offset: float) -> None:
    X = numbers((150, 24), "f8") * 3
    X[X != 0] += offset
    X[:, 3], X[:, 4] = 0, offset + 1 + np.arange(150) % 2
    w = np.linspace(0, 2, 150) if weighted else None
    found, want = on_card(X).moments(w), ss.as_operator(sparse.csr_array(X)).moments(w)
    assert found.count == pytest.approx(want.count, rel=1e-14)
    np.testing.assert_allclose(found.mean, want.mean, rtol=1e-13)
    np.testing.assert_allclose(found.M2, want.M2, rtol=1e-11)


@pytest.mark.usefixtures("small")
def test_arrays_may_lie_with_gaps() -> None:
    X = sparse.csr_array(numbers((150, 24), "f4"))
    X.data, X.indices = (np.repeat(part, 2)[::2] for part in (X.data, X.indices))
    assert not X.data.flags.c_contiguous
    C = on_device.own_chunks(FarCSR(X), CardArrays(HostCard()), X.nnz)
    assert C is not None
    V = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)
    assert np.array_equal(C.gram([Far(V)], None, None, SINGLE).near, twin.gram(C, X, V, np.zeros((150, 0), "f4"), None))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shape", [(150, 24), (24, 150)], ids=["tall", "wide"])
def test_a_fit_has_the_same_bits_in_whatever_order_threads_come(shape: tuple[int, int]) -> None:
    X = numbers(shape, "f4")
    X[:, 3] -= 990  # so that single precision does
    fits = [ss.svd(ss.centered(on_card(X, turns)), 4, rng=0, solver="lanczos", tol=1e-3) for turns in TURNS]
    exact = np.linalg.svd(X - X.mean(axis=0, dtype=np.float64), compute_uv=False)[:4]
    for F in fits:
        assert np.array_equal(F.S, fits[0].S)
        assert np.array_equal(F.Vh, fits[0].Vh)
        assert F.info.value_errors is not None
        assert np.all(abs(F.S - exact) / exact <= F.info.value_errors + 1e-15)
        assert F.info.converged


def test_whoever_asks_has_the_products_of_the_library(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    X, refused = numbers((150, 24), "f4"), "CUDA_ERROR_OF_THE_CALL"
    monkeypatch.setenv("SHIFTSVD_KERNELS", "off")
    assert on_card(X)._own is None
    monkeypatch.setenv("SHIFTSVD_KERNELS", "auto")
    assert on_card(X * (np.arange(150)[:, None] + np.arange(24) == 3))._own is None  # too few entries
    assert on_card(numbers((150, 24), "c8"))._own is None
    monkeypatch.setattr(
        on_device, "Chunks", lambda *given, rows: Chunks(*given, rows=ROWS, threads=48)
    )  # no whole warps
    with caplog.at_level(logging.WARNING, logger="shiftsvd"):
        A = on_card(X)
        assert A._own is None
    assert f"products use the array library instead: cuLaunchKernel: {refused} (1)" in caplog.text
    near(A.matmat(np.eye(24)), X, "f4")
    monkeypatch.setenv("SHIFTSVD_KERNELS", "require")
    with pytest.raises(RuntimeError, match=refused):
        _ = on_card(X)._own


@pytest.mark.usefixtures("small")
def test_info_says_whose_products_are_taken_and_what_was_seen_of_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products_of(on_card(numbers((150, 24), "f4"))) == "ours, meant to have the same bits on every card"
    A = on_card(numbers((150, 24), "c8"))
    assert products_of(A) == "those of the library, which gave the same bits when they were repeated"
    rng = np.random.default_rng(0)
    monkeypatch.setattr(A.arrays, "down", lambda x: x.near + rng.random(x.shape))
    assert "gave other bits when they were repeated" in products_of(A)


def test_kernels_run_on_tensors_too() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not here: `make test-device` installs it")
    from shiftsvd.backends.device import torch as adapter

    class HostTensors(HostCard):
        """The card with tensors, which the adapter for PyTorch makes and finds."""

        device = torch.device("cpu")
        empty, pointer = adapter.TorchCard.empty, adapter.TorchCard.pointer

    rng = np.random.default_rng(0)
    X = sparse.random_array((100, 40), density=0.4, format="csr", rng=rng, dtype=np.float32)
    parts = tuple(torch.from_numpy(x) for x in (X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)))
    C = Chunks(HostTensors(), parts, (SINGLE, np.dtype(np.int64)), X.shape, rows=ROWS, threads=THREADS)
    V, D, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((42, 5), (100, 2), (100, 1)))
    tops, (sides, weights) = (torch.from_numpy(V[:40]), torch.from_numpy(V[40:])), map(torch.from_numpy, (D, w))
    assert np.array_equal(C.gram(tops, sides, weights, SINGLE).numpy(), twin.gram(C, X, V, D, w[:, 0]))
    assert np.array_equal(C.gathered(tops, sides, SINGLE).numpy(), twin.gathered(C, X, V, D))


def test_kernels_are_compiled_once_and_the_thread_is_left_as_it_was() -> None:
    there, X = HostCard(), sparse.csr_array(numbers((150, 24), "f4"))
    C = chunks_of(X, there, ROWS, THREADS)
    for _ in range(2):
        C.gram([Far(np.ones((24, 16), np.float32))], None, None, SINGLE)
    assert len(there.asked) == len(set(there.asked)) == 1
    assert there.contexts() == 0


def test_chunks_go_by_the_data() -> None:
    assert kernel.rows_of(60_000, 2_000, 10_000_000) == 235  # a chunk for each of 256 blocks
    assert kernel.rows_of(1_000_000, 2_000, 170_000_000) == 652  # six for each
    assert kernel.rows_of(5_000, 2_000, 1_000_000) == 80  # fewer rows would leave too few entries in a column
    assert kernel.rows_of(65_000, 20_000, 6_500_000) is None  # in a column of a chunk at most 4 entries on average
    assert kernel.rows_of(10**6, 10**6, 10**8) is None
    assert kernel.rows_of(10**5, 6 * 10**6, 10**10) is None  # entries of a full chunk are more than 32 bits count


def test_all_blocks_have_as_many_chunks_and_sums_stay_in_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    C = chunks_of(sparse.random_array((1300, 40), density=0.5, format="csr", dtype=np.float32), HostCard(), 5, THREADS)
    assert C.chunks == 260
    assert C.blocks(40 * 16) == 130  # not 256, of which 4 would have a second chunk
    monkeypatch.setattr(kernel, "SUMS", 100 * 8 * 40 * 16)
    assert C.blocks(40 * 16) == 87


def test_wide_panels_are_cut_into_as_few_as_hold_them() -> None:
    assert cut(10, SINGLE) == [(0, 10, 16)]
    assert cut(50, SINGLE) == [(0, 32, 32), (32, 50, 32)]
    assert cut(20, DOUBLE) == [(0, 16, 16), (16, 20, 4)]
    assert built.cache_info().currsize < 40  # kernels that the tests have compiled
