"""What the demonstration is made of: two fits that agree, each with what it took, and the lines of a text."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import random_array, save_npz

from paper import corpus

pytest.importorskip("matplotlib")


def test_both_fits_of_the_race_find_the_same_values(tmp_path: Path) -> None:
    from paper.demo import race

    save_npz(tmp_path / "X.npz", random_array((300, 120), density=0.1, format="csr", rng=0))
    ours, theirs = race(tmp_path / "X.npz", "shiftsvd"), race(tmp_path / "X.npz", "scikit-learn")
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-4)
    assert ours.components.shape == theirs.components.shape == (20, 120)
    assert min(ours.seconds, theirs.seconds) > 0


def test_lines_of_a_text_are_its_paragraphs_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("First Paragraph.\nSecond\n", encoding="utf-8")
    assert corpus.lines(tmp_path / "text") == ["first paragraph.", "second", ""]
