"""Spectral embedding and diffusion maps: eigenvalues, vectors and their bounds beside dense ones."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.linalg import polar, qr
from scipy.sparse import block_diag, coo_array, csc_array, csr_array, csr_matrix, diags_array, random_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import aslinearoperator
from sklearn.base import clone
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import SpectralEmbedding as Reference
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss
from shiftsvd.backends import affinity
from shiftsvd.backends.affinity import affinity_of_edges
from shiftsvd.backends.files import DiskRows
from shiftsvd.solvers import constants, filtered
from tests.support.containers import Held

ROUNDING = 4e-15  # of the eigenvalues of LAPACK


def graph(kind: str, rng: np.random.Generator) -> Any:
    n = int(rng.integers(20, 90))
    W, half = np.zeros((n, n)), n // 2
    if kind == "cycle":
        W[np.arange(n), (np.arange(n) + 1) % n] = 1
    elif kind == "star":
        W[0, 1:] = 1
    elif kind == "barbell":  # two cliques and a weak edge: one gap of 1e-9
        W[:half, :half] = W[half:, half:] = 1
        W[0, -1] = 1e-6
    elif kind == "bipartite":
        W[:half, half:] = rng.random((half, n - half)) < 0.3
    elif kind == "disconnected":
        W[:half, :half], W[half:, half:] = rng.random((half, half)), rng.random((n - half, n - half))
    elif kind == "bipartite but for an edge":
        W[:half, half:] = rng.random((half, n - half)) < 0.3
        W[0, 1] = 1e-9
    elif kind == "equal components":
        W = np.kron(np.eye(5), np.triu(rng.random((n // 5, n // 5)) < 0.6))
    elif kind == "twins":
        W = np.kron(np.ones((2, 2)), np.triu((rng.random((half, half)) < 0.3) * rng.random((half, half))))
    elif kind == "decades":
        W = (rng.random((n, n)) < 0.15) * 10.0 ** rng.uniform(-10, 0, (n, n))
    elif kind == "clusters":  # six eigenvalues near 1
        label = rng.integers(0, 6, n)
        W = (rng.random((n, n)) < 0.5) * (label[:, None] == label) + 1e-5 * (rng.random((n, n)) < 0.1)
    else:
        W = (rng.random((n, n)) < 3 / n) * rng.lognormal(0, 3, (n, n))
        W *= {"weights": 1.0, "large": 1e140, "small": 1e-140, "isolated": 1.0, "loops": 1.0}[kind]
        if kind == "loops":
            W += np.diag(rng.random(n))
    return (W + W.T) / 2


def nontrivial(W: Any) -> tuple[Any, Any]:
    W = W / W.max()
    W = W - np.diag(np.diag(W))
    labels, d = connected_components(csr_array(W), directed=False)[1], W.sum(axis=1)
    roots = 1 / np.sqrt(np.where(d > 0, d, np.inf))
    U = (labels[:, None] == np.unique(labels)) * np.sqrt(np.where(d > 0, d, 1))[:, None]
    U /= np.linalg.norm(U, axis=0)
    values, vectors = np.linalg.eigh(roots[:, None] * W * roots + np.diag(d == 0) - 3 * U @ U.T)
    return 1 - values[::-1], vectors[:, ::-1]


KINDS = ("cycle", "star", "barbell", "bipartite", "disconnected", "clusters")
KINDS += ("weights", "large", "small", "isolated", "loops")
KINDS += ("bipartite but for an edge", "equal components", "twins", "decades")


@pytest.mark.filterwarnings("ignore:The graph has", "ignore:Component")
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [(kind, range(2)) for kind in KINDS]
    + [pytest.param(kind, range(2, 14), marks=pytest.mark.long) for kind in KINDS],  # 210 graphs in all
)
def test_values_and_vectors_are_within_their_bounds(kind: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        W, k, tol = graph(kind, rng), int(rng.integers(1, 7)), 10.0 ** -rng.integers(1, 9)
        gaps, vectors = nontrivial(W)
        model = ss.SpectralEmbedding(k, affinity="precomputed", tol=tol, random_state=seed).fit(csr_array(W))
        assert np.all(np.abs(model.eigenvalues_ - gaps[:k]) <= model.eigenvalue_errors_ + ROUNDING)
        V = model.embedding_ * np.sqrt(np.where(model.degrees_ > 0, model.degrees_, 1))[:, None]
        V /= np.linalg.norm(V, axis=0)
        assert np.abs(V.T @ V - np.eye(k)).max() < 1e-10
        for j in range(k):
            equal = np.abs(gaps - gaps[j]) <= 1e-12
            sine = np.linalg.norm(V[:, j] - vectors[:, equal] @ (vectors[:, equal].T @ V[:, j]))
            apart = min(np.abs(gaps[~equal] - gaps[j]), default=1.0)
            assert sine <= model.vector_errors_[j] + ROUNDING / apart
        assert model.converged_ == bool(np.all(model.vector_errors_ <= tol))


@pytest.mark.parametrize("n", [301, 1000])
def test_small_gaps_keep_their_digits(n: int) -> None:
    i = np.arange(n)
    W = csr_array((np.ones(n), (i, (i + 1) % n)), shape=(n, n))
    model = ss.SpectralEmbedding(4, affinity="precomputed", tol=1e-8, random_state=0).fit(W + W.T)
    exact = 2 * np.sin(np.pi * np.array([1, 1, 2, 2]) / n) ** 2
    assert model.converged_
    assert np.all(np.abs(model.eigenvalues_ - exact) <= model.eigenvalue_errors_)
    assert np.allclose(model.eigenvalues_, exact, rtol=1e-10, atol=0)


def test_coordinates_are_those_of_scikit_learn() -> None:
    X = make_swiss_roll(400, random_state=0)[0]
    ours = ss.SpectralEmbedding(3, n_neighbors=12, tol=1e-9, random_state=0).fit(X)
    theirs = Reference(3, affinity="nearest_neighbors", n_neighbors=12, random_state=0).fit(X)
    assert np.allclose(ours.embedding_, theirs.embedding_, atol=1e-8)


def test_cosines_are_never_formed_and_equal_those_that_are() -> None:
    rng = np.random.default_rng(0)
    X = random_array((150, 90), density=0.05, rng=rng, format="csr", data_sampler=rng.lognormal)
    X.data[X.indptr[7] : X.indptr[8]] = 0
    lengths = np.sqrt((X.multiply(X)).sum(axis=1))
    W = (X.multiply(1 / np.where(lengths > 0, lengths, 1)[:, None])).toarray()
    W = W @ W.T
    with pytest.warns(UserWarning, match=r"The graph has \d+ connected components"):
        ours = ss.SpectralEmbedding(4, affinity="cosine", tol=1e-9, random_state=0).fit(X)
    with pytest.warns(UserWarning, match=r"The graph has \d+ connected components"):
        formed = ss.SpectralEmbedding(4, affinity="precomputed", tol=1e-9, random_state=0).fit((W + W.T) / 2)
    assert np.allclose(ours.eigenvalues_, formed.eigenvalues_, atol=1e-13)
    assert np.allclose(ours.embedding_, formed.embedding_, atol=1e-7)
    assert np.array_equal(ours.component_labels_ == 0, formed.component_labels_ == 0)


def documents(n: int = 150, p: int = 90) -> Any:
    """Counts of words with common, rare and unique ones, an empty row, and one that dominates its columns."""
    rng = np.random.default_rng(0)
    X = random_array((n, p), density=0.05, rng=rng, format="lil", data_sampler=rng.lognormal)
    X[:, 0] = 0.5
    X[7] = 0
    X[11] = 0
    X[11, 3] = 1e9
    X[12, 3] = 1
    return X.tocsr()


@pytest.mark.parametrize("place", ["file", "dense file", "by features", "memory", "dask", "changed"])
@pytest.mark.filterwarnings("ignore:The graph has")
def test_cosines_of_rows_that_are_read_again_equal_those_in_memory(place: str) -> None:
    X = documents()
    dask = pytest.importorskip("dask.array")
    A = {
        "file": lambda: DiskRows(Held(X), n_threads=2),
        "dense file": lambda: DiskRows(Held(X.toarray()), n_threads=1),
        "by features": lambda: DiskRows(Held(csr_array(X.T))).H,
        "memory": lambda: ss.as_operator(X),
        "dask": lambda: dask.from_array(X.toarray(), (40, -1)),
        "changed": lambda: ss.preprocess(DiskRows(Held(X)), ss.transforms.Elementwise(np.sqrt)),
    }[place]()
    ours, known = (
        ss.SpectralEmbedding(4, affinity="cosine", tol=1e-10, random_state=0).fit(data)
        for data in (A, X.sqrt() if place == "changed" else X)
    )
    assert ours.converged_
    assert np.allclose(ours.eigenvalues_, known.eigenvalues_, atol=1e-13)
    assert np.allclose(ours.embedding_, known.embedding_, atol=1e-8)
    assert np.allclose(ours.degrees_, known.degrees_, rtol=1e-13)
    assert np.array_equal(ours.component_labels_, known.component_labels_)
    assert ours.n_features_in_ == known.n_features_in_


@pytest.mark.filterwarnings("ignore:The graph has")
def test_a_product_with_cosines_reads_a_file_twice() -> None:
    source = Held(documents())
    model = ss.SpectralEmbedding(3, affinity="cosine", random_state=0).fit(DiskRows(source))
    assert source.n_reads == len(source.edges(0)[1:]) * (4 + 2 * model.n_products_)


@pytest.mark.parametrize("scale", [1e-170, 1e170])
@pytest.mark.filterwarnings("ignore:The graph has")
def test_cosines_do_not_depend_on_the_scale_of_a_row(scale: float) -> None:
    X, scales = documents(), np.ones(150)
    scales[3:90] = scale
    one, two = (
        ss.SpectralEmbedding(3, affinity="cosine", tol=1e-9, random_state=0).fit(DiskRows(Held(data)))
        for data in (X, csr_array(X.multiply(scales[:, None])))
    )
    assert np.allclose(one.embedding_, two.embedding_, atol=1e-9)


def test_what_has_no_cosines_is_refused() -> None:
    cosine = ss.SpectralEmbedding(affinity="cosine")
    for A, message in (
        (DiskRows(Held(-np.ones((4, 3)))), "nonnegative values, got 12 negative values"),
        (DiskRows(Held(np.ones((1, 3)))), "at least 2 samples"),
        (DiskRows(Held(np.ones((4, 3), complex))), "real numbers"),
        (DiskRows(Held(np.zeros((4, 3)))), "4 nodes without edges"),
    ):
        with pytest.raises(ValueError, match=message):
            cosine.fit(A)
    with pytest.raises(TypeError, match="no access to its entries"):
        cosine.fit(ss.as_operator(aslinearoperator(np.ones((4, 3)))))


def test_components_are_reported_and_may_come_first() -> None:
    W = np.zeros((7, 7))
    W[:3, :3] = W[3:6, 3:6] = 1  # and a node without edges
    with pytest.warns(UserWarning, match=r"The graph has 3 connected components \(3, 3, 1 nodes\)"):
        model = ss.SpectralEmbedding(4, affinity="precomputed", drop_first=False, random_state=0).fit(W)
    assert np.array_equal(model.eigenvalues_[:3], np.zeros(3))
    assert model.eigenvalues_[3] == pytest.approx(1.5)
    assert np.array_equal(model.embedding_[:, 2], [0, 0, 0, 0, 0, 0, 1])
    with pytest.raises(ValueError, match=r"n_components must be .*4 for a graph of 7 nodes in 3 connected comp"):
        ss.SpectralEmbedding(5, affinity="precomputed").fit(W)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_diffusion_maps_are_eigenvectors_of_the_walk(alpha: float) -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    W = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    K = W / np.outer(W.sum(axis=1), W.sum(axis=1)) ** alpha
    P = K / K.sum(axis=1)[:, None]
    model = ss.DiffusionMap(5, alpha=alpha, t=2, tol=1e-9, random_state=0).fit(W)
    psi = model.embedding_ / model.eigenvalues_**2
    assert np.allclose(P @ psi, psi * model.eigenvalues_, atol=1e-10)
    assert np.allclose(model.eigenvalues_, np.sort(np.linalg.eigvals(P).real)[::-1][1:6], atol=1e-12)
    stationary = K.sum(axis=1) / K.sum()
    assert np.allclose((psi.T * stationary) @ psi, np.eye(5), atol=1e-10)
    assert np.allclose(model.transform(W[:9]), model.embedding_[:9], atol=1e-10)
    assert np.array_equal(model.transform(np.zeros((1, 60))), np.zeros((1, 5)))


@pytest.mark.parametrize(
    ("settings", "W", "message"),
    [
        ({}, -np.ones((4, 4)), "Negative values"),
        ({}, np.triu(np.ones((4, 4))), r"needs symmetric affinities, got a difference of 1. Pass \(W \+ W.T\) / 2"),
        ({}, np.ones((4, 3)), "needs a square matrix of affinities"),
        ({}, 1e300 * np.ones((4, 4)), "affinities must be between"),
        ({}, np.eye(4) - 0.25, r"Affinities are at least 0\. Pass W instead of a Laplacian D - W\.$"),
        (
            {},
            np.diag([np.nan, 1, 1, 1]),
            r"got 1 NaN in column 0 \(counted from 0\)\. Replace these values by 0, which is no edge\.$",
        ),
        (
            {},
            csr_array(np.diag([1, np.nan, 1, 1])),
            r"got 1 NaN in column 1 .* Replace these values by 0, which is no edge\.$",
        ),
        ({"affinity": "cosine"}, np.diag([np.nan, 1, 1, 1]), r"got 1 NaN in .*\. Remove or replace these values\.$"),
        (
            {"affinity": "nearest_neighbors"},
            np.diag([np.inf, 1, 1, 1]),
            r"got 1 inf in .*\. Remove or replace these values\.$",
        ),
        ({"affinity": "rbf"}, np.ones((4, 4)), "affinity must be one of nearest_neighbors, cosine, precomputed"),
        ({"affinity": "cosine"}, -np.ones((4, 4)), 'Negative values .* Use affinity="nearest_neighbors"'),
        ({"affinity": "nearest_neighbors", "n_neighbors": 9}, np.ones((4, 4)), "n_neighbors must be .*3.*4 samples"),
        ({"n_components": 4}, np.ones((4, 4)), "n_components must be .*3.* for a connected graph of 4 nodes"),
        ({"max_products": 0}, np.ones((4, 4)), "max_products must be"),
        ({"tol": -1}, np.ones((4, 4)), "tol must be"),
        ({"memory_limit": "1 KB"}, np.ones((400, 400)), "coordinates of 400 nodes"),
    ],
)
def test_bad_input_is_refused(settings: dict[str, Any], W: Any, message: str) -> None:
    with pytest.raises((ValueError, MemoryError), match=message):
        ss.SpectralEmbedding(**{"n_components": 2, "affinity": "precomputed"} | settings).fit(W)


NUMBERS = {"True": True, "nan": np.nan, "-1": -1, "x": "x", "None": None, "[]": [], "[2]": [2]}
WRONG = [
    *((ss.SpectralEmbedding, name, value) for name in ("n_components", "tol") for value in NUMBERS),
    *((ss.DiffusionMap, name, value) for name in ("alpha", "t", "n_components") for value in NUMBERS),
    *((ss.SpectralEmbedding, "max_products", value) for value in ("True", "nan", "-1", "x", "[]")),
    *((ss.SpectralEmbedding, "n_neighbors", value) for value in ("True", "nan", "-1", "x", "[]")),
    *((ss.SpectralEmbedding, name, value) for name in ("affinity", "drop_first") for value in ("x", "None", "[]")),
]


@pytest.mark.parametrize(("kind", "name", "value"), WRONG)
def test_wrong_settings_are_refused_before_the_data_are_read(kind: Any, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be [^\n]*, got [^\n]*$"):
        kind(**{name: NUMBERS[value]}).fit("no matrix")


def _repeated(W: Any, dtype: Any) -> Any:
    """A COO matrix with each entry of W in two parts."""
    C = coo_array(W)
    parts = np.append(C.data // 2, C.data - C.data // 2).astype(dtype)
    return coo_array((parts, (np.tile(C.row, 2), np.tile(C.col, 2))), shape=W.shape)


CONTAINERS = {
    "csc": csc_array,
    "lil": lambda W: coo_array(W).tolil(),
    "Fortran": np.asfortranarray,
    "uint16": lambda W: W.astype(np.uint16),
    "float32": lambda W: csr_array(W.astype(np.float32)),
    "repeated entries": lambda W: _repeated(W, np.float64),
    "sums beyond the integers": lambda W: _repeated(W, np.uint8),
    "explicit zeros": lambda W: csr_array(
        (W.ravel(), np.tile(np.arange(len(W)), len(W)), np.arange(0, W.size + 1, len(W)))
    ),
    "Dask": lambda W: pytest.importorskip("dask.array").from_array(W, chunks=(7, -1)),
    "Dask of sparse blocks": lambda W: (
        pytest.importorskip("dask.array").from_array(W, chunks=(7, -1)).map_blocks(csr_array)
    ),
    "negative zeros": lambda W: np.where(W == 0, -0.0, W),
}


@pytest.mark.parametrize(
    "kind", [ss.SpectralEmbedding(2, affinity="precomputed", random_state=0), ss.DiffusionMap(2, random_state=0)]
)
@pytest.mark.parametrize("container", CONTAINERS)
def test_containers_and_number_types_give_the_same_numbers(kind: Any, container: str) -> None:
    X = np.random.default_rng(0).standard_normal((30, 2))
    W = np.floor(300 * np.exp(-np.square(X[:, None] - X).sum(axis=2)))
    data = CONTAINERS[container](W)
    expected, found = clone(kind).fit(W), clone(kind).fit(data)
    assert np.array_equal(found.degrees_, expected.degrees_)
    assert np.allclose(found.embedding_, expected.embedding_, atol=1e-12)
    if kind.__class__ is ss.DiffusionMap:
        assert np.allclose(found.transform(data), expected.embedding_, atol=1e-4)


def test_a_graph_that_is_taken_as_samples_causes_a_notice() -> None:
    values = np.random.default_rng(0).random((30, 30))
    W = csr_array(values + values.T)
    said = r"its rows are taken as samples\. If it is a graph, use affinity=.precomputed.\."
    for graph_of in (csr_array, csr_matrix):
        with pytest.warns(UserWarning, match=said):
            ss.SpectralEmbedding(2, drop_first=False, random_state=0).fit(graph_of(W))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in (W.toarray(), W[:, :-1], csr_array(W + diags_array([np.arange(1.0, W.shape[0])], offsets=[1]))):
            ss.SpectralEmbedding(2, drop_first=False, random_state=0).fit(X)


def test_affinities_that_differ_by_direction_are_averaged_with_a_notice() -> None:
    W = np.kron(np.eye(2), np.ones((5, 5)))
    W[0, 9], W[9, 0] = 1e-8, 3e-8
    with pytest.warns(UserWarning, match="The affinities differ from those of the other direction by up to 2e-08"):
        model = ss.SpectralEmbedding(1, affinity="precomputed", random_state=0).fit(W)
    assert np.array_equal(
        model.embedding_, ss.SpectralEmbedding(1, affinity="precomputed", random_state=0).fit((W + W.T) / 2).embedding_
    )
    W[9, 0] = W[0, 9] * (1 + 1e-9)  # rounding
    ss.SpectralEmbedding(1, affinity="precomputed").fit(W)


@pytest.mark.parametrize("kind", [ss.SpectralEmbedding(1, affinity="precomputed"), ss.DiffusionMap(1)])
def test_graphs_without_edges_have_trivial_coordinates_only(kind: Any) -> None:
    with pytest.raises(ValueError, match="needs a graph with edges between different nodes, got 4 nodes without edges"):
        clone(kind).fit(np.eye(4))
    with pytest.raises(TypeError, match="needs an array or a sparse matrix in memory, got <DenseRows 4 x 4"):
        clone(kind).fit(ss.as_operator(np.eye(4)))
    for W in (np.eye(4), csr_array((4, 4))):
        with pytest.warns(UserWarning, match="The graph has 4 connected components"):
            model = clone(kind).set_params(drop_first=False, n_components=4).fit(W)
        assert np.linalg.matrix_rank(model.embedding_) == 4
        assert np.count_nonzero(model.embedding_) == 4


@pytest.mark.filterwarnings("ignore:The graph has")
@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_isolated_nodes_have_coordinates_0_and_new_points_those_of_their_twins(alpha: float) -> None:
    W = graph("isolated", np.random.default_rng(5))
    W[3], W[:, 3] = 0, 0
    W[7], W[:, 7] = 0, 0
    W[7, 7] = 2  # joined to itself
    model = ss.DiffusionMap(3, alpha=alpha, t=1.5, tol=1e-9, random_state=0).fit(W)
    assert np.array_equal(model.embedding_[[3, 7]], np.zeros((2, 3)))
    assert np.allclose(model.transform(csr_array(W)), model.embedding_, atol=1e-8)
    joined = np.flatnonzero(W.any(axis=1))[:2]
    assert np.allclose(model.transform(3 * W[joined]), model.embedding_[joined], atol=1e-8)


@pytest.mark.parametrize("n_components", [1, 3])
def test_models_of_trivial_coordinates_are_saved(tmp_path: Any, n_components: int) -> None:
    W = np.kron(np.eye(2), np.ones((3, 3)))
    with pytest.warns(UserWarning, match="The graph has 2 connected components"):
        model = ss.DiffusionMap(n_components, drop_first=False, tol=0.1, random_state=0).fit(
            W + np.diag([1.0, 2, 3, 4, 5, 6])
        )
    model.save(tmp_path / "model.safetensors")
    again = ss.DiffusionMap.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.transform(W), model.transform(W))


@pytest.mark.parametrize("n", [2, 5, 12, 60, 150])
def test_all_components_of_a_bipartite_graph(n: int) -> None:
    # N has the eigenvalue -1, and bases of more than a half of the columns.
    W = np.diag(np.ones(n - 1), 1)
    model = ss.SpectralEmbedding(n - 1, affinity="precomputed", tol=1e-6, random_state=0).fit(W + W.T)
    assert model.converged_
    assert np.allclose(model.eigenvalues_, 1 - np.cos(np.pi * np.arange(1, n) / (n - 1)), atol=1e-13)


def test_trivial_vectors_may_be_all_components() -> None:
    W = np.kron(np.eye(2), np.ones((5, 5)))
    with pytest.warns(UserWarning, match="The graph has 2 connected components"):
        model = ss.SpectralEmbedding(1, affinity="precomputed", drop_first=False).fit(W)
    assert model.converged_
    assert np.count_nonzero(model.embedding_) == 5


@pytest.mark.filterwarnings("ignore:The gap after the last component is small")
@pytest.mark.parametrize("most", [1, 5, 20, 200])
def test_few_products_give_all_components_unconverged(most: int) -> None:
    W = np.diag(np.ones(1999), 1)
    model = ss.SpectralEmbedding(20, affinity="precomputed", max_products=most, random_state=0)
    with pytest.warns(UserWarning, match=r"did not converge in .* products"):
        model.fit(csr_array(W + W.T))
    assert model.embedding_.shape == (2000, 20)
    assert model.n_products_ <= max(most, 5)  # three blocks have as many columns as there are components


@pytest.mark.filterwarnings("ignore:The graph has", "ignore:Component", "ignore:The gap")
@pytest.mark.parametrize("size", [2, 3])
def test_few_products_of_many_components_are_unconverged(size: int) -> None:
    W = csr_array(np.kron(np.eye(30), 1 - np.eye(size)))
    for most, seed in np.ndindex(6, 3):
        model = ss.SpectralEmbedding(20, affinity="precomputed", max_products=most + 1, random_state=seed).fit(W)
        assert not model.converged_
        assert np.all(np.abs(model.eigenvalues_ - size / (size - 1)) <= model.eigenvalue_errors_)
        sums = np.array([model.embedding_[of].sum(axis=0) for of in np.arange(30 * size).reshape(30, size)])
        assert np.abs(sums).max() < 1e-12  # no part of the trivial vectors


@pytest.mark.parametrize("least", [1e-3, 1e-12, 1e-17, 1e-100])
def test_cosines_of_a_row_that_dominates_its_columns(least: float) -> None:
    rng = np.random.default_rng(0)
    X = np.hstack([rng.random((60, 40)) * (rng.random((60, 40)) < 0.2), np.zeros((60, 2))])
    X[:, 0] += 0.01
    X[7] = 0
    X[7, 40:] = 1  # a column of its own, and one of which the other rows have little
    X[:, 40] += least
    Y = X / np.sqrt((X**2).sum(axis=1))[:, None]
    W = Y @ Y.T
    ours, formed = (
        ss.SpectralEmbedding(3, affinity=affinity, tol=1e-9, random_state=0).fit(data)
        for affinity, data in (("cosine", X), ("precomputed", (W + W.T) / 2))
    )
    assert ours.converged_
    assert np.allclose(ours.eigenvalues_, formed.eigenvalues_, atol=1e-13)


@pytest.mark.filterwarnings("ignore:Component|The graph has")
def test_nothing_converges_without_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "PROBES", 0)
    W = random_array((200, 200), density=0.1, rng=np.random.default_rng(0), format="csr")
    model = ss.SpectralEmbedding(2, affinity="precomputed", tol=1e-3, random_state=0).fit(W + W.T)
    assert np.all(model.vector_errors_ <= 1e-3)
    assert not model.converged_


def test_cosines_that_underflow_connect_nothing() -> None:
    X = np.eye(6)
    X[0, 1] = X[1, 2] = 1e-200
    X[3, 4] = 1
    with pytest.warns(UserWarning, match="The graph has 5 connected components"):
        model = ss.SpectralEmbedding(1, affinity="cosine", random_state=0).fit(X)
    assert np.allclose(model.eigenvalues_, 2)


def test_combined_vectors_have_combined_sines() -> None:
    # With a loose tolerance the vectors of the polynomial differ from those of N.
    n = 400
    W = csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    model = ss.SpectralEmbedding(6, affinity="precomputed", tol=0.5, random_state=0).fit(W + W.T)
    assert model.converged_
    assert model.vector_errors_.max() <= 0.1


def test_groups_at_the_last_component_are_resolved() -> None:
    # The last component has a twin, which converges after it.
    n = 400
    W = csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    assert ss.SpectralEmbedding(7, affinity="precomputed", random_state=0).fit(W + W.T).converged_


def test_errors_of_eigenvalues_of_walks_include_their_rounding() -> None:
    W = np.kron(np.eye(2), np.ones((9, 9)))
    W[0, -1] = W[-1, 0] = 1e-9
    exact = ss.SpectralEmbedding(1, affinity="precomputed", random_state=0)  # keeps the digits of 1 - lambda
    walk = ss.DiffusionMap(1, alpha=0, random_state=0).fit(W)
    gap = exact.fit(W - np.diag(np.diag(W))).eigenvalues_ * 72 / 81
    assert np.abs((1 - walk.eigenvalues_) - gap) <= walk.eigenvalue_errors_


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_powers_of_densities_do_not_depend_on_the_scale(scale: float) -> None:
    X = np.random.default_rng(0).standard_normal((40, 2))
    W = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    one, two = (ss.DiffusionMap(2, alpha=5, tol=1e-9, random_state=0).fit(w * W) for w in (1.0, scale))
    assert np.allclose(one.embedding_, two.embedding_)
    assert np.allclose(two.transform(scale * W), two.embedding_)
    with pytest.raises(ValueError, match="divides affinities by powers of densities that leave"):
        ss.DiffusionMap(2, alpha=1e4).fit(W)
    W[0, 1] = W[1, 0] = 1e-148  # the least becomes too small, the largest does not become too large
    with pytest.raises(ValueError, match="divides affinities by powers of densities that leave"):
        ss.DiffusionMap(2, alpha=5).fit(W)


@pytest.mark.filterwarnings("ignore:The graph has")
def test_inputs_are_not_modified_and_seeds_repeat() -> None:
    W = csr_array(graph("weights", np.random.default_rng(3)))
    W.data[W.indices == 5], W.data[W.indptr[5] : W.indptr[6]] = 0, 0  # zeros are stored
    before = W.copy()
    ss.SpectralEmbedding(1, affinity="cosine", random_state=1).fit(W)
    ss.DiffusionMap(1, random_state=1).fit(W)
    one, two = (ss.SpectralEmbedding(3, affinity="precomputed", random_state=1, n_threads=t).fit(W) for t in (1, 3))
    assert np.array_equal(one.embedding_, two.embedding_)
    assert all(np.array_equal(getattr(W, name), getattr(before, name)) for name in ("data", "indices", "indptr"))


def test_a_product_costs_no_more_than_two_reads_and_removes_the_trivial_vectors() -> None:
    W = csr_array(graph("cycle", np.random.default_rng(0)))
    A = affinity_of_edges(W, ss.as_operator)
    assert np.allclose(A.matmat(A.trivial.toarray()), -1.5 * A.trivial.toarray())
    assert A.costs.stored == W.nnz


@pytest.mark.long
@parametrize_with_checks([ss.SpectralEmbedding(1, n_neighbors=4), ss.DiffusionMap(1)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_affinities_of_new_samples_are_validated() -> None:
    walk = ss.DiffusionMap(1, random_state=0).fit(np.ones((4, 4)) + np.eye(4))
    for bad, message in (
        (np.nan, r"got 1 NaN in column 1 .* Replace these values by 0, which is no edge"),
        (-1.0, "at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            walk.transform(np.array([[1.0, bad, 1, 1]]))


def test_components_with_the_eigenvalue_0_have_no_extension() -> None:
    W = np.zeros((9, 9))
    W[:4, 4:] = 1
    model = ss.DiffusionMap(8, t=0, random_state=0).fit(W + W.T)
    assert np.array_equal(model.transform(W + W.T)[:, :7], np.zeros((9, 7)))
    assert np.allclose(model.transform(W + W.T)[:, 7], model.embedding_[:, 7])


def test_few_samples_have_two_neighbours() -> None:
    X = np.arange(9.0)[:, None] ** 1.1
    assert ss.SpectralEmbedding(1, random_state=0).fit(X).converged_


def test_graded_eigenvalues_keep_their_digits() -> None:
    # Blocks of blocks, whose eigenvalues are 1e-9, 1e-6, 1e-3 and 1: LAPACK would lose digits of the first.
    W = np.ones((2, 2)) - np.eye(2)
    for weight in (1e-3, 1e-6, 1e-9):
        W = np.kron(np.eye(2), W) + weight * np.kron(np.ones((2, 2)) - np.eye(2), np.ones(W.shape))
    degree = 1 + 2e-3 + 4e-6 + 8e-9
    exact = np.array([16e-9, 8e-9 + 8e-6, 8e-9 + 4e-6 + 4e-3]) / degree
    order = np.random.default_rng(0).permutation(16)
    model = ss.SpectralEmbedding(15, affinity="precomputed", random_state=0).fit(W[order][:, order])
    assert np.allclose(model.eigenvalues_[[0, 1, 3]], exact, rtol=1e-13, atol=0)
    assert np.all(model.eigenvalue_errors_[[0, 1, 3]] >= np.abs(model.eigenvalues_[[0, 1, 3]] - exact) - 1e-15 * exact)


def _foretold(model: Any, W: Any) -> list[int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(W)
    found = (
        re.search(r"at least about ([\d,]+) products .*, more than max_prod", str(each.message)) for each in caught
    )
    return [int(each[1].replace(",", "")) for each in found if each]


@pytest.mark.parametrize("k", [1, 5, 10])
def test_more_products_than_allowed_are_foretold(k: int) -> None:
    n, steps = 8000, []
    W = csr_array((np.ones(n - 1), (np.arange(n - 1), np.arange(1, n))), shape=(n, n))
    model = ss.SpectralEmbedding(k, affinity="precomputed", tol=1e-3, max_products=1000, random_state=0)
    told = _foretold(model, W + W.T)
    assert not model.converged_
    with ss.events.listening(steps.append):
        assert not _foretold(model.set_params(max_products=None), W + W.T)
    assert model.converged_
    assert model.n_products_ / 3 < told[-1] < 2 * model.n_products_
    assert abs(steps[-1].done - model.n_products_) <= 1


@pytest.mark.parametrize("seed", range(4))
def test_values_that_have_not_converged_are_within_their_bounds(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    n = 2000
    W = csr_array((np.ones(n - 1), (np.arange(n - 1), np.arange(1, n))), shape=(n, n))
    model = ss.SpectralEmbedding(3, affinity="precomputed", max_products=100, random_state=seed)
    assert _foretold(model, W + W.T)
    assert not model.converged_
    exact = 1 - np.cos(np.pi * np.arange(1, 4) / (n - 1))
    assert np.all(np.abs(model.eigenvalues_ - exact) <= model.eigenvalue_errors_)
    assert not "".join(capfd.readouterr())  # LAPACK reports wrong arguments there


def test_a_failure_of_lapack_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(R: Any, **settings: int) -> tuple[Any, ...]:
        k = len(R)
        return np.full(k, np.nan), None, np.full((k, k), np.nan), np.ones(7), None, 1

    monkeypatch.setattr(affinity.lapack, "dgejsv", failing)
    W = np.diag(np.ones(39), 1)
    model = ss.SpectralEmbedding(3, affinity="precomputed", random_state=0).fit(W + W.T)
    exact = 1 - np.cos(np.pi * np.arange(1, 4) / 39)
    assert model.converged_
    assert np.all(np.abs(model.eigenvalues_ - exact) <= model.eigenvalue_errors_)


def test_long_runs_are_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    W = csr_array((np.ones(1999), (np.arange(1999), np.arange(1, 2000))), shape=(2000, 2000))
    model = ss.SpectralEmbedding(5, affinity="precomputed", random_state=0)
    model.fit(W + W.T)  # warnings are errors
    monkeypatch.setattr(filtered, "LONG", 1e7)
    with pytest.warns(
        UserWarning, match=r"at least about [\d,]+ products with W are expected. Vectors converge faster"
    ):
        model.fit(W + W.T)


def test_sorted_nodes_keep_their_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    W = csr_array(block_diag([rng.random((size, size)) for size in (20, 31, 40)]))
    W = W + W.T
    shuffled = rng.permutation(W.shape[0])
    W = W[shuffled][:, shuffled]
    fits = []
    for most in (2**15, 0):
        monkeypatch.setattr(affinity, "UNSORTED", most)
        monkeypatch.setattr(affinity, "NARROW", 1.0)
        model = ss.SpectralEmbedding(6, affinity="precomputed", drop_first=False, tol=1e-9, random_state=0)
        with pytest.warns(UserWarning, match="connected components"):
            fits.append(model.fit(W))
    one, two = fits
    assert np.array_equal(one.degrees_, two.degrees_)
    assert np.array_equal(one.component_labels_, two.component_labels_)
    assert np.allclose(one.embedding_, two.embedding_, atol=1e-8)


def test_recipes_of_clusters_and_communities() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 200)
    A = csr_array((rng.random((200, 200)) < np.where(label[:, None] == label, 0.3, 0.02)).astype(float))
    A = csr_array(A.maximum(A.T))
    A.setdiag(0)
    A.eliminate_zeros()
    four = ss.SpectralEmbedding(4, affinity="precomputed", drop_first=False, tol=1e-9, random_state=0).fit(A)
    V = four.embedding_ * np.sqrt(four.degrees_)[:, None]
    middles = qr(V.T, mode="r", pivoting=True)[1][:4]
    assert adjusted_rand_score(np.abs(V @ polar(V[middles].T)[0]).argmax(axis=1), label) > 0.95
    d = A.sum(axis=1).reshape(-1, 1)
    F = ss.svd(A, 12, shift=ss.LowRank(d, d / d.sum()), rng=0, tol=1e-9)
    eigenvalues = np.linalg.eigvalsh(A.toarray() - d * d.T / d.sum())
    largest = eigenvalues[np.argsort(-np.abs(eigenvalues))][:12]
    assert (largest < 0).any()
    assert np.allclose(F.S * np.sum(F.U * F.Vh.T, axis=0), largest)


@pytest.mark.parametrize("t", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_errors_of_new_coordinates_are_within_their_bounds(alpha: float, t: float) -> None:
    rng, n, worst = np.random.default_rng(1), 150, 0.0
    X = rng.standard_normal((n + 9, 3))
    W = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    new, W = W[n:, :n], W[:n, :n]
    q = W.sum(axis=1) ** -alpha
    K = W * q[:, None] * q
    d = K.sum(axis=1)
    values, vectors = np.linalg.eigh(K / np.sqrt(d[:, None] * d))
    exact, psi = values[::-1][1:4], vectors[:, ::-1][:, 1:4] * np.sqrt(d.sum() / d)[:, None]
    P = new * q / (new * q).sum(axis=1)[:, None]
    expected = P @ psi * exact ** (t - 1)
    for tol in (0.3, 1e-2, 1e-6):
        model = ss.DiffusionMap(3, alpha=alpha, t=t, tol=tol, random_state=0).fit(W)
        # An accurate model has vectors in other directions than those of LAPACK, but the same as those of other models.
        found = model.transform(new)
        errors = np.abs(found - expected * np.sign(np.sum(found * expected, axis=0)))
        bounds = model.transform_errors(new)
        assert np.all(errors <= bounds + 1e-12)
        worst = max(worst, float((errors / bounds).max()))
    assert bounds.max() < 1e-3
    assert worst > 1e-4
    assert np.array_equal(model.transform_errors(np.zeros((1, n))), np.zeros((1, 3)))


def test_coordinates_along_eigenvalues_that_may_be_zero_have_no_bound() -> None:
    W = np.kron(np.eye(2), np.ones((4, 4)))
    with pytest.warns(UserWarning, match="The graph has 2 connected components"):
        model = ss.DiffusionMap(4, drop_first=False, random_state=0).fit(W)
    bounds = model.transform_errors(W[:1])
    assert np.all(bounds[0, :2] < 1e-12)
    assert np.all(np.isinf(bounds[0, 2:]))


def test_bounds_of_components_that_may_be_zero_are_infinite_without_warnings() -> None:
    W = csr_array(np.kron(np.diag([1, 0]), np.ones((4, 4))))  # the other four samples are isolated
    with pytest.warns(UserWarning, match="The graph has"):
        model = ss.DiffusionMap(2, random_state=0).fit(W)
    with warnings.catch_warnings(action="error"):
        bounds = model.transform_errors(W)
    assert np.all(bounds[:4] == np.inf)
    assert np.all(bounds[4:] == 0)
