"""LSA is the pipeline of scikit-learn's weights, our singular vectors, and rows of length 1."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import check_estimator

import shiftsvd as ss

SUBJECTS = {
    "sea": ["ship", "harbour", "sailor", "wave", "anchor", "storm", "tide", "captain", "sail", "crew"],
    "kitchen": ["bread", "oven", "butter", "flour", "sugar", "kettle", "spoon", "recipe", "dough", "salt"],
    "law": ["judge", "court", "trial", "witness", "verdict", "appeal", "lawyer", "statute", "jury", "oath"],
}


def texts(n=120, seed=0):
    """(texts, their subjects)."""
    rng = np.random.default_rng(seed)
    subjects = rng.choice(list(SUBJECTS), n)
    common = ["the", "and", "of", "with", "after", "then", "there"]
    made = [
        " ".join(rng.permutation([*rng.choice(SUBJECTS[subject], 8), *rng.choice(common, 6)])) for subject in subjects
    ]
    return made, subjects


@pytest.mark.one_in(2)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("settings", [{}, {"sublinear_tf": True, "min_df": 3}, {"ngram_range": (1, 2), "norm": None}])
def test_equals_the_three_steps(center, settings):
    X, _ = texts()
    lsa = ss.LSA(5, center=center, tol=1e-10, random_state=0, **settings).fit(X)
    weights = TfidfVectorizer(**settings).fit_transform(X).toarray()
    mean = weights.mean(axis=0) if center else 0
    _, S, Vh = np.linalg.svd(weights - mean, full_matrices=False)
    assert lsa.singular_values_ == pytest.approx(S[:5], rel=1e-8)
    Z = normalize((weights - mean) @ Vh[:5].T)
    np.testing.assert_allclose(np.abs(lsa.transform(X) @ lsa.transform(X[:9]).T), np.abs(Z @ Z[:9].T), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(lsa.transform(X), axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(clone(lsa).fit_transform(X), lsa.transform(X), atol=1e-12)


def test_texts_on_a_subject_are_close():
    X, subjects = texts()
    Z = ss.LSA(3, center=True, stop_words="english", random_state=0).fit_transform(X)
    same = subjects[:, None] == subjects
    cosines = Z @ Z.T
    assert cosines[same].mean() > 0.9
    assert cosines[~same].mean() < 0


def test_new_texts_without_a_known_word_are_at_the_origin():
    X, _ = texts()
    lsa = ss.LSA(3, random_state=0).fit(X)
    assert not lsa.transform(["zebra", ""]).any()


def test_terms_of_a_component_belong_together():
    X, _ = texts()
    lsa = ss.LSA(2, center=True, stop_words=["the", "and", "of", "with", "after", "then", "there"], random_state=0)
    lsa.fit(X)
    assert set(lsa.terms_) == set().union(*SUBJECTS.values())
    assert len(lsa.top_terms(0)) == 10
    assert lsa.top_terms(1, 3) == lsa.top_terms(1, 5)[:3]
    for component, weights in enumerate(np.abs(lsa.components_)):  # of either sign
        places = [lsa.terms_.tolist().index(term) for term in lsa.top_terms(component, len(lsa.terms_))]
        assert np.all(np.diff(weights[places]) <= 0)
    with pytest.raises(ValueError, match=r"0\.\.1"):
        lsa.top_terms(2)


def test_words_are_found_as_one_says():
    X, _ = texts()
    chosen = ["ship", "wave", "oven", "bread", "judge"]
    settings = {"vocabulary": chosen, "preprocessor": str.upper, "tokenizer": lambda text: text.lower().split()}
    settings |= {"token_pattern": None, "lowercase": False}
    lsa = ss.LSA(3, tol=1e-10, random_state=0, **settings).fit(X)
    assert list(lsa.terms_) == chosen
    weights = TfidfVectorizer(**settings).fit_transform(X).toarray()
    assert lsa.singular_values_ == pytest.approx(np.linalg.svd(weights, compute_uv=False)[:3], rel=1e-8)


def hyphenated(text):
    return [f"{word}-{len(word)}" for word in text.split()]


@pytest.mark.parametrize(
    ("settings", "prepared", "instead"),
    [
        ({"preprocessor": str.upper}, str.upper, {"lowercase": False}),
        ({"tokenizer": hyphenated, "token_pattern": None}, hyphenated, {"token_pattern": r"\S+"}),
        ({"analyzer": hyphenated}, hyphenated, {"token_pattern": r"\S+", "lowercase": False}),
    ],
)
def test_functions_are_not_saved_and_the_error_names_what_gives_the_same_model(settings, prepared, instead, tmp_path):
    X = [text.title() for text in texts()[0]]
    own = ss.LSA(3, tol=1e-10, random_state=0, **settings).fit(X)
    with pytest.raises(ValueError, match=r"cannot be stored: .* got \w+\. (Join|Apply) ") as refused:
        own.save(tmp_path / "own.safetensors")
    said = str(refused.value)
    assert all(
        (f'{name}=r"{value}"' if isinstance(value, str) else f"{name}={value}") in said
        for name, value in instead.items()
    )
    assert ("Join the tokens of each text by blanks" in said) == (prepared is hyphenated)
    ready = [" ".join(made) if isinstance(made, list) else made for made in map(prepared, X)]
    stored = ss.LSA(3, tol=1e-10, random_state=0, **instead).fit(ready)
    stored.save(tmp_path / "stored.safetensors")
    again = ss.load_model(tmp_path / "stored.safetensors")
    np.testing.assert_allclose(again.transform(ready), own.transform(X), atol=1e-12)


def test_coordinates_go_back_to_weights_of_terms():
    X, _ = texts()
    for center in (False, True):
        lsa = ss.LSA(37, center=center, normalize=False, solver="exact").fit(X)
        weights = lsa.vectorizer_.transform(X).toarray()
        assert weights.shape[1] == 37
        np.testing.assert_allclose(lsa.inverse_transform(lsa.transform(X)), weights, atol=1e-10)


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (sparse.eye_array(5, format="csr"), r"got csr_array of shape \(5, 5\)\. .* use TruncatedSVD or PCA"),
        (np.eye(5), r"got ndarray of shape \(5, 5\)"),
        (
            pd.DataFrame({"text": ["a cat", "a dog"], "n": [1, 2]}),
            r"got DataFrame of shape \(2, 2\)\. Pass the text column",
        ),
        (["a cat", 3.5], "got float at position 1: 3.5"),
        ([["a", "cat"], ["a", "dog"]], r"got list at position 0: \['a', 'cat'\]"),
        (pd.Series(["a cat", None]), "got (NoneType|float) at position 1"),
    ],
)
def test_what_are_no_texts_is_refused_with_what_is_wanted(X, said):
    for method in (ss.LSA(1).fit, ss.LSA(1).fit_transform, ss.LSA(1).fit(["a cat", "a dog"]).transform):
        with pytest.raises(TypeError, match="LSA needs .*text.*" + said):
            method(X)


def test_lengths_are_kept_where_that_is_asked_for():
    X, _ = texts()
    lsa = ss.LSA(4, normalize=False, random_state=0).fit(X)
    weights = lsa.vectorizer_.transform(X)
    np.testing.assert_allclose(lsa.transform(X), weights @ lsa.components_.T, atol=1e-10)


def test_series_pipelines_and_searches():
    X, subjects = texts()
    series = pd.Series(X)
    search = GridSearchCV(
        make_pipeline(ss.LSA(random_state=0), KNeighborsClassifier()),
        {"lsa__n_components": [2, 5], "lsa__center": [False, True]},
        cv=3,
    )
    assert search.fit(series, subjects).best_score_ > 0.95
    frame = ss.LSA(2, random_state=0).set_output(transform="pandas").fit(series).transform(series)
    assert list(frame.columns) == ["lsa0", "lsa1"]


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (["", " "], {}, "vocabulary"),
        (texts()[0], {"n_components": 1000}, "n_components must be"),
        ("one text", {}, "string object received"),
        (texts()[0], {"norm": "l3"}, "norm"),
    ],
)
def test_what_cannot_be_is_refused(X, settings, message):
    with pytest.raises(ValueError, match=message):
        ss.LSA(**({"n_components": 2} | settings)).fit(X)


# Of scikit-learn's checks only those hold for raw texts that need no data: it has none to hand over.
@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_every_check_of_scikit_learn_that_needs_no_data_passes():
    check_estimator(ss.LSA())
