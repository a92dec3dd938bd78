"""Fits that overlap, nest, fail or are interrupted have the bits of a fit alone, and leave the process as it was."""

import contextvars
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn.model_selection import cross_validate
from threadpoolctl import threadpool_info, threadpool_limits

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.kernels import default_threads, given_threads, ordered, stepwise, threads
from shiftsvd.kernels import threads as entered
from tests.support.containers import Held
from tests.support.matrices import values
from tests.support.sampling import in_turn

inside = sys.modules["shiftsvd.kernels.threads"]
X = values((3000, 150), density=1.0)
GROUPS, COVARIATES = np.arange(3000) % 7, values((3000, 5), seed=3)
S = sparse.csr_array(values((3000, 150), density=0.1))


def limits() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def state() -> tuple[Any, ...]:
    """What a fit may not leave changed."""
    return limits(), default_threads(), given_threads(), {t for t in threading.enumerate() if t.is_alive()}


@pytest.fixture(autouse=True)
def two_blas_threads() -> Iterator[None]:
    """Two threads for BLAS before, and the whole state as it was after every test."""
    with threadpool_limits(2, "blas"):
        before = state()
        assert set(before[0]) == {2}
        gc.freeze()  # the collection looks at what the test made alone
        yield
        gc.collect()
        assert state() == before
        assert not inside.process.holders
        assert not inside.process.saved


def bits(fitted: Any) -> bytes:
    """Everything that a fit found, as bytes."""
    arrays = (
        [v for v in vars(fitted).values() if isinstance(v, np.ndarray)] if not isinstance(fitted, tuple) else fitted
    )
    return b"".join(np.ascontiguousarray(part).tobytes() for part in arrays)


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """The results of calls that begin together."""
    gate = threading.Barrier(len(calls))
    with ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(lambda call=call: (gate.wait(), call())[1]) for call in calls]]


FITS: dict[str, Callable[[int | None], Any]] = {
    "svd": lambda n: tuple(ss.svd(X, 6, shift="mean", scale="std", rng=0, n_threads=n)),
    "svd of groups": lambda n: tuple(ss.svd(S, 6, shift=ss.GroupMeans(GROUPS), rng=0, n_threads=n)),
    "exact": lambda n: ss.PCA(6, solver="exact", n_threads=n).fit(X),
    "gram": lambda n: ss.PCA(6, solver="gram", scale=True, random_state=0, n_threads=n).fit(S),
    "groups": lambda n: ss.PCA(6, shift=ss.GroupMeans(), scale=True, random_state=0, n_threads=n).fit(X, groups=GROUPS),
    "covariates": lambda n: ss.PCA(6, shift=ss.Covariates(), random_state=0, n_threads=n).fit(X, covariates=COVARIATES),
    "weights": lambda n: ss.PCA(6, random_state=0, n_threads=n).fit(X, sample_weight=1.0 + GROUPS),
    "both": lambda n: ss.PCA(6, shift="both", scale="pareto", random_state=0, n_threads=n).fit(X),
    "truncated": lambda n: ss.TruncatedSVD(6, random_state=0, n_threads=n).fit(X),
    "correspondence": lambda n: ss.CorrespondenceAnalysis(4, random_state=0, n_threads=n).fit(abs(X)),
    "coordinates": lambda n: ss.PCoA(4, metric="euclidean", random_state=0, n_threads=n).fit(X[:700]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FITS)
def test_bits_of_a_fit_do_not_depend_on_blas_threads(name: str) -> None:
    found = set()
    for limit, numbers in ((1, (1, None)), (2, (2,)), (4, (1, 2))):
        with threadpool_limits(limit, "blas"):
            found |= {bits(FITS[name](n_threads)) for n_threads in numbers}
    assert len(found) == 1


@pytest.mark.long
def test_bits_of_what_a_model_gives_do_not_depend_on_blas_threads() -> None:
    holes = np.where(values(X.shape, seed=5) > 1, np.nan, X)
    models = [
        (ss.PCA(20, random_state=0).fit(X), X, {}),
        (
            ss.PCA(20, shift=ss.Covariates(), random_state=0, whiten=True).fit(X, covariates=COVARIATES),
            X,
            {"covariates": COVARIATES},
        ),
        (ss.PCA(8, missing="em", random_state=0).fit(holes), holes, {}),
    ]
    for model, data, of_rows in models:
        found = set()
        for limit in (1, 4):
            with threadpool_limits(limit, "blas"):
                Z = model.transform(data, **of_rows)
                likelihood = model.score_samples(data, **of_rows)
                back = model.inverse_transform(Z, **of_rows)
                found.add(bits((Z, likelihood, back, model.get_covariance(), model.get_precision())))
        assert len(found) == 1


@pytest.mark.long
def test_cross_validation_has_the_same_bits_in_one_process_and_in_several() -> None:
    def scores(jobs: int) -> np.ndarray:
        pca = ss.PCA(10, scale=True, random_state=0)
        return cross_validate(pca, X, cv=3, n_jobs=jobs, return_train_score=True)["test_score"]

    try:
        np.testing.assert_array_equal(scores(1), scores(2))
    finally:
        get_reusable_executor().shutdown()  # joblib keeps threads of its own


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_overlapping_fits_have_the_bits_of_each_alone(n_threads: int | None) -> None:
    names = ("groups", "svd", "exact", "weights", "gram", "coordinates")
    alone = {name: bits(FITS[name](1)) for name in names}
    for first, second in zip(names, names[1:] + names[:1], strict=True):
        pair = in_threads(*(lambda name=name: bits(FITS[name](n_threads)) for name in (first, second)))
        assert pair == [alone[first], alone[second]]
        assert set(limits()) == {2}


def test_the_last_of_two_that_overlap_gives_back_what_the_first_found() -> None:
    inside, leave = threading.Event(), threading.Event()

    def long() -> None:
        with threads(1):
            inside.set()
            leave.wait()
            assert set(limits()) == {1}

    for first_ends_first in (True, False):
        inside.clear(), leave.clear()
        other = threading.Thread(target=long)
        if first_ends_first:
            with threads(1):
                other.start()
                inside.wait()
            assert set(limits()) == {1}, "the other one still runs"
            leave.set()
        else:
            other.start()
            inside.wait()
            with threads(2), threads(1):
                leave.set()
                other.join()
                assert set(limits()) == {1}, "this one still runs"
        other.join()
        assert set(limits()) == {2}


def test_a_fit_in_a_thread_has_one_blas_thread_where_the_main_thread_has_a_limit_of_its_own() -> None:
    def seen() -> set[int]:
        with threads(1):
            return set(limits())

    with threadpool_limits(3, "blas"):
        assert in_threads(seen, seen) == [{1}, {1}]
        assert set(limits()) == {3}


def test_the_wish_of_another_limiter_that_ends_during_a_fit_comes_back_after_it() -> None:
    other = threadpool_limits(1, "blas").__enter__()
    with threads(1):
        other.__exit__(None, None, None)
        assert set(limits()) == {2}
        list(ordered(lambda block: block, range(3), 2))
        with threads(1):
            assert set(limits()) == {1}
    assert set(limits()) == {2}


def test_nested_and_failing_fits_leave_the_state_as_it_was() -> None:
    with threads(2):
        with pytest.raises(ValueError, match="k must be"):
            ss.svd(X, 1000)
        assert set(limits()) == {1}
        assert default_threads() == 2
        ss.PCA(3).fit(S)
        assert default_threads() == 2

    def failing() -> None:
        with pytest.raises(ZeroDivisionError), threads(1):
            raise ZeroDivisionError

    in_threads(failing, failing, lambda: FITS["exact"](2))


class Failing(Held):
    """Raises an error at a given read of a block."""

    def __init__(self, error: type[BaseException], last: int) -> None:
        super().__init__(S, 300)
        self.error, self.last = error, last

    def read(self, lo: int, hi: int) -> Any:
        if self.n_reads >= self.last:
            raise self.error("broken off")
        time.sleep(0.002)
        return super().read(lo, hi)


@pytest.mark.long
@pytest.mark.parametrize(
    ("last", "error"), in_turn([1, 5, 14, 33], [OSError, KeyboardInterrupt, MemoryError, SystemExit], 2)
)
def test_an_error_in_a_worker_thread_leaves_the_state_as_it_was(error: type[BaseException], last: int) -> None:
    for n_threads in (1, 2, 3):
        before = state()
        with pytest.raises(error, match="broken off"):
            ss.PCA(4, random_state=0, solver="lanczos").fit(DiskRows(Failing(error, last), n_threads=n_threads))
        assert state() == before


def test_after_an_error_nothing_goes_on_in_the_background() -> None:
    running: list[int] = []

    def work(block: int) -> int:
        if block == 0:
            time.sleep(0.01)
            raise KeyError(block)
        running.append(block)
        time.sleep(0.05)
        running.remove(block)
        return block

    with threads(3):
        with pytest.raises(KeyError):
            list(ordered(work, range(20), 3))
        assert not running


@pytest.mark.long
def test_interleaved_and_unfinished_scores_leave_the_state_as_it_was() -> None:
    pca = ss.PCA(4, random_state=0, n_threads=2).fit(S)
    A, B = (DiskRows(Held(S, 200), n_threads=2) for _ in range(2))
    want = pca.transform(S)
    before = state()[1:3]
    for parts in (zip(pca.iter_scores(A), pca.iter_scores(B), strict=True),):
        for (lo, Z), (_, other) in parts:
            assert state()[1:3] == before, "settings of a fit do not last between its parts"
            np.testing.assert_array_equal(Z, other)
            np.testing.assert_allclose(Z, want[lo : lo + len(Z)], atol=1e-12)
    FITS["svd"](2)
    first, second = pca.iter_scores(A), pca.iter_scores(B)
    next(first), next(second)
    first.close()
    next(second)
    second.close()
    FITS["svd"](2)


@pytest.mark.long
def test_scores_begun_in_one_context_and_closed_in_another_leave_the_state_as_it_was() -> None:
    pca = ss.PCA(4, random_state=0, n_threads=2).fit(S)
    for end in ("close", "collect"):
        parts = pca.iter_scores(DiskRows(Held(S, 200), n_threads=2))
        contextvars.copy_context().run(next, parts)
        threading.Thread(target=next, args=(parts,)).start()
        while parts.gi_running or parts.gi_frame.f_lasti < 0:
            time.sleep(0.001)
        if end == "close":
            contextvars.copy_context().run(parts.close)
        del parts
        gc.collect()


def test_parts_of_a_generator_are_each_made_in_the_threads_of_a_fit() -> None:
    def parts() -> Iterator[tuple[int | None, set[int]]]:
        for _ in range(3):
            yield given_threads(), set(limits())

    assert list(stepwise(parts(), 2)) == [(2, {1})] * 3
    with threads(3):  # as many as in the fit around it
        assert list(stepwise(parts())) == [(3, {1})] * 3


def no_threads(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """From now on the system starts only so many threads more."""
    start, left = threading.Thread.start, [allowed]

    def refused(self: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refused)


def in_four_threads() -> tuple[bytes, ...]:
    pca = ss.PCA(4, random_state=0, scale=True, solver="lanczos", n_threads=4).fit(DiskRows(Held(S, 100), n_threads=4))
    return bits(pca), bits(FITS["exact"](4)), bits((pca.transform(S),))


in_all_threads = cache(in_four_threads)  # as the system starts them all


@pytest.mark.one_in(3)
@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_fit_goes_on_in_the_threads_that_there_are_with_the_same_bits(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = in_all_threads()
    no_threads(monkeypatch, allowed)
    assert in_four_threads() == want


@pytest.mark.long
def test_threads_end_without_waiting_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    outlived: list[bool] = []  # of each wait, whether the thread was still there after it

    class Watched(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            super().join(timeout)
            outlived.append(self.is_alive())

    def waits_in_vain() -> int:
        outlived.clear()
        pool = inside._Pool(12)
        pool.submit(lambda: None)
        pool.ready.put(pool.ready.get())  # all have started
        pool.close()
        assert len(pool.threads) == 12
        assert not any(thread.is_alive() for thread in pool.threads)
        return sum(outlived)

    monkeypatch.setattr(inside, "Thread", Watched)
    assert min(waits_in_vain() for _ in range(5)) == 0


def test_every_block_is_worked_on_once_where_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed in range(4):
        with monkeypatch.context() as patch:
            no_threads(patch, allowed)
            done = np.zeros(200, int)
            for block in ordered(lambda block: (np.add.at(done, block, 1), block)[1], range(200), 5):  # noqa: B023
                assert done[block] == 1
            assert np.all(done == 1)


@pytest.mark.long
def test_an_interrupt_at_any_moment_leaves_the_state_as_it_was() -> None:
    """Signals at random moments of fits that do little else than begin and end."""

    class Stop(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stop

    list(ordered(lambda block: block, range(6), 3))  # imports what it needs; an interrupted look at /proc only warns
    rng, hits, known = np.random.default_rng(0), 0, inside.libraries()
    before, handler = state(), signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(400):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(5e-6, 1.2e-3)))
                    with entered(3), entered(2):
                        list(ordered(lambda block: block, range(6), 3))
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                hits += 1
            assert not inside.process.holders
            assert [library.get() for library in known] == before[0]
            assert given_threads() is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert hits > 20
    for _ in range(100):  # a thread whose start was interrupted ends by itself
        if state() == before:
            break
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_during_a_fit_has_the_blas_threads_of_before() -> None:
    inside, leave = threading.Event(), threading.Event()

    def long() -> None:
        with threads(1):
            inside.set()
            leave.wait()

    other = threading.Thread(target=long)
    other.start()
    inside.wait()
    child = os.fork()
    if not child:
        try:
            good = set(limits()) == {2}
            FITS["exact"](1)
            os._exit(0 if good and set(limits()) == {2} else 1)
        finally:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    leave.set()
    other.join()
    assert status == 0


class OfThread:
    """A BLAS whose number of threads belongs to the thread that sets it, as MKL's."""

    def __init__(self) -> None:
        self.here = threading.local()

    def get(self) -> int:
        return getattr(self.here, "number", 4)

    def set(self, number: int) -> None:
        self.here.number = number


def test_numbers_that_belong_to_threads_are_1_in_all_of_a_fit_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    library = OfThread()
    monkeypatch.setattr(inside, "libraries", lambda: [inside.Library("mkl", library.get, library.set, True)])

    def fit() -> set[int]:
        library.set(3)
        with threads(3):
            seen = set(ordered(lambda _: (time.sleep(0.002), library.get())[1], range(30), 3)) | {library.get()}
        assert library.get() == 3
        return seen

    assert fit() == {1}
    assert in_threads(fit, fit) == [{1}, {1}]


def test_libraries_that_are_loaded_later_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    known = len(inside.libraries())
    inside._found(1)  # as if it had looked before anything was loaded
    monkeypatch.setitem(sys.modules, "a_module_more", sys)
    assert len(inside.libraries()) == known
