"""Rules for the attributes of genotype models in files."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from shiftsvd.extend.models import KINDS as OF_CORE
from shiftsvd.extend.models import (
    ByName,
    Kind,
    Sizes,
    Value,
    count,
    fields,
    instance_of,
    must,
    numbers,
    same_check,
    texts,
)


def _used_as_frequent(settings: ByName, fitted: ByName) -> None:
    p = fitted["frequencies"][fitted["used"]]
    if np.any((p <= 0) | (p >= 1)):
        raise ValueError("frequencies of used variants must be between 0 and 1")
    removed, unused = fitted.get("n_left_out", 0) + fitted.get("n_filtered", 0), np.count_nonzero(~fitted["used"])
    must(removed <= unused, "n_left_out + n_filtered", "not exceed the number of unused variants", removed)


def _filters(name: str, value: Any, sizes: Sizes) -> None:
    fits = isinstance(value, dict) and all(isinstance(each, str | float | int) for each in value.values())
    must(fits, name, "be texts and numbers by name", value)


def _made(cls: type[Any], settings: ByName, fitted: ByName) -> Any:
    if "variants_" in fitted:
        from shiftsvd.genetics.analysis import GenotypeModel  # imports scikit-learn

        cls = GenotypeModel
    return OF_CORE["PCA"].made(cls, settings, fitted)


# The command writes this kind for genotypes, too.
_PCA: Final = replace(
    OF_CORE["PCA"],
    sometimes={
        **OF_CORE["PCA"].sometimes,
        "filters": _filters,
        "learned": numbers("r", "bool"),
        "kept": numbers("s", "bool"),
    },
    made=_made,
)
KINDS: Final = {
    "PCA": _PCA,
    "GenotypeModel": replace(_PCA, module="shiftsvd.genetics"),
    "GenotypePCA": Kind(
        "shiftsvd.genetics",
        {
            **same_check(numbers("k", least=0), "eigenvalues explained_variance_ratio"),
            "eigenvectors": numbers("mk"),
            "loadings": numbers("nk"),
            "frequencies": numbers("n", least=0, most=1),
            "samples": instance_of("Samples"),
            "variants": instance_of("Variants"),
            "used": numbers("n", "bool"),
            "info": instance_of("Info"),
        },
        {**same_check(count(least=0), "n_left_out n_filtered"), "learned": numbers("m", "bool"), "filters": _filters},
        agree=_used_as_frequent,
        made=lambda cls, settings, fitted: cls(**fitted),
    ),
}
VALUES: Final = {
    "Samples": Value("shiftsvd.genetics.variants", fields(**same_check(texts("m", fixed=True), "families names"))),
    "Variants": Value(
        "shiftsvd.genetics.variants",
        fields(
            **same_check(texts("n", fixed=True), "chromosomes names positions"),
            **same_check(texts("n"), "first second"),
        ),
    ),
}
