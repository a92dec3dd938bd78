"""
From a file to a report
=======================

A matrix in a file, in any format that ``shiftsvd info`` knows, a budget of memory, and one page that says what was
found and how far it can be trusted. The command does all of it in one line::

    shiftsvd fit digits.npz -k 10 --memory 1G -o out/

This is the same in Python.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from scipy.sparse import csr_array, save_npz
from sklearn.datasets import load_digits

import shiftsvd as ss
from shiftsvd import report
from shiftsvd.io import open_matrix
from shiftsvd.plot import reconstruction_error, scree

folder = tempfile.TemporaryDirectory()
file = Path(folder.name, "digits.npz")
save_npz(file, csr_array(load_digits().data))

# %%
# The file is opened, not loaded, where its format allows reading in blocks; fits then take no more than the limit.
# `checkpoint` writes down every read of such a file, and a killed run goes on where it stopped.

A, names = open_matrix(file, memory_limit="1GB")
print(ss.estimate(A, 10))
with ss.checkpoint(Path(folder.name, "run")):
    pca = ss.PCA(n_components=10, random_state=0, memory_limit="1GB").fit(A)

# %%
# A model file holds numbers and settings, and nothing that runs when it is read.

pca.save(Path(folder.name, "digits.safetensors"))
again = ss.load_model(Path(folder.name, "digits.safetensors"))
print((again.transform(A) == pca.transform(A)).all())

# %%
# The report, a page that needs no other file; and two of its pictures.

page = Path(folder.name, "report.html")
report.write(page, pca, scores=pca.transform(A), source={"file": file.name})
print(f"{page.stat().st_size / 1000:.0f} kB")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
scree(pca, ax=left)
reconstruction_error(pca, ax=right)
folder.cleanup()
plt.show()
