"""Matrices of a text: the Wikipedia sample where it is there, else words that a seeded generator makes up."""

import gzip
import os
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from paper.corpus import count_words

SAMPLE = "enwiki_100MB.txt.gz"
DOCUMENT = 4_000  # characters
TERMS = 60_000


def find_text(given: Path | None, folder: Path) -> tuple[Path, str]:
    """The file to read, and what the table says of it."""
    sample = given or Path(os.environ.get("SHIFTSVD_TEST_DATA", ".")) / SAMPLE
    if sample.is_file():
        return sample, sample.name
    if given:
        raise FileNotFoundError(f"no text at {given}")
    made_up = folder / "made-up.txt.gz"
    if not made_up.exists():
        make_up(made_up)
    return made_up, "made-up text"


def make_up(file: Path, lines: int = 60_000, length: int = 300, types: int = 500_000, seed: int = 0) -> None:
    """Lines of words with Zipf's frequencies; half of the words of a line are those of one of 300 topics."""
    rng = np.random.default_rng(seed)
    step = rng.integers(1, types, 300)
    part = file.with_suffix(".part")
    with gzip.open(part, "wt", compresslevel=1) as out:
        for _ in range(0, lines, 1_000):
            # Log-uniform ranks are Zipf's law; a topic shifts the frequent words to others.
            ranks = (types ** rng.random((1_000, length))).astype(np.int64)
            topic = step[rng.integers(0, len(step), (1_000, 1))] * (rng.random((1_000, length)) < 0.5)
            words = np.where(ranks < 2_000, (ranks + topic) % types, ranks)
            out.writelines(" ".join(f"w{word}" for word in line) + "\n" for line in words.tolist())
    part.rename(file)


def words(file: Path, folder: Path, share: float = 1.0) -> csr_array:
    """Frequent words x the 1 000 most frequent context words: the probabilities of the paper, float64."""
    n = round(300_000 * share)
    return csr_array(count_words(file, 1_000, n, scratch=folder).matrix(n))


def tfidf(file: Path, share: float = 1.0) -> csr_array:
    """Pieces of the text as documents x the most frequent terms, float64."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as stream:
        documents = list(iter(lambda: stream.read(DOCUMENT), ""))
    documents = documents[: round(len(documents) * share)]
    return csr_array(TfidfVectorizer(max_features=TERMS, min_df=2).fit_transform(documents))
