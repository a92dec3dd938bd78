"""A fitted model of every kind that a file can hold, and what is asked of it."""

import importlib
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import shiftsvd as ss
from tests.support.model_files import assert_same_values, data
from tests.support.places import has

pd = pytest.importorskip("pandas")


TEXTS = ["the cat and the dog", "a dog chases the cat", "stocks fell today", "today stocks rose", "the cat rose"]


def assert_same(found: Any, expected: Any, name: str) -> None:
    """Equal to the last bit, in whatever it holds."""
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected, check_index_type=False)
        assert_same_values(found.to_numpy(), expected.to_numpy(), name)
    elif isinstance(expected, pd.Index):
        pd.testing.assert_index_equal(found, expected)
    elif isinstance(expected, BaseEstimator) or (is_dataclass(expected) and not isinstance(expected, ss.Info)):
        assert type(found) is type(expected), name
        assert list(vars(found)) == list(vars(expected)) or set(vars(found)) == set(vars(expected)), name
        for key, value in vars(expected).items():
            assert_same(vars(found)[key], value, f"{name}.{key}")
    elif isinstance(expected, np.generic):  # a label of an array of objects
        assert found == expected, name
    elif isinstance(expected, np.ndarray) and expected.dtype.kind == "U":  # as wide as the longest text
        assert found.dtype.kind == "U", name
        assert found.tolist() == expected.tolist(), name
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected), name
        assert len(found) == len(expected), name
        for j, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{name}[{j}]")
    else:
        assert_same_values(found, expected, name)


GROUPS: dict[str, Any] = {
    "texts": np.array(["b", "a", "Ünïcødé 基因", ""]),
    "integers": np.array([3, -1, 2**60, 0]),
    "floats": np.array([0.5, -1e300, 3.0, np.inf]),
    "truth": np.array([True, False, True, False]),
    "mixed": np.array([1, "1", 2.5, True], object),
    "numbers of NumPy": np.array([np.int64(1), np.float32(0.5), np.str_("x"), np.bool_(False)], object),
}


def table(kind: str, dtype: Any = np.float64) -> Any:
    counts = np.random.default_rng(0).poisson(2.0, (30, 6)).astype(dtype)
    counts[3], counts[:, 2] = 0, 0
    if kind == "array":
        return counts
    rows: Any = {"texts": [f"row {i}" for i in range(30)], "integers": range(5, 35)}[kind]
    return pd.DataFrame(counts, index=pd.Index(rows, name="place"), columns=list("abcdef"))


def categories(kind: str) -> Any:
    rng = np.random.default_rng(0)
    colours, sizes = rng.choice(["red", "green", "blue"], 50), rng.integers(0, 4, 50)
    if kind == "texts":
        return np.column_stack([colours, sizes.astype(str)])
    if kind == "objects":
        return np.column_stack([colours.astype(object), sizes.astype(object)])
    if kind == "numbers":
        return np.column_stack([sizes, sizes[::-1] % 2])
    frame = pd.DataFrame({"colour": colours, "size": sizes, "flag": sizes > 1, "length": sizes / 4})
    return frame.astype({"colour": "category"}) if kind == "declared" else frame


def distances(frame: bool) -> Any:
    points = data((25, 4))
    D = np.abs(points[:, None] - points[None]).sum(axis=2)
    names = [f"point {i}" for i in range(25)]
    return pd.DataFrame(D, index=names, columns=names) if frame else D


Made = tuple[Any, Callable[[Any], list[Any]]]  # a fitted model, and what is asked of it


def truncated(X: Any, **settings: Any) -> Made:
    model = ss.TruncatedSVD(3, random_state=0, **settings).fit(X)
    return model, lambda it: [it.transform(X), it.inverse_transform(np.ones((2, 3)))]


def correspondence(X: Any) -> Made:
    model = ss.CorrespondenceAnalysis(2, random_state=0).fit(X)
    return model, lambda it: [
        *(it.row_coordinates(X), it.column_coordinates(X)),
        *(it.transform(X), it.row_cosine_similarities(X), it.column_cosine_similarities(X)),
    ]


def multiple(X: Any, **settings: Any) -> Made:
    model = ss.MultipleCorrespondenceAnalysis(2, random_state=0, **settings).fit(X)
    new = X.iloc[:7] if isinstance(X, pd.DataFrame) else X[:7]
    return model, lambda it: [it.row_coordinates(new), it.transform(new), it.column_coordinates(X)]


def mixed(X: Any, **settings: Any) -> Made:
    model = ss.FAMD(2, random_state=0, **settings).fit(X)
    return model, lambda it: [it.transform(X), it.row_contributions(X), it.column_cosine_similarities(X)]


def principal_coordinates(X: Any, new: Any, **settings: Any) -> Made:
    model = ss.PCoA(3, random_state=0, **settings).fit(X)
    return model, lambda it: [it.transform(new)]


def contrast(X: Any, background: Any, **settings: Any) -> Made:
    model = ss.ContrastivePCA(2, alpha=0.5, random_state=0, **settings).fit(X, background=background)
    return model, lambda it: [it.transform(X)]


def spectral(X: Any) -> Made:
    model = ss.SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(X)
    return model, lambda it: [it.embedding_, it.component_labels_]


def diffusion(X: Any) -> Made:
    model = ss.DiffusionMap(2, random_state=0).fit(X)
    return model, lambda it: [it.transform(X[:4])]


def words(**settings: Any) -> Made:
    model = ss.LSA(2, random_state=0, **settings).fit(TEXTS)
    new = ["a cat rose", "", "nothing known", "The DOG today"]
    return model, lambda it: [it.transform(new), it.top_terms(1, 3), it.vectorizer_.transform(new).toarray()]


def genotypes_model() -> Made:
    m, n, k = 6, 4, 2
    U, S, Vh = np.linalg.svd(data((m, n)), full_matrices=False)
    names = [np.array([f"{what}{j}" for j in range(size)]) for what, size in zip("fsvcp", (m, m, n, n, n), strict=True)]
    alleles = np.array(["A", "G", "insertion" * 9, "0"], object)
    info = ss.svd(data((m, n)), k, solver="exact").info
    variants = importlib.import_module("shiftsvd.genetics.variants")
    model = ss.genetics.GenotypePCA(
        *(S[:k] ** 2, U[:, :k], Vh[:k].T, S[:k] / 9, np.full(n, 0.25)),
        *(variants.Samples(*names[:2]), variants.Variants(names[3], names[2], names[4], alleles, alleles[::-1].copy())),
        *(np.arange(n) < 3, info),
    )
    return model, lambda it: [it.n_used, repr(it), it.variants.first, it.samples.names]


MODELS: dict[str, Callable[[], Made]] = {
    "truncated": lambda: truncated(data()),
    "truncated, single": lambda: truncated(data(dtype=np.float32), algorithm="randomized", n_iter=3),
    "truncated, frame": lambda: truncated(pd.DataFrame(data(), columns=list("abcdefghi")), solver=ss.Exact()),
    "table": lambda: correspondence(table("array")),
    "table, single": lambda: correspondence(table("array", np.float32)),
    "table, names": lambda: correspondence(table("texts")),
    "table, numbered": lambda: correspondence(table("integers")),
    "categories, texts": lambda: multiple(categories("texts"), correction="greenacre"),
    "categories, objects": lambda: multiple(categories("objects")[:, :1]),
    "categories, numbers": lambda: multiple(categories("numbers"), unknown="ignore"),
    "categories, frame": lambda: multiple(categories("frame"), correction="benzecri"),
    "categories, declared": lambda: multiple(categories("declared")),
    "mixed": lambda: mixed(categories("objects")),
    "mixed, numbers": lambda: mixed(data()),
    "mixed, frame": lambda: mixed(categories("frame"), missing="mean", solver=ss.Exact()),
    "mixed, declared": lambda: mixed(categories("declared").assign(known=[True, None] * 25), missing="mean"),
    "distances": lambda: principal_coordinates(distances(False), np.ones((2, 25))),
    "distances, names": lambda: principal_coordinates(distances(True), distances(True).iloc[:2]),
    "points": lambda: principal_coordinates(np.abs(data()), np.ones((2, 9)), metric="braycurtis"),
    "contrast": lambda: contrast(data(), data((7, 9))),
    "contrast by ratios": lambda: contrast(data(), data((7, 9)), ridge=0.5),
    "graph": lambda: spectral(distances(False)),
    "walk": lambda: diffusion(np.exp(-distances(False))),
    "words": lambda: words(),
    "words, centred": lambda: words(center=True, normalize=False, solver=ss.Exact(certify=True)),
    "words, settings": lambda: words(
        stop_words=["the", "and"], ngram_range=(1, 2), sublinear_tf=True, max_df=3, norm=None, strip_accents="unicode"
    ),
    "words, no weights": lambda: words(use_idf=False, stop_words="english", min_df=1),
    "words, letters": lambda: words(analyzer="char", ngram_range=(2, 3), max_features=10),
}
if has("genetics"):
    MODELS["genotypes"] = genotypes_model
