"""`GenotypeModel`: the model of a fit of genotypes by the command, apart because it imports scikit-learn."""

from shiftsvd import PCA
from shiftsvd.genetics.analysis import Projects, basis_of
from shiftsvd.genetics.projection import Basis
from shiftsvd.genetics.variants import Variants


class GenotypeModel(PCA, Projects):
    """The model of a fit by the command, as `shiftsvd.load_model` returns it: a `PCA` that projects genotypes.

    Its attribute `variants_` has the names, positions and alleles of the variants, `filters` the settings of the
    filters, `kept`, if filters removed samples, the mask of the others among the samples of the file, and `learned`,
    if the fit projected samples, the mask of the training samples among all rows of scores.
    `PCA` documents the arguments and the other attributes.

    See Also
    --------
    genetics.GenotypePCA : The components that `genetics.pca` returns.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd
    >>> from bed_reader import to_bed
    >>> from click.testing import CliRunner
    >>> from shiftsvd.cli import main
    >>> G = np.random.default_rng(0).integers(0, 3, (20, 50)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     fit = f"fit {folder}/a.bed -k 2 --no-report -o {folder}/a"
    ...     _ = CliRunner().invoke(main, fit.split())
    ...     found = shiftsvd.load_model(f"{folder}/a/model.safetensors").project(
    ...         f"{folder}/a.bed"
    ...     )
    >>> found.eigenvectors.shape, found.n_used
    ((20, 2), 50)
    """

    variants_: Variants

    @property
    def basis(self) -> Basis:
        return basis_of(self)
