"""
Correspondence analysis of a sparse table
=========================================

Which rows and columns of a table of counts go together more often than chance? `CorrespondenceAnalysis` subtracts
what independence expects, ``r c^T``, which is a low-rank shift: the table stays sparse.
"""

# %%
# How often each of 40 frequent words stands directly before each other, in a piece of Wikipedia that gensim carries.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import shiftsvd as ss
from shiftsvd.paper.corpus import count_words, gensim_sample

with tempfile.TemporaryDirectory() as scratch:
    counts = count_words(gensim_sample(), m=40, n=40, scratch=Path(scratch))
words = counts.words[:40]
table = pd.DataFrame(counts.pairs.toarray(), index=words, columns=words)  # row: the word, column: the one before it
table.iloc[:5, :8]

# %%
# Labels come in with the frame and go out with the results.

ca = ss.CorrespondenceAnalysis(n_components=2, random_state=0).fit(table)
print(ca.percentage_of_variance_.round(1), "% of an inertia of", round(ca.total_inertia_, 3))
ca.row_contributions_.iloc[:, 0].sort_values(ascending=False).head()

# %%
# Words near each other follow the same words. A word and a neighbour in the same direction from the middle go together.

figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
for ax, points, title in (
    (axes[0], ca.row_coordinates_, "the word"),
    (axes[1], ca.column_coordinates_, "the word before it"),
):
    x, y = points.to_numpy().T
    ax.scatter(x, y, s=6, color="C0")
    for name, at in zip(points.index, points.to_numpy(), strict=True):
        ax.annotate(name, at, fontsize=9, xytext=(2, 2), textcoords="offset points")
    ax.axhline(0, color="0.8", linewidth=1, zorder=0)
    ax.axvline(0, color="0.8", linewidth=1, zorder=0)
    ax.set(title=title, xlabel="component 1", ylabel="component 2")
plt.show()
