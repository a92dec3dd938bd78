"""
Correspondence analysis of a table of counts
============================================

Which rows and columns of a table go together more often than chance? `CorrespondenceAnalysis` subtracts what
independence expects, ``r c^T``, which is a low-rank shift: a sparse table stays sparse.
"""

# %%
# How often each letter follows each other one, in the manual of Python, which comes with Python.

import string
from collections import Counter
from itertools import pairwise
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import pandas as pd

import shiftsvd as ss

pairs = Counter(pairwise(" ".join(topics.values()).lower()))
letters = list(string.ascii_lowercase)
table = pd.DataFrame(
    [[pairs[before, after] for after in letters] for before in letters], index=letters, columns=letters
)
table.iloc[:5, :10]

# %%
# Labels come in with the frame and go out with the results.

ca = ss.CorrespondenceAnalysis(n_components=2, random_state=0).fit(table)
print(ca.percentage_of_variance_.round(1), "% of an inertia of", round(ca.total_inertia_, 3))
ca.row_contributions_.nlargest(5, 0).round(3)

# %%
# Letters near each other are followed by the same letters (left), or follow the same (right). The first component knows
# nothing of vowels, drawn in red, and yet parts them from the consonants; on the right h, which mostly follows t, goes
# with the vowels, and so does j, which here stands in "object".

figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
for ax, points, title in (
    (axes[0], ca.row_coordinates_, "letters, by what follows"),
    (axes[1], ca.column_coordinates_, "letters, by what stands before"),
):
    for letter, (x, y) in zip(points.index, points.to_numpy(), strict=True):
        ax.plot(x, y, alpha=0)  # so that the axes reach that far
        ax.text(x, y, letter, ha="center", va="center", color="C3" if letter in "aeiou" else "C0", fontsize=13)
    ax.axhline(0, color="0.85", linewidth=1, zorder=0)
    ax.axvline(0, color="0.85", linewidth=1, zorder=0)
    ax.set(title=title, xlabel="component 1", ylabel="component 2")
plt.show()
