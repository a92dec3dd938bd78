"""Plots: what they hold is the truth of the fit, they are drawn where they should be, and nothing is shown."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

import shiftsvd as ss
from shiftsvd.plot import ScoreRaster, biplot, loadings, reconstruction_error, scores, scree
from shiftsvd.plot.fitted import read, short
from shiftsvd.plot.points import colouring
from shiftsvd.plot.raster import Grid
from shiftsvd.report import drawing

mpl = pytest.importorskip("matplotlib")
mpl.use("agg")
plt = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 9)) * np.arange(9, 0, -1) + 3
MANY = np.random.default_rng(1).standard_normal((30_000, 3)) * [3, 2, 1]


@pytest.fixture(autouse=True)
def nothing_is_shown_or_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def show(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("pyplot.show was called")

    monkeypatch.setattr(plt, "show", show)
    backend = mpl.get_backend()
    yield
    assert mpl.get_backend() == backend
    plt.close("all")


FITS: dict[str, Callable[[], Any]] = {
    "PCA": lambda: ss.PCA(n_components=4, random_state=0).fit(X),
    "PCA without a certificate": lambda: ss.PCA(n_components=4, solver="randomized", random_state=0).fit(X),
    "PCA scaled, whitened": lambda: ss.PCA(n_components=4, scale=True, whiten=True).fit(X),
    "PCA float32": lambda: ss.PCA(n_components=4).fit(X.astype(np.float32)),
    "PCA sparse": lambda: ss.PCA(n_components=4).fit(sparse.csr_array(X)),
    "scikit-learn": lambda: SklearnPCA(n_components=4).fit(X),
    "SVDResult": lambda: ss.svd(X, 4, shift="mean", certify=True),
    "SVDResult without a certificate": lambda: ss.svd(X, 4, shift="mean", solver="randomized", rng=0),
}


@cache
def fitted(name: str) -> Any:
    return FITS[name]()


@pytest.fixture
def fit(request: pytest.FixtureRequest) -> Any:
    return fitted(request.param)


ALL = pytest.mark.parametrize("fit", FITS, indirect=True)


def rows_of(fit: Any) -> Any:
    return None if isinstance(fit, ss.SVDResult) else X


def drawn(display: Any) -> Any:
    """The display, after its figure has been drawn once."""
    display.figure_.canvas.draw()
    return display


# --- every plot of every fit ----------------------------------------------------------------------------------


@ALL
def test_scree_holds_the_shares_of_the_exact_total(fit: Any) -> None:
    display = scree(fit)
    total = ((X - X.mean(axis=0)) ** 2).sum()
    if getattr(fit, "scale_", None) is not None:
        total = X.size
    values = fit.S if isinstance(fit, ss.SVDResult) else fit.singular_values_
    np.testing.assert_allclose(display.values, values.astype(float) ** 2 / total, rtol=1e-5)
    np.testing.assert_allclose(display.cumulative, np.cumsum(display.values))
    assert display.ax_.get_title() == "Explained variance"
    assert display.ax_.get_xlabel() == "component"
    assert display.ax_.get_ylabel() == "share of the variance"
    assert display.cumulative_ax_.get_ylabel() == "cumulative"
    assert display.figure_ is display.ax_.figure


@ALL
def test_bounds_are_the_squares_of_the_bounds_of_the_values(fit: Any) -> None:
    display = scree(fit)
    errors = read(fit).errors
    if errors is None:
        assert display.bounds is None
        assert display.cumulative_bounds is None
        return
    lower, upper = display.bounds
    np.testing.assert_allclose(lower, display.values * (1 - errors) ** 2)
    np.testing.assert_allclose(upper, display.values * (1 + errors) ** 2)
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:4] ** 2
    if getattr(fit, "scale_", None) is None:
        exact /= ((X - X.mean(axis=0)) ** 2).sum()
        assert np.all(lower <= exact * (1 + 1e-6))
        assert np.all(exact <= upper * (1 + 1e-6))


@ALL
def test_scores_are_those_of_the_fit(fit: Any) -> None:
    display = scores(fit, rows_of(fit), components=(2, 1))
    want = fit.U * fit.S if isinstance(fit, ss.SVDResult) else fit.transform(X)
    np.testing.assert_allclose(display.points, want[:, [1, 0]], rtol=1e-6)
    np.testing.assert_allclose(display.ax_.collections[0].get_offsets(), display.points)
    assert display.ax_.get_title() == "Scores of 120 samples"
    assert display.ax_.get_xlabel().startswith("PC2 (")
    assert display.ax_.get_ylabel().startswith("PC1 (")


@ALL
def test_loadings_are_the_largest_in_order_of_their_sign(fit: Any) -> None:
    display = loadings(fit, 2, top=5, names=list("abcdefghi"))
    right = fit.Vh if isinstance(fit, ss.SVDResult) else fit.components_
    largest = sorted(np.argsort(-np.abs(right[1]))[:5], key=lambda j: -right[1][j])
    assert display.names == ["abcdefghi"[j] for j in largest]
    np.testing.assert_allclose(display.values, right[1][largest])
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == display.names
    assert display.ax_.get_title() == "Loadings of PC2"
    assert display.ax_.get_xlabel() == "loading"


@ALL
def test_inner_products_of_a_biplot_are_the_entries(fit: Any) -> None:
    two = ss.svd(X, 2, shift="mean") if isinstance(fit, ss.SVDResult) else type(fit)(**fit.get_params())
    if not isinstance(fit, ss.SVDResult):
        two.set_params(n_components=2).fit(X)
    display = biplot(two, rows_of(fit), names=list("abcdefghi"), top=9)
    order = ["abcdefghi".index(name) for name in display.names]
    left = display.points.points @ display.arrows.T
    if isinstance(fit, ss.SVDResult):
        want = two.U * two.S @ two.Vh
    else:
        scale = getattr(two, "scale_", None)
        want = (two.inverse_transform(two.transform(X)) - two.mean_) / (1 if scale is None else scale)
    np.testing.assert_allclose(left, want[:, order], atol=1e-4 * np.abs(want).max())
    assert "arrows: loadings ×" in display.ax_.get_title()
    tips = display.arrows * display.factor_
    assert np.all(np.abs(tips) <= np.abs([display.ax_.get_xlim(), display.ax_.get_ylim()]).max(axis=1))


def test_the_feature_that_dominates_a_component_has_the_longest_arrow_along_it() -> None:
    table = X * np.r_[1e4, np.full(X.shape[1] - 1, 0.1)]
    pca = ss.PCA(n_components=2).fit(table)
    display = biplot(pca, table, top=2)
    tips = np.abs(display.arrows * display.factor_)
    room = np.min(np.abs([display.ax_.get_xlim(), display.ax_.get_ylim()]), axis=1)
    np.testing.assert_allclose(tips.max(axis=0), 0.85 * room)
    want = [f"feature {np.argmax(np.abs(row)) + 1}" for row in pca.components_]
    assert [display.names[j] for j in tips.argmax(axis=0)] == want


def test_a_dashed_arrow_is_as_long_as_its_correlation() -> None:
    pca = ss.PCA(n_components=2).fit(X)
    Z = pca.transform(X)
    column = Z[:, 0] / Z[:, 0].std() + 0.05 * Z[:, 1] / Z[:, 1].std()
    found = ss.supplementary(column[:, None], Z)
    display = biplot(pca, X, supplementary=found)
    tip = [text.xy for text in display.ax_.texts if not text.get_text()][-1]
    room = np.min(np.abs([display.ax_.get_xlim(), display.ax_.get_ylim()]), axis=1)
    np.testing.assert_allclose(tip, 0.85 * room * found.coordinates[0], rtol=1e-6)


@ALL
def test_reconstruction_error_is_the_norm_of_the_rest(fit: Any) -> None:
    display = reconstruction_error(fit, rows_of(fit))
    Y = X - X.mean(axis=0)
    if getattr(fit, "scale_", None) is not None:
        Y = Y / fit.scale_
    right = fit.Vh if isinstance(fit, ss.SVDResult) else fit.components_
    want = [np.linalg.norm(Y - Y @ right[:j].T @ right[:j]) / np.linalg.norm(Y) for j in range(5)]
    np.testing.assert_allclose(display.errors, want, rtol=1e-3)
    if rows_of(fit) is not None:
        np.testing.assert_allclose(display.new_errors, want, rtol=1e-3)
    assert display.ax_.get_title() == "Error of the reconstruction"
    assert display.ax_.get_xlabel() == "components"
    assert display.ax_.get_ylabel() == "relative error"


@pytest.mark.parametrize("plot", [scree, lambda fit, ax: scores(fit, X, ax=ax), loadings, reconstruction_error, biplot])
def test_axes_that_are_given_are_used(plot: Any) -> None:
    figure, ax = plt.subplots()
    given = {"ax": ax, "X": X} if plot is biplot else {"ax": ax}
    display = plot(fitted("PCA"), **given)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert plt.get_fignums() == [figure.number]


@pytest.mark.long
def test_a_display_can_be_drawn_again() -> None:
    for display in (
        scree(fitted("PCA")),
        scores(fitted("PCA"), X),
        loadings(fitted("PCA")),
        biplot(fitted("PCA"), X),
        reconstruction_error(fitted("PCA")),
    ):
        first = display.ax_
        assert drawn(display.plot()).ax_ is not first


# --- shapes at the edge ---------------------------------------------------------------------------------------


def test_scree_without_a_total_shows_the_squares() -> None:
    F = ss.svd(X, 3, shift="mean")
    F.info = type(F.info)(**{**vars(F.info), "frobenius_error": None})
    display = drawn(scree(F))
    np.testing.assert_allclose(display.values, F.S**2)
    assert display.cumulative_ax_ is None
    assert display.ax_.get_ylabel() == "squared singular value"
    with pytest.raises(ValueError, match="norm of the matrix was not computed"):
        reconstruction_error(F)


def test_values_at_the_level_of_rounding_do_not_stretch_a_logarithmic_axis() -> None:
    graded = np.random.default_rng(2).standard_normal((40, 3)) * [1, 1e-2, 1e-6]
    ax = drawn(scree(ss.PCA(3).fit(graded))).ax_
    assert ax.get_yscale() == "log"
    assert 1e-5 < ax.get_ylim()[0] < 1e-4


def test_many_components_are_a_line() -> None:
    wide = np.random.default_rng(2).standard_normal((90, 60))
    assert len(drawn(scree(ss.PCA(n_components=50).fit(wide))).ax_.patches) == 0
    assert len(drawn(scree(ss.PCA(n_components=40).fit(wide))).ax_.patches) == 40


def test_data_without_variance_or_components() -> None:
    constant = ss.PCA(n_components=2).fit(np.ones((5, 3)))
    assert np.all(drawn(scree(constant)).values == 0)
    drawn(scores(constant, np.ones((5, 3))))
    drawn(biplot(constant, np.ones((5, 3))))
    none = ss.PCA(n_components=0).fit(X)
    assert read(none).total == pytest.approx(X.var(axis=0, ddof=1).sum())
    drawn(scree(none))
    half = ss.PCA(n_components=0, preprocess=ss.transforms.Select(np.arange(X.shape[1]) % 2 == 0)).fit(X)
    assert read(half).total == pytest.approx(X[:, ::2].var(axis=0, ddof=1).sum())


def test_one_component_has_loadings() -> None:
    one = ss.PCA(n_components=1).fit(X)
    drawn(loadings(one))
    with pytest.raises(ValueError, match="numbers from 1 to 1, got 2"):
        scores(one, X)


def test_values_with_wide_bounds_show_them() -> None:
    F = ss.svd(X, 3, shift="mean", certify=True)
    F.info = type(F.info)(**{**vars(F.info), "value_errors": np.array([0.0, 0.1, np.nan])})
    display = drawn(scree(F))
    assert len(display.ax_.containers) == 2  # bars, and error bars
    first, second, _ = display.values
    np.testing.assert_allclose(display.bounds, [[first, 0.9**2 * second, 0], [first, 1.1**2 * second, 1]])


# --- many points ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fit_of_many() -> Any:
    return ss.PCA(n_components=3, random_state=0).fit(MANY)


def test_many_points_are_a_raster_of_all_of_them(fit_of_many: Any) -> None:
    display = drawn(scores(fit_of_many, MANY))
    (image,) = display.ax_.get_images()
    assert not display.ax_.collections
    assert np.ma.filled(image.get_array(), 0).sum() == len(MANY)


def test_many_points_of_classes_show_the_majority(fit_of_many: Any) -> None:
    side = np.where(fit_of_many.transform(MANY)[:, 0] > 0, "right", "left")
    display = drawn(scores(fit_of_many, MANY, color=side))
    (image,) = display.ax_.get_images()
    pixels = np.asarray(image.get_array())
    columns = np.linspace(*image.get_extent()[:2], pixels.shape[1] + 1)
    left, right = pixels[:, columns[1:] < 0], pixels[:, columns[:-1] > 0]
    assert len(np.unique(left[left[..., 3] > 0][:, :3], axis=0)) == 1
    assert len(np.unique(right[right[..., 3] > 0][:, :3], axis=0)) == 1
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["left", "right"]


def test_many_points_of_numbers_show_the_mean(fit_of_many: Any) -> None:
    first = fit_of_many.transform(MANY)[:, 0]
    first[::7] = np.nan
    display = drawn(scores(fit_of_many, MANY, color=pd.Series(first, name="first")))
    (image,) = display.ax_.get_images()
    means = image.get_array()
    edges = np.linspace(*image.get_extent()[:2], means.shape[1] + 1)
    assert np.all((means >= edges[:-1] - 1e-9) | np.ma.getmaskarray(means))
    assert np.all((means <= edges[1:] + 1e-9) | np.ma.getmaskarray(means))
    assert "first (mean)" in [ax.get_ylabel() for ax in display.figure_.axes]


def test_points_far_out_are_counted_at_the_edge_and_said() -> None:
    points = np.vstack([MANY[:, :2], [[1e6, 0]]])
    grid = Grid.around(points, 50)
    assert grid.outside(points) == 1
    assert grid.count(points).sum() == len(points)
    three = np.column_stack([points, np.zeros(len(points))])
    display = drawn(scores(ss.PCA(n_components=3).fit(MANY), Z=three))
    assert "1 beyond the axes" in display.ax_.get_title()


# --- colours --------------------------------------------------------------------------------------------------


def test_what_is_a_scale_and_what_are_classes() -> None:
    assert colouring(None) is None
    for numbers in ([0.5, 1.5, 2.5], np.arange(30)):
        found = colouring(numbers)
        assert found is not None
        assert found.names is None
    for classes in ([0, 1, 0], ["a", "b", "a"], [True, False, True], pd.Series([1.5, 2.5, 1.5], dtype="category")):
        found = colouring(classes)
        assert found is not None
        assert found.names is not None
        assert len(found.names) == 2
        assert found.values[0] == found.values[2] != found.values[1]


def test_twenty_classes_are_kept_and_the_rest_is_other() -> None:
    labels = np.array([f"c{j:02d}" for j in range(25) for _ in range(j + 1)])
    found = colouring(labels)
    assert found is not None
    assert found.names == (*(f"c{j:02d}" for j in range(5, 25)), "other")
    assert np.all((found.values == 20) == np.isin(labels, [f"c{j:02d}" for j in range(5)]))
    assert len(np.unique(found.palette(), axis=0)) == 21


def test_names_are_drawn_as_they_are() -> None:
    names = [r"$\frac$", "_hidden", "a$b", "line\nbreak", "x" * 99, "&<b>", "", "d", "e"]
    display = drawn(loadings(fitted("PCA"), names=names))
    assert r"$\frac$" in [label.get_text() for label in display.ax_.get_yticklabels()]
    drawn(biplot(fitted("PCA"), X, names=names))
    color = np.array(names[:3])[np.arange(120) % 3]
    texts = drawn(scores(fitted("PCA"), X, color=color, labels=color)).ax_.get_legend().get_texts()
    assert sorted(text.get_text() for text in texts) == sorted(names[:3])
    assert short("line\nbreak\x1b") == "line break\N{REPLACEMENT CHARACTER}"
    assert len(short("x" * 99)) == 24


def test_names_of_samples_are_taken_by_their_places() -> None:
    names = pd.Series([f"sample {i}" for i in range(120)], index=range(119, -1, -1))
    written = [text.get_text() for text in drawn(scores(fitted("PCA"), X, labels=names)).ax_.texts]
    Z = fitted("PCA").transform(X)[:, :2]
    far = np.argmax((Z**2 / Z.var(axis=0)).sum(axis=1))
    assert f"sample {far}" in written


def test_names_of_a_data_frame_are_used() -> None:
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(9)])
    assert loadings(ss.PCA(n_components=2).fit(frame), top=1).names == ["gene 0"]


# --- what cannot be ------------------------------------------------------------------------------------------


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'shiftsvd\[plot\]'"):
        scree(fitted("PCA"))


def test_clear_errors() -> None:
    pca, F = fitted("PCA"), fitted("SVDResult")
    with pytest.raises(TypeError, match="Call fit first"):
        scree(ss.PCA())
    with pytest.raises(TypeError, match="Use the plots of scanpy, or load_model"):
        scree(type("AnnData", (), {})())
    with pytest.raises(ValueError, match="Pass rows as X"):
        scores(pca)
    with pytest.raises(ValueError, match="not both"):
        scores(pca, X, Z=X)
    with pytest.raises(ValueError, match=r"2 to 4 columns, .* got shape \(120, 9\)"):
        scores(pca, Z=X)
    with pytest.raises(ValueError, match="Remove X"):
        scores(F, X)
    with pytest.raises(ValueError, match="one value for each of the 120 samples"):
        scores(pca, X, color=[1, 2])
    with pytest.raises(ValueError, match="one name for each of the 120 samples"):
        scores(pca, X, labels=["a"])
    with pytest.raises(ValueError, match="numbers from 1 to 4, got 0"):
        loadings(pca, 0)
    with pytest.raises(ValueError, match="top must be at least 1"):
        loadings(pca, top=0)
    with pytest.raises(ValueError, match="each of the 9 features, got 1"):
        loadings(pca, names=["a"])
    with pytest.raises(ValueError, match="3 NaN or infinite"):
        scores(pca, Z=np.vstack([np.zeros((2, 4)), [[np.nan, np.inf, 0, 0], [-np.inf, 0, 0, 0]]]))
    with pytest.raises(ValueError, match="New rows need an estimator"):
        reconstruction_error(F, X)
    with pytest.raises(ValueError, match="must be real, got"):
        loadings(ss.svd(X + 1j * X[::-1], 2))


# --- ScoreRaster ----------------------------------------------------------------------------------------------


def filled(blocks: int, size: int = 1000) -> ScoreRaster:
    raster = ScoreRaster((3.0, 2.0), size=size, rng=5)
    for block in np.array_split(MANY, blocks):
        raster.add(block)
    return raster


def test_a_raster_does_not_depend_on_the_blocks() -> None:
    one, many = filled(1), filled(37)
    assert np.array_equal(one.counts, many.counts)
    assert np.array_equal(one.sample_rows, many.sample_rows)
    assert np.array_equal(one.sample, many.sample)


def test_a_raster_counts_every_row_once() -> None:
    raster = filled(10)
    assert raster.n == raster.counts.sum() == len(MANY)
    x, y = zip(raster.grid.low, raster.grid.high, strict=True)
    inside = np.all(np.abs(MANY[:, :2]) <= raster.grid.high, axis=1)
    assert raster.clipped == np.sum(~inside)
    want, *_ = np.histogram2d(MANY[inside, 1], MANY[inside, 0], bins=400, range=(y, x))
    assert np.abs(want - raster.counts).sum() <= 4 * (raster.clipped + 1)  # rounding at the edges of cells


def test_the_sample_is_of_the_rows_and_uniform() -> None:
    raster = filled(7)
    rows = raster.sample_rows
    assert len(np.unique(rows)) == 1000
    assert np.array_equal(raster.sample, MANY[rows, :2])
    tenths = np.bincount(rows * 10 // len(MANY), minlength=10)
    assert np.all(np.abs(tenths - 100) < 5 * np.sqrt(100))  # five deviations
    few = ScoreRaster((1.0, 1.0), size=50)
    few.add(MANY[:30])
    assert np.array_equal(few.sample, MANY[:30, :2])


def test_a_raster_of_a_fit_is_drawn_as_counts_or_as_the_sample(fit_of_many: Any) -> None:
    Z = fit_of_many.transform(MANY)
    raster = ScoreRaster.of(fit_of_many, size=500)
    raster.add(Z)
    assert raster.grid.high[0] == pytest.approx(6 * Z[:, 0].std(), rel=1e-3)
    (image,) = drawn(scores(fit_of_many, Z=raster)).ax_.get_images()
    assert np.ma.filled(image.get_array(), 0).sum() == len(MANY)
    coloured = drawn(scores(fit_of_many, Z=raster, color=Z[:, 0]))
    assert "of 30" in coloured.ax_.get_title()
    dots = coloured.ax_.collections[0]
    np.testing.assert_array_equal(dots.get_offsets()[:, 0], dots.get_array())
    few = ScoreRaster.of(fit_of_many)
    few.add(Z[:70])
    assert len(drawn(scores(fit_of_many, Z=few)).ax_.collections[0].get_offsets()) == 70
    with pytest.raises(ValueError, match="the ScoreRaster Z holds components"):
        scores(fit_of_many, Z=raster, components=(1, 3))


def test_projected_rows_are_drawn_and_take_no_part_in_contributions(fit_of_many: Any) -> None:
    Z, projected = fit_of_many.transform(MANY[:70]), np.arange(70) % 5 == 0
    Z[projected] *= 100
    raster, alone = ScoreRaster.of(fit_of_many), ScoreRaster.of(fit_of_many)
    raster.add(Z, projected)
    alone.add(Z[~projected])
    assert (raster.n, raster.n_fitted) == (70, 56)
    np.testing.assert_allclose(raster.squares, alone.squares)
    np.testing.assert_array_equal(raster.farthest[1], np.flatnonzero(~projected)[alone.farthest[1]])
    display = drawn(scores(fit_of_many, Z=raster, labels=[f"row {i}" for i in range(70)]))
    assert len(display.ax_.collections[0].get_offsets()) == 70
    assert display.ax_.get_title() == "Scores of 56 samples"


def test_a_raster_refuses_what_it_cannot_count(fit_of_many: Any) -> None:
    raster = ScoreRaster.of(fit_of_many)
    with pytest.raises(ValueError, match="at least 2 columns"):
        raster.add(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="must be finite"):
        raster.add(np.full((3, 2), np.nan))
    assert raster.n == 0
    with pytest.raises(ValueError, match="numbers from 1 to 3"):
        ScoreRaster.of(fit_of_many, components=(1, 4))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("reach", [8e-7, 0.8, 80.0, 800.0, 6200.0, 8000.0, 88_000.0, 8e7])
def test_numbers_of_an_axis_do_not_overlap_in_a_report(reach: float) -> None:
    points = np.linspace(-reach, reach, 30)[:, None] * [1, 0.1]
    with drawing(4.4, 4.0) as ax:  # the size that they have there
        ss.plot.ScoresDisplay(points, components=(1, 2)).plot(ax=ax)
        ax.figure.draw_without_rendering()
        low, high = ax.get_xlim()
        ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
        boxes = [label.get_window_extent() for at, label in ticks if low <= at <= high]
        assert all(left.x1 + 6 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_no_name_covers_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["sample with a long name"[: 3 + 5 * (j % 5)] for j in range(len(X))]
    ax = drawn(scores(fitted("PCA"), Z=0.1 * rng.standard_normal((len(X), 2)) + rng.integers(0, 2), labels=names)).ax_
    arrows = drawn(biplot(fitted("PCA"), X, names=names[: X.shape[1]], top=9)).ax_
    for texts in (ax.texts, [text for text in arrows.texts if text.get_text()]):
        boxes = [text.get_window_extent() for text in texts]
        assert len(boxes) > 2
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert {text.get_va() for text in texts} == {"baseline"}  # from which a browser computes its boxes


def test_an_ellipse_surrounds_most_of_its_class() -> None:
    rng = np.random.default_rng(0)
    Z = np.vstack([rng.standard_normal((5000, 2)) @ [[3, 1], [0, 1]], rng.standard_normal((3, 2))])
    classes = np.array(["many"] * 5000 + ["few"] * 3)
    display = scores(fitted("PCA"), Z=Z, color=classes, ellipses=True)
    (ellipse,) = display.ax_.patches  # three samples have none
    inside = ellipse.get_patch_transform().inverted().transform(Z[:5000])
    assert np.mean(np.sum(inside**2, axis=1) < 1) == pytest.approx(0.95, abs=0.01)
    assert not scores(fitted("PCA"), Z=Z, color=classes).ax_.patches


def test_classes_are_points_of_their_own_colours() -> None:
    classes = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    display = drawn(scores(fitted("PCA"), X, color=classes))
    (dots,) = display.ax_.collections
    np.testing.assert_allclose(dots.get_offsets(), display.points)
    colours = dots.get_facecolors()
    assert all(len(np.unique(colours[classes == name], axis=0)) == 1 for name in "abc")
    assert len(np.unique(colours, axis=0)) == 3
