"""Several fields: pairs that vary together, modes of all of them, modes with lags, and modes that travel."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import signal

from shiftsvd.backends import as_operator
from shiftsvd.operators import Product
from shiftsvd.xarray import coupled, extended, hilbert, joint, pca, project, reconstruct, rotate, side
from shiftsvd.xarray.travelling import AnalyticSignal

xarray = pytest.importorskip("xarray")

TIMES = 60


def fields(dtype: Any = np.float64, seed: int = 0) -> tuple[Any, Any]:
    """Two fields far off-centre on grids of their own that share three patterns in time; one has land."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((TIMES, 3)) * [6, 4, 2]

    def one(name: str, rows: int, columns: int, pole: float) -> Any:
        values = shared @ rng.standard_normal((3, rows * columns)) + rng.standard_normal((TIMES, rows * columns)) + 280
        return xarray.DataArray(
            values.reshape(TIMES, rows, columns).astype(dtype),
            dims=("time", "lat", "lon"),
            coords={
                "time": np.arange(TIMES) * 10,
                "lat": np.linspace(-pole, pole, rows),
                "lon": np.arange(columns) * 3.0,
                "height": float(rows),
            },
            name=name,
            attrs={"units": "K"},
        )

    X, Y = one("sst", 7, 9, 60), one("slp", 5, 9, 50)
    return X.where(~((X.lat > 30) & (X.lon < 6))), Y


def matrix(da: Any, weighted: bool = True) -> Any:
    """Weighted anomalies of the cells that have values."""
    da = da.transpose("time", "lat", "lon")
    w = np.sqrt(np.cos(np.deg2rad(da.lat))) if weighted else 1
    X = ((da - da.mean("time")) * w).transpose("time", "lat", "lon").values.reshape(da.sizes["time"], -1)
    return X[:, ~np.isnan(X).all(axis=0)].astype(np.float64)


def flat(da: Any) -> Any:
    """Modes x cells that have values."""
    values = da.transpose("mode", ...).values.reshape(da.sizes["mode"], -1)
    return values[:, ~np.isnan(values[0])]


def same_but_for_sign(found: Any, exact: Any, atol: float) -> None:
    """Rows agree up to a number of size 1."""
    turns = np.sum(found * exact.conj(), axis=1)
    np.testing.assert_allclose(found, exact * (turns / np.abs(turns))[:, None], atol=atol * np.abs(exact).max())


class TestCoupled:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_pairs_are_singular_vectors_of_the_cross_covariances(self, dtype: Any) -> None:
        X, Y = fields(dtype)
        pair = coupled(X, Y, 3, weights="coslat", tol=1e-8, rng=0)
        D, E = matrix(X), matrix(Y)
        U, S, Vh = np.linalg.svd(D.T @ E / (TIMES - 1), full_matrices=False)
        eps = 1e-6 if dtype == np.float32 else 1e-8
        np.testing.assert_allclose(pair.covariance, S[:3], rtol=eps)
        np.testing.assert_allclose(pair.squared_covariance_fraction, S[:3] ** 2 / np.sum(S**2), rtol=eps)
        same_but_for_sign(flat(pair.x_components), U.T[:3], 100 * eps)
        same_but_for_sign(flat(pair.y_components), Vh[:3], 100 * eps)
        same_but_for_sign(pair.x_scores.values, (D @ U[:, :3]).T, 100 * eps)
        covariance = np.sum(pair.x_scores * pair.y_scores, axis=1) / (TIMES - 1)
        np.testing.assert_allclose(covariance, S[:3], rtol=100 * eps)
        of_x = np.sum((D @ U[:, :3]) ** 2, axis=0) / np.sum(D**2)
        np.testing.assert_allclose(pair.x_explained_variance_ratio, of_x, rtol=100 * eps)
        for name, F in (("x", D), ("y", E)):
            for kind, other in (("homogeneous", name), ("heterogeneous", {"x": "y", "y": "x"}[name])):
                Z = pair[f"{other}_scores"].values
                exact = [[np.corrcoef(cell, z)[0, 1] for cell in F.T] for z in Z]
                np.testing.assert_allclose(flat(pair[f"{name}_{kind}"]), exact, atol=1e-5)
        assert pair.attrs["total"] == "exact"
        assert pair.attrs["total_squared_covariance"] == pytest.approx(np.sum(S**2), rel=eps)
        assert pair.attrs["converged"] is None  # no bounds of an exact decomposition

    def test_coordinates_that_differ_are_told_apart(self) -> None:
        X, Y = fields()
        pair = coupled(X, Y, 2)
        assert pair.x_components.dims == ("mode", "lat_x", "lon")
        assert pair.y_components.dims == ("mode", "lat_y", "lon")
        assert float(pair.height_x), float(pair.height_y) == (7, 5)
        y = side(pair, "y")
        assert y.components.dims == ("mode", "lat", "lon")
        np.testing.assert_array_equal(y.lat, Y.lat)
        assert float(y.height) == 5
        np.testing.assert_array_equal(np.isnan(side(pair, "x").components[0]), np.isnan(X[0]))
        assert "lat_x" not in y.coords
        with pytest.raises(ValueError, match=r"has no field 'z'. Its fields: x, y"):
            side(pair, "z")
        with pytest.raises(ValueError, match="got a single field"):
            side(pca(X, 2), "x")

    @pytest.mark.parametrize("method", ["mca", "cca"])
    def test_samples_are_matched_by_their_labels(self, method: Any) -> None:
        X, Y = fields()
        pair = coupled(X, Y, 2, method=method, leading=4, tol=1e-9, rng=0)
        turned = coupled(X, Y.isel(time=slice(None, None, -1)), 2, method=method, leading=4, tol=1e-9, rng=0)
        np.testing.assert_allclose(turned.correlation, pair.correlation, rtol=1e-9)
        np.testing.assert_allclose(np.abs(turned.y_scores), np.abs(pair.y_scores), atol=1e-6)
        np.testing.assert_array_equal(turned.time, X.time)
        with pytest.raises(
            ValueError, match=r"along time only 59 of the 60 labels of X are among the 59 labels of Y\. .*xarray\.align"
        ):
            coupled(X, Y[1:], 2, method=method)
        with pytest.raises(ValueError, match=r"no label along time is common: .* Make the labels equal\."):
            coupled(X, Y.assign_coords(time=Y.time.values + 0.5), 2)
        with pytest.raises(ValueError, match="same samples, each once"):
            coupled(X, Y.assign_coords(time=Y.time.values % 300), 2)
        with pytest.raises(ValueError, match="same samples, got 60 and 50 along time"):
            coupled(X, Y[:50].drop_vars("time"), 2)
        unlabelled = coupled(X, Y.drop_vars("time"), 2, method=method, leading=4, tol=1e-9, rng=0)
        np.testing.assert_allclose(unlabelled.correlation, pair.correlation, rtol=1e-9)

    @pytest.mark.filterwarnings("ignore:.* samples along .* have values")
    def test_samples_that_one_field_lacks_are_left_out(self) -> None:
        X, Y = fields()
        holes = coupled(X.where(X.time != 50), Y.where(Y.time != 100), 2, tol=1e-9, rng=0)
        keep = ~X.time.isin([50, 100])
        whole = coupled(X[keep.values], Y[keep.values], 2, tol=1e-9, rng=0)
        np.testing.assert_allclose(holes.covariance, whole.covariance, rtol=1e-8)
        np.testing.assert_array_equal(np.isnan(holes.x_scores[0]), ~keep)
        np.testing.assert_array_equal(np.isnan(holes.y_scores[0]), ~keep)

    def test_canonical_correlations_are_those_of_the_leading_components(self) -> None:
        X, Y = fields()
        pair = coupled(X, Y, 3, method="cca", leading=(5, 0.99), weights="coslat", tol=1e-9, rng=0)
        reads = [pca(da, 5, weights="coslat", solver="exact").attrs["n_passes"] for da in (X, Y)]
        assert coupled(X, Y, 3, method="cca", leading=5, solver="exact").attrs["n_passes"] == sum(reads) > max(reads)
        D, E = matrix(X), matrix(Y)
        k = pair.attrs["leading"][1]
        S = np.linalg.svd(E, compute_uv=False) ** 2
        assert k == int(np.searchsorted(np.cumsum(S) / S.sum(), 0.99)) + 1
        P, Q = np.linalg.svd(D)[0][:, :5], np.linalg.svd(E)[0][:, :k]
        U, exact, Vh = np.linalg.svd(P.T @ Q)
        np.testing.assert_allclose(pair.correlation, exact[:3], rtol=1e-6)
        same_but_for_sign(pair.x_scores.values, (P @ U[:, :3]).T * np.sqrt(TIMES - 1), 1e-5)
        same_but_for_sign(pair.y_scores.values, (Q @ Vh[:3].T).T * np.sqrt(TIMES - 1), 1e-5)
        np.testing.assert_allclose(pair.x_scores.var("time", ddof=1), 1, rtol=1e-6)
        np.testing.assert_allclose(D @ flat(pair.x_duals).T, pair.x_scores.T, atol=1e-6)
        np.testing.assert_allclose(flat(pair.x_components), pair.x_scores.values @ D / (TIMES - 1), atol=1e-4)
        with pytest.raises(ValueError, match=r"n_modes must be an integer in 1\.\.3 for 3 and 5 components, got 4"):
            coupled(X, Y, 4, method="cca", leading=(3, 5))

    def test_a_side_projects_other_times_and_makes_up_the_field(self) -> None:
        X, Y = fields()
        pair = coupled(X, Y, 3, weights=("coslat", None), standardize=(False, True), tol=1e-9, rng=0)
        x, y = side(pair, "x"), side(pair, "y")
        np.testing.assert_allclose(project(x, X[:7]), pair.x_scores[:, :7], atol=1e-8)
        np.testing.assert_allclose(project(y, Y[:7]), pair.y_scores[:, :7], atol=1e-8)
        with pytest.raises(
            ValueError, match=r'eofs has separate scores for x and y\. .*project\(side\(eofs, "x"\), da\)'
        ):
            project(pair, X)
        assert float(np.abs(reconstruct(x) - X).max()) < 6  # all but the noise

    @pytest.mark.parametrize("chunks", [{"time": 20}, {"lat": 3}])
    def test_chunked_fields_give_the_same(self, chunks: dict[str, int]) -> None:
        pytest.importorskip("dask.array")
        X, Y = fields()
        pair = coupled(X, Y, 3, weights="coslat", tol=1e-8, rng=0)
        lazy = coupled(X.chunk(chunks), Y.chunk(chunks), 3, weights="coslat", tol=1e-8, rng=0)
        xarray.testing.assert_allclose(lazy, pair, atol=1e-6)

    def test_the_total_is_estimated_where_it_would_cost_more_than_the_modes(self, monkeypatch: Any) -> None:
        X, Y = fields()
        exact = coupled(X, Y, 2, rng=0)
        monkeypatch.setattr("shiftsvd.algebra.combined.WORTH", 0)
        pair = coupled(X, Y, 2, rng=0)
        assert (exact.attrs["total"], pair.attrs["total"]) == ("exact", "estimated")
        total = exact.attrs["total_squared_covariance"]
        assert pair.attrs["total_squared_covariance"] == pytest.approx(total, rel=0.05)
        assert pair.attrs["total_squared_covariance"] != total

    @pytest.mark.parametrize(
        ("settings", "match"),
        [
            ({"method": "pls"}, 'method must be "mca" or "cca"'),
            ({"n_modes": 0}, r"n_modes must be an integer in 1\.\.45 for 60 samples of 59 and 45 cells, got 0"),
            ({"n_modes": 2.5}, "n_modes must be an integer in"),
            ({"weights": ("coslat", None, None)}, "one for X and one for Y, got 3"),
            ({"dim": "year"}, "X has no dimension 'year', only time, lat, lon"),
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, settings: dict[str, Any], match: str) -> None:
        with pytest.raises(ValueError, match=match):
            coupled(*fields(), **settings)

    def test_pairs_survive_a_file(self, tmp_path: Path) -> None:
        pytest.importorskip("h5netcdf")
        X, Y = fields()
        pair = coupled(X, Y, 2, rng=0)
        pair.to_netcdf(tmp_path / "pair.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "pair.nc", engine="h5netcdf") as again:
            xarray.testing.assert_allclose(project(side(again, "y"), Y), side(pair, "y").scores)


class TestJoint:
    def test_modes_are_those_of_all_normalised_fields_side_by_side(self) -> None:
        X, Y = fields()
        modes = joint([X, Y * 1000], 3, weights={"sst": "coslat"}, tol=1e-9, rng=0)
        D, E = matrix(X), matrix(Y, weighted=False)
        A = np.hstack([D / np.sqrt(D.var(axis=0, ddof=1).sum()), E / np.sqrt(E.var(axis=0, ddof=1).sum())])
        U, S, Vh = np.linalg.svd(A, full_matrices=False)
        np.testing.assert_allclose(modes.explained_variance, S[:3] ** 2 / (TIMES - 1), rtol=1e-8)
        np.testing.assert_allclose(modes.explained_variance_ratio, S[:3] ** 2 / (2 * (TIMES - 1)), rtol=1e-8)
        found = np.hstack([flat(modes.sst_components), flat(modes.slp_components)])
        same_but_for_sign(found, Vh[:3], 1e-6)
        same_but_for_sign(modes.scores.values, (U * S)[:, :3].T, 1e-6)
        own = np.sum(Vh[:3, : D.shape[1]] ** 2, axis=1) * S[:3] ** 2 / (TIMES - 1)
        np.testing.assert_allclose(modes.sst_own_variance_ratio, own, rtol=1e-6)

    def test_factors_say_how_much_a_field_counts(self) -> None:
        X, Y = fields()
        alone = pca(X, 2, tol=1e-9)
        modes = joint({"a": X, "b": Y}, 2, factors={"a": 1e5}, tol=1e-9)
        np.testing.assert_allclose(modes.a_own_variance_ratio, alone.explained_variance_ratio, rtol=1e-6)
        plain = joint({"a": X, "b": Y}, 2, normalize=False, tol=1e-9)
        A = np.hstack([matrix(X, False), matrix(Y, False)])
        np.testing.assert_allclose(plain.singular_values, np.linalg.svd(A)[1][:2], rtol=1e-8)

    def test_a_dataset_of_fields_on_one_grid_is_taken_by_its_variables(self) -> None:
        X, _ = fields()
        both = xarray.Dataset({"u": X, "v": X**2}, attrs={"title": "winds"})
        modes = joint(both, 0.9, rng=0)
        assert modes.u_components.dims == modes.v_components.dims == ("mode", "lat", "lon")
        total = modes.explained_variance_ratio.values
        assert total.sum() >= 0.9 > total[:-1].sum()

    def test_all_modes_make_up_every_field(self) -> None:
        X, Y = fields()
        modes = joint([X, Y], TIMES - 1, weights="coslat", standardize={"slp": True}, tol=1e-9)
        xarray.testing.assert_allclose(reconstruct(side(modes, "sst")), X, rtol=1e-6)
        xarray.testing.assert_allclose(reconstruct(side(modes, "slp")), Y, rtol=1e-6)
        assert reconstruct(modes, modes=[1, 2]).sst.dims == ("time", "lat_sst", "lon")
        whole = project(modes, [Y[::-1], X])
        np.testing.assert_allclose(whole.sel(mode=modes.mode, time=modes.time), modes.scores, atol=1e-6)
        with pytest.raises(ValueError, match="it lacks slp"):
            project(modes, [X])

    def test_pca_takes_several_fields_as_joint_does(self) -> None:
        X, Y = fields()
        modes = joint([X, Y], 2, weights="coslat", tol=1e-9, rng=0)
        xarray.testing.assert_identical(pca([X, Y], 2, weights="coslat", tol=1e-9, rng=0), modes)
        how: Any = {"missing": "mean", "covariates": np.arange(TIMES), "weights": "coslat", "rng": 0}
        xarray.testing.assert_identical(pca([X, Y], 2, tol=1e-9, **how), joint([X, Y], 2, tol=1e-9, **how))

    def test_chunked_fields_and_arrays_go_together(self) -> None:
        pytest.importorskip("dask.array")
        X, Y = fields()
        modes = joint([X, Y], 2, tol=1e-9, rng=0)
        mixed = joint([X.chunk(time=20), Y[::-1]], 2, tol=1e-9, rng=0)
        xarray.testing.assert_allclose(mixed.drop_vars(["value_errors", "vector_errors"]), modes, atol=1e-6)

    def test_what_cannot_be_is_refused(self) -> None:
        X, Y = fields()
        with pytest.raises(TypeError, match=r"data must be a Dataset, a list of DataArrays, or a mapping .* got DataA"):
            joint(X)
        with pytest.raises(TypeError, match=r"must be an xarray\.DataArray, got ndarray"):
            joint([X, X.values])
        with pytest.raises(ValueError, match="fields with unique names, got \\['sst', 'sst'\\]"):
            joint([X, X])
        with pytest.raises(ValueError, match="the name of no field may begin with 'sst_', because 'sst' is also"):
            joint([X, Y.rename("sst_mean")])
        with pytest.raises(ValueError, match=r"weights must have names of fields as keys .*, got 'psl'"):
            joint([X, Y], weights={"psl": None})
        with pytest.raises(ValueError, match="factors must be positive numbers, got 0 for slp"):
            joint([X, Y], factors={"slp": 0})
        with pytest.raises(ValueError, match=r"sst and slp must have the same samples, .*, exclude=\['lat', 'lon'\]\)"):
            joint([X, Y[5:]])
        with pytest.raises(ValueError, match=r"n_modes must be an integer in 1\.\.60"):
            joint([X, Y], 61)


def wave(steps: int = 90, cells: int = 12, seed: int = 0) -> Any:
    """A wave that travels around a circle, a standing one, noise, and a trend."""
    rng = np.random.default_rng(seed)
    t, x = np.arange(steps)[:, None], np.arange(cells)
    values = 5 * np.cos(2 * np.pi * (t / 18 - x / cells)) + 2 * np.cos(2 * np.pi * t / 30) * np.sin(
        2 * np.pi * x / cells
    )
    values = values + 0.3 * rng.standard_normal(values.shape) + 0.01 * t + 280
    coords = {"time": np.arange(steps) + 1900, "lat": np.linspace(-70, 70, 4)}
    return xarray.DataArray(values.reshape(steps, 4, 3), dims=("time", "lat", "lon"), coords=coords)


class TestHilbert:
    @pytest.mark.parametrize("solver", ["auto", "lanczos"])
    def test_modes_are_those_of_the_analytic_signal(self, solver: Any) -> None:
        da = wave()
        modes = hilbert(da, 3, padding=None, weights="coslat", tol=1e-9, solver=solver, rng=0)
        Z = signal.hilbert(matrix(da), axis=0)
        U, S, Vh = np.linalg.svd(Z, full_matrices=False)
        np.testing.assert_allclose(modes.explained_variance, S[:3] ** 2 / 89, rtol=1e-8)
        np.testing.assert_allclose(modes.explained_variance_ratio, S[:3] ** 2 / np.sum(S**2), rtol=1e-8)
        same_but_for_sign(flat(modes.components), Vh[:3], 1e-6)
        same_but_for_sign(modes.scores.values, (U * S).T[:3], 1e-6)
        largest = flat(modes.components)[np.arange(3), np.argmax(np.abs(flat(modes.components)), axis=1)]
        np.testing.assert_allclose(largest.imag, 0, atol=1e-12)
        assert np.all(largest.real > 0)

    @pytest.mark.parametrize("how", [{}, {"decay": 0.05}, {"padding": None}])
    def test_the_real_part_of_all_modes_is_the_field_and_their_scores_are_projections(self, how: Any) -> None:
        da = wave()
        modes = hilbert(da, 12, tol=1e-9, **how)
        xarray.testing.assert_allclose(project(modes, da), modes.scores, atol=1e-7)
        made = (modes.scores * modes.components).sum("mode").real / modes.weights + modes.mean_field
        xarray.testing.assert_allclose(made.transpose("time", "lat", "lon"), da, rtol=1e-9)
        kept = {"padding": "exp", "decay": 0.2} | {name: value or str(value) for name, value in how.items()}
        assert {name: modes.attrs.get(name, 0.2) for name in kept} == kept
        xarray.testing.assert_allclose(reconstruct(modes), da, rtol=1e-9)
        with pytest.raises(ValueError, match="eofs must be real modes, got complex modes of hilbert"):
            rotate(modes)

    def test_a_wave_that_travels_is_one_mode_and_its_phase_runs(self) -> None:
        t, x = np.arange(72)[:, None], np.arange(12)
        da = xarray.DataArray(np.cos(2 * np.pi * (t / 18 - x / 12)), dims=("time", "lon"))
        modes = hilbert(da, 2, padding=None)
        assert modes.explained_variance_ratio.values[0] == pytest.approx(1, abs=1e-9)
        steps = np.diff(np.unwrap(np.angle(modes.scores[0].values)))
        np.testing.assert_allclose(steps, 2 * np.pi / 18, rtol=1e-6)
        assert pca(da, 2).explained_variance_ratio.values[0] == pytest.approx(0.5, abs=1e-6)

    @pytest.mark.parametrize("chunks", [{"time": 30}, {"lat": 2}])
    def test_chunked_and_single_precision_fields_give_the_same(self, chunks: dict[str, int]) -> None:
        pytest.importorskip("dask.array")
        modes = hilbert(wave(), 2, tol=1e-9)
        lazy = hilbert(wave().astype(np.float32).chunk(chunks), 2, tol=1e-7)
        assert lazy.components.dtype == lazy.scores.dtype == np.complex64
        np.testing.assert_allclose(lazy.explained_variance, modes.explained_variance, rtol=1e-5)
        np.testing.assert_allclose(np.abs(lazy.components), np.abs(modes.components), atol=1e-4)

    def test_the_total_variance_of_more_steps_than_are_formed_is_the_same(self, monkeypatch: Any) -> None:
        modes = hilbert(wave(), 2, tol=1e-9)
        monkeypatch.setattr(sys.modules["shiftsvd.xarray.travelling"], "MAX_GRAM_STEPS", 50)
        blocks = hilbert(wave(), 2, tol=1e-9, solver="exact")
        np.testing.assert_allclose(blocks.explained_variance_ratio, modes.explained_variance_ratio, rtol=1e-8)

    def test_the_total_variance_of_a_field_in_chunks_is_found_without_the_field_in_memory(self) -> None:
        import tracemalloc

        dask_array = pytest.importorskip("dask.array")
        steps, cells = 60, 20_000
        A = as_operator(dask_array.random.RandomState(0).standard_normal((steps, cells), chunks=(steps, 1_000)))
        tracemalloc.start()
        sys.modules["shiftsvd.xarray.travelling"].total_squares(Product(AnalyticSignal(steps, 0.2, np.complex128), A))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * steps * cells / 2

    def test_what_cannot_be_transformed_is_refused(self) -> None:
        da = wave()
        with pytest.raises(ValueError, match='padding must be "exp" or None'):
            hilbert(da, padding="zero")
        with pytest.raises(ValueError, match="decay must be positive, got 0"):
            hilbert(da, decay=0)
        with pytest.raises(ValueError, match="a Hilbert transform requires ascending samples, but time is not sorted"):
            hilbert(da[::-1])
        with pytest.raises(ValueError, match="requires values at every step, but there are none at 1 of 90 samples"):
            hilbert(da.where(da.time != 1910))
        with pytest.raises(ValueError, match="requires a single dimension"):
            hilbert(da, dim=("time", "lat"))


class TestExtended:
    @pytest.mark.parametrize("solver", ["auto", "lanczos"])
    @pytest.mark.parametrize("lags", [4, range(0, 12, 3), [2]])
    def test_modes_are_those_of_the_stacked_lags(self, solver: Any, lags: Any) -> None:
        da = wave()
        modes = extended(da, 3, lags=lags, weights="coslat", tol=1e-9, solver=solver, rng=0)
        taken = list(range(4)) if lags == 4 else list(lags)
        X, n = matrix(da), 90 - taken[-1]
        E = np.hstack([X[lag : lag + n] for lag in taken])
        E = E - E.mean(axis=0)
        U, S, Vh = np.linalg.svd(E, full_matrices=False)
        np.testing.assert_allclose(modes.explained_variance, S[:3] ** 2 / (n - 1), rtol=1e-8)
        np.testing.assert_allclose(modes.explained_variance_ratio, S[:3] ** 2 / np.sum(S**2), rtol=1e-8)
        same_but_for_sign(modes.components.transpose("mode", "lag", ...).values.reshape(3, -1), Vh[:3], 1e-6)
        same_but_for_sign(modes.scores.values, (U * S).T[:3], 1e-6)
        assert modes.lag.values.tolist() == taken
        np.testing.assert_array_equal(modes.time, da.time[:n])

    def test_land_stays_missing_and_nothing_is_subtracted_without_centring(self) -> None:
        X, _ = fields()
        modes = extended(X, 2, lags=3, center=False, tol=1e-9)
        np.testing.assert_array_equal(np.isnan(modes.components[0, 1]), np.isnan(X[0]))
        D = X.values.reshape(TIMES, -1)
        D = D[:, ~np.isnan(D[0])]
        E = np.hstack([D[lag : lag + 58] for lag in range(3)])
        np.testing.assert_allclose(modes.singular_values, np.linalg.svd(E)[1][:2], rtol=1e-8)
        assert not modes.mean_field.fillna(0).any()
        with pytest.raises(ValueError, match="eofs must be modes without lags, got modes of extended"):
            rotate(modes)

    def test_chunked_fields_give_the_same(self) -> None:
        pytest.importorskip("dask.array")
        modes = extended(wave(), 2, lags=5, tol=1e-9)
        lazy = extended(wave().chunk(time=20, lat=2), 2, lags=5, tol=1e-9)
        xarray.testing.assert_allclose(lazy, modes, atol=1e-6)

    def test_lags_are_not_stacked_in_memory(self) -> None:
        import tracemalloc

        rng = np.random.default_rng(0)
        steps, cells, lags = 150, 10_000, 40
        da = xarray.DataArray(np.cumsum(rng.standard_normal((steps, cells)), axis=0), dims=("time", "x"))
        tracemalloc.start()
        extended(da, 2, lags=lags, rng=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        stacked = 8 * (steps - lags + 1) * cells * lags
        assert peak < stacked / 8

    def test_what_has_no_lags_is_refused(self) -> None:
        da = wave()
        for lags in (0, 90, [3, 1], [-1, 0], [1, 1], [], 2.5):
            with pytest.raises(
                ValueError, match="lags must be a number of lags of at least 1, or an ascending list of lags"
            ):
                extended(da, lags=lags)
        with pytest.raises(ValueError, match="requires values at every step, but there are none at 2 of 90"):
            extended(da.where((da.time != 1910) & (da.time != 1920)), lags=2)
        with pytest.raises(ValueError, match="an extended EOF requires ascending samples"):
            extended(da.sortby("time", ascending=False), lags=2)
        with pytest.raises(ValueError, match="da has a dimension 'lag'"):
            extended(da.rename(lat="lag"), lags=2)


@pytest.mark.parametrize(
    "call", [lambda da: coupled(da, da), lambda da: joint([da]), hilbert, lambda da: extended(da, lags=2)]
)
def test_values_that_are_missing_here_and_there_are_refused_with_a_remedy(call: Any) -> None:
    da = wave()
    da[3, 0, 0] = np.nan
    with pytest.raises(
        ValueError,
        match=r'has 1 missing value in 1 of 12 cells, which have values in.*or use missing="mean" or "em"',
    ):
        call(da)


def test_attributes_can_be_written_to_files() -> None:
    X, Y = fields()
    for result in (coupled(X, Y, 2, method="cca", leading=3), joint([X, Y], 2)):
        assert json.loads(result.attrs["fields"])
        assert all(isinstance(value, str | float | int | list | None) for value in result.attrs.values())


@pytest.fixture
def xeofs() -> Any:
    pytest.importorskip("statsmodels")
    return pytest.importorskip("xeofs")


@pytest.mark.filterwarnings("ignore")
def test_xeofs_finds_the_same_pairs(xeofs: Any) -> None:
    X, Y = fields()
    model = xeofs.cross.MCA(n_modes=3, use_coslat=True, use_pca=False, solver="full").fit(X, Y, dim="time")
    pair = coupled(X, Y, 3, weights="coslat", tol=1e-8, rng=0)
    np.testing.assert_allclose(pair.squared_covariance_fraction, model.squared_covariance_fraction(), rtol=1e-6)
    both = zip(("x", "y"), model.components(), model.scores(), model.homogeneous_patterns()[0], strict=True)
    for name, components, scores, maps in both:
        same_but_for_sign(flat(pair[f"{name}_components"]), flat(components), 1e-6)
        same_but_for_sign(pair[f"{name}_scores"].values, scores.transpose("mode", "time").values, 1e-6)
        same_but_for_sign(flat(pair[f"{name}_homogeneous"]), flat(maps), 1e-6)
    # Theirs is a covariance over m - 1 between scores whose variances are over m.
    theirs = model.cross_correlation_coefficients() * (TIMES - 1) / TIMES
    np.testing.assert_allclose(pair.correlation, theirs, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_xeofs_finds_the_same_canonical_correlations(xeofs: Any) -> None:
    X, Y = fields()
    model = xeofs.cross.CCA(n_modes=3, use_coslat=True, n_pca_modes=3, random_state=0).fit(X, Y, dim="time")
    pair = coupled(X, Y, 3, method="cca", leading=3, weights="coslat", tol=1e-9, rng=0)
    theirs = model.cross_correlation_coefficients() * (TIMES - 1) / TIMES
    np.testing.assert_allclose(pair.correlation, theirs, rtol=1e-6)
    for name, scores in zip(("x", "y"), model.scores(normalized=True), strict=True):
        same_but_for_sign(
            pair[f"{name}_scores"].values / np.sqrt(TIMES - 1), scores.transpose("mode", "time").values, 1e-4
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("padding", ["exp", None])
def test_xeofs_finds_the_same_hilbert_modes(xeofs: Any, padding: Any) -> None:
    da = wave()
    model = xeofs.single.HilbertEOF(n_modes=3, padding=padding or "none", use_coslat=True, solver="full")
    model.fit(da, dim="time")
    modes = hilbert(da, 3, padding=padding, weights="coslat", tol=1e-9)
    np.testing.assert_allclose(modes.explained_variance, model.explained_variance(), rtol=1e-6)
    np.testing.assert_allclose(modes.explained_variance_ratio, model.explained_variance_ratio(), rtol=1e-6)
    same_but_for_sign(flat(modes.components), flat(model.components()).conj(), 1e-6)
    same_but_for_sign(modes.scores.values, model.scores().transpose("mode", "time").values, 1e-6)


@pytest.mark.filterwarnings("ignore")
def test_xeofs_finds_the_same_extended_modes(xeofs: Any) -> None:
    da = wave()
    model = xeofs.single.ExtendedEOF(n_modes=3, tau=3, embedding=4, use_coslat=True, solver="full").fit(da, dim="time")
    modes = extended(da, 3, lags=range(0, 12, 3), weights="coslat", tol=1e-9)
    np.testing.assert_allclose(modes.explained_variance, model.explained_variance(), rtol=1e-6)
    np.testing.assert_allclose(modes.explained_variance_ratio, model.explained_variance_ratio(), rtol=1e-6)
    theirs = model.components().transpose("mode", "embedding", "lat", "lon").values.reshape(3, -1)
    same_but_for_sign(modes.components.values.reshape(3, -1), theirs, 1e-6)
    same_but_for_sign(modes.scores.values, model.scores().transpose("mode", "time").values[:, :81], 1e-6)
