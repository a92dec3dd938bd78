"""Random test matrices for sketches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import mix
from shiftsvd.errors import Refused, Setting
from shiftsvd.operators import Operator, Panel, Vector

__all__ = ["SRFT", "Gaussian", "Rademacher", "Sketch", "SparseSign"]


def generator(seed: int | Generator | None, name: str = "rng") -> Generator:
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        rule = "must be a non-negative integer, a Generator or None"
        raise Refused(Setting(name), f" {rule}, got {seed!r}: {error}") from None


class Sketch(ABC):
    """A distribution of n x ell test matrices Omega; frozen, with the randomness as an argument.

    See Also
    --------
    sketch.Gaussian : The default of the solvers.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.sketch.Gaussian().draw(5, 2, np.random.default_rng(0)).shape
    (5, 2)
    """

    @abstractmethod
    def draw(self, n: int, ell: int, rng: Generator) -> Panel:
        """Draw a test matrix of shape (n, ell), float64.

        Parameters
        ----------
        n : int
            Rows of the test matrix.
        ell : int
            Columns of the test matrix.
        rng : numpy.random.Generator
            Draws the test matrix.
        """

    def apply(self, A: Operator, ell: int, rng: Generator) -> Panel:
        """Compute the sample ``A Omega`` of shape (m, ell); one pass.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix that is sampled.
        ell : int
            Columns of the test matrix.
        rng : numpy.random.Generator
            Draws the test matrix.

        Returns
        -------
        array of shape (m, ell)
            The sample ``A Omega`` of the range of A.
        """
        return A.matmat(self.draw(A.shape[1], ell, rng))


@dataclass(frozen=True)
class Gaussian(Sketch):
    """Independent standard normal entries (Halko, Martinsson & Tropp 2011).

    See Also
    --------
    sketch.Rademacher : Signs.
    sketch.SRFT : A fast transform.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.sketch.Gaussian().draw(5, 2, np.random.default_rng(0)).shape
    (5, 2)
    """

    def draw(self, n: int, ell: int, rng: Generator) -> Panel:
        return rng.standard_normal((n, ell))


@dataclass(frozen=True)
class Rademacher(Sketch):
    """Independent signs, +1 or -1.

    See Also
    --------
    sketch.Gaussian : Normal numbers.
    sketch.SparseSign : Few signs in each row.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> sorted(
    ...     set(ss.sketch.Rademacher().draw(9, 2, np.random.default_rng(0)).ravel().tolist())
    ... )
    [-1.0, 1.0]
    """

    def draw(self, n: int, ell: int, rng: Generator) -> Panel:
        return rng.integers(0, 2, (n, ell)).astype(np.float64) * 2 - 1


@dataclass(frozen=True)
class SparseSign(Sketch):
    """A few random signs in each row, scaled to unit length (Tropp et al. 2019, section 3.3).

    Parameters
    ----------
    nonzeros : int
        Signs in each row; at most as many as there are columns.

    See Also
    --------
    sketch.Rademacher : Only signs.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> F = ss.svd(
    ...     np.diag([3.0, 2.0, 1.0]),
    ...     1,
    ...     solver=ss.RandomizedSVD(sketch=ss.sketch.SparseSign()),
    ...     rng=0,
    ... )
    >>> round(float(F.S[0]), 3)
    3.0
    """

    nonzeros: int = 8

    def draw(self, n: int, ell: int, rng: Generator) -> Panel:
        zeta = min(self.nonzeros, ell)
        Omega = np.zeros((n, ell))
        columns = np.argsort(rng.random((n, ell)), axis=1)[:, :zeta] if zeta < ell else np.tile(np.arange(ell), (n, 1))
        np.put_along_axis(Omega, columns, (rng.integers(0, 2, (n, zeta)) * 2 - 1) / np.sqrt(zeta), axis=1)
        return Omega


@dataclass(frozen=True)
class SRFT(Sketch):
    """Subsampled random Fourier transform: random signs, then a random set of real frequencies.

    On dense blocks the transform is pruned to the sampled frequencies, so that a sample of an m x n matrix
    costs O(m n log ell) (Woolfe, Liberty, Rokhlin & Tygert 2008; Halko, Martinsson & Tropp 2011, section 4.6).
    Each frequency gives a cosine and a sine column: Omega is real, its columns orthogonal where no
    frequency is 0 or n/2.

    See Also
    --------
    sketch.Gaussian : Independent normal entries.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> F = ss.svd(
    ...     np.diag([3.0, 2.0, 1.0]), 1, solver=ss.RandomizedSVD(sketch=ss.sketch.SRFT()), rng=0
    ... )
    >>> round(float(F.S[0]), 3)
    3.0
    """

    def draw(self, n: int, ell: int, rng: Generator) -> Panel:
        return self.mixer(n, ell, rng).to_array()

    def apply(self, A: Operator, ell: int, rng: Generator) -> Panel:
        return mix(A, self.mixer(A.shape[1], ell, rng))

    def mixer(self, n: int, ell: int, rng: Generator) -> "FourierMixer":
        """Draw the signs and frequencies of a test matrix.

        Parameters
        ----------
        n : int
            Rows of the test matrix.
        ell : int
            Columns of the test matrix, which are frequencies.
        rng : numpy.random.Generator
            Draws the signs and frequencies.

        Returns
        -------
        FourierMixer
            The test matrix, which is never formed.
        """
        signs = rng.integers(0, 2, n) * 2.0 - 1
        half = (ell + 1) // 2
        # 1 .. ceil(n/2)-1 have both a cosine and a sine; 0 and n/2 fill up where ell is nearly n.
        both = np.arange(1, (n + 1) // 2)
        rest = np.array([0] if n % 2 else [0, n // 2])
        chosen = rng.permutation(both)[:half]
        return FourierMixer(signs, chosen, rng.permutation(rest)[: max(0, ell - 2 * len(chosen))], ell)


@dataclass(frozen=True, eq=False)
class FourierMixer:
    """One subsampled random Fourier transform, real, of shape (n, ell)."""

    signs: Vector
    paired: Vector  # frequencies that give a cosine and a sine column
    single: Vector  # frequencies that give a cosine column only
    ell: int

    def to_array(self) -> Panel:
        n = len(self.signs)
        angle = 2 * np.pi / n * (np.outer(np.arange(n), self.paired) % n)
        alone = 2 * np.pi / n * (np.outer(np.arange(n), self.single) % n)
        columns = np.hstack([np.sqrt(2) * np.cos(angle), np.sqrt(2) * np.sin(angle), np.cos(alone)])
        return np.asarray(self.signs[:, None] * columns[:, : self.ell])

    def mix(self, block: Panel) -> Panel:
        if np.iscomplexobj(block):
            return np.asarray(self.mix(block.real) + 1j * self.mix(block.imag))
        paired, single = (self._transform(block * self.signs, f) for f in (self.paired, self.single))
        # The transform is of exp(-i angle): its imaginary part is minus the sine.
        columns = [np.sqrt(2) * paired.real, -np.sqrt(2) * paired.imag, single.real]
        return np.hstack(columns)[:, : self.ell]

    def _transform(self, block: Panel, frequencies: Vector) -> Panel:
        rows, n = block.shape
        p = next((d for d in range(min(n, max(2 * len(frequencies), 2)), 0, -1) if n % d == 0), 1)
        if 4 * p < len(frequencies):  # a length of few divisors: the whole transform is cheaper
            return np.asarray(np.fft.fft(block, axis=1)[:, frequencies])
        r = n // p
        # j = a + r b: transform the p values b of each residue a, then sum the r residues.
        G = np.fft.fft(block.reshape(rows, p, r), axis=1)
        twiddle = np.exp(-2j * np.pi / n * (np.outer(frequencies, np.arange(r)) % n))
        return np.asarray(np.einsum("ifa,fa->if", G[:, frequencies % p, :], twiddle))
