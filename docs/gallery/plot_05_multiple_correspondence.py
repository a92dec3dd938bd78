"""
Multiple correspondence analysis of categories
==============================================

For tables whose columns are categories: `MultipleCorrespondenceAnalysis` is the correspondence analysis of the
indicators, which have one entry for each row and column, and stay sparse however many categories there are.
"""

# %%
# Chemical measurements of 178 wines, each cut into low, middle and high. The cultivar is kept aside.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_wine

import shiftsvd as ss

wine = load_wine(as_frame=True)
measured = wine.data[["alcohol", "flavanoids", "color_intensity", "hue", "proline", "malic_acid"]]
X = measured.apply(lambda column: pd.qcut(column, 3, labels=["low", "middle", "high"]))
X.head(3)

# %%
# Indicators inflate the inertia; Greenacre's correction gives percentages that can be read.

mca = ss.MultipleCorrespondenceAnalysis(n_components=2, correction="greenacre", random_state=0).fit(X)
print(mca.percentage_of_variance_.round(1), "%")

# %%
# Wines by cultivar, which the analysis has not seen, and the categories that pull them there.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharex=True, sharey=True)
rows = mca.row_coordinates_.to_numpy()
for cultivar in range(3):
    left.scatter(*rows[wine.target == cultivar].T, s=14, label=f"cultivar {cultivar + 1}")
left.legend()
columns = mca.column_coordinates_
right.scatter(*columns.to_numpy().T, s=10, color="0.3")
for name, at in zip(columns.index, columns.to_numpy(), strict=True):
    right.annotate(name.replace("__", " "), at, fontsize=8, xytext=(3, 2), textcoords="offset points")
for ax, title in ((left, "wines"), (right, "categories")):
    ax.set(title=title, xlabel="component 1", ylabel="component 2")
plt.show()
