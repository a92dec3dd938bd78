"""Options of `shiftsvd fit` for genotypes: PLINK's filters, tests and scans."""

from typing import Any, Final

import click

from shiftsvd.commands.options import under

_FILE: Final = click.Path(exists=True, dir_okay=False)
_SHARE: Final = click.FloatRange(0, 1)
NAMES: Final = (
    *("keep", "remove", "extract", "exclude", "extract_range", "exclude_range", "exclude_long_range"),
    *("mind", "geno", "hwe", "hwe_midp", "maf", "unrelated", "indep_pairwise", "indep_order"),
)


def _windows(ctx: click.Context, parameter: click.Parameter, value: tuple[str, int, float] | None) -> Any:
    if value is not None:
        from shiftsvd.genetics.selection import windows_of

        try:
            windows_of(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and value != value:
        raise click.BadParameter("nan is no number")
    return value


filters = under(
    "Genotypes",
    click.option("--autosome", is_flag=True, help="The same as --chromosomes autosomes, which is the default."),
    click.option("--extract", type=_FILE, help="Variants that stay: a file with their names."),
    click.option("--exclude", type=_FILE, help="Variants that go: a file with their names."),
    click.option("--extract-range", type=_FILE, help="Variants that stay: chromosome, first and last position a line."),
    click.option("--exclude-range", type=_FILE, help="Variants that go: chromosome, first and last position a line."),
    click.option(
        "--exclude-long-range",
        type=click.Choice(["hg19", "hg38"]),
        help="Variants in human regions of long-range linkage go; the build of the positions.",
    ),
    click.option("--keep", type=_FILE, help="Samples that stay: a file of FID and IID, or IID alone, a line."),
    click.option("--remove", type=_FILE, help="Samples that go: a file of FID and IID, or IID alone, a line."),
    click.option(
        "--mind", type=_SHARE, callback=_number, metavar="SHARE", help="Samples that miss more of their genotypes go."
    ),
    click.option(
        "--geno", type=_SHARE, callback=_number, metavar="SHARE", help="Variants that miss more of their genotypes go."
    ),
    click.option(
        "--hwe",
        type=_SHARE,
        callback=_number,
        metavar="P",
        help="Variants with a smaller p of Hardy-Weinberg proportions go.",
    ),
    click.option("--hwe-midp", is_flag=True, help="For --hwe: the mid-p, PLINK's midp."),
    click.option(
        "--maf",
        type=click.FloatRange(0, 0.5),
        callback=_number,
        metavar="FREQUENCY",
        help="Variants whose rarer allele is rarer go.",
    ),
    click.option(
        "--unrelated",
        type=click.FloatRange(0, 0.5),
        callback=_number,
        metavar="KINSHIP",
        help="Learn components on samples of which no two have a larger kinship (KING-robust), such as 0.0884, and "
        "project the others.",
    ),
    click.option(
        "--indep-pairwise",
        type=(str, int, float),
        callback=_windows,
        metavar="WINDOW STEP R2",
        help="Prune by linkage, as plink2 does: a window of variants, or such as 200kb, its step, the largest r^2.",
    ),
    click.option(
        "--indep-order",
        type=click.Choice(["1", "2"]),
        help="For --indep-pairwise: in the order of PLINK 1.9, or of plink2 since November 2023.  [default: 1]",
    ),
    click.option("--tracy-widom", is_flag=True, help="Test which components are more than noise."),
    click.option("--scan", is_flag=True, help="Also scan.csv: how much each variant stands out along the components."),
)


def taken(given: dict[str, Any]) -> dict[str, Any]:
    if given.pop("autosome"):
        if given["chromosomes"] == "all":
            raise click.UsageError("--autosome and --chromosomes all contradict each other; give one of them")
        given["chromosomes"] = "autosomes"
    chosen = {name: given.pop(name) for name in NAMES}
    for name, needed in (("hwe_midp", "hwe"), ("indep_order", "indep_pairwise")):
        if chosen[name] and chosen[needed] is None:
            raise click.UsageError(f"{spelled(name)} is for {spelled(needed)}, which is not given")
    return {name: value for name, value in chosen.items() if value is not None and value is not False}


def spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"
