"""What the blocks of a sparse matrix give, added up: in one go, in double precision, in the order of the blocks."""

from collections.abc import Iterator

import numpy as np

from shiftsvd.kernels import Kernels, ordered
from shiftsvd.kernels.groups import Array, Groups

# So many panels are kept to be added up at once; of more, each is added as it comes, which takes less memory, and next
# to no time beside the products of as many blocks. And numbers of the sum that a thread makes at a time.
HELD, ROUNDED = 4, 2**18


def add_up(
    kernels: Kernels, parts: Iterator[tuple[Groups, Array]], count: int, R: Array, Y: Array, n_threads: int
) -> None:
    held: list[Groups] = []
    before, sums = None, np.zeros(())
    for Z, S in parts:
        if held and count > HELD:
            before = _folded(kernels, held.pop(), before)
        held.append(Z)
        sums = sums + S.astype(np.complex128 if np.iscomplexobj(S) else np.float64, copy=False)
    R = np.ascontiguousarray(R)

    def rounded(lo: int) -> None:
        kernels.total(held, before, R, sums, (lo, min(lo + step, len(Y))), Y[lo : lo + step])

    step = max(ROUNDED // max(Y.shape[1], 1), 1)
    for _ in ordered(rounded, range(0, len(Y), step), n_threads):
        pass


def _folded(kernels: Kernels, panel: Groups, before: Array | None) -> Array:
    if before is None:
        return panel.flat.astype(np.result_type(panel.flat, np.float64), copy=False)
    kernels.add(panel.flat, before)
    return before
