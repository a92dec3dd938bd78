"""
Streaming: partial_fit, merge, refine
=====================================

Rows that come in batches, and are gone afterwards. Up to 4096 features `PCA.partial_fit` keeps the scatter matrix of
all rows so far, and the components are exact. Otherwise it keeps a sketch and the directions found so far: mean
and total variance are exact all the same, and the error is bounded by the variance that was not seen. Streams of
different machines are joined by `merge_pca`.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import shiftsvd as ss

X = csr_array(load_digits().data)
exact = ss.PCA(n_components=8, random_state=0).fit(X)

# %%
# Batches of any size, from one row on, on two machines. With 64 features this is exact.


def streamed(rows, **settings):
    """A PCA that was given these rows 97 at a time."""
    pca = ss.PCA(n_components=8, random_state=0, **settings)
    for lo in range(0, rows.shape[0], 97):
        pca.partial_fit(rows[lo : lo + 97])
    return pca


whole = ss.merge_pca(streamed(X[:900]), streamed(X[900:]))
print(whole.n_samples_, "rows; mean off by at most", np.abs(whole.mean_ - exact.mean_).max())
print("variances off by at most", np.abs(whole.explained_variance_ - exact.explained_variance_).max())

# %%
# Where `memory_limit` leaves no room for the scatter matrix (here on purpose) there is a sketch of 8 + 10 columns, of
# which warnings tell. Every exact variance lies between the one that is given and that plus `unseen_variance_`, dashed.
# Where the rows can be read again, `refine` comes nearer; it is shown after one reading.

warnings.filterwarnings("ignore", "The components|. components did not converge")
stream = ss.merge_pca(*(streamed(rows, memory_limit="400kB") for rows in (X[:900], X[900:])))
missed = exact.explained_variance_ - stream.explained_variance_
unseen = stream.unseen_variance_
refined = stream.refine(X, passes=1)

figure, ax = plt.subplots(figsize=(8, 4.4), layout="constrained")
at = np.arange(1, 9)
ax.bar(at - 0.2, missed, width=0.4, label="stream")
ax.bar(at + 0.2, exact.explained_variance_ - refined.explained_variance_, width=0.4, label="after one more reading")
ax.axhline(unseen, color="0.4", linestyle="--", label="what was not seen: the bound")
ax.set(xlabel="component", ylabel="variance that is missed", yscale="log")
figure.legend(loc="outside upper center", ncols=3)
plt.show()
