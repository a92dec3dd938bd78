"""What the demonstration is made of: fits that agree, each with what it took, resampled counts, the lines of a text."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array, save_npz

from paper import corpus

pytest.importorskip("matplotlib")


def test_all_fits_of_the_race_find_the_values_of_the_centred_matrix(tmp_path: Path) -> None:
    from paper.demo import NAMES, race

    X = random_array((300, 120), density=0.1, format="csr", rng=0)
    save_npz(tmp_path / "X.npz", X)
    exact = np.linalg.svd(X.toarray() - X.mean(axis=0), compute_uv=False)[:20]
    for who in NAMES:
        run = race(tmp_path / "X.npz", who)
        np.testing.assert_allclose(run.values, exact, rtol=1e-4)
        assert run.components.shape == (20, 120)
        assert run.seconds > 0


def test_resampled_rows_are_sums_of_rows_and_come_with_their_exact_values() -> None:
    from paper.demo import JOINED, resampled

    counts = csr_array(np.random.default_rng(0).poisson(0.3, (50, 40)).astype(float))
    X, values = resampled(counts, 400, np.random.default_rng(1))
    assert X.shape == (400, 40)
    assert X.dtype == np.float32
    assert X.sum(axis=1).mean() == pytest.approx(JOINED * counts.sum(axis=1).mean(), rel=0.1)
    dense = X.toarray().astype(float)
    exact = np.linalg.svd(dense - dense.mean(axis=0), compute_uv=False)[: len(values)]
    np.testing.assert_allclose(values, exact, rtol=1e-10)


def test_lines_of_a_text_are_its_paragraphs_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("First Paragraph.\nSecond\n", encoding="utf-8")
    assert corpus.lines(tmp_path / "text") == ["first paragraph.", "second", ""]
