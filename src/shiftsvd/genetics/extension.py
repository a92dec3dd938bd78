"""Register file formats, options and help of genotypes with shiftsvd, and name the choices of their settings."""

from typing import Final, Literal

from shiftsvd.extend import Decoder, Extension, Format

Build = Literal["hg19", "hg38"]  # of the human genome
ASSEMBLIES: Final[dict[Build, str]] = {"hg19": "GRCh37", "hg38": "GRCh38"}
Chromosomes = Literal["autosomes", "all"]
MatchName = Literal["auto", "position", "name"]
ProjectName = Literal["lsq", "oadp", "mean"]
ScoresScale = Literal["unit", "sqrt", "eigen"]
# The largest value of each filter.
LARGEST: Final[dict[str, float]] = {"mind": 1, "geno": 1, "hwe": 1, "maf": 0.5, "unrelated": 0.5}
# Suffixes of files that `convert` decodes, each with the plink2 options for such a file.
DECODED: Final = {
    **dict.fromkeys((".vcf", ".vcf.gz", ".vcf.bgz", ".vcf.zst"), "--vcf {}"),
    ".bcf": "--bcf {}",
    ".bgen": "--bgen {} ref-first --sample NAME.sample",
}
# Suffixes of the files that `convert` writes, each with the suffixes of its tables of variants and samples.
TARGETS: Final = {".pgen": (".pvar", ".psam"), ".bed": (".bim", ".fam")}


def _format(reader: str, suffix: str, content: str, title: str) -> Format:
    describe = "shiftsvd.genetics.describing:describe"
    return Format(
        f"shiftsvd.genetics.files:{reader}", (suffix,), (content,), title, describe=describe, remote="refused"
    )


EXTENSION: Final = Extension(
    name="genetics",
    module="shiftsvd.genetics",
    formats={
        "bed": _format("read_bed", ".bed", "PLINK", "PLINK 1 genotypes"),
        "pgen": _format("read_pgen", ".pgen", "PLINK 2", "PLINK 2 genotypes"),
    },
    magic={
        # sample-major or variant-major; the reader checks
        **{b"\x6c\x1b" + bytes([order]): "PLINK" for order in (0, 1)},
        **{b"\x6c\x1b" + bytes([kind]): "PLINK 2" for kind in (2, 3, 4, 16, 17)},
    },
    by_content={"PLINK": "bed", "PLINK 2": "pgen"},
    decoder=Decoder(
        tuple(DECODED),
        "shiftsvd.genetics.decoding:decode",
        TARGETS,
        "shiftsvd.genetics.decoding:refusal",
    ),
    kinds="shiftsvd.genetics.models:KINDS",
    values="shiftsvd.genetics.models:VALUES",
    options={
        "fit": "shiftsvd.genetics.options:OF_FIT",
        "transform": "shiftsvd.genetics.options:OF_TRANSFORM",
        "influence": "shiftsvd.genetics.options:OF_INFLUENCE",
    },
    scales=("patterson",),
    hooks="shiftsvd.genetics.commands:GenotypeHooks",
    writers={"eigenvec": "shiftsvd.genetics.commands:eigenvec_table"},
    help={
        "fit": """Genotypes: pass a .bed (with .bim and .fam in the same folder) or a .pgen. By default, fit uses the
    autosomes, replaces missing genotypes by the mean of their variant, and scales as Patterson et al. (2006). It
    writes OUT.eigenvec, OUT.eigenval and OUT.eigenvec.allele next to the folder OUT, as plink2 --pca does. The model
    records chromosome, position and alleles of each variant, by which `transform` matches variants of other files.
    Filters have PLINK's names and are applied in this order: variants by chromosome, name and position, samples by
    name, --mind, --geno, --hwe, --maf, --unrelated, --indep-pairwise. The number of samples or variants that each
    filter removes is printed on stderr and written to result.json.""",
        "transform": """Genotypes: variants of a .bed or .pgen are matched with those of MODEL by chromosome, position
    and alleles, in any order. Swapped alleles and the other strand are recoded; removed variants are counted on stderr.
    Scores are least-squares fits to the genotypes that are not missing. A .csv or .parquet has additional columns: the
    standard errors of the scores, PC1_se, ..., and the number of variants of the sample, n_variants.""",
        "influence": """Genotypes: pass the .bed or .pgen of the fit. Samples and variants that the filters removed, and
    samples that the fit projected, are not used. --leave-out names a column of the .fam, of the .psam, or of the table
    of --labels.""",
        "info": """Genotypes: a .bed or .pgen is described by its chromosomes, genome build, founders, sex, MAF and
    missing genotypes. One file per chromosome needs --stack columns. Pass a model of genotypes and such files to count
    the variants of the model that `transform` would match.""",
        "convert": """Genotypes: convert VCF, BCF and BGEN to .pgen or .bed. Only biallelic variants are kept, with
    chromosomes, positions, both alleles, and dosages of the second allele. --key is the field to read from a VCF: GT
    (hard calls), DS, GP or HDS (dosages). Default: DS for a .pgen and GT for a .bed if the file has this field, else
    the other one.""",
    },
    examples={
        "fit": (
            "fit cohort.bed -k 10 -o cohort",
            "fit cohort.bed -k 10 --maf 0.01 --geno 0.1 --indep-pairwise 50 5 0.2 -o pruned",
            "fit chr*.bed --stack columns -k 10 -o cohort",
        ),
        "transform": ("transform reference/model.safetensors array.bed --project oadp -o scores.csv",),
        "info": ("info cohort.bed", "info reference/model.safetensors array.bed"),
    },
)
