"""
How many components?
====================

`suggest_k` answers by four rules, and shows the evidence of each. They ask different questions, so they may differ:
where the spectrum bends, what exceeds chance, what exceeds noise of one variance, and what predicts entries that were
held out.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

import shiftsvd as ss

X = load_wine().data
rules = ("elbow", "parallel", "gavish-donoho", "cv")
found = {rule: ss.suggest_k(X, rule, scale="std", max_k=10, rng=0) for rule in rules}
print({rule: suggestion.k for rule, suggestion in found.items()})

# %%
# 178 wines, 13 measurements, each divided by its standard deviation.

figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
for ax, suggestion in zip(axes.flat, found.values(), strict=True):
    suggestion.plot(ax)

# %%
# Three cultivars: the first components tell them apart. To go on from a fit to more components, `warm_start` begins
# with what it found.

F = ss.svd(X, 3, shift="mean", scale="std", rng=0)
more = ss.svd(X, 8, shift="mean", scale="std", solver=ss.warm_start(F), rng=0)
print(more.info.converged, more.S.round(1))

from shiftsvd.plot import scores

scores(more, color=[f"cultivar {number + 1}" for number in load_wine().target])
plt.show()
