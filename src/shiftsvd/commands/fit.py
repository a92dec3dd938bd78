"""`shiftsvd fit`: principal components of a file."""

from typing import TYPE_CHECKING, Any, Final

import click

from shiftsvd.commands import checks, columns, options, tables
from shiftsvd.commands.options import under
from shiftsvd.commands.running import Subcommand
from shiftsvd.genetics import options as genotypes

if TYPE_CHECKING:
    from shiftsvd.commands.asked import Fit

EPILOG = """
\b
Examples:
  shiftsvd fit counts.h5ad -k 10 --preprocess log-normalize --scale -o out/
  shiftsvd fit counts.mtx.gz -k 0.5 --json
  zcat counts.mtx.gz | shiftsvd fit - --format mtx -k 5
  shiftsvd fit counts.h5ad -k 10 --preprocess pearson --memory 1G -o residuals/
  shiftsvd fit counts.h5ad -k 10 --preprocess log-normalize --top-features 2000 --memory 1G -o cells/
  shiftsvd fit ratings.npz -k 5 --missing em --unobserved
  shiftsvd fit cohort.bed -k 10 -o cohort
  shiftsvd fit sst.nc -k 10 --weights coslat -o sst/
  shiftsvd fit cohort.bed -k 10 --maf 0.01 --geno 0.1 --indep-pairwise 50 5 0.2 -o pruned
  shiftsvd fit chr*.bed --stack columns -k 10 -o cohort
  shiftsvd fit donors/*.h5ad --stack rows -k 20 --memory 2G -o atlas/
  shiftsvd fit counts.h5ad -k 10 --workers 2 --checkpoint reads/ -o by-workers/
"""

# What is written into the folder alone.
NEED_FOLDER = ("--scan", "--scores", "--anndata", "--report", "--components", "--label-column")


# In the order of the long help. `estimate` takes the same, so that the line of a fit needs another first word only.
OPTIONS: Final = (
    click.argument("files", metavar="FILE...", type=options.MATRIX, nargs=-1, required=True),
    options.stack,
    options.components,
    options.inside,
    columns.table,
    columns.label_column,
    under(
        "Genotypes",
        click.option(
            "--chromosomes",
            type=click.Choice(options.CHROMOSOMES),
            help="Of a .bed: leave out X, Y, XY, MT and 23 to 26, or nothing, as for other species.  "
            "[default: autosomes]",
        ),
    ),
    genotypes.filters,
    options.preprocess,
    options.trust_values,
    options.top_features,
    under(
        "Features",
        click.option(
            "--flavor",
            type=click.Choice(options.FLAVORS),
            help="How they are ranked, as scanpy does: dispersions of logarithms (of --preprocess log-normalize), "
            "variances of raw counts, or of their residuals.  "
            "[default: seurat; pearson_residuals with --preprocess pearson]",
        ),
        click.option(
            "--batch", metavar="COLUMN", help="A column of obs: they are ranked in each batch, and most decide."
        ),
    ),
    options.mask,
    options.regressed,
    under(
        "Preparation",
        click.option(
            "--shift",
            type=click.Choice(["mean", "none"]),
            default="mean",
            show_default=True,
            help="What is subtracted.",
        ),
        click.option(
            "--scale",
            type=click.Choice(options.SCALES),
            metavar=f"[{'|'.join(options.SCALES)}]",
            help="Divide features by their standard deviation (also alone: --scale), by its root, or variants by "
            "sqrt(2 p (1 - p)), p their frequency.  [default: none; patterson for .bed]",
        ),
    ),
    under(
        "Preparation",
        click.option(
            "--weights",
            type=click.Choice(["coslat", "none"]),
            help="Of a NetCDF field: multiply cells by the root of the cosine of their latitude, so that equal areas "
            "weigh alike.  [default: none, with a notice]",
        ),
    ),
    options.missing,
    options.solver,
    options.tol,
    under(
        "Components",
        click.option(
            "--certify/--no-certify", default=None, help="Bound errors also where the solver does not, as randomized."
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same bits."
        ),
    ),
    options.resources,
    options.device,
    options.workers,
    under(
        "Resources",
        click.option(
            "--checkpoint", type=click.Path(file_okay=False), help="Folder; the same command goes on after a kill."
        ),
    ),
    under(
        "Output",
        click.option(
            "-o", "--out", type=click.Path(file_okay=False), help="Folder.  [default: print, and write nothing]"
        ),
        click.option(
            "--scores",
            type=click.Choice(["parquet", "csv", "npy", "none"]),
            help="Kind of scores file.  [default: csv for a CSV or TSV, else parquet if pyarrow is there]",
        ),
        click.option(
            "--components",
            type=click.Choice(["csv", "parquet", "none"]),
            help="Kind of components file; the model has the same numbers.  "
            "[default: csv; none above 10 million numbers]",
        ),
        click.option("--anndata", is_flag=True, help="Also fit.h5ad, which scanpy opens."),
        click.option(
            "--report/--no-report", default=None, help="Also report.html.  [default: if the packages are there]"
        ),
    ),
    options.dtype,
    options.as_json,
    options.force,
    tables.option,
    options.progress,
    options.talk,
)


def options_of_fit(command: Any) -> Any:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def asked(given: dict[str, Any]) -> "Fit":
    checks.check_stack(given["files"], given["stack"], given["join"])
    file = given["files"][0]
    checks.check_format(file, given["format_"])
    checks.shares(given["k"], given["solver"])
    if file == "-" and given["checkpoint"]:
        raise click.UsageError("--checkpoint needs a file that is there again when the command is repeated")
    if file == "-" and given["label_column"]:
        raise click.UsageError("--label-column is read by itself, and needs a file: standard input is gone by then")
    checks.check_device(given)
    checks.check_workers(given["scheduler"], given["workers"], file)
    on_workers = not (given["scheduler"] is None and given["workers"] is None)
    checks.check_missing(given["missing"], given["unobserved"], given["k"], on_workers)
    checks.check_preprocess(given["preprocess"], given["missing"], given["scale"])
    given["filters"] = genotypes.taken(given)
    checks.check_cells(given)
    checks.check_weights(given)
    if any(given[name] is not None for name in ("top_features", "flavor", "batch")):
        from shiftsvd.scanpy.commands import check_top_features

        check_top_features(given)
    given |= {name: given[name] or () for name in ("covariates", "groups")}
    given |= checks.completion_of(given["missing"], given["penalty"], given["max_iter"])
    named = {name: given[name[2:].replace("-", "_")] for name in NEED_FOLDER}
    if given["out"] is None and any(named.values()):
        raise click.UsageError(f"{next(name for name in named if named[name])} needs a folder: -o out/")
    given["choices"] = columns.chosen(given)
    from shiftsvd.commands.asked import Fit

    for name in ("verbose", "format_"):
        given[name.rstrip("_")] = given.pop(name)
    return Fit(**given)


@click.command(cls=Subcommand, epilog=EPILOG)
@options_of_fit
def fit(**given: Any) -> None:
    """Find the principal components of a file.

    FILE ("-": standard input) is a table with a sample in each row, or a matrix in any other format that `shiftsvd
    info` reads. Sparse data stay sparse, and data larger than --memory are read in blocks, with --scheduler or
    --workers by processes that all see FILE under its path. Without -o a table of the components is printed; with it
    the folder gets model.safetensors, scores, components.csv, variances.csv, result.json and report.html. Components
    that did not converge are named in a warning.

    With --missing the model keeps how missing entries are treated, and `transform` treats them alike. Shares of the
    variance are then of the matrix with its gaps filled; with --missing em, "heldout_r2" says how much
    better than the means the model predicts entries that it has not seen.

    --preprocess changes the entries block by block as they are read: the file keeps raw counts, nothing becomes dense,
    and `transform` does the same to other samples by what was learned from these. The shift, the scale and the
    variances are then those of the changed entries.

    --top-features ranks all features by their variability, keeps so many, and tells of each one in features.csv;
    library sizes stay those of all features, also where `transform` reads other samples.

    Several files are one matrix: --stack rows for files with other samples and the same features, --stack columns for
    the same samples and other features. Names decide what is the same; files of several formats may be mixed. Where
    features are not the same in all, --join takes those of all files, or of any.

    Of single cells (.h5ad, Zarr) the features that highly_variable of var marks are taken, or those of --mask; columns
    of obs are regressed out by --covariates and --groups, also where `transform` reads other cells. Matrices of 10x are
    of genes alone, unless --feature-types says otherwise. What was left out is told on stderr.

    Genotypes (.bed, with .bim and .fam beside it) are those of autosomes, scaled as Patterson et al. do it, a
    missing one being the mean of its variant, and OUT.eigenvec, OUT.eigenval and OUT.eigenvec.allele are written as
    plink2 --pca does, beside the folder OUT. The model keeps chromosome, position and alleles of each variant, by
    which `transform` finds it in other files. Filters have PLINK's names, and go in this order: variants by
    chromosome, name and place, samples by name, --mind, --geno, --hwe, --maf, --unrelated, --indep-pairwise. What
    each removed is told on stderr, and in result.json.
    """
    options = asked(given)
    from shiftsvd.commands.fitting import run

    run(options)
