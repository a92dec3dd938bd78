"""Rules for the attributes of genotype models in files."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from shiftsvd.extend import models


def _used_as_frequent(settings: models.ByName, fitted: models.ByName) -> None:
    p = fitted["frequencies"][fitted["used"]]
    if np.any((p <= 0) | (p >= 1)):
        raise ValueError("frequencies of used variants must be between 0 and 1")
    unknown = np.isnan(fitted["eigenvectors"]).any(axis=1) & fitted.get("learned", True)
    models.must(not unknown.any(), "eigenvectors", "be finite for training samples", int(np.count_nonzero(unknown)))
    removed, unused = fitted.get("n_left_out", 0) + fitted.get("n_filtered", 0), np.count_nonzero(~fitted["used"])
    models.must(removed <= unused, "n_left_out + n_filtered", "not exceed the number of unused variants", removed)


def _eigenvectors(name: str, value: Any, sizes: models.Sizes) -> None:
    known = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    models.numbers("mk")(name, np.where(np.isnan(value), 0, value) if known else value, sizes)


def _filters(name: str, value: Any, sizes: models.Sizes) -> None:
    fits = isinstance(value, dict) and all(isinstance(each, str | float | int) for each in value.values())
    models.must(fits, name, "be texts and numbers by name", value)


def _made(cls: type[Any], settings: models.ByName, fitted: models.ByName) -> Any:
    if "variants_" in fitted:
        from shiftsvd.genetics.fitted import GenotypeModel  # imports scikit-learn

        cls = GenotypeModel
    return models.KINDS["PCA"].made(cls, settings, fitted)


# The command writes this kind for genotypes, too.
_PCA: Final = replace(
    models.KINDS["PCA"],
    sometimes={
        **models.KINDS["PCA"].sometimes,
        "filters": _filters,
        "learned": models.numbers("r", "bool"),
        "kept": models.numbers("s", "bool"),
    },
    made=_made,
)
KINDS: Final = {
    "PCA": _PCA,
    "GenotypeModel": replace(_PCA, module="shiftsvd.genetics"),
    "GenotypePCA": models.Kind(
        "shiftsvd.genetics",
        {
            **models.same_check(models.numbers("k", least=0), "eigenvalues explained_variance_ratio"),
            "eigenvectors": _eigenvectors,
            "loadings": models.numbers("nk"),
            "frequencies": models.numbers("n", least=0, most=1),
            "samples": models.instance_of("Samples"),
            "variants": models.instance_of("Variants"),
            "used": models.numbers("n", "bool"),
            "info": models.instance_of("Info"),
        },
        {
            **models.same_check(models.count(least=0), "n_left_out n_filtered"),
            "learned": models.numbers("m", "bool"),
            "filters": _filters,
        },
        agree=_used_as_frequent,
        made=lambda cls, settings, fitted: cls(**fitted),
    ),
}
VALUES: Final = {
    "Samples": models.Value(
        "shiftsvd.genetics.variants",
        models.fields(**models.same_check(models.texts("m", fixed=True), "families names")),
    ),
    "Variants": models.Value(
        "shiftsvd.genetics.variants",
        models.fields(
            **models.same_check(models.texts("n", fixed=True), "chromosomes names positions"),
            **models.same_check(models.texts("n"), "first second"),
        ),
    ),
}
