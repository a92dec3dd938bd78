"""The published numbers, the measures, the figures' recurrence, and the verdicts of the checks."""

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from paper import metrics, random_data, report, run, tables
from paper.checks import Setting, judge
from paper.published import EXACT, PLAIN, SHIFTED, SVD, published
from paper.random_data import EXACT_EXPLICIT, GRID, Point
from paper.workers import execute
from shiftsvd.events import Event
from shiftsvd.runs.outputs import refuse, write_all
from tests.support.sampling import in_turn


def test_every_printed_number_is_there_once() -> None:
    numbers = published()
    counts = Counter(number.place[0] for number in numbers)
    assert counts == {
        "fig-a": 28,
        "fig-b": 18,
        "fig-c": 8,
        "fig-d": 8,
        "fig-e": 26,
        "fig-f": 52,
        "digits": 6,
        "faces": 6,
        "words": 24,
    }
    assert len({number.place for number in numbers}) == len(numbers) == 176


def test_published_differences_of_f_are_those_of_the_sums_in_e() -> None:
    value = {number.place: number.value for number in published()}
    for q in random_data.POWERS:
        difference = value["fig-e", SHIFTED, q] - value["fig-e", PLAIN, q]
        assert value["fig-f", "Uniform", q] == pytest.approx(difference, rel=1e-9)


def test_win_rates_of_the_two_methods_add_up_to_one() -> None:
    value = {number.place: number.value for number in published()}
    rates = [place for place in value if place[1] == "WR of S-RSVD"]
    assert len(rates) == 6
    assert all(value[e, "WR of S-RSVD", x] + value[e, "WR of RSVD", x] == pytest.approx(1) for e, _, x in rates)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_column_errors_equal_the_definition(store) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((60, 8)) * (rng.random((60, 8)) < 0.4)
    V = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    Xbar = X - X.mean(axis=0)
    expected = ((Xbar - Xbar @ V @ V.T) ** 2).sum(axis=1)
    found = metrics.column_errors(ss.centered(ss.as_operator(store(X))), V.T)
    np.testing.assert_allclose(found, expected, atol=20 * np.finfo(float).eps * (Xbar**2).sum())


def test_win_rate_and_paired_test_on_a_case_by_hand() -> None:
    ours, theirs = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 5.0, 3.0])
    assert metrics.win_rate(ours, theirs) == 0.5
    # differences -1, 0, -2, 1: mean -1/2, sd sqrt(5/3), t = -1/2 / (sd / 2), three degrees of freedom
    t = -0.5 / (np.sqrt(5 / 3) / 2)
    x = abs(t) / np.sqrt(3)
    p = 1 - 2 / np.pi * (np.arctan(x) + x / (1 + x**2))
    assert metrics.paired_p(ours, theirs) == pytest.approx(p)
    assert metrics.paired_p(ours, ours) == 1.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("distribution", "q"), in_turn(random_data.DRAWS, [0, 2, 20], 1))
def test_recurrence_equals_the_printed_loop(distribution: str, q: int) -> None:
    (gap,) = random_data.shortcut_gap(distribution, q).values()
    assert gap <= 1e-8


def test_recurrence_differs_where_the_power_differs() -> None:
    point = Point("x", 0, "Uniform", 300, 2, 0)
    A = ss.as_operator(point.data())
    assert random_data.by_recurrence(A, 5, 1, point.rng(5)) > 1.0001 * random_data.by_recurrence(A, 5, 2, point.rng(5))


def test_curve_is_bounded_by_the_svd_and_exact_from_half_the_features_on() -> None:
    values = random_data.measure(Point("fig-a", 1000, "Uniform", 1000, 0, 0))
    for k in GRID:
        best = values["fig-a", SVD, k]
        assert values["fig-a", SHIFTED, k] >= best * (1 - 1e-12)
        assert values["fig-a", EXACT, k] >= best * (1 - 1e-12)
        if 2 * k >= random_data.M:
            assert values["fig-a", SHIFTED, k] == pytest.approx(best, rel=1e-10)


def test_exact_sample_is_the_same_for_implicit_and_explicit_centring() -> None:
    values = random_data.measure(Point("fig-d", "Zipf", "Zipf", 1000, 0, 0))
    assert values["fig-d", EXACT, "Zipf"] == pytest.approx(values["fig-d", EXACT_EXPLICIT, "Zipf"], rel=1e-10)


def test_points_of_one_seed_have_data_of_their_own_and_all_methods_the_same_omega() -> None:
    first, second = random_data.points("fig-e", 0)[:2]
    assert not np.array_equal(first.data(), second.data())
    assert np.array_equal(first.data(), first.data())
    assert first.rng(3).standard_normal() == first.rng(3).standard_normal() != first.rng(4).standard_normal()


@pytest.fixture(scope="module")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> run.Report:
    options = run.Options(only=("fig-d", "digits"), seeds=3, quick=True, jobs=1)
    return run.reproduce(options, tmp_path_factory.mktemp("scratch"))


def test_digits_table_has_the_known_optimum_and_pairs_the_seeds(small_report: run.Report) -> None:
    runs = small_report.runs
    assert runs["digits", "MSE of SVD", "all"][0] == pytest.approx(314.51497, abs=1e-4)
    S, R = runs["digits", "MSE of S-RSVD", "all"], runs["digits", "MSE of RSVD", "all"]
    assert np.all(S < R)
    assert runs["digits", "p1", "all"] == pytest.approx([metrics.paired_p(S, R)])


def test_uniform_points_of_e_and_f_are_the_same_runs_and_only_what_was_asked_for_is_reported() -> None:
    values = random_data.measure(Point("fig-e", 1, "Uniform", 1000, 1, 0))
    difference = values["fig-e", SHIFTED, 1] - values["fig-e", PLAIN, 1]
    assert run.collect([values], ("fig-f", "digits")) == {("fig-f", "Uniform", 1): np.array([difference])}
    plans = {only: run.plan(run.Options(only=(only,), seeds=2), run.Inputs()) for only in ("fig-e", "fig-f")}
    uniform = [task for task in plans["fig-f"] if "Uniform" in str(task) and "fig-e" in str(task)]
    assert len(uniform) == 2 * len(random_data.POWERS) == sum("fig-e" in str(task) for task in plans["fig-e"])


def test_few_seeds_leave_statistical_claims_unjudged(small_report: run.Report) -> None:
    verdicts = {check.name: check.passed for check in small_report.checks}
    assert verdicts["digits: MSE of S-RSVD"] is None
    assert verdicts["digits: deterministic SVD against 314.51497 and 321.52423"] is True
    assert verdicts["(d) exact sample: implicit against explicit centring, relative gap"] is True


def test_checks_fail_on_wrong_values(small_report: run.Report) -> None:
    runs = {place: values * (1.5 if place[1] == "MSE of S-RSVD" else 1) for place, values in small_report.runs.items()}
    runs["digits", "MSE of SVD", "all"] = np.array([314.52])
    checks = {check.name: check for check in judge(runs, Setting(seeds=30))}
    assert checks["digits: MSE of S-RSVD"].verdict == "FAILED"
    assert checks["digits: p2, S-RSVD better, in every run"].verdict == "FAILED"
    assert checks["digits: deterministic SVD against 314.51497 and 321.52423"].verdict == "FAILED"


def test_verdicts_are_true_false_or_none_and_nothing_like_them() -> None:
    values = random_data.measure(Point("fig-a", 1000, "Uniform", 1000, 0, 0))
    wrong = {place: np.array([value, 1.1 * value]) for place, value in values.items()}
    verdicts = [check.passed for check in judge(wrong, Setting(seeds=30))]
    assert {type(verdict) for verdict in verdicts} == {bool}
    assert False in verdicts


def test_printed_normalisation_leaves_the_win_rate_unjudged() -> None:
    rows = {"MSE of S-RSVD": 1.0, "MSE of RSVD": 2.0, "WR of S-RSVD": 0.2, "p1": 0.0}
    runs = {("words", row, 1000): np.array([value]) for row, value in rows.items()}
    verdict = {n: judge(runs, Setting(30, n))[-1].verdict for n in ("target", "context")}
    assert verdict == {"target": "FAILED", "context": "not judged"}


def test_a_number_printed_with_two_digits_is_inside_if_it_rounds_so(small_report: run.Report) -> None:
    runs = small_report.runs | {("digits", "WR of S-RSVD", "all"): np.array([0.6641, 0.6649])}
    row = next(r for r in report.rows(replace(small_report, runs=runs)) if r.series == "WR of S-RSVD")
    assert (row.published, row.inside) == (0.66, True)
    runs["digits", "WR of S-RSVD", "all"] = np.array([0.6651, 0.67])
    row = next(r for r in report.rows(replace(small_report, runs=runs)) if r.series == "WR of S-RSVD")
    assert row.inside is False


def test_document_is_plain_json(small_report: run.Report) -> None:
    text = json.dumps(report.document(small_report), allow_nan=False)
    values = json.load(io.StringIO(text))["values"]
    assert sum(value["published"] is not None for value in values) == 8 + 6


@pytest.mark.long
def test_two_processes_give_the_results_of_one(tmp_path: Path) -> None:
    options = run.Options(only=("fig-c", "digits"), seeds=2, quick=True, jobs=1)
    inputs = run.prepare(options, tmp_path)
    tasks = [replace(task, heavy=number == 0) for number, task in enumerate(run.plan(options, inputs)[:4])]
    events: list[Event] = []
    assert execute(tasks, 2, events.append) == execute(tasks, 1)
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert events[-1].done == pytest.approx(events[-1].total)


def test_words_are_measured_for_the_sizes_that_the_text_has(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ranks = np.minimum(rng.zipf(1.3, 60_000), 2500)
    file = tmp_path / "text.txt"
    file.write_text("\n".join(" ".join(f"w{r}" for r in line) for line in ranks.reshape(-1, 20)), encoding="utf-8")
    inputs = run.prepare(run.Options(only=("words",), corpus=file), tmp_path)
    assert [data.x for data in inputs.datasets] == [1000]
    assert "10000, 100000, 300000 left out" in inputs.notes[0]
    values = tables.measure(inputs.datasets[0], 0) | tables.deterministic(inputs.datasets[0])
    assert values["words", "MSE of SVD", 1000] < values["words", "MSE of S-RSVD", 1000]


def test_outputs_are_refused_or_replaced_whole(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "sub" / "new"
    old.write_bytes(b"old")
    with pytest.raises(OSError, match=r"exists\. Use force=True"):
        refuse([old], force=False)
    refuse([old, new], force=True)
    write_all({old: b"1", new: b"2"})
    assert (old.read_bytes(), new.read_bytes()) == (b"1", b"2")


def test_output_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="cannot be written"):
        refuse([tmp_path / "file" / "x"], force=False)


def test_interrupted_write_leaves_no_half_written_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "b"
    old.write_bytes(b"old")
    write_bytes = Path.write_bytes

    def interrupted(self: Path, data: bytes) -> int:
        if self.name == "b":  # its part, in a folder of parts
            write_bytes(self, data[:1])
            raise KeyboardInterrupt
        return write_bytes(self, data)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_all({tmp_path / "a": b"new", old: b"new"})
    assert [file.name for file in tmp_path.iterdir()] == ["b"]
    assert old.read_bytes() == b"old"
