"""Single cells in `fit` and `transform`: columns of obs and var, highly variable features, fit.h5ad."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from shiftsvd import Covariates, Operator
from shiftsvd.extend import commands as cli
from shiftsvd.extend import files as io
from shiftsvd.extend.fits import Design, Observed, absent_limit, planned, within
from shiftsvd.extend.operators import Panel, larger_blocks
from shiftsvd.extend.running import Refused, Setting, all_within, few, limit_of, notice, passes_so_far, plural
from shiftsvd.extend.transforms import NullModel, as_transforms, kept_of, warn_of_counts, warn_unless_counts
from shiftsvd.scanpy.annotations import AnnotationSource, Disagreement, encode, feature_column, sample_column
from shiftsvd.scanpy.clipping import clipped_shares, with_clip
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.scanpy.gene_names import Genes, matched
from shiftsvd.scanpy.ranking import Batches, HighlyVariable, Ranking, bytes_of_ranking, rank
from shiftsvd.scanpy.stored import Keys, booleans, loadings_of, uns_entries, with_selection
from shiftsvd.transforms import Transform

if TYPE_CHECKING:  # they import scikit-learn
    from shiftsvd import PCA
    from shiftsvd.extend.fits import BatchPCA

DEFAULT_MASK: Final = "highly_variable"  # the default mask, as in scanpy
CELL_FORMATS: Final = ("h5ad", "zarr", "10x", "10x-h5", "bpcells", "bpcells-h5", "soma")  # formats that scanpy reads
NONE: Final = "none"  # value of --mask for all features
OUTPUT: Final = "features.csv"
ADVICE: Final = {  # by verb, for raw counts
    "fit": "PCA of cells usually uses logarithms. Add --preprocess log-normalize.",
    "embed": "Distances between cells usually use components of logarithms: run `fit --preprocess log-normalize "
    "--anndata -o out/`, then `embed out/fit.h5ad --key obsm/X_pca`.",
    "contrast": "Contrasts of cells usually use logarithms, such as shiftsvd.preprocess(X, shiftsvd.LogNormalize()) in "
    "Python.",
}


class CellHooks(cli.Hooks):
    """Feature selection by a column of var or by variability, and regression on columns of obs, for single cells."""

    recorded = decisive = ("mask", "top_features", "flavor", "batch", "covariates", "groups", "max_value")
    files = ("fit.h5ad", OUTPUT)

    mask: str | None = None
    design: Design | None = None
    ranking: Ranking | None = None

    def __init__(self, settings: cli.Settings) -> None:
        super().__init__(settings)
        self.summary_lines: list[str] = []  # of the summary

    @cached_property
    def annotations(self) -> AnnotationSource:
        """The files, as opened for the matrix, in which columns of obs and var are read."""
        settings = self.settings
        return AnnotationSource(settings.paths, io.MatrixOptions(**settings.where), settings.memory)

    @cached_property
    def of_cells(self) -> bool:
        """True if all files have formats that scanpy reads."""
        paths = [path for path in self.settings.paths if str(path) != "-"]
        return len(paths) > 0 and all(io.format_of(path, self.settings.format) in CELL_FORMATS for path in paths)

    # fit and estimate

    def check(self) -> None:
        settings, extra = self.settings, self.settings.extra
        regressed = extra["covariates"] or extra["groups"]
        if settings.out is None:
            cli.need_folder("anndata", extra["anndata"])
        if regressed and settings.shift == "none":
            raise click.UsageError("--covariates and --groups also subtract means. Remove --shift none.")
        if (regressed or extra["mask"] not in (None, NONE)) and settings.missing != "error":
            raise click.UsageError(
                "--mask, --covariates and --groups require data without missing values. Remove --missing."
            )
        for name in ("max_value", "top_features"):
            if extra[name] is not None and settings.missing != "error":
                raise click.UsageError(f"{cli.option_of(name)} requires data without missing values. Remove --missing.")
            if extra[name] is not None and settings.device not in (None, "cpu"):
                cli.refuse_with_device(str(settings.device), [cli.option_of(name)])
        try:
            if extra["max_value"] is not None:
                self._with_clip(as_transforms(settings.preprocess))
        except ValueError as error:
            raise click.UsageError(cli.worded(error)) from None
        if extra["top_features"] is not None:
            self._check_ranking()
        elif others := [f"--{name}" for name in ("flavor", "batch") if extra[name] is not None]:
            verb = "requires" if len(others) == 1 else "require"
            raise click.UsageError(
                f"{' and '.join(others)} {verb} --top-features. Add it, such as --top-features 2000."
            )

    def _with_clip(self, steps: tuple[Transform, ...]) -> tuple[Transform, ...]:
        settings, extra = self.settings, self.settings.extra
        return with_clip(
            steps,
            extra["max_value"],
            scaled=settings.scale == "std",
            regressed=bool(extra["covariates"] or extra["groups"]),
            zero_center=settings.shift == "mean",
            ddof=int(self.of_cells),
        )

    def _check_ranking(self) -> None:
        if self.settings.extra["mask"] not in (None, NONE):
            raise click.UsageError("--mask and --top-features both select features. Use one of them.")
        try:
            criterion, steps = self._criterion()
            criterion.check_steps(steps)
        except ValueError as error:
            raise click.UsageError(f"--flavor: {error}") from None

    def _criterion(self) -> tuple[HighlyVariable, tuple[Transform, ...]]:
        extra, steps = self.settings.extra, as_transforms(self.settings.preprocess)
        default: FlavorName = "pearson_residuals" if any(isinstance(each, NullModel) for each in steps) else "seurat"
        criterion = HighlyVariable(extra["top_features"], extra["flavor"] or default)
        return criterion, steps if criterion.of_logarithms else ()

    def outputs(self) -> Mapping[str, str | Path]:
        extra = self.settings.extra
        if extra["anndata"] and find_spec("h5py") is None:
            raise ValueError("--anndata requires h5py. Install it with pip install 'shiftsvd[hdf5]'.")
        ranked = {"features": OUTPUT} if extra["top_features"] else {}
        return ranked | ({"anndata": "fit.h5ad"} if extra["anndata"] else {})

    def labels_beside(self) -> bool:
        kinds = (io.format_of(path, self.settings.format) for path in self.settings.paths)
        return all(kind in ("h5ad", "zarr", "soma") for kind in kinds)

    def labels(self, column: str) -> Sequence[str] | None:
        if not self.labels_beside():
            return None
        values = sample_column(self.annotations, column).tolist()
        return ["" if value is None or value != value else str(value) for value in values]

    def prepare(self, run: cli.Run) -> None:
        settings, extra = self.settings, self.settings.extra
        m, n = run.A.shape
        if settings.filled:
            return
        if extra["max_value"] is not None:
            run.steps, run.scale = self._with_clip(run.steps), None
        top = extra["top_features"]
        self.mask, places = self._masked(NONE if top else extra["mask"], run.names.features, n)
        column = partial(sample_column, self.annotations)
        if extra["covariates"] or extra["groups"]:
            self.design = Design.learn(extra["covariates"] or (), extra["groups"] or (), column)
            run.covariates, run.shift = self.design.of(column), Covariates()
            if len(run.covariates) != m:
                name = self.design.names[0]
                raise ValueError(
                    f"{settings.file} has {m:,} samples, but the column {name!r} of obs has {len(run.covariates):,} "
                    "values. Pass files whose obs describes the samples of the matrix."
                )
            run.document["regressed_out"] = {"columns": list(self.design.names), "regressors": self.design.width}
            self.summary_lines.append(f"{', '.join(self.design.names)} regressed out")
        if places is not None:
            self._use_features(run, places, {"mask": self.mask, "taken": len(places), "of": n}, f"by {self.mask}")
        run.width = min(run.width, top or run.width)
        run.scale_ddof = int(self.of_cells)
        if self.of_cells and isinstance(run.A, Operator):
            if how := as_transforms(settings.preprocess):
                warn_unless_counts(how, run.A, self.annotations.logged)
            else:
                self.advise("fit", run.A)

    def advise(self, verb: str, A: Operator) -> None:
        if self.of_cells:
            warn_of_counts(A, ADVICE[verb])

    def _use_features(self, run: cli.Run, places: io.Places, facts: dict[str, Any], how: str) -> None:
        counts = f"{len(places):,} of {run.A.shape[1]:,}"
        run.places, run.width, run.steps = places, len(places), with_selection(run.steps, places)
        run.features, run.document["features"] = f"{counts}, {how}", facts
        self.summary_lines.insert(0, f"{counts} features, {how}")

    def _masked(self, name: str | None, features: io.Labels | None, n: int) -> tuple[str | None, io.Places | None]:
        if name == NONE or (name is None and not self._by_default()):
            return None, None
        values, names = feature_column(self.annotations, name or DEFAULT_MASK)
        values = _mask_by_names(values, names, features, n, io.several(self.annotations.paths))
        places = np.flatnonzero(booleans(values, n, f"the column {name or DEFAULT_MASK!r}"))
        if name is None:
            notice(
                f"Using the {len(places):,} of {n:,} features that var[{DEFAULT_MASK!r}] marks, as scanpy does. To use "
                "all features, add --mask none."
            )
        return name or DEFAULT_MASK, places

    def _by_default(self) -> bool:
        """Return whether to use `var["highly_variable"]`; log a notice if the column exists but is ignored."""
        annotations = self.annotations
        have = [DEFAULT_MASK in annotations.columns(path, "features") for path in annotations.paths]
        if not any(have):
            return False
        why = f"this column is in only {sum(have):,} of {len(have):,} files" if not all(have) else None
        with_gaps = self.settings.left_missing != "error"
        why = why or ("the data have missing values" if with_gaps else _disagreement(annotations))
        if why:
            files = io.several(annotations.paths)
            notice(f"{files}: var[{DEFAULT_MASK!r}] is ignored, because {why}. All features are used.")
        return why is None

    def select(self, run: cli.Run) -> None:
        settings, column = self.settings, self.settings.extra["batch"]
        if not settings.extra["top_features"]:
            return
        A = run.A
        assert isinstance(A, Operator)
        self._check_memory(run)
        memory = io.left_beside(A, settings.memory)
        criterion, steps = self._criterion()
        batches = self._batches(A.shape[0])
        before = passes_so_far() or 0.0
        base = self.annotations.log_of_base
        self.ranking = rank(A, criterion, steps, batches, run.names.features, base, memory)
        places, reads = np.flatnonzero(self.ranking.mask), round((passes_so_far() or 0.0) - before, 2)
        facts = {"flavor": criterion.flavor, "asked": criterion.n_top, "taken": len(places), "of": A.shape[1]}
        facts |= {} if column is None else {"batch": column, "batches": batches.n}
        each = "" if column is None else f" in each {column}"
        how = f"by flavor {criterion.flavor}{each}, in {reads:g} read{'s' * (reads != 1)}"
        self._use_features(run, places, facts | {"reads": reads}, how)

    def _batches(self, n_rows: int) -> Batches:
        column = self.settings.extra["batch"]
        return Batches.of(None if column is None else sample_column(self.annotations, column), n_rows)

    def foresee(self, run: cli.Run) -> tuple[float, int]:
        if not self.settings.extra["top_features"]:
            return 0, 0
        assert isinstance(run.A, Operator)
        return 2, self._check_memory(run)  # reads: library sizes and moments, or moments twice

    def _check_memory(self, run: cli.Run) -> int:
        """Check the memory of the ranking, and of the fit with any features of the requested number, before both."""
        settings, A, some = self.settings, run.A, run.taken()
        assert isinstance(A, Operator)
        assert isinstance(some, Operator)
        batches, k = self._batches(A.shape[0]), settings.k if settings.k is not None else min(some.shape)
        memory = io.left_beside(A, settings.memory)

        def fit(limit: int | str | None, more: int = 0) -> None:
            B = planned(larger_blocks(some, more), run.steps, k, settings.solver, settings.tol, limit)
            within(limit, B, k, settings.solver, settings.tol)

        def ranking(limit: int | str | None, more: int = 0) -> None:
            bytes_of_ranking(larger_blocks(A, more), batches, limit)

        limit = limit_of(memory)
        if limit is not None:
            all_within(limit, fit, ranking)
        return bytes_of_ranking(A, batches, memory)

    def after_fit(self, run: cli.Run) -> None:
        genes = None if run.names.features is None else self.annotations.genes(run.names.features)
        if genes is not None:
            run.pca.genes_ = genes
        if shares := clipped_shares(getattr(run.pca, "preprocess_", ())):
            run.document["clipped"] = shares
            of_all, of_nonzeros = shares["clipped_share"], shares["clipped_share_of_nonzeros"]
            self.summary_lines.append(
                f"scaled values clipped at {shares['max_value']:g}: {of_all:.2%} of all entries, {of_nonzeros:.2%} of "
                "the nonzero ones"
            )
        if self.design is not None:
            run.pca.design_ = self.design

    def writers(
        self, run: cli.Run, table: cli.Table, paths: Mapping[str, Path], outputs: Any
    ) -> Iterable[AbstractContextManager[cli.Write]]:
        if "anndata" in paths:
            yield self._anndata(outputs.part(paths["anndata"]), run, table)

    @contextmanager
    def _anndata(self, path: Path, run: cli.Run, table: cli.Table) -> Iterator[cli.Write]:
        mask, ranked = (self.mask, None) if self.ranking is None else (DEFAULT_MASK, self.ranking.columns)
        pca, names, source, keys = run.pca, run.names, self.annotations, Keys()
        n_features = int(pca.n_features_in_)
        kept = kept_of(getattr(pca, "preprocess_", ()), n_features)
        variances = {"variance": pca.explained_variance_, "variance_ratio": pca.explained_variance_ratio_}
        with io.creating(path, None) as store:
            root = io.mark(store.root, "anndata", "0.1.0")
            io.write_frame(store, "var", names.features, n_features)
            genes = map(str, range(n_features) if names.features is None else names.features)
            io.write_frame(store, "obs", names.samples, table.n_rows)
            source.copy_columns(root["obs"], "samples")
            source.copy_columns(root["var"], "features", getattr(pca, "genes_", None), ranked)
            varm, computed_on = loadings_of(pca, n_features, kept, keys), source.where.key or "adata.X"
            varm[keys.varm] = varm[keys.varm].astype(table.dtype)
            uns = uns_entries(pca, keys.uns, _params(pca, mask), variances, np.array(list(genes), object), computed_on)
            for name, group in {"varm": varm, "uns": uns, "layers": {}, "obsm": {}, "obsp": {}, "varp": {}}.items():
                encode(root, name, group)
            shape = table.n_rows, len(table.columns)
            scores = io.mark(root["obsm"].create_dataset(keys.obsm, shape, table.dtype), "array", "0.2.0")

            def write(first: int, block: cli.Block) -> None:
                scores[first : first + len(block)] = block
                store.check()

            yield write

    def write(self, run: cli.Run, paths: Mapping[str, Path], outputs: Any) -> None:
        if "features" in paths and self.ranking is not None:
            _write_features(outputs.part(paths["features"]), self.ranking, run.names.features)

    def summary(self, document: Mapping[str, Any]) -> Iterator[str]:
        yield from self.summary_lines

    # transform

    def refine(self, pca: "BatchPCA", A: Observed, names: io.Names) -> tuple[Observed, io.Names]:
        steps, features = getattr(pca, "preprocess_", ()), names.features
        if steps and isinstance(A, Operator):
            warn_unless_counts([each.how for each in steps], A, self.annotations.logged)
        known = getattr(pca, "feature_names_in_", None)
        if known is None or features is None:
            return A, names
        selects, genes = any(each.selects for each in steps), getattr(pca, "genes_", None)
        model = Genes.of(known, **({} if genes is None else vars(genes)))
        found = self._genes(features)
        if not selects and (model.equals(found) or not (model.has_kinds or found.has_kinds)):
            return A, names
        selected = kept_of(steps, len(known)) if selects else None
        renamed, places = self._matched(model, found, selected, absent_limit(pca, self.settings.max_absent))
        if not selects or np.all(places >= 0):
            return A, names._replace(features=renamed)
        assert isinstance(A, Operator)
        kept = np.flatnonzero(places >= 0)
        return io.some_columns(A, kept), names._replace(features=renamed[kept])

    def _genes(self, features: io.Labels) -> Genes:
        kind, genes = self.settings.var_names, self.annotations.genes(features)
        ids, symbols = (None, None) if genes is None else (genes.ids, genes.symbols)
        return Genes.of(features, None if kind == "gene_symbols" else ids, None if kind == "gene_ids" else symbols)

    def _matched(
        self, model: Genes, found: Genes, selected: io.Places | None, max_absent: float
    ) -> tuple[io.Labels, io.Places]:
        """Return the features of the file with their names in the model, and their places there."""
        file, by = self.settings.file, matched(model, found)
        places, everything = by.places, np.arange(len(model.names))
        absent, unknown = np.setdiff1d(everything, places), int(np.count_nonzero(by.places < 0))
        for note in by.notes:
            notice(f"{file}: {note}")
        for kind, needed in (("selected ", selected), ("", everything)):
            lacking = absent if needed is None else np.setdiff1d(needed, places)
            if needed is not None and len(lacking) > max_absent * len(needed):
                remedy = "Raise the limit, or fit on the features that both files have."
                if len(lacking) == len(model.names if needed is None else needed):
                    remedy = "Pass a file with the feature names of the model."
                raise Refused(
                    f"{file} lacks {len(lacking):,} of the model's {len(needed):,} {kind}features "
                    f"(limit {100 * max_absent:g} %, ",
                    Setting("max_absent"),
                    f"): {few(model.called(lacking))}. The file has {few(found.called(places < 0))} that the model "
                    f"lacks. {remedy}",
                )
        renamed = np.where(places < 0, found.apart(model), model.names[places])
        if np.any(renamed != found.names):
            ids, symbols = f"{by.by_id:,} genes by id", f"{by.by_symbol:,} by symbol"
            notice(f"{file}: its names differ from those of the model. Matched {ids} and {symbols}.")
        if selected is not None and (unknown or len(absent)):
            notes = [f"Removed {plural(unknown, 'feature')} that the model does not have."] * bool(unknown)
            if len(absent):
                share = (
                    f"{len(absent):,} of the {len(model.names):,} features that library sizes and other sums of the fit"
                )
                notes.append(f"The file lacks {share} include: {few(model.called(absent))}. Sums are over the others.")
            notice(f"{file}: {' '.join(notes)}")
        return renamed, places

    def covariates(self, pca: "BatchPCA") -> Panel | None:
        design = getattr(pca, "design_", None)
        return None if design is None else design.of(partial(sample_column, self.annotations))


def _disagreement(annotations: AnnotationSource) -> str | None:
    try:
        feature_column(annotations, DEFAULT_MASK)
    except Disagreement:
        return "it differs between files"
    return None


def _mask_by_names(
    values: io.Column, names: io.Labels | None, features: io.Labels | None, n: int, file: str
) -> io.Column:
    if len(values) == n and (names is None or features is None or np.array_equal(names, features)):
        return values
    if names is None or features is None:
        raise ValueError(
            f"{file} has {n:,} features, but the mask has {len(values):,} values, and features without names cannot be "
            "matched. To use all features, add --mask none."
        )
    known = dict(zip(names.tolist(), values.tolist(), strict=True))
    return np.array([known[name] for name in features.tolist()])


def _write_features(path: Path, found: Ranking, names: Any) -> None:
    columns = [(name, _texts(values)) for name, values in found.columns.items()]
    labels = range(len(found.mask)) if names is None else names
    with path.open("w", newline="", encoding="utf-8") as file, cli.texts_for("features") as text:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["feature", *(name for name, _ in columns)])
        writer.writerows(zip(map(text, labels), *(texts for _, texts in columns), strict=True))


def _texts(values: Any) -> list[str]:
    if values.dtype == bool:
        return ["true" if value else "false" for value in values]
    return ["" if value != value else repr(value) for value in values.tolist()]


# ---- fit.h5ad


def _params(pca: "PCA", mask: str | None) -> dict[str, Any]:
    info = pca.info_
    params = {"zero_center": pca.shift is not None, "n_comps": pca.n_components_, "scale": str(pca.scale)}
    params |= {"svd_solver": info.solver, "mask_var": mask, "use_highly_variable": mask == "highly_variable"}
    if info.completed is not None:  # variance ratios refer to the completed matrix
        params |= {"variance_of": cli.of_gaps(pca)["variance_of"], "heldout_r2": info.heldout_r2}
    if shares := clipped_shares(getattr(pca, "preprocess_", ())):
        params |= {"scale": "std", **shares}
    return {name: value for name, value in params.items() if value is not None}
