"""Memory: what is never made, and what is never copied as a whole."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from tests.support.places import ROOT
from tests.support.random import random_csr

pytest.importorskip("pytest_memray")

MIB = 2**20
RANDOMIZED = ["randomized", "shifted-randomized"]
EVERY = ["exact", *RANDOMIZED]


# Sparse: the dense form, 6.4 GB, is 20 times the limit, of which BLAS takes 100 MB for itself.


@pytest.fixture(scope="module")
def tall():
    X = random_csr((100_000, 8_000), 600_000)
    return {"csr": X, "csc": csc_array(X)}


@pytest.fixture(scope="module")
def wide():
    X = random_csr((4_000, 200_000), 600_000)
    return {"csr": X, "csc": csc_array(X)}


@pytest.mark.long
@pytest.mark.limit_memory("300 MB")
@pytest.mark.parametrize(("name", "container"), [*zip(RANDOMIZED, ["csr", "csc"], strict=True)])
def test_a_tall_sparse_fit_takes_less_than_a_twentieth_of_the_dense_form(name, container, tall):
    ss.PCA(10, solver=name, random_state=0, iterated_power=1).fit(tall[container])


@pytest.mark.long
@pytest.mark.limit_memory("300 MB")
@pytest.mark.parametrize(("name", "container"), [*zip(RANDOMIZED, ["csr", "csc"], strict=True)])
def test_a_wide_sparse_fit_takes_less_than_a_twentieth_of_the_dense_form(name, container, wide):
    ss.PCA(10, solver=name, random_state=0, iterated_power=1).fit(wide[container])


@pytest.mark.long
@pytest.mark.limit_memory("300 MB")
def test_scale_weights_and_shift_take_no_dense_form(tall):
    X = tall["csr"]
    pca = ss.PCA(5, solver="randomized", iterated_power=1, random_state=0, scale=True, shift=np.full(8_000, 0.1))
    pca.fit(X, sample_weight=np.ones(100_000))


@pytest.fixture(scope="module")
def fitted(tall):
    return ss.PCA(10, solver="randomized", random_state=0, iterated_power=1).fit(tall["csr"])


@pytest.mark.long
@pytest.mark.limit_memory("150 MB")
@pytest.mark.parametrize("container", ["csr", "csc"])
def test_sparse_transform_takes_little_more_than_the_scores(container, tall, fitted):
    fitted.transform(tall[container])


@pytest.mark.long
@pytest.mark.limit_memory("300 MB")
@pytest.mark.parametrize("container", ["csr", "csc"])
def test_sparse_score_samples_takes_no_dense_form(container, tall, fitted):
    fitted.score_samples(tall[container])


@pytest.fixture(scope="module")
def narrow():
    return random_csr((3_000_000, 40), 3_000_000)  # 960 MB dense


@pytest.mark.long
@pytest.mark.limit_memory("300 MB")
def test_an_exact_solution_of_sparse_data_is_blockwise(narrow):
    ss.PCA(3, solver="exact").fit(narrow)


# Many features: nothing of n_features x n_features, which would be 1.2 GB.


@pytest.fixture(scope="module")
def many_features():
    X = np.random.default_rng(0).standard_normal((60, 12_000))
    return X, ss.PCA(5, scale=False).fit(X), csr_array(X)


@pytest.mark.long
@pytest.mark.limit_memory("150 MB")
@pytest.mark.parametrize("sparse", [False, True])
def test_likelihoods_need_no_matrix_of_features_by_features(sparse, many_features):
    dense, pca, csr = many_features
    assert np.isfinite(pca.score_samples(csr if sparse else dense)).all()


@pytest.mark.long
@pytest.mark.limit_memory("150 MB")
@pytest.mark.parametrize(("name", "scale"), [*((name, False) for name in EVERY), ("randomized", True)])
def test_a_fit_of_many_features_needs_no_matrix_of_features_by_features(name, scale, many_features):
    dense, _, csr = many_features
    for X in (dense, csr):
        ss.PCA(5, solver=name, random_state=0, scale=scale).fit(X).score(X)


# Dense: read in place, converted block by block.


def peak_beside(call):
    """Bytes of arrays alive at once while `call` runs, beyond what lived before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BLOCKS = 200 * MIB  # the blocks in flight, and a few panels


@pytest.fixture(scope="module")
def pixels():
    X = np.random.default_rng(0).integers(0, 256, (600_000, 80), dtype=np.uint8)
    assert 8 * X.size > 1.8 * BLOCKS
    return {"tall": X, "wide": X.T, "fortran": np.asfortranarray(X), "bool": X > 99}


def frugal(name):
    """Settings with thin panels: what is left of the memory is copies of the data."""
    return ss.PCA(3, solver=name, random_state=0, iterated_power=0, n_oversamples=3, n_threads=2)


KINDS = [("exact", "wide"), ("shifted-randomized", "tall"), ("shifted-randomized", "wide")]
KINDS += [("randomized", kind) for kind in ("tall", "wide", "fortran", "bool")]


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_small_integers_are_never_converted_as_a_whole(name, kind, pixels):
    pca = frugal(name)
    assert peak_beside(lambda: pca.fit(pixels[kind])) < BLOCKS
    assert peak_beside(lambda: pca.transform(pixels[kind])) < BLOCKS


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tall", "wide"])
def test_small_integers_are_scaled_weighted_and_scored_block_by_block(kind, pixels):
    X = pixels[kind]
    pca = frugal("randomized").set_params(scale=np.full(X.shape[1], 2.0))
    assert peak_beside(lambda: pca.fit(X, sample_weight=np.ones(len(X)))) < BLOCKS
    assert peak_beside(lambda: pca.score_samples(X)) < BLOCKS


@pytest.fixture(scope="module")
def singles():
    X = np.tile(np.random.default_rng(0).standard_normal((60_000, 100), dtype=np.float32), (10, 1))
    assert X.nbytes > 1.1 * BLOCKS
    return {"tall": X, "wide": X.T}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kind"),
    [("exact", "tall"), ("randomized", "tall"), ("randomized", "wide"), ("shifted-randomized", "wide")],
)
def test_dense_single_precision_is_neither_copied_nor_made_double(name, kind, singles):
    pca = frugal(name)
    assert peak_beside(lambda: pca.fit(singles[kind])) < BLOCKS
    assert peak_beside(lambda: pca.transform(singles[kind])) < BLOCKS


@pytest.mark.long
def test_a_memory_map_is_not_copied(singles, tmp_path):
    np.save(tmp_path / "x.npy", singles["tall"])
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    pca = frugal("randomized")
    assert peak_beside(lambda: pca.fit(X)) < BLOCKS
    assert peak_beside(lambda: pca.transform(X)) < BLOCKS


@pytest.mark.long
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("container", [csr_array, csc_array])
def test_canonical_sparse_arrays_are_read_in_place(container, index):
    X = container(random_csr((50_000, 3_000), 2_000_000, np.float32))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    X.has_sorted_indices = X.has_canonical_format = True
    before = (X.data, X.indices, X.indptr)
    size = X.data.nbytes + X.indices.nbytes
    assert peak_beside(lambda: ss.as_operator(X)) < size / 2
    assert all(a is b for a, b in zip(before, (X.data, X.indices, X.indptr), strict=True))


def test_fit_keeps_no_reference_to_the_data():
    import gc
    import weakref

    gc.freeze()  # the collection looks at what follows alone
    for shape in ((400, 30), (30, 400)):
        X = np.random.default_rng(0).standard_normal(shape)
        alive = weakref.ref(X)
        pca = ss.PCA(3, solver="randomized", random_state=0).fit(X)
        del X
        gc.collect()
        assert alive() is None
        assert pca.components_.base is None or pca.components_.base.size <= 10 * pca.components_.size


# The whole process, as the README promises it.

PROCESS = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.random import random_csr
import shiftsvd as ss
X = random_csr({shape}, {nonzeros})
pca = ss.PCA({k}, random_state=0).fit(X)
assert pca.components_.shape == ({k}, {shape}[1])
# Not ru_maxrss: that of a new process begins with the size of the one that started it.
lines = Path("/proc/self/status").read_text().splitlines()
print(1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))))
"""


def peak_of_process(shape, nonzeros, k):
    """Bytes of resident memory at the peak, of a process that makes the matrix and fits it."""
    code = PROCESS.format(root=str(ROOT), shape=shape, nonzeros=nonzeros, k=k)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_fifty_components_of_32_gb_dense_take_less_than_one_and_a_half():
    assert peak_of_process((200_000, 20_000), 4_000_000, 50) < 1.5e9


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_hundred_components_of_two_million_features_take_less_than_two_and_a_half_gb():
    assert peak_of_process((330, 2_000_000), 6_600_000, 100) < 2.5e9


@pytest.mark.long
def test_long_vectors_are_held_once_while_they_are_made_orthonormal():
    n, k = 100_000, 50
    F = ss.svd(random_csr((100, n), 300_000), k, shift="mean", solver="gram", rng=0)
    tracemalloc.start()
    try:
        V = F.Vh.T
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)
    assert grown < 1.5 * V.nbytes
