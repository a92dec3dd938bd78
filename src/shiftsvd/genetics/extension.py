"""What genotypes add to shiftsvd, and names of their settings."""

from typing import Final, Literal

from shiftsvd.extend import Decoder, Extension, Format

Build = Literal["hg19", "hg38"]  # of the human genome
Chromosomes = Literal["autosomes", "all"]
MatchName = Literal["auto", "position", "name"]
ProjectName = Literal["lsq", "oadp", "mean"]
# The largest values of filters, and files that are written by `convert`, with those beside them.
SHARES: Final[dict[str, float]] = {"mind": 1, "geno": 1, "hwe": 1, "maf": 0.5, "unrelated": 0.5}
# Suffixes of files that `convert` decodes, each with the options of plink2 for such a file.
DECODED: Final = {
    **dict.fromkeys((".vcf", ".vcf.gz", ".vcf.bgz", ".vcf.zst"), "--vcf {}"),
    ".bcf": "--bcf {}",
    ".bgen": "--bgen {} ref-first --sample NAME.sample",
}
TARGETS: Final = {".pgen": (".pvar", ".psam"), ".bed": (".bim", ".fam")}

EXTENSION: Final = Extension(
    name="genetics",
    module="shiftsvd.genetics",
    formats={
        "bed": Format("shiftsvd.genetics.files:read_bed", (".bed",), ("PLINK",), "PLINK 1 genotypes"),
        "pgen": Format("shiftsvd.genetics.files:read_pgen", (".pgen",), ("PLINK 2",), "PLINK 2 genotypes"),
    },
    magic={
        **{b"\x6c\x1b" + bytes([order]): "PLINK" for order in (0, 1)},  # samples or variants first; the reader tells
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
    options={"fit": "shiftsvd.genetics.options:OF_FIT", "transform": "shiftsvd.genetics.options:OF_TRANSFORM"},
    scales=("patterson",),
    hooks="shiftsvd.genetics.commands:GenotypeHooks",
    help={
        "fit": """Genotypes (.bed, with .bim and .fam beside it) are those of autosomes, scaled as Patterson et al. do,
    a missing one being the mean of its variant, and OUT.eigenvec, OUT.eigenval and OUT.eigenvec.allele are written as
    plink2 --pca does, beside the folder OUT. The model keeps chromosome, position and alleles of each variant, by
    which `transform` finds it in other files. Filters have the names of PLINK, and are applied in this order: variants
    by chromosome, name and place, samples by name, --mind, --geno, --hwe, --maf, --unrelated, --indep-pairwise. What
    each removed is printed on stderr, and stands in result.json.""",
        "transform": """Variants of a .bed are matched with those of MODEL by chromosome, position and alleles: swapped
    alleles, other strands and another order are no matter, and what is left out is counted on stderr. Scores are those
    of least squares on the genotypes that a sample has; columns beside them (.csv, .parquet) hold their standard
    errors, PC1_se, ..., and the number of variants of the sample, n_variants.""",
        "info": """After a model of genotypes a .bed, or one for each chromosome: how many variants of the model
    `transform` would find there.""",
        "convert": """VCF, BCF and BGEN become .pgen or .bed, with chromosomes, positions and both alleles: variants
    of two alleles, and dosages of the second one. --key is the field of a VCF: GT (calls), DS, GP or HDS (dosages); by
    default DS where the file has it, and GT for a .bed.""",
    },
    examples={
        "fit": (
            "fit cohort.bed -k 10 -o cohort",
            "fit cohort.bed -k 10 --maf 0.01 --geno 0.1 --indep-pairwise 50 5 0.2 -o pruned",
            "fit chr*.bed --stack columns -k 10 -o cohort",
        ),
        "transform": ("transform reference/model.safetensors array.bed --project oadp -o scores.csv",),
        "info": ("info reference/model.safetensors array.bed",),
    },
)
