"""Whether to subtract the mean of tf-idf: how often half of an article finds its other half.

Articles of at least 200 words are cut in two, their sentences in turn to the one half and the other. Terms,
weights and components are learned from the first halves; each second half asks for the nearest of them by cosine.
Printed are the share of questions whose own half comes first, and the mean of one over its rank; the last line is that
of the weights themselves, without components.

Run: python -m benchmarks.claims.centred_text [--articles 8000]      (needs the text that SHIFTSVD_TEST_DATA names)
"""

import argparse
import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import shiftsvd as ss
from benchmarks.places import WORK
from benchmarks.text import find_text

WORDS, BLOCK = 200, 1_000


def articles(file: Path) -> Iterator[list[str]]:
    """The sentences of each article that is long enough; articles begin after an empty line that ends a text."""
    text: list[str] = []
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                text.append(line)
                continue
            if len(text) > 1:
                sentences = " ".join(text).replace("\n", " ").split(". ")
                if sum(map(len, map(str.split, sentences))) >= WORDS:
                    yield sentences
            text = []


def found(index: np.ndarray | csr_array, questions: np.ndarray | csr_array) -> tuple[float, float]:
    """Share of questions whose own document is the nearest, and the mean of one over its rank."""
    ranks = []
    for lo in range(0, questions.shape[0], BLOCK):
        product = questions[lo : lo + BLOCK] @ index.T
        cosines = product.toarray() if hasattr(product, "toarray") else product
        own = cosines[np.arange(len(cosines)), np.arange(lo, lo + len(cosines))]
        ranks.append(1 + (cosines > own[:, None]).sum(axis=1))
    rank = np.concatenate(ranks)
    return float(np.mean(rank == 1)), float(np.mean(1 / rank))


def main() -> None:
    """Print a line for the weights alone, and for each number of components without the mean and with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--articles", type=int, default=8_000)
    args = parser.parse_args()
    file, about = find_text(None, WORK)
    halves = list(islice(articles(file), args.articles))
    first = [". ".join(sentences[::2]) for sentences in halves]
    second = [". ".join(sentences[1::2]) for sentences in halves]
    print(f"{len(halves)} articles of {about}")
    print(f"{'components':>10}  {'centred':8}{'first':>8}{'1/rank':>8}")
    for k in (50, 100, 300):
        for center in (False, True):
            lsa = ss.LSA(k, center=center, min_df=3, stop_words="english", sublinear_tf=True, random_state=0)
            lsa.fit(first)
            hit, mean = found(lsa.transform(first), lsa.transform(second))
            print(f"{k:10}  {'yes' if center else 'no':8}{hit:8.3f}{mean:8.3f}", flush=True)
    weights = lsa.vectorizer_
    hit, mean = found(csr_array(weights.transform(first)), csr_array(weights.transform(second)))
    print(f"{'all terms':>10}  {'no':8}{hit:8.3f}{mean:8.3f}")


if __name__ == "__main__":
    main()
