"""
Word vectors from all of a PMI matrix
=====================================

How much more often two words stand near each other than their frequencies say is their pointwise mutual information,
``log((x + a) / (r p))``, and its leading singular vectors are word vectors (Levy & Goldberg 2014). Most pairs of words
never meet, and theirs is below zero. It is usually cut off there, since the full matrix is dense; but what zeros become
is of rank 2 exactly, and `PMI` decomposes all of it.
"""

# %%
# How often each two of 2,000 words stand within five words of each other, in the manual that comes with Python.

import re
import tempfile
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array

import shiftsvd as ss

tokens = re.findall("[a-z]+", " ".join(topics.values()).lower())
words = [word for word, _ in Counter(tokens).most_common(2000)]
number = {word: i for i, word in enumerate(words)}
ids = np.array([number.get(word, -1) for word in tokens])


def pairs(distance):
    """Counts of words so far apart, the left one by rows."""
    left, right = ids[:-distance], ids[distance:]
    known = (left >= 0) & (right >= 0)
    return coo_array((np.ones(known.sum()), (left[known], right[known])), shape=(len(words),) * 2).tocsr()


X = sum(pairs(distance) for distance in range(1, 6))
X = X + X.T
print(f"{len(tokens):,} words; {X.shape[0]:,} x {X.shape[1]:,} counts, {X.nnz / np.prod(X.shape):.1%} not zero")

# %%
# 100 vectors of all the matrix, with a smoothing of 1; and of the positive part of what is stored, as others have it.

F = ss.svd(X, 100, preprocess=ss.PMI(smoothing=1), rng=0)
P = ss.svd(X, 100, preprocess="pmi:smoothing=0,positive=true", rng=0)
print(f"{F.info.n_passes} passes, errors below {F.info.value_errors.max():.0e}")


def unit_vectors(F):
    """``U sqrt(S)``, rows of length 1, so that products are cosines."""
    W = F.U * np.sqrt(F.S)
    return W / np.linalg.norm(W, axis=1, keepdims=True)


full, positive = unit_vectors(F), unit_vectors(P)
for word in ("integer", "string", "class", "raise", "import", "loop", "true"):
    for name, W in (("full", full), ("positive", positive)):
        nearest = np.argsort(-(W @ W[number[word]]))[1:7]
        print(f"{word:8} {name:8}", ", ".join(words[i] for i in nearest))

# %%
# The text format of word2vec, which gensim's ``KeyedVectors.load_word2vec_format`` and many others read.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "vectors.txt")
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{len(words)} {full.shape[1]}\n")
        file.writelines(f"{word} {' '.join(f'{x:.5f}' for x in row)}\n" for word, row in zip(words, full, strict=True))
    for line in path.read_text(encoding="utf-8").splitlines()[:3]:
        print(line[:60], "...")

# %%
# Some words in the plane of two of their own components: numbers, texts, classes and errors.

some = "integer float complex decimal string str bytes character class instance method attribute raise except exception"
places = [number[word] for word in some.split()]
Z = ss.PCA(2, random_state=0).fit_transform(full[places])
figure, ax = plt.subplots(figsize=(7, 5.5), layout="constrained")
ax.plot(*Z.T, ".")
for (x, y), i in zip(Z, places, strict=True):
    ax.annotate(words[i], (x, y), xytext=(4, 3), textcoords="offset points")
ax.margins(0.1)
ax.set(title="vectors of the full PMI matrix", xlabel="PC 1", ylabel="PC 2")
plt.show()
