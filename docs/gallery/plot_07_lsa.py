"""
Latent semantic analysis of texts
=================================

From raw texts to points in one object: `LSA` weighs the words by tf-idf and takes the leading singular vectors of the
sparse weights. Texts about the same thing come close to each other, also where they share few words.
"""

# %%
# The chapters of the manual of Python, which comes with Python: what ``help("topics")`` lists.

from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import numpy as np

import shiftsvd as ss

texts = [" ".join(text.split()) for text in topics.values()]
print(len(texts), "texts;", texts[0][:100], "...")

# %%
# With ``center=True`` the mean of all texts is subtracted, so that the first component is not merely how alike they
# are. Terms with + and with - are opposite poles of a component.

lsa = ss.LSA(20, center=True, stop_words="english", min_df=3, sublinear_tf=True, random_state=0)
Z = lsa.fit_transform(texts)
for j in range(4):
    weights = {term: lsa.components_[j, lsa.terms_ == term][0] for term in lsa.top_terms(j, 8)}
    print(f"component {j + 1}:", ", ".join(f"{term} {weight:+.2f}" for term, weight in weights.items()))

# %%
# Rows have length 1, so products are cosines: what is nearest to a question?

question = lsa.transform(["how do I catch an error that a function raises"])
for i in np.argsort(-(Z @ question[0]))[:3]:
    print(f"{Z[i] @ question[0]:.2f}", texts[i][:90], "...")

# %%
# The cosines of all pairs, texts in the order of their strongest component: blocks are topics.

order = np.argsort(np.argmax(np.abs(Z), axis=1), kind="stable")
figure, ax = plt.subplots(figsize=(6.4, 5.4), layout="constrained")
picture = ax.imshow((Z @ Z.T)[np.ix_(order, order)], cmap="RdBu_r", vmin=-1, vmax=1)
ax.set(title="cosines between chapters", xlabel="chapter", ylabel="chapter")
figure.colorbar(picture, ax=ax)
plt.show()
