"""Factor analysis of mixed data equals that of the dense encoded table, and numbers of FactoMineR."""

import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss

EXACT = {"solver": "exact", "random_state": 0}
PEOPLE = pd.DataFrame(
    {
        "height": [170, 182, 165, 177, 159, 190, 168, 173],
        "weight": [65, 80, 55, 77, 52, 95, 61, 70],
        "hair": ["dark", "fair", "dark", "red", "fair", "dark", "red", "dark"],
        "sport": ["yes", "no", "yes", "no", "no", "yes", "yes", "no"],
    }
)
MORE = pd.DataFrame({"age": [23, 45, 31, 52, 38, 29, 61, 44], "town": list("ABACBCAB")})
# Of FactoMineR 2.7: FAMD(people, ncp=3, sup.var=5:6); first and second dimension.
EIGENVALUES = [2.07022658467716614, 1.55224359620226116, 0.99898759687016558]
FIRST_ROWS = [[0.015085653227624096, -1.35743655350989068], [0.505697665216717662, 2.16012514940935230]]
ROW_CONTRIBUTIONS = [[0.0013741064322894754, 14.83847317290454626], [1.5440950431370195073, 37.57577638367308026]]
ROW_COSINES = [[0.00010282372729217793, 0.8325382227273345759], [0.04577788901066690702, 0.8352792471390424467]]
COORDINATES = {
    "height": [0.95547173706099775, 0.27987284173972632],
    "hair__dark": [0.55826630842320624, -0.778388631924329388],
    "hair__red": [-0.10534193373875310, -0.054471283359411017],
    "sport__yes": [0.36577275588668845, -1.084892757860847379],
}
COSINES = {
    "height": [0.91292624032236047, 0.078328807543469894],
    "hair__dark": [0.2404431389566440702, 0.46743639140244269692],
    "sport__yes": [0.0971938603399145756, 0.85504651847296953004],
}
CONTRIBUTIONS = {
    "weight": [43.115317621209371, 6.5643672228768839],
    "hair__dark": [3.635943110576470794, 12.573124612054053628],
    "sport__no": [1.560834840883709607, 24.424398146847781987],
}
RATIOS = {"weight": [0.892584767462275108, 0.101894969848306649], "hair": [0.20008994125477389, 0.613767506519706907]}
SUPPLEMENTARY = {
    "age": [-0.18527348575517469, 0.34269506179914067],
    "town__A": [-0.48935180718052401, -1.34839137477674864],
    "town__C": [1.68335758959218285, 0.30661189498702512],
}
TESTS = {
    "town__A": [-0.69700661702168298, -2.21799556080621230],
    "town__B": [-0.90144990109444345, 1.88176092611829304],
}
TOWN_RATIO = [0.45812723293009738, 0.77054545403278774]


def survey(m: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, m)
    noisy = [np.where(rng.random(m) < 0.7, kind, rng.integers(0, 5, m)) for _ in range(3)]
    return pd.DataFrame(
        {
            "income": 1e6 + 3.0 * kind + rng.standard_normal(m),
            "town": np.array(["Pau", "Metz", "Lens", "Albi", "Vire"])[noisy[0]],
            "rooms": noisy[1] + 1,
            "pet": pd.Categorical(
                np.array(["cat", "dog", "ant", "cat", "dog"])[noisy[2]], ["dog", "cat", "ant", "newt"]
            ),
            "owner": rng.random(m) < 0.2 + 0.2 * kind,
        },
        index=pd.RangeIndex(1000, 1000 + m),
    )


def encoded(X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The centred, scaled table, and the indicators (1 for numbers)."""
    columns, ones = [], []
    for x in (X[name] for name in X):
        if x.dtype.kind in "if":
            columns.append((x - x.mean()) / x.std(ddof=0))
            ones.append(np.ones(len(x)))
            continue
        for category in sorted(set(x)) if x.dtype.kind != "O" or not hasattr(x, "cat") else x.cat.categories:
            one = (x == category).to_numpy(float)
            if one.any():
                columns.append((one - one.mean()) / np.sqrt(one.mean()))
                ones.append(one)
    return np.column_stack(columns), np.column_stack(ones)


@pytest.mark.parametrize("m", [7, 300])
def test_analysis_is_that_of_the_dense_table(m: int) -> None:
    X = survey(m)
    Z, ones = encoded(X)
    values, V = np.linalg.eigh(Z.T @ Z / m)
    values, V = values[::-1][:3], V[:, ::-1][:, :3]
    V = V * np.sign(V[np.abs(V).argmax(axis=0), range(3)])
    F = Z @ V
    famd = ss.FAMD(3, **EXACT).fit(X)
    assert famd.eigenvalues_ == pytest.approx(values, abs=1e-12)
    assert famd.total_inertia_ == pytest.approx((Z**2).sum() / m, abs=1e-12)
    assert famd.percentage_of_variance_ == pytest.approx(100 * values / famd.total_inertia_, abs=1e-10)
    np.testing.assert_allclose(famd.components_.T, V, atol=1e-9)
    np.testing.assert_allclose(famd.transform(X), F, atol=1e-9)
    np.testing.assert_allclose(famd.column_contributions_, V**2, atol=1e-10)
    numeric = [not name.count("__") for name in famd.column_names_]
    barycentres = ones.T @ F / ones.sum(axis=0)[:, None]
    correlations = Z.T @ F / m / np.sqrt(values)
    np.testing.assert_allclose(
        famd.column_coordinates_, np.where(np.array(numeric)[:, None], correlations, barycentres), atol=1e-9
    )
    distances = ((ones.T @ Z / ones.sum(axis=0)[:, None]) ** 2).sum(axis=1)[:, None]
    want = np.where(np.array(numeric)[:, None], correlations**2, barycentres**2 / distances)
    np.testing.assert_allclose(famd.column_cosine_similarities(X), want, atol=1e-10)
    np.testing.assert_allclose(famd.row_contributions(X), F**2 / m / values, atol=1e-10)
    np.testing.assert_allclose(famd.row_cosine_similarities(X), F**2 / (Z**2).sum(axis=1)[:, None], atol=1e-10)
    assert famd.correlation_ratios_.sum().to_numpy() == pytest.approx(values, abs=1e-10)
    assert list(famd.column_coordinates_.index) == famd.column_names_
    assert list(famd.correlation_ratios_.index) == list(X.columns)
    assert list(famd.row_contributions(X).index) == list(X.index)


def test_numbers_are_those_of_factominer() -> None:
    famd = ss.FAMD(3, **EXACT).fit(PEOPLE)
    Z = famd.transform(PEOPLE)
    assert famd.eigenvalues_ == pytest.approx(EIGENVALUES, abs=1e-12)
    np.testing.assert_allclose(Z[:2, :2], FIRST_ROWS, atol=1e-10)
    np.testing.assert_allclose(100 * famd.row_contributions(PEOPLE).iloc[:2, :2], ROW_CONTRIBUTIONS, atol=1e-10)
    np.testing.assert_allclose(famd.row_cosine_similarities(PEOPLE).iloc[:2, :2], ROW_COSINES, atol=1e-10)
    found = ss.supplementary(MORE, Z)
    for want, table in (
        (COORDINATES, famd.column_coordinates_),
        (COSINES, famd.column_cosine_similarities(PEOPLE)),
        (CONTRIBUTIONS, 100 * famd.column_contributions_),
        (RATIOS, famd.correlation_ratios_),
        (SUPPLEMENTARY, found.coordinates),
        (TESTS, found.v_tests),
        ({"town": TOWN_RATIO}, found.correlation_ratios),
    ):
        for name, numbers in want.items():
            np.testing.assert_allclose(table.loc[name].to_numpy()[:2], numbers, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_equals_prince(seed: int) -> None:
    prince = pytest.importorskip("prince")
    X = survey(seed=seed).astype({"pet": str, "rooms": float, "income": float, "owner": str})
    famd, theirs = ss.FAMD(4, **EXACT).fit(X), prince.FAMD(n_components=4, engine="scipy").fit(X)
    assert famd.eigenvalues_ == pytest.approx(theirs.eigenvalues_, abs=1e-10)
    assert famd.percentage_of_variance_ == pytest.approx(theirs.percentage_of_variance_, abs=1e-8)
    rows, want = famd.transform(X), theirs.row_coordinates(X).to_numpy()
    turn = np.sign((rows * want).sum(axis=0))
    np.testing.assert_allclose(rows * turn, want, atol=1e-8)
    named = [name.replace("_", "__", 1) if "_" in name else name for name in theirs.column_coordinates_.index]
    frequencies = pd.Series(famd.mean_, famd.column_names_).loc[named].to_numpy()[:, None]
    factor = np.where([["__" in name] for name in named], np.sqrt(frequencies / famd.eigenvalues_), 1)
    found = famd.column_coordinates_.loc[named].to_numpy()
    np.testing.assert_allclose(found * factor * turn, theirs.column_coordinates_, atol=1e-8)
    np.testing.assert_allclose(famd.column_contributions_.loc[named], theirs.column_contributions_, atol=1e-10)
    ratios = theirs.variable_coordinates_
    np.testing.assert_allclose(famd.correlation_ratios_.loc[ratios.index], ratios, atol=1e-10)


def containers(X: pd.DataFrame) -> dict[str, object]:
    objects = X.astype(object)
    return {
        "objects": objects,
        "array": objects.to_numpy(),
        "nullable": X.convert_dtypes(),
        "arrow types": X.convert_dtypes(dtype_backend="pyarrow"),
        "polars": pl.DataFrame({name: X[name].to_list() for name in X}),
        "polars, declared": pl.DataFrame({name: X[name].to_list() for name in X}).with_columns(
            pl.col("town").cast(pl.Categorical)
        ),
        "pyarrow": pa.table({name: pa.array(X[name].to_list()) for name in X}),
        "pyarrow, chunks": pa.Table.from_batches(pa.Table.from_pandas(X).to_batches(max_chunksize=100)),
        "decimals": objects.assign(rooms=[None if np.isnan(x) else Decimal(int(x)) for x in X["rooms"]]),
        "single": X.astype({"rooms": np.float32}),
    }


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("kind", list(containers(survey(30))))
def test_containers_agree(kind: str, gaps: bool) -> None:
    X = survey().reset_index(drop=True).drop(columns="pet").assign(pet=survey()["pet"].astype(str).to_numpy())
    if gaps:
        X = X.astype({"owner": object, "rooms": float})
        X.loc[3, "town"], X.loc[5, "owner"], X.loc[7, "rooms"] = None, None, np.nan
    want, D = ss.FAMD(2, missing="mean", **EXACT).fit(X), containers(X)[kind]
    found = ss.FAMD(2, missing="mean", **EXACT).fit(D)
    np.testing.assert_allclose(found.eigenvalues_, want.eigenvalues_, atol=1e-11)
    np.testing.assert_allclose(found.transform(D), want.transform(X), atol=1e-9)
    np.testing.assert_allclose(np.asarray(found.column_coordinates_), want.column_coordinates_, atol=1e-9)
    np.testing.assert_allclose(
        np.asarray(ss.supplementary(D, want.transform(X)).coordinates), want.column_coordinates_, atol=1e-9
    )


def test_numbers_alone_are_standardized_pca_and_categories_alone_are_multiple_correspondence() -> None:
    X = survey()
    numbers, words = X[["income", "rooms"]].assign(more=X["rooms"] ** 2 + X["owner"]), X[["town", "owner"]]
    pca = ss.PCA(2, scale="std", **EXACT).fit(numbers)
    assert ss.FAMD(2, **EXACT).fit(numbers).eigenvalues_ == pytest.approx(pca.singular_values_**2 / 300, rel=1e-9)
    np.testing.assert_allclose(ss.FAMD(2, **EXACT).fit_transform(numbers.to_numpy()), pca.transform(numbers), atol=1e-8)
    mca = ss.MultipleCorrespondenceAnalysis(3, **EXACT).fit(words)
    assert ss.FAMD(3, **EXACT).fit(words).eigenvalues_ == pytest.approx(2 * mca.eigenvalues_, abs=1e-12)


def test_a_binary_number_and_two_categories_are_the_same() -> None:
    X = survey()
    Z = [ss.FAMD(3, **EXACT).fit_transform(X.assign(owner=X["owner"].astype(kind))) for kind in (bool, int, str)]
    for other in Z[1:]:
        np.testing.assert_allclose(other * np.sign((other * Z[0]).sum(axis=0)), Z[0], atol=1e-8)


def test_missing_values_are_refused_or_at_the_centre_of_their_column() -> None:
    X = survey()
    gaps = X.copy()
    gaps.loc[1003, "town"], gaps.loc[1004, "income"] = None, np.nan
    for name in ("town", "income"):
        with pytest.raises(ValueError, match=rf"column {name} has missing .* in 1 of 300 rows.*missing=\"mean\""):
            ss.FAMD(2).fit(X.assign(**{name: gaps[name]}))
        with pytest.raises(ValueError, match=rf"column {name} has missing"):
            ss.FAMD(2).fit(X).transform(X.assign(**{name: gaps[name]})[:5])
    # The encoded row is 0 in the columns of a missing value.
    full = ss.FAMD(None, missing="mean", **EXACT).fit(gaps)
    back = full.transform(gaps) @ full.components_
    towns = [j for j, name in enumerate(full.column_names_) if name.startswith("town__")]
    np.testing.assert_allclose(back[3, towns], 0, atol=1e-9)
    assert back[4, 0] == pytest.approx(0, abs=1e-9)
    assert full.total_inertia_ == pytest.approx((back**2).sum() / 300, rel=1e-10)
    observed = gaps["town"] == "Pau"
    np.testing.assert_allclose(
        full.column_coordinates_.loc["town__Pau"], full.transform(gaps)[observed.to_numpy()].mean(axis=0), atol=1e-9
    )
    for missing in ("error", "mean"):  # removing rows would leave nothing
        with pytest.raises(ValueError, match="column income has no observed values"):
            ss.FAMD(2, missing=missing).fit(X.assign(income=np.nan))
    with pytest.raises(ValueError, match="column income has infinite values"):
        ss.FAMD(2, missing="mean").fit(X.assign(income=[np.inf, *X["income"][1:]]))


def test_unknown_categories_are_refused_or_at_the_centre() -> None:
    X = survey()
    new = X.iloc[:4].astype({"pet": object})
    new.loc[1001, "pet"], new.loc[1002, "town"] = "newt", "Rome"
    with pytest.raises(
        ValueError, match=r"column town has categories that did not occur .* 1 of 4 rows, such as 'Rome'"
    ):
        ss.FAMD(2).fit(X).transform(new)
    famd = ss.FAMD(2, unknown="ignore", missing="mean", **EXACT).fit(X)
    gap = new.copy()
    gap.loc[1001, "pet"], gap.loc[1002, "town"] = None, None
    np.testing.assert_allclose(famd.transform(new), famd.transform(gap), atol=1e-12)
    np.testing.assert_allclose(famd.transform(new)[[0, 3]], famd.transform(X.iloc[[0, 3]]), atol=1e-9)


def test_declared_categories_match_plain_values() -> None:
    X = survey().assign(rooms=lambda D: D["rooms"].astype("category"))
    famd = ss.FAMD(2, **EXACT).fit(X)
    plain = X.astype({"rooms": int, "pet": object})
    np.testing.assert_allclose(famd.transform(plain), famd.transform(X), atol=1e-12)
    with pytest.raises(ValueError, match=r"column rooms has categories .* such as 2.5"):
        famd.transform(plain.assign(rooms=2.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"income": "rich"}, "column income must have numbers, as in the training data, got categories"),
        ({"income": pd.Timestamp("2020-01-01")}, "column income has dates or times"),
        ({"town": 3}, "column town has categories that did not occur in the training data, in 300 of"),
    ],
)
def test_other_kinds_of_new_columns_are_refused(change: dict, message: str) -> None:
    famd = ss.FAMD(2).fit(survey())
    with pytest.raises(ValueError, match=message):
        famd.transform(survey().assign(**change))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.Timestamp("2020-01-01"), "column x has dates or times"),
        (1 + 2j, "Complex data not supported: column x"),
        (["12", 13.5, "k.A."] * 100, r"column x has numbers and other values, such as 13.5 and '12'"),
        ([None] * 300, "column x has (missing|no observed)"),
    ],
)
def test_columns_that_are_neither_are_refused(column: object, message: str) -> None:
    for missing in ("error", "mean"):
        with pytest.raises(ValueError, match=message):
            ss.FAMD(2, missing=missing).fit(survey().assign(x=column))


def test_identifiers_and_constants_are_reported() -> None:
    X = survey()
    with pytest.warns(UserWarning, match="Column who has a different category in each row"):
        ss.FAMD(2).fit(X.assign(who=[f"p{i}" for i in range(300)]))
    with pytest.warns(UserWarning, match="Column one is constant and was not scaled"):
        found = ss.FAMD(2, **EXACT).fit(X.assign(one=0.1, word="same"))
    assert found.eigenvalues_ == pytest.approx(ss.FAMD(2, **EXACT).fit(X).eigenvalues_, abs=1e-12)
    assert not np.asarray(found.column_coordinates_.loc[["one", "word__same"]]).round(9).any()
    assert found.total_inertia_ == pytest.approx(ss.FAMD(2).fit(X).total_inertia_)


def test_components_beyond_the_rank_have_no_positions() -> None:
    X = pd.DataFrame({"a": list("xxyy"), "b": list("xxyy"), "c": [1.0, 1, 3, 3]})
    famd = ss.FAMD(3, **EXACT).fit(X)
    assert not np.asarray(famd.column_coordinates_)[:, 1:].any()
    assert famd.eigenvalues_ == pytest.approx([3, 0, 0], abs=1e-12)


@pytest.mark.parametrize("power", [-300, -160, 160, 300])
def test_numbers_of_any_size_are_standardized(power: int) -> None:
    X = survey().astype({"rooms": float})
    want = ss.FAMD(2, **EXACT).fit(X)
    X = X.assign(rooms=X["rooms"] * 10.0**power)
    found = ss.FAMD(2, **EXACT).fit(X)
    assert found.eigenvalues_ == pytest.approx(want.eigenvalues_, rel=1e-10)
    np.testing.assert_allclose(found.column_coordinates_, want.column_coordinates_, atol=1e-8)


def test_many_categories_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"word": rng.integers(0, 5000, 20_000).astype(str), "x": rng.standard_normal(20_000)})
    famd = ss.FAMD(2, memory_limit="60MB", random_state=0).fit(X)  # dense, 800 MB
    assert famd.total_inertia_ == pytest.approx(X["word"].nunique())


def test_it_pickles_clones_and_names_its_outputs(tmp_path) -> None:
    X = survey()
    famd = ss.FAMD(2, random_state=0).fit(X)
    Z = famd.transform(X)
    assert np.array_equal(pickle.loads(pickle.dumps(famd)).transform(X), Z)
    assert np.array_equal(clone(famd).fit_transform(X), Z)
    framed = clone(famd).set_output(transform="pandas").fit_transform(X)
    assert list(framed.columns) == list(famd.get_feature_names_out()) == ["famd0", "famd1"]
    assert framed.index.equals(X.index)
    famd.save(tmp_path / "it.safetensors")
    assert np.array_equal(ss.FAMD.load(tmp_path / "it.safetensors").transform(X), Z)
    with pytest.raises(ValueError, match="X must have the 300 rows of the fit, got 5"):
        famd.column_cosine_similarities(X[:5])


@pytest.mark.long
@parametrize_with_checks([ss.FAMD(n_components=1)])
def test_every_check_of_scikit_learn_passes(estimator, check) -> None:
    check(estimator)


# ---- supplementary columns, and rows of PCA


def test_positions_are_correlations_and_means_in_any_division_into_blocks() -> None:
    from shiftsvd.estimators.supplementary import Categories, Numbers, Sums

    X, rng = survey(), np.random.default_rng(1)
    Z = rng.standard_normal((300, 3)) * [9, 1, 0.1] + 50
    x = X["income"].to_numpy().copy()
    x[[2, 7]] = np.nan
    codes = np.where(rng.random(300) < 0.1, -1, rng.integers(0, 3, 300))
    sums = Sums([Numbers("x", x), Categories("c", codes, ["a", "b", "c"])], 3)
    for lo, hi in ((0, 1), (1, 1), (1, 120), (120, 300)):
        sums.add(lo, Z[lo:hi])
    found, there = sums.result("="), ~np.isnan(x)
    assert found.names == ["x", "c=a", "c=b", "c=c"]
    assert found.counts.tolist() == [298, *(int((codes == j).sum()) for j in range(3))]
    want = [np.corrcoef(x[there], Z[there, s])[0, 1] for s in range(3)]
    np.testing.assert_allclose(found.coordinates[0], want, atol=1e-10)
    for j in range(3):
        np.testing.assert_allclose(found.coordinates[j + 1], Z[codes == j].mean(axis=0), atol=1e-11)
        r = [np.corrcoef(codes[codes >= 0] == j, Z[codes >= 0, s])[0, 1] for s in range(3)]
        np.testing.assert_allclose(found.v_tests[j + 1], np.multiply(r, np.sqrt((codes >= 0).sum() - 1)), atol=1e-9)


def test_supplementary_columns_need_the_rows_of_the_scores() -> None:
    Z = np.ones((5, 2))
    with pytest.raises(ValueError, match=r"columns must have 5 rows, as the scores have, got shape \(4, 1\)"):
        ss.supplementary(np.ones(4), Z)
    with pytest.raises(ValueError, match="scores must be finite"):
        ss.supplementary(np.ones(5), Z * np.nan)
    found = ss.supplementary(np.ones(5), Z)
    assert not found.coordinates.any()
    assert isinstance(found.coordinates, np.ndarray)


@pytest.mark.parametrize(
    "settings", [{}, {"scale": "std"}, {"whiten": True}, {"shift": None}, {"missing": "mean"}], ids=str
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_of_pca_have_contributions_and_cosines(settings: dict, dtype: type) -> None:
    X = (np.random.default_rng(0).standard_normal((40, 6)) * [1, 2, 3, 4, 5, 6] + 1).astype(dtype)
    pca = ss.PCA(3, solver="exact", **settings).fit(X)
    A = X.astype(np.float64) - (0 if settings.get("shift", 0) is None else X.mean(axis=0, dtype=np.float64))
    A = A / A.std(axis=0) if settings.get("scale") else A
    U, _, Vh = np.linalg.svd(A, full_matrices=False)
    tol = 1e-10 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(pca.row_contributions(X), U[:, :3] ** 2, atol=tol)
    np.testing.assert_allclose(
        pca.row_cosine_similarities(X), (A @ Vh[:3].T) ** 2 / (A**2).sum(axis=1)[:, None], atol=tol
    )
    big = ss.PCA(3, solver="exact", **settings).fit(X * dtype(2.0**100))
    np.testing.assert_allclose(
        big.row_cosine_similarities(X * dtype(2.0**100)), pca.row_cosine_similarities(X), atol=tol
    )


def test_rows_of_frames_keep_their_names() -> None:
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((6, 3)), index=list("abcdef"))
    pca = ss.PCA(2).fit(X)
    assert list(pca.row_contributions(X).index) == list("abcdef")
    assert pca.row_contributions(X).sum().to_numpy() == pytest.approx([1, 1])
    weighted = ss.PCA(2).fit(X, sample_weight=[2, 1, 1, 1, 1, 1])
    assert (weighted.row_contributions(X).T * [2, 1, 1, 1, 1, 1]).T.sum().to_numpy() == pytest.approx([1, 1])


def test_a_column_of_one_category_has_no_cosines():
    rng = np.random.default_rng(3)
    for m in range(3, 40):
        X = pd.DataFrame({"a": rng.standard_normal(m), "b": rng.choice(list("abc"), m), "c": np.full(m, "y")})
        cosines = np.asarray(ss.FAMD(2, random_state=0).fit(X).column_cosine_similarities(X))
        assert np.all(cosines.sum(axis=1) <= 1 + 1e-12)
