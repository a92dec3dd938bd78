"""The report: it says what is true of the fit, loads nothing, escapes everything, and stays small."""

import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

import shiftsvd as ss
from shiftsvd import report, wording
from shiftsvd.plot.fitted import read
from tests.support.commands import done, invoke

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

X = np.random.default_rng(0).standard_normal((200, 12)) * np.arange(12, 0, -1) + 3
PCA = ss.PCA(n_components=5, solver="lanczos", random_state=0).fit(X)
TWO_MB = 2_000_000
# Elements without an end, by the standard.
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """A page as a browser would take it apart."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.styles if self.open and self.open[-1] == "style" else self.texts).append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


DRAWN, PLANES = report.DRAWN, report.PLANES
SAVED = report._saved


def page(path: Path, model: Any = PCA, **given: Any) -> Page:
    report.write(path / "report.html", model, force=True, **given)
    found = Page(path / "report.html")
    assert found.open == []
    return found


@pytest.fixture(scope="module", autouse=True)
def few_figures() -> Iterator[None]:
    """One drawing of loadings and one of scores are as good as four and three, and their SVG as good as their PNG."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            report, "_saved", lambda figure, title, kind: SAVED(figure, title, kind) if kind == "svg" else b""
        )
        patch.setattr(report, "DRAWN", 1)
        patch.setattr(report, "PLANES", report.PLANES[:1])
        yield


@pytest.fixture
def all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many figures as a report has, where the size of the file is measured."""
    monkeypatch.setattr(report, "DRAWN", DRAWN)
    monkeypatch.setattr(report, "PLANES", PLANES)
    monkeypatch.setattr(report, "_saved", SAVED)


@pytest.fixture
def bare(tmp_path: Path) -> Page:
    """The report of a model without its data."""
    return page(tmp_path)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The report of a model with coloured scores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_saved", SAVED)
        return page(tmp_path_factory.mktemp("full"), scores=PCA.transform(X), colors=X[:, 0])


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A report whose every text is an attack."""
    color = np.array(NASTY[:8])[np.arange(200) % 8]
    texts = {"source": dict(zip(NASTY, reversed(NASTY), strict=True)), "command": " ".join(NASTY)}
    return page(tmp_path_factory.mktemp("nasty"), scores=PCA.transform(X), names=NASTY, colors=color, **texts)


# --- what it says ---------------------------------------------------------------------------------------------


@pytest.mark.figures
def test_everything_that_was_given_is_there(tmp_path: Path) -> None:
    found = page(
        tmp_path,
        scores=PCA.transform(X),
        source={"path": "counts.npz", "shape": (200, 12), "stored numbers": 1234567, "dtype": "float64"},
        command="shiftsvd fit counts.npz -k 5 --seed 0",
        names=[f"gene{j}" for j in range(12)],
        seconds=12.5,
        peak_bytes=2_500_000_000,
    )
    for word in (
        "counts.npz",
        "200 × 12",
        "1,234,567",
        "float64",
        "shiftsvd fit counts.npz -k 5 --seed 0",
        "12.5 s",
        "2.5 GB",
    ):
        assert word in found.text
    assert f"shiftsvd {ss.__version__}" in found.text
    assert re.search(r"\d{4}-\d\d-\d\d", found.text)
    assert "block Lanczos (relative accuracy 0.0001)" in found.text
    assert "gene0" in found.text
    assert str(PCA.info_.n_passes) in found.text
    titles = {attrs["aria-label"] for tag, attrs in found.tags if tag == "svg"}
    drawn = {"Scores of components 1 and 2", "Biplot of components 1 and 2", "Loadings of component 1"}
    assert {"Explained variance", *drawn} <= titles


def test_scores_and_loadings_are_explained(bare: Page, tmp_path: Path) -> None:
    exact = page(tmp_path, ss.PCA(n_components=2, solver="exact").fit(X)).text
    assert "factorization is exact up to rounding" in exact
    assert "not computed" not in exact
    for word in ("How to read this report", "position of a sample", "weight of a feature", "Accuracy:"):
        assert word in bare.text
    assert "This is the error of the computation" in bare.text
    assert "error of the computation" not in exact
    assert "How to read this report" not in page(tmp_path, ss.PCA(n_components=0).fit(X)).text


def test_the_table_holds_every_component(bare: Page) -> None:
    table = bare.source.partition('aria-label="Components"')[2].partition("</table>")[0]
    rows = re.findall(r"<tr><td>(.*?)</td></tr>", table)
    assert len(rows) == 5
    for j, row in enumerate(rows):
        cells = re.split(r"</td><td[^>]*>", row)
        assert cells[0] == str(j + 1)
        assert float(cells[1]) == pytest.approx(PCA.singular_values_[j], rel=1e-4)
        assert float(cells[2]) == pytest.approx(PCA.explained_variance_[j], rel=1e-4)
        assert float(cells[3].split()[0]) == pytest.approx(100 * PCA.explained_variance_ratio_[j], abs=0.01)
        assert float(cells[4].split()[0]) == pytest.approx(100 * PCA.explained_variance_ratio_[: j + 1].sum(), abs=0.01)
        assert float(cells[5]) == pytest.approx(PCA.info_.residuals[j], rel=0.1)
        assert float(cells[6]) == pytest.approx(PCA.info_.value_errors[j], rel=0.1)
        assert float(cells[7]) == pytest.approx(PCA.info_.vector_errors[j], rel=0.1)
        assert cells[8] == "yes"


def test_what_may_have_been_missed_is_told(bare: Page, tmp_path: Path) -> None:
    level = PCA.info_.missed_below / PCA.singular_values_[-1]
    assert f"Singular values not shown are at most {level:.4g} times the last one, with probability 1 − 10" in bare.text
    assert "may have been missed" not in bare.text
    far = ss.PCA(n_components=5, random_state=0).fit(X)
    far.info_ = replace(PCA.info_, converged=False, missed_below=float(2 * PCA.singular_values_[-1]))
    assert "Singular values up to 2 times the last one may have been missed" in page(tmp_path, far).text
    far.info_ = replace(far.info_, missed_below=float(0.9 * PCA.singular_values_[-1]))
    assert "may have been missed" not in page(tmp_path, far).text
    far.info_ = replace(PCA.info_, missed_below=None, vector_errors=None)  # as in files of older models
    assert "that is not shown" not in page(tmp_path, far).text


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_the_certificate_contains_the_truth(tmp_path: Path) -> None:
    loose = ss.PCA(n_components=5, solver=ss.RandomizedSVD(n_oversamples=2, n_iter=1, certify=True), random_state=0)
    found = page(tmp_path, loose.fit(X))
    share, low, high = (float(one) for one in re.findall(r"<b>([\d.]+) %</b>", found.source)[1:4])
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    assert low <= 100 * exact[:5].sum() / exact.sum() + 1e-4
    assert 100 * exact[:5].sum() / exact.sum() <= high + 1e-4
    assert low <= share <= high


def test_a_share_that_is_known_closely_is_not_said_to_lie_between_equal_numbers(bare: Page, tmp_path: Path) -> None:
    assert "the error of this share is less than 0.0001 %." in bare.text
    assert "share lies between" not in bare.text
    rough = ss.PCA(n_components=5, random_state=0).fit(X)
    for error, said in ((2e-6, "less than 0.001 %"), (2e-5, "less than 0.01 %"), (2e-3, "lies between")):
        rough.info_ = replace(PCA.info_, value_errors=np.full(5, error))
        assert said in page(tmp_path, rough).text


DOMINATED = X * np.r_[1e4, np.ones(11)]


@pytest.mark.long
@pytest.mark.figures
def test_where_one_component_dominates_the_others_are_seen_too(tmp_path: Path) -> None:
    pca = ss.PCA(n_components=5, random_state=0).fit(DOMINATED)
    found = page(tmp_path, pca, scores=pca.transform(DOMINATED))
    axes = {text.strip() for text in found.texts}
    assert {"1 %", "0.01 %"} <= axes  # of a logarithmic axis
    assert "100.00 %" not in found.text
    assert not re.search(r"\de-\d+ %", found.text)
    assert f"PC2 ({report.percent(pca.explained_variance_ratio_[1])})" in found.text


@pytest.mark.long
def test_every_share_is_in_percent(full: Page) -> None:
    drawn = full.source.partition("Explained variance")[2].partition("<h2>Scores")[0]
    marks = re.findall(r">\s*([\d.]+( %)?)\s*</text>", drawn)
    assert {mark for mark, percent in marks if not percent} <= {str(number) for number in range(7)}  # components


@pytest.mark.long
@pytest.mark.figures
def test_samples_far_out_have_their_names_and_each_loading_is_told_once(tmp_path: Path) -> None:
    far = X.copy()
    far[17] += 500 * PCA.components_[0]
    names, genes = [f"donor {i}" for i in range(200)], [f"gene{j}" for j in range(12)]
    raster = report.ScoreRaster.of(PCA, size=10)
    raster.add(PCA.transform(far))
    for scores in (PCA.transform(far), [raster]):
        found = page(tmp_path, scores=scores, samples=names, names=genes)
        assert "donor 17" in [text.strip() for text in found.texts]
    listed = re.findall(r"<h3>PC(\d+)</h3>", found.source)
    drawn = re.findall(r"Loadings of component (\d+)", found.source)
    assert sorted(map(int, [*listed, *drawn])) == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="labels must have one name for each of the 200 samples, got 3"):
        page(tmp_path, scores=raster, samples=names[:3])


def test_the_first_component_is_told_in_the_names_of_the_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal(300)
    table = np.column_stack([3 * Z, 0.01 * rng.standard_normal(300), -2 * Z, Z]) + 0.01 * rng.standard_normal((300, 4))
    pca = ss.PCA(n_components=2).fit(table)
    text = page(tmp_path, pca, names=["height", "noise", "speed", "weight"]).text
    high, low = ("height and weight", "speed") if pca.components_[0, 0] > 0 else ("speed", "height and weight")
    assert f"large values of {high} and small values of {low} ;" in text
    assert "explains 99." in text


def test_the_sentence_counts_further_features_of_similar_loadings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((80, 1)) * [1.0, 1.02, 0.98, 0.97, 0.96, 0.2] + 0.01 * rng.standard_normal((80, 6))
    text = page(tmp_path, ss.PCA(n_components=2).fit(table), names=[*"abcdef"]).text
    assert " values of b, a, c and 2 other features ;" in text


def test_only_clear_loadings_are_in_the_sentence(tmp_path: Path) -> None:
    pca = ss.PCA(n_components=1).fit(X)
    pca.components_ = np.array([[0.8, -0.2, 0.5, *[0.0] * 9]])
    names = ["turnover", "rent", "staff", *map(str, range(9))]
    assert "have large values of turnover and staff ; samples with a low" in page(tmp_path, pca, names=names).text


@pytest.mark.figures
def test_components_without_variance_are_counted_and_not_listed(tmp_path: Path) -> None:
    twice = ss.PCA().fit(np.hstack([X[:, :3], X[:, :3]]))
    text = page(tmp_path, twice, scores=twice.transform(np.hstack([X[:, :3], X[:, :3]]))).text
    assert "PCA: 3 components" in text
    assert "3 further components have variance 0." in text
    assert "not shown are at most" not in text
    assert "Loadings of component 4" not in text
    assert "not shown are at most" not in page(tmp_path, ss.PCA(solver="gram").fit(X)).text
    constant = page(tmp_path, ss.PCA(n_components=2).fit(np.ones((6, 12)))).text
    assert "2 components have variance 0." in constant
    assert "0 components explain" not in constant


def test_ellipses_are_explained_where_there_are_some(tmp_path: Path) -> None:
    said, Z = "An ellipse holds about 95 % of the samples of its class", PCA.transform(X)
    assert said in page(tmp_path, scores=Z, colors=np.repeat(["a", "b"], 100)).text
    assert said not in page(tmp_path, scores=Z, colors=X[:, 0]).text
    assert said not in page(tmp_path, scores=Z).text


@pytest.mark.long
@pytest.mark.figures
def test_loadings_without_a_bar_are_in_a_folded_table(tmp_path: Path) -> None:
    genes = [f"gene{j}" for j in range(40)]
    wide = ss.PCA(n_components=1).fit(np.random.default_rng(0).standard_normal((100, 40)))
    found = page(tmp_path, wide, names=genes)
    assert "The other 25 loadings of component 1" in found.text
    assert sorted(set(re.findall(r"gene\d+", found.text))) == sorted(genes)
    least = min(genes, key=lambda name: abs(wide.components_[0, genes.index(name)]))
    cells = re.findall(r"<td>(gene\d+)</td><td>(-?[\d.]+)</td>", found.source)
    assert cells[-1] == (least, f"{wide.components_[0, genes.index(least)]:.4f}")


def test_the_contributions_of_the_outermost_samples_are_shares_of_the_squared_scores(tmp_path: Path) -> None:
    far = X.copy()
    far[17] += 500 * PCA.components_[0]
    Z = PCA.transform(far)
    share = Z[17, 0] ** 2 / np.sum(Z[:, 0] ** 2)
    found = page(tmp_path, scores=Z)
    assert re.search(rf"<td>sample 18</td><td>[^<]*</td><td>{100 * share:.2f} %</td>", found.source)


def test_scores_of_a_decomposition_are_its_left_vectors_times_its_values(tmp_path: Path) -> None:
    F = ss.svd(X, 2, shift="mean", rng=0)
    told = re.compile(r"<td>sample \d+</td><td>[^<]*</td>")
    shown, want = (told.findall(page(tmp_path, F, **scores).source) for scores in ({}, {"scores": F.U * F.S}))
    assert shown == want
    assert shown


def test_numbers_in_place_of_names_are_said_to_count_from_1(tmp_path: Path) -> None:
    said = page(tmp_path, scores=PCA.transform(X)).text
    assert "Samples are counted from 1." in said
    assert "Features are counted from 1." in said
    names = [f"gene{j}" for j in range(X.shape[1])]
    named = page(tmp_path, scores=PCA.transform(X), names=names, samples=[f"cell{i}" for i in range(len(X))])
    assert "counted from" not in named.text


@pytest.mark.long
@pytest.mark.figures
def test_new_samples_are_drawn_over_those_of_the_fit(tmp_path: Path) -> None:
    Z = PCA.transform(X)
    plain, both = page(tmp_path, scores=Z), page(tmp_path, scores=Z, new_scores=Z[:7] + 1)
    assert "The 7 projected samples are drawn as diamonds" in both.text
    assert "7 projected samples" in [text.strip() for text in both.texts]
    assert "projected samples" not in plain.text
    one = ss.PCA(n_components=1).fit(X)  # has no plane to draw them in
    assert "projected samples" not in page(tmp_path, one, scores=Z[:, :1], new_scores=Z[:7, :1]).text


@pytest.mark.figures
def test_new_samples_do_not_widen_axes_at_whose_edge_samples_are_drawn() -> None:
    raster, new = (report.ScoreRaster.of(PCA, size=10) for _ in range(2))
    Z = PCA.transform(X)
    high = raster.grid.high[0]
    raster.add(np.vstack([Z, [2 * high, *Z[0, 1:]]]))
    new.add(np.vstack([Z[:7], [[3 * high, *Z[0, 1:]]]]))
    with report.drawing(4, 4) as ax:
        report._draw_scores(read(PCA), raster, new, ax, color=None, labels=None)
        assert "1 beyond the axes" in ax.get_title()
        assert high <= ax.get_xlim()[1] < 1.2 * high
        (dots,) = ax.collections
        assert dots.get_offsets()[:, 0].max() == high
        assert dots.get_label() == "8 projected samples, 1 drawn at the edge"


def test_figures_and_the_table_can_be_downloaded(full: Page) -> None:
    files = {attrs["download"]: attrs["href"] or "" for tag, attrs in full.tags if tag == "a"}
    assert {"variances.csv", "explained-variance.png", "scores-of-components-1-and-2.svg"} <= set(files)
    assert len(files) == 2 * full.count("svg") + 1
    content = {name: b64decode(data.partition("base64,")[2]) for name, data in files.items()}
    assert all(content[name].startswith(b"\x89PNG") for name in content if name.endswith("png"))
    for name in filter(lambda name: name.endswith("svg"), content):
        svg = ElementTree.fromstring(content[name])
        assert svg.tag.endswith("svg")
        assert b"currentColor" not in content[name]  # of the page
    rows = content["variances.csv"].decode().splitlines()
    assert len(rows) == 1 + 5
    assert [float(row.split(",")[0]) for row in rows[1:]] == PCA.singular_values_.tolist()


def test_without_a_certificate_it_says_so(tmp_path: Path) -> None:
    found = page(tmp_path, ss.PCA(n_components=3, solver="randomized", random_state=0).fit(X))
    assert "error bounds were not computed" in found.text
    assert "not measured" in found.text
    assert "Not everything converged" not in found.text


def test_what_did_not_converge_is_named(tmp_path: Path) -> None:
    late = ss.PCA(n_components=5, random_state=0).fit(X)
    late.info_ = replace(PCA.info_, converged=False, value_errors=np.array([1e-9, 1e-5, 0.02, 1e-6, np.nan]))
    found = page(tmp_path, late)
    assert "Not everything converged" in found.text
    assert "error bounds of components 3, 5 exceed the tolerance" in found.text
    assert found.source.count('<td class="no">no</td>') == 2
    assert "error bound of component 5 exceeds the tolerance" in page(tmp_path, late, tol=0.05).text
    late.tol = 0.05
    assert "error bound of component 5 exceeds the tolerance" in page(tmp_path, late).text
    # The tolerance of the run is not known: none of them is called converged.
    late.info_ = replace(PCA.info_, converged=False, value_errors=np.full(5, 1e-9))
    found = page(tmp_path, late)
    assert "Not everything converged" in found.text
    assert '<td class="yes">' not in found.source


MODELS: dict[str, Callable[[], Any]] = {
    "whitened": lambda: ss.PCA(n_components=3, whiten=True, scale=True).fit(X),
    "one component": lambda: ss.PCA(n_components=1).fit(X),
    "no components": lambda: ss.PCA(n_components=0).fit(X),
    "no variance": lambda: ss.PCA(n_components=2).fit(np.ones((6, 12))),
    "share": lambda: ss.PCA(n_components=0.5).fit(X),
    "result": lambda: ss.svd(X, 3, shift="mean", certify=True),
    "scikit-learn": lambda: SklearnPCA(n_components=3).fit(X),
}


@pytest.mark.figures
@pytest.mark.long
@pytest.mark.usefixtures("all_figures")
@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_report_with_and_without_scores(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    bare = page(tmp_path, model)
    components = bare.source.partition('aria-label="Components"')[2].partition("</table>")[0]
    assert components.count("<tr>") == read(model).n_varying + (read(model).n_varying > 0)
    if not isinstance(model, ss.SVDResult):
        full = page(tmp_path, model, scores=model.transform(X))
        assert full.count("svg") - bare.count("svg") == {0: 0, 1: 0, 2: 2}.get(read(model).k, 4)  # and the biplot


@pytest.mark.long
@pytest.mark.figures
def test_a_loaded_model_has_the_same_report(tmp_path: Path) -> None:
    PCA.save(tmp_path / "model.safetensors")
    loaded = ss.load_model(tmp_path / "model.safetensors")
    time = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    measured = {"seconds": 1.5, "peak_bytes": 10**6}  # which are not in the file
    found, expected = (page(tmp_path, pca, **measured).source for pca in (loaded, PCA))
    assert time.sub("", found) == time.sub("", expected)


@pytest.mark.long
@pytest.mark.usefixtures("all_figures")
def test_the_first_columns_of_the_scores_are_enough(tmp_path: Path) -> None:
    titles = {attrs["aria-label"] for tag, attrs in page(tmp_path, scores=X[:, :3]).tags if tag == "svg"}
    planes = {f"Scores of components {a} and {b}" for a, b in ((1, 2), (1, 3), (2, 3))}
    assert {title for title in titles if title is not None and "Scores" in title} == planes


def test_chosen_settings_are_told_from_the_defaults(bare: Page) -> None:
    chosen, usual = bare.source.split("Settings left at their defaults")
    for told in ("components requested</dt><dd>5", "solver setting</dt><dd>block Lanczos", "seed</dt><dd>0"):
        assert f"<dt>{told}</dd>" in chosen
        assert f"<dt>{told}</dd>" not in usual
    assert "<dt>scores of unit variance</dt><dd>no</dd>" in usual
    assert not re.search("None|True|False|<dt>[^<]*_", usual)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (ss.PCA(2), "0.0001, the default"),
        (ss.PCA(2, svd_solver="auto"), "0.0001, the default"),
        (ss.PCA(2, svd_solver="arpack"), "down to rounding, the default of this solver"),
        (ss.PCA(2, solver="covariance_eigh"), "down to rounding, the default of this solver"),
        (ss.TruncatedSVD(2, algorithm="arpack"), "down to rounding, the default of this solver"),
    ],
)
def test_the_tolerance_that_a_solver_takes_by_default_is_told(model: Any, said: str) -> None:
    assert wording.settings_of(model)["usual"][wording.SETTINGS["tol"]] == said


def test_a_result_without_a_norm_has_no_shares(tmp_path: Path) -> None:
    F = ss.svd(X, 3)
    F.info = replace(F.info, frobenius_error=None)
    assert "norm of the matrix was not computed" in page(tmp_path, F).text


# --- what it must not do --------------------------------------------------------------------------------------

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</svg><script>",
    "</text><script>alert(2)</script>",
    "]]><!--",
    "{{ 7 * 7 }}",
    r"$\frac{1}{0}$",
    "&amp;",
    "\x00\x1b[31m",
    "url(#x)",
    "名前 🧬",
    'id="f1"',
]


def test_everything_is_escaped(nasty: Page) -> None:
    assert nasty.count("script") == 0
    assert nasty.count("img") == 0
    assert not [name for _, attrs in nasty.tags for name in attrs if name.startswith("on")]
    assert "<script>alert(1)</script>" in nasty.text
    for word in ("{{ 7 * 7 }}", 'id="f1"', "url(#x)", r"$\frac{1}{0}$", "名前 🧬"):  # in the plots too
        assert word in [text.strip() for text in nasty.texts]
    assert not re.search(r"f\d+-(f1|x)\b", nasty.text)


def test_nothing_is_loaded_from_elsewhere(nasty: Page, tmp_path: Path) -> None:
    raster = report.ScoreRaster.of(PCA, size=10)
    raster.add(PCA.transform(X))
    for found in (nasty, page(tmp_path, scores=raster)):
        for tag, attrs in found.tags:
            assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
            for name, value in attrs.items():
                if "download" in attrs:  # a file that the page holds
                    continue
                if name in ("src", "href", "xlink:href", "srcset", "poster", "action", "data"):
                    assert (value or "").startswith(("data:image/png;base64,", "#")), (tag, name, value)
                if name == "style":
                    assert all(place.startswith("#") for place in re.findall(r"url\((.*?)\)", value or ""))
        styles = "".join(found.styles)
        assert "@import" not in styles
        assert "url(" not in styles
        (policy,) = (attrs["content"] for _, attrs in found.tags if attrs.get("http-equiv"))
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_places_in_the_plots_are_named_once_and_found(full: Page) -> None:
    names = [attrs["id"] for _, attrs in full.tags if "id" in attrs]
    assert len(names) == len(set(names))
    used = re.findall(r'(?:url\(#|href="#)([^)"]+)', full.source)
    assert used
    assert set(used) <= set(names)


def test_it_follows_the_theme_and_the_width(full: Page) -> None:
    styles = "".join(full.styles)
    assert "prefers-color-scheme: dark" in styles
    assert "width=device-width" in full.source
    assert re.search(r"@media print \{[^}]*max-height: none; overflow: visible", styles)  # long tables print whole
    svg = "".join(re.findall(r"<svg.*?</svg>", full.source, flags=re.DOTALL))
    assert "currentColor" in svg
    assert "var(--dim)" in svg
    # No text and no line of a plot is black, white, or left to the default, which is black.
    assert not re.search(r"(fill|stroke): #(000000|ffffff)", svg)
    assert all("fill:" in style for style in re.findall(r'<text style="([^"]*)"', svg))
    assert all("viewbox" in attrs and "width" not in attrs for tag, attrs in full.tags if tag == "svg")


@pytest.mark.long
@pytest.mark.figures
def test_no_figure_is_left_and_no_setting_changed(tmp_path: Path) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before, figures = dict(mpl.rcParams), plt.get_fignums()  # those that other tests have left open
    page(tmp_path, scores=PCA.transform(X))
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == before


@pytest.mark.usefixtures("all_figures")
@pytest.mark.figures
@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "classes", "numbers"])
def test_a_million_samples_take_less_than_two_megabytes(kind: str, tmp_path: Path) -> None:
    m = 1_000_000
    Z = np.random.default_rng(0).standard_normal((m, 5), dtype=np.float32) * np.sqrt(PCA.explained_variance_)
    colors = {"plain": None, "classes": np.arange(m) % 20, "numbers": Z[:, 0]}[kind]
    page(tmp_path, scores=Z, colors=colors)
    assert (tmp_path / "report.html").stat().st_size < TWO_MB


@pytest.mark.usefixtures("all_figures")
@pytest.mark.figures
@pytest.mark.long
def test_as_many_dots_as_there_can_be_take_less_than_two_megabytes(tmp_path: Path) -> None:
    Z = np.random.default_rng(0).standard_normal((20_000, 5)) * np.sqrt(PCA.explained_variance_)
    page(tmp_path, scores=Z, colors=np.arange(len(Z)) % 20)
    assert (tmp_path / "report.html").stat().st_size < TWO_MB


@pytest.mark.usefixtures("all_figures")
@pytest.mark.figures
@pytest.mark.long
def test_many_components_and_long_names_take_less_than_two_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = np.random.default_rng(1).standard_normal((700, 650))
    monkeypatch.setattr(report, "ROWS", 640)
    found = page(tmp_path, ss.PCA().fit(wide), names=["long name " * 100] * 650)
    assert (tmp_path / "report.html").stat().st_size < TWO_MB
    assert "The first 640 of 650 components" in found.text


# --- the file -------------------------------------------------------------------------------------------------


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"report.html exists. Use force=True"):
        report.write(path, PCA)
    assert path.read_text() == "mine"
    report.write(path, PCA, force=True)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.long
@pytest.mark.figures
def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    for wrong in (
        {"names": ["a"]},
        {"scores": np.zeros((3, 9))},
        {"scores": np.zeros(3)},
        {"scores": X[:, :5], "colors": [1]},
    ):
        with pytest.raises(ValueError):
            report.write(path, PCA, force=True, **wrong)
    with pytest.raises(TypeError, match="Call fit first"):
        report.write(path, ss.PCA(), force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "mine"


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_a_package_the_remedy_is_named(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'shiftsvd\[plot\]'"):
        report.write(tmp_path / "report.html", PCA)
    assert not list(tmp_path.iterdir())


def test_names_that_are_not_unicode_are_written(tmp_path: Path) -> None:
    odd = b"\xff.npz".decode("utf-8", "surrogateescape")
    found = page(tmp_path, source={"path": odd}, command=f"shiftsvd fit {odd}", names=[odd] * 12)
    assert "\N{REPLACEMENT CHARACTER}.npz" in found.text
    assert r"shiftsvd fit \udcff.npz" in found.text


def test_settings_and_facts_are_short() -> None:
    assert wording.shown(np.zeros((3, 4))) == "3 × 4 numbers"
    assert wording.shown((10000, 3)) == "10,000 × 3"
    assert wording.shown(None) == "none"
    assert (wording.shown(True), wording.shown(np.False_)) == ("yes", "no")
    assert len(wording.shown("x" * 5000)) == 500
    assert report.number(None) == report.percent(None) == "–"
    shares = {0.5: "50.00", 1.234e-6: "0.00012", 9.1e-7: "0.000091", 0.999997: "99.99970", 1.0: "100.00", 0.0: "0.00"}
    shares |= {3e-9: "< 0.00001", 1 - 3e-9: "> 99.99999", 1e-15: "0.00"}
    assert {share: report.percent(share) for share in shares} == {share: f"{text} %" for share, text in shares.items()}


def test_a_memory_limit_is_shown_as_it_was_passed(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((30, 5)))
    invoke("fit", tmp_path / "X.npy", "-k", 2, "--memory", "200M", "-o", tmp_path / "out", "--no-report")
    model = ss.load_model(tmp_path / "out" / "model.safetensors")
    assert model.memory_limit == "200M"
    for limit, text in (("200M", "200 MB"), (3_000_000, "3 MB"), (None, "half of the available memory")):
        model.set_params(memory_limit=limit)
        settings = wording.settings_of(model)
        assert (settings["chosen"] | settings["usual"])["memory limit"] == text


def test_components_whose_variances_differ_by_less_than_their_standard_errors_are_named(tmp_path: Path) -> None:
    Z = np.linalg.qr(np.random.default_rng(0).standard_normal((100, 4)))[0]
    Z = np.linalg.qr(Z - Z.mean(axis=0))[0]
    for variances, said in (((9, 8, 2, 1), "1 and 2"), ((9, 7, 2, 1), None), ((9, 8, 7.2, 1), "1, 2 and 3")):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        text = page(folder, ss.PCA(4).fit(Z * np.sqrt(variances))).text  # the standard errors are 14 %
        assert ("such components mix" in text) is (said is not None)
        assert said is None or f"Components {said} explain nearly equal parts" in text


def test_the_error_of_the_reconstruction_is_explained(tmp_path: Path) -> None:
    pca = ss.PCA(2).fit(X)
    off = np.sqrt(1 - pca.explained_variance_ratio_.sum())
    assert f"the share that is not explained, here {100 * off:.2f} %." in page(tmp_path, pca).text


def test_the_opening_names_a_sample_that_makes_up_a_component(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[17] = 60, 60, 0
    np.savetxt(tmp_path / "a.csv", X, delimiter=",", header="a,b,c", comments="")
    done("fit", tmp_path / "a.csv", "-k", 2, "-o", tmp_path / "out")
    page = re.sub(r"\s+", " ", (tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert re.search(r"<b>9\d\.\d+ % of component 1</b> \(of its squared scores\) is <b>sample 18</b> alone\.", page)
    assert " of component 2</b>" not in page
