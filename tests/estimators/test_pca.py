"""PCA: scores, reconstructions, likelihoods and settings, for every solver."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from tests.support.pca_data import EPS, SHAPES, SOLVERS, counts

# Scores


@pytest.mark.parametrize(("scale", "whiten"), [(False, False), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_fit_transform_is_fit_then_transform_to_the_bit(settings, container, shape, scale, whiten):
    X = container(counts(shape).toarray())
    make = lambda: ss.PCA(4, random_state=0, scale=scale, whiten=whiten, **settings)  # noqa: E731
    assert np.array_equal(make().fit_transform(X), make().fit(X).transform(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_new_rows_are_centred_with_the_mean_of_the_training_rows(container, dtype):
    X, new = counts((80, 30), dtype), counts((7, 30), dtype, seed=1)
    pca = ss.PCA(5).fit(container(X.toarray()))
    Z = pca.transform(container(new.toarray()))
    expected = (new.toarray().astype(float) - pca.mean_) @ pca.components_.T.astype(float)
    assert Z.dtype == dtype
    assert np.abs(Z - expected).max() <= 10 * np.finfo(dtype).eps * np.linalg.norm(new.toarray(), axis=1).max()


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_a_single_row_gives_the_scores_it_has_in_a_batch(container):
    X = counts((80, 30)).toarray()
    pca = ss.PCA(5).fit(X)
    Z = pca.transform(container(X))
    for i in (0, 17, 79):
        alone = pca.transform(container(X[i : i + 1]))
        assert alone.shape == (1, 5)
        assert np.abs(alone - Z[i]).max() <= 10 * EPS * np.linalg.norm(X[i])


def test_scores_of_the_training_rows_have_the_variances_and_no_correlation():
    X = counts((200, 30))
    for whiten in (False, True):
        pca = ss.PCA(6, whiten=whiten).fit(X)
        C = np.cov(pca.transform(X), rowvar=False)
        expected = np.eye(6) if whiten else np.diag(pca.explained_variance_)
        assert np.abs(C - expected).max() <= 1000 * EPS * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("whiten", [False, True])
def test_inverse_transform_is_the_projection_on_the_components(whiten, dtype):
    X = counts((60, 25), dtype)
    pca = ss.PCA(5, whiten=whiten).fit(X)
    V = pca.components_.astype(float)
    dense = X.toarray().astype(float)
    expected = (dense - pca.mean_) @ V.T @ V + pca.mean_
    back = pca.inverse_transform(pca.transform(X))
    assert back.dtype == dtype
    assert np.abs(back - expected).max() <= 30 * np.finfo(dtype).eps * np.linalg.norm(dense)


def test_inverse_transform_refuses_scores_of_another_number_of_components():
    pca = ss.PCA(5).fit(counts((60, 25)))
    for Z in (np.ones((3, 4)), np.ones(5), np.ones((2, 5, 1))):
        with pytest.raises(ValueError, match=r"scores must have shape \(n_samples, 5\), got shape \("):
            pca.inverse_transform(Z)


# The probabilistic model


@pytest.mark.parametrize("container", [csr_array, csc_array])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_likelihoods_of_sparse_data_are_those_of_dense(shape, whiten, container):
    X = counts(shape)
    dense = ss.PCA(4, whiten=whiten).fit(X.toarray())
    pca = ss.PCA(4, whiten=whiten).fit(container(X))
    bound = 1e4 * EPS * dense.explained_variance_[0] / dense.noise_variance_
    expected = dense.score_samples(X.toarray())
    assert np.abs(pca.score_samples(container(X)) - expected).max() <= bound * np.abs(expected).max()
    assert pca.score(container(X)) == pytest.approx(expected.mean(), rel=bound)
    assert np.abs(pca.get_covariance() - dense.get_covariance()).max() <= bound
    inverse = pca.get_precision() @ pca.get_covariance()
    assert np.abs(inverse - np.eye(shape[1])).max() <= bound


def test_score_samples_is_the_density_of_the_normal_distribution_of_the_model():
    from scipy.stats import multivariate_normal

    X = counts((100, 12))
    pca = ss.PCA(4).fit(X)
    density = multivariate_normal(pca.mean_, pca.get_covariance())
    assert np.allclose(pca.score_samples(X), density.logpdf(X.toarray()), rtol=1e-10, atol=0)


def test_a_likelihood_without_noise_is_minus_infinity_off_the_components():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, 30))
    pca = ss.PCA().fit(X)
    assert np.isfinite(pca.score_samples(X)).all()
    assert np.all(pca.score_samples(rng.standard_normal((5, 30))) == -np.inf)


@pytest.mark.parametrize(("rank", "k"), [(3, None), (3, 4), (0, None)])
def test_components_without_variance_add_nothing_to_a_likelihood(rank, k):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, rank)) @ rng.standard_normal((rank, 6)) + rng.standard_normal(6)
    pca = ss.PCA(k).fit(X)
    assert np.allclose(pca.score_samples(X), ss.PCA(rank).fit(X).score_samples(X), rtol=1e-10, atol=1e-10)
    with warnings.catch_warnings(action="error"):
        assert np.all(pca.score_samples(X + rng.standard_normal(X.shape)) == -np.inf)
    with pytest.raises(ValueError, match="no inverse"):
        pca.get_precision()


@pytest.mark.parametrize("k", [1, 4, 29, 30])
def test_covariance_of_a_model_has_the_total_variance(k):
    X = counts((100, 30))
    pca = ss.PCA(k).fit(X)
    assert np.trace(pca.get_covariance()) == pytest.approx(X.toarray().var(axis=0, ddof=1).sum(), rel=1e-12)


# Settings of scikit-learn


def test_settings_of_the_randomized_solver_arrive_there():
    X = counts((200, 100))
    pca = ss.PCA(5, svd_solver="randomized", random_state=0, iterated_power=3, n_oversamples=21).fit(X)
    assert pca.info_.sample_size == 26
    assert "n_oversamples=21" in pca.info_.solver
    more = ss.PCA(5, svd_solver="randomized", random_state=0, iterated_power=9, n_oversamples=21).fit(X)
    assert more.info_.n_passes == pca.info_.n_passes + 12
    auto = ss.PCA(5, svd_solver="randomized", random_state=0).fit(X)
    seven = ss.PCA(5, svd_solver="randomized", random_state=0, iterated_power=7).fit(X)
    assert np.array_equal(auto.components_, seven.components_)
    for normalizer in ("auto", "QR", "LU", "CholeskyQR2", "none"):
        pca = ss.PCA(
            2, svd_solver="randomized", random_state=0, power_iteration_normalizer=normalizer, iterated_power=2
        )
        assert np.isfinite(pca.fit(X).components_).all()


@pytest.mark.parametrize(
    ("svd_solver", "name"),
    [("full", "Exact"), ("covariance_eigh", "Gram"), ("arpack", "BlockLanczos"), ("randomized", "RandomizedSVD")],
)
def test_the_account_names_the_solver_that_ran(svd_solver, name):
    pca = ss.PCA(3, svd_solver=svd_solver).fit(counts((50, 20)))
    assert pca.info_.solver.startswith(name)
    assert pca.info_.n_passes >= 1
    assert pca.info_.seconds >= 0


def test_arpack_is_exact_to_machine_precision():
    for shape in SHAPES:
        X = counts(shape)
        S = np.linalg.svd(X.toarray() - X.toarray().mean(axis=0), compute_uv=False)
        found = ss.PCA(5, svd_solver="arpack").fit(X).singular_values_
        assert np.abs(found - S[:5]).max() <= 100 * EPS * S[0]


def test_zero_components_are_accepted_where_scikit_learn_accepts_them():
    X = counts((30, 10)).toarray()
    pca = ss.PCA(0, svd_solver="full").fit(X)
    assert pca.components_.shape == (0, 10)
    assert pca.transform(X).shape == (30, 0)
    assert pca.noise_variance_ == pytest.approx(X.var(axis=0, ddof=1).mean(), rel=1e-12)


def test_fit_leaves_stdout_and_stderr_silent_in_a_fresh_process():
    code = (
        "import numpy as np, shiftsvd as ss; X = np.random.default_rng(0).standard_normal((50, 9));"
        "ss.PCA(2, verbose=1).fit_transform(X); ss.PCA(2, solver='randomized', random_state=0).fit(X)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_info_is_printed_in_ten_lines_of_names_and_numbers() -> None:
    info = ss.PCA(n_components=3, solver="lanczos").fit(np.random.default_rng(0).random((300, 40))).info_
    lines = {line[:20].strip(): line[21:] for line in str(info).splitlines()}
    assert len(lines) <= 10
    assert lines["converged"] == "yes"
    assert lines["largest value error"].startswith(f"{max(info.value_errors):.1e} (component ")


@pytest.mark.parametrize("kind", [ss.PCA, ss.TruncatedSVD])
def test_texts_are_refused_with_the_name_of_the_class_that_takes_them(kind: type) -> None:
    with pytest.raises(ValueError, match=r"needs a matrix of numbers, got a list of texts\. Use shiftsvd\.LSA"):
        kind(2).fit(["a cat and a dog", "stocks fell today", "dogs chase a cat"])
