"""The word counter: what it counts, and what it says when it cannot."""

import bz2
import gzip
import os
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from paper import DataError, corpus

pytestmark = pytest.mark.timeout(120)


def made_up_text(n_lines: int = 400) -> str:
    rng = np.random.default_rng(0)
    words = [f"w{rank}" for rank in range(60)] + ["don't", "it's", "Été", "naïve", "A1"]
    weights = 1 / np.arange(1, len(words) + 1)
    lines = [" ".join(rng.choice(words, rng.integers(0, 12), p=weights / weights.sum())) for _ in range(n_lines)]
    return ".\n".join(lines)


def brute_force(text: str, m: int, n: int) -> tuple[list[str], dict[tuple[str, str], int], Counter[str]]:
    lines = [re.findall(r"[a-z0-9]+(?:'[a-z]+)?", line.lower()) for line in text.split("\n")]
    totals = Counter(word for line in lines for word in line)
    frequent = [word for word, _ in totals.most_common(n)]  # ties: first seen first, as most_common sorts stably
    contexts = set(frequent[:m])
    pairs = Counter(
        (target, context)
        for line in lines
        for context, target in pairwise(line)
        if context in contexts and target in set(frequent)
    )
    return frequent, dict(pairs), totals


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(made_up_text(), encoding="utf-8")
    return file


@pytest.mark.parametrize("chunk", [7, 64, 1 << 22])
def test_counts_equal_brute_force_whatever_the_chunk(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(corpus, "CHUNK", chunk)
    m, n = 9, 31
    counts = corpus.count_words(text_file, m, n, scratch=tmp_path)
    words, pairs, totals = brute_force(made_up_text(), m, n)
    assert counts.words == words
    assert counts.totals.tolist() == [totals[word] for word in words]
    assert (counts.n_tokens, counts.n_types) == (totals.total(), len(totals))
    dense = counts.pairs.toarray()
    assert dense.shape == (n, m)
    assert {(words[i], words[j]): dense[i, j] for i, j in zip(*dense.nonzero(), strict=True)} == pairs


def test_rows_are_probabilities_of_the_chosen_normalisation(text_file: Path, tmp_path: Path) -> None:
    counts = corpus.count_words(text_file, 5, 20, scratch=tmp_path)
    pairs = counts.pairs.toarray()[:10]
    np.testing.assert_allclose(counts.matrix(10, "target").toarray(), pairs / counts.totals[:10, None])
    np.testing.assert_allclose(counts.matrix(10, "context").toarray(), pairs / counts.totals[:5])


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_text_counts_the_same(text_file: Path, tmp_path: Path, compress) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(compress(text_file.read_bytes()))
    plain, unpacked = (corpus.count_words(file, 5, 20, scratch=tmp_path) for file in (text_file, packed))
    assert plain.words == unpacked.words
    assert (plain.pairs != unpacked.pairs).nnz == 0


def test_no_pair_reaches_across_a_line_end(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a b\nb a\n", encoding="utf-8")
    counts = corpus.count_words(file, 2, 2, scratch=tmp_path)
    assert counts.words == ["a", "b"]
    assert counts.pairs.toarray().tolist() == [[0, 1], [1, 0]]


def test_text_that_is_not_utf8_names_the_byte_and_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CHUNK", 16)
    file = tmp_path / "latin1.txt"
    file.write_bytes("one two three\nfour five six\nun caf\u00e9 noir\n".encode("latin1"))
    with pytest.raises(DataError, match=r"byte 0xe9 at offset 34 \(line 3\); convert it first, .*iconv"):
        corpus.count_words(file, 2, 2, scratch=tmp_path)


def test_spill_file_is_removed_also_after_an_error(text_file: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    corpus.count_words(text_file, 5, 20, scratch=tmp_path)
    with pytest.raises(DataError, match="different words; 1000 are needed"):
        corpus.count_words(text_file, 1000, 2000, scratch=tmp_path)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:-3] + b"xyz"])
def test_damaged_gzip_is_named(text_file: Path, tmp_path: Path, damage) -> None:
    file = tmp_path / "damaged.gz"
    file.write_bytes(damage(gzip.compress(text_file.read_bytes())))
    with pytest.raises(DataError, match=r"damaged\.gz cannot be read to its end"):
        corpus.count_words(file, 5, 20, scratch=tmp_path)


def test_bytes_without_any_space_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CHUNK", 16)
    monkeypatch.setattr(corpus, "LONGEST", 64)
    file = tmp_path / "blob"
    file.write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="not a text"):
        corpus.count_words(file, 2, 2, scratch=tmp_path)


def test_wiki_markup_is_stripped(tmp_path: Path) -> None:
    file = tmp_path / "dump.xml"
    file.write_text(
        "<mediawiki>\n<page><title>Secret</title>\n<text xml:space='preserve'>"
        "'''Alpha''' {{cite|secret}} [[beta|gamma]] &lt;ref&gt;secret&lt;/ref&gt; &quot;delta&quot;</text></page>\n",
        encoding="utf-8",
    )
    assert corpus.count_words(file, 1, 9, scratch=tmp_path).words == ["alpha", "gamma", "delta"]


def test_gensim_sample_is_found_without_importing_gensim() -> None:
    path = corpus.gensim_sample()
    if path is None:
        pytest.skip("gensim is not installed")
    assert path.stat().st_size > 1e6
    assert "gensim" not in sys.modules


@pytest.mark.long
def test_real_text_has_the_known_number_of_words(tmp_path: Path) -> None:
    folder = os.environ.get("SHIFTSVD_TEST_DATA")
    if folder is None:
        pytest.skip("SHIFTSVD_TEST_DATA names no folder with enwiki_100MB.txt.gz")
    counts = corpus.count_words(Path(folder) / "enwiki_100MB.txt.gz", scratch=tmp_path)
    assert (counts.n_tokens, counts.n_types) == (16_472_879, 328_889)
    assert counts.pairs.shape == (300_000, 1000)
