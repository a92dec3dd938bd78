"""What was asked of `shiftsvd fit`: its options, and what follows from them alone."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from shiftsvd.commands.options import as_given
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.stacking import several
from shiftsvd.names import MissingName, ScaleName, SolverName

# What says which matrix of which files is meant.
WHERE: Final = ("stack", "format", "key", "orient", "feature_types", "join")


@dataclass(frozen=True)
class Fit:
    """The options of the command, as they were given."""

    files: tuple[str, ...]
    stack: Any
    k: int | float | None
    out: str | None
    format: str | None
    key: str | None
    orient: Any
    preprocess: tuple[str, ...]
    shift: str
    scale: ScaleName | Literal["patterson"] | None
    missing: MissingName
    unobserved: bool
    solver: SolverName
    tol: float
    certify: bool | None
    seed: int
    threads: int | None
    memory: str | None
    scheduler: str | None
    workers: int | None
    device: str | None
    dtype: str | None
    checkpoint: str | None
    scores: str | None
    anndata: bool
    report: bool | None
    json_out: bool
    progress: str
    force: bool
    quiet: bool
    verbose: int
    components: str | None = None
    choices: Choices = NOTHING
    label_column: str | None = None
    chromosomes: str | None = None
    filled: bool = False  # whether the reader of the file leaves nothing missing
    penalty: float | Literal["auto"] | None = None
    max_iter: int | None = None
    filters: dict[str, Any] = field(default_factory=dict)  # which samples and variants of genotypes take part
    tracy_widom: bool = False
    scan: bool = False
    mask: str | None = None
    top_features: int | None = None
    flavor: Any = None
    batch: str | None = None
    covariates: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    feature_types: tuple[str, ...] | None = None
    join: Any = None
    weights: str | None = None

    @property
    def file(self) -> str:
        return as_given(several([Path(file) for file in self.files]))

    @property
    def left_missing(self) -> MissingName:
        return "error" if self.filled else self.missing

    @property
    def missing_later(self) -> MissingName:
        return self.missing if self.shift == "mean" else self.left_missing

    @property
    def identity(self) -> str:
        data = (*WHERE, "choices", "files", "chromosomes", "filters", "missing", "unobserved", "memory")
        cells = ("mask", "covariates", "groups", "top_features", "flavor", "batch")
        solved = (
            "preprocess",
            "penalty",
            "max_iter",
            "k",
            "shift",
            "scale",
            "weights",
            "solver",
            "tol",
            "certify",
            "seed",
        )
        ours = (*data, *cells, *solved)
        return json.dumps({name: value for name, value in asdict(self).items() if name in ours})
