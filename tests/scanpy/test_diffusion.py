"""Diffusion maps of AnnData objects: scanpy's places and numbers, and what is refused."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

import shiftsvd as ss
from shiftsvd.scanpy import diffmap

anndata = pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")


def cells(n: int = 90, groups: int = 1, dtype: Any = np.float64, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [4, 2, 1]
    W = np.exp(-np.square(X[:, None] - X).sum(axis=2) / 20)
    label = rng.integers(0, groups, n)
    W = np.where((label[:, None] == label) & (W > 1e-4), W, 0)
    return anndata.AnnData(X, obsp={"connectivities": csr_matrix(W.astype(dtype))})


def scanpys(W: Any, k: int) -> tuple[Any, Any]:
    """The lines of ``scanpy.neighbors.Neighbors.compute_transitions`` and ``.compute_eigen``, in double precision."""
    W = W.toarray().astype(np.float64)
    W = W / W.sum(axis=0) / W.sum(axis=0)[:, None]
    z = np.sqrt(W.sum(axis=0))
    values, vectors = np.linalg.eigh(W / z / z[:, None])
    return values[::-1][:k], vectors[:, ::-1][:, :k]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_places_and_numbers_are_those_of_scanpy(dtype: Any) -> None:
    adata = cells(dtype=dtype)
    assert diffmap(adata, 8, dtype=np.float64) is None
    values, V = scanpys(adata.obsp["connectivities"], 8)
    ours = adata.obsm["X_diffmap"]
    assert np.allclose(adata.uns["diffmap_evals"], values, rtol=0, atol=1e-12)
    assert np.allclose(ours * np.sign((ours * V).sum(axis=0)), V, rtol=0, atol=1e-6)
    kept = adata.uns["diffmap"]
    assert set(kept) == {"params", "eigenvalue_errors", "vector_errors"}
    assert kept["params"] == {"n_comps": 8, "tol": 1e-6, "converged": True, "error_bound": kept["vector_errors"].max()}
    assert np.all(np.abs(adata.uns["diffmap_evals"] - values) <= kept["eigenvalue_errors"] + 1e-14)


def test_scanpy_itself_has_these_numbers() -> None:
    sc = pytest.importorskip("scanpy")
    adata = cells(300)
    theirs = adata.copy()
    theirs.uns["neighbors"] = {
        "connectivities_key": "connectivities",
        "distances_key": "distances",
        "params": {"n_neighbors": 15, "method": "umap"},
    }
    theirs.obsp["distances"] = theirs.obsp["connectivities"]  # not used
    sc.tl.diffmap(theirs, 6)
    diffmap(adata, 6)
    V = theirs.obsm["X_diffmap"]
    assert adata.obsm["X_diffmap"].dtype == V.dtype
    ours = adata.obsm["X_diffmap"] * np.sign((adata.obsm["X_diffmap"] * V).sum(axis=0))
    assert np.allclose(ours, V, rtol=0, atol=1e-6)
    assert np.allclose(adata.uns["diffmap_evals"], theirs.uns["diffmap_evals"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", [2, 5])
def test_connected_components_come_first_the_largest_before_others(k: int) -> None:
    adata = cells(groups=3)
    with pytest.warns(
        UserWarning, match=rf"The graph has 3 connected components .* Each of the first {min(k, 3)} coordinates"
    ):
        diffmap(adata, k)
    labels = connected_components(adata.obsp["connectivities"])[1]
    sizes = np.sort(np.bincount(labels))[::-1]
    V, values = adata.obsm["X_diffmap"], adata.uns["diffmap_evals"]
    assert np.array_equal(np.count_nonzero(V[:, :3], axis=0), sizes[: min(k, 3)])
    assert np.array_equal(values[:3], np.ones(min(k, 3)))
    assert np.allclose(V.T @ V, np.eye(k), atol=1e-6)
    exact = scanpys(adata.obsp["connectivities"], k)
    assert np.allclose(values, exact[0], atol=1e-12)
    if k > 3:
        ours, theirs = V[:, 3:], exact[1][:, 3:]
        assert np.allclose(np.abs((ours * theirs).sum(axis=0)), 1, atol=1e-6)


def test_a_map_that_needs_more_products_has_not_converged() -> None:
    path = np.diag(np.ones(499), 1)
    adata = anndata.AnnData(np.ones((500, 1)), obsp={"connectivities": csr_matrix(path + path.T)})
    expected, missed = "more than max_products=9", "did not converge in 9 products"
    with pytest.warns(UserWarning, match=expected), pytest.warns(UserWarning, match=missed):
        diffmap(adata, 20, max_products=9)
    assert not adata.uns["diffmap"]["params"]["converged"]
    diffmap(adata, 20)
    assert adata.uns["diffmap"]["params"]["converged"]


def test_a_cell_without_neighbours_is_a_component_of_its_own() -> None:
    adata = cells(40)
    W = adata.obsp["connectivities"].toarray()
    W[7] = W[:, 7] = 0
    adata.obsp["connectivities"] = csr_matrix(W)
    with pytest.warns(UserWarning, match=r"The graph has 2 connected components \(39, 1 nodes\)"):
        diffmap(adata, 5)
    V = adata.obsm["X_diffmap"]
    assert np.array_equal(np.abs(V[7]), [0, 1, 0, 0, 0])
    assert np.allclose(V.T @ V, np.eye(5), atol=1e-6)


def test_settings_and_places_of_neighbours(tmp_path: Any) -> None:
    adata = cells(30)
    adata.obsp["mine_connectivities"] = adata.obsp.pop("connectivities")
    adata.uns["mine"] = {"connectivities_key": "mine_connectivities"}
    made = diffmap(adata, 4, "mine", copy=True)
    assert "X_diffmap" not in adata.obsm
    assert made.uns["diffmap"]["params"]["neighbors_key"] == "mine"
    made.write_h5ad(tmp_path / "made.h5ad")
    again = anndata.read_h5ad(tmp_path / "made.h5ad")
    assert again.uns["diffmap"]["params"]["converged"]
    diffmap(again, 99, neighbors_key="mine")  # as many as there are, as in scanpy
    assert again.obsm["X_diffmap"].shape == (30, 29)
    view = made[:, :2]
    assert np.array_equal(diffmap(view, 4, "mine", copy=True).obsm["X_diffmap"], made.obsm["X_diffmap"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"neighbors_key": "other"}, r"uns\['other'\] has no connectivities_key. Keys of uns: none"),
        ({"n_comps": True}, "n_comps must be a positive integer, got True"),
        ({"n_comps": 0}, "n_comps must be a positive integer, got 0"),
        ({"tol": 2}, "tol must be"),
        ({"max_products": 0}, "max_products must be"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], message: str) -> None:
    adata = cells(20)
    with pytest.raises(ValueError, match=message):
        diffmap(adata, **given)
    assert not adata.obsm
    assert not adata.uns


def test_without_neighbours_and_without_cells() -> None:
    with pytest.raises(ValueError, match=r"adata.obsp has no 'connectivities'. Run scanpy.pp.neighbors first"):
        diffmap(anndata.AnnData(np.ones((4, 2))))
    with pytest.raises(TypeError, match=r"adata must be AnnData, got ndarray. Use shiftsvd.DiffusionMap"):
        diffmap(np.ones((4, 4)))


def test_trivial_coordinates_of_walks_may_come_first() -> None:
    W = np.kron(np.eye(2), np.ones((4, 4)))
    W[0, 1] = W[1, 0] = 0.5
    with pytest.warns(UserWarning, match=r"Each of the first 2 coordinates is constant on one component"):
        model = ss.DiffusionMap(4, drop_first=False, random_state=0).fit(W)
    assert np.array_equal(model.eigenvalues_[:2], [1, 1])
    assert np.allclose(model.transform(W), model.embedding_)
