"""A device made of nothing: arrays that NumPy must not look at, and an adapter that counts what crosses."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.numerics.orth import ROWS


class Far:
    """An array on the fake device: it computes as NumPy does, and a copy to the host that nobody asked for raises."""

    def __init__(self, near: Any) -> None:
        self.near = near

    shape = property(lambda self: self.near.shape)
    T = property(lambda self: Far(self.near.T))
    __array_ufunc__ = None

    def __array__(self, *args: Any, **named: Any) -> Any:
        raise TypeError("a silent copy to the host")

    def __len__(self) -> int:
        return len(self.near)

    def __int__(self) -> int:
        return int(self.near)

    def __abs__(self) -> "Far":
        return Far(abs(self.near))

    def __getitem__(self, key: Any) -> "Far":
        return Far(self.near[_near_key(key)])

    def __setitem__(self, key: Any, values: Any) -> None:
        self.near[_near_key(key)] = _near(values)

    def __isub__(self, other: Any) -> "Far":
        self.near -= _near(other)
        return self


def _near_key(key: Any) -> Any:
    """A key of slices, or of places on the fake device."""
    keys = tuple(k.near if isinstance(k, Far) else k for k in (key if isinstance(key, tuple) else (key,)))
    return keys if isinstance(key, tuple) else keys[0]


def _near(x: Any) -> Any:
    """What a Far holds; a Python number as it is; a NumPy array would be a silent copy to the device."""
    if isinstance(x, np.ndarray):
        raise TypeError("a silent copy to the device")
    return x.near if isinstance(x, Far) else x


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul", "radd", "rmul", "rsub"):

    def _operation(self: Far, other: Any, name: str = f"__{_name}__") -> Any:
        return Far(getattr(self.near, name)(_near(other)))

    setattr(Far, f"__{_name}__", _operation)


class FarCSR(Far):
    """A CSR matrix on the fake device."""

    def __matmul__(self, V: Any) -> Far:
        return Far(self.near @ _near(V))


class FakeArrays(Arrays):
    """The adapter."""

    xp = np

    def __init__(self) -> None:
        super().__init__("nothing", on_host=False)
        self.crossings: list[tuple[int, ...]] = []  # the shapes of what has crossed, either way
        self.traffic = {"up": 0, "down": 0}  # bytes

    def up(self, x: Any) -> Any:
        self.crossings.append(x.shape)
        self.traffic["up"] += x.nbytes
        return Far(np.array(x))

    def down(self, x: Any) -> Any:
        self.crossings.append(x.shape)
        self.traffic["down"] += x.near.nbytes
        return np.array(x.near)

    def is_sparse(self, X: Any) -> bool:
        return isinstance(X, FarCSR)

    def sound_csr(self, X: Any) -> tuple[Any, bool]:
        return X, False

    def dtype_of(self, x: Any) -> Any:
        return np.dtype(x.near.dtype)

    def in_dtype(self, x: Any, dtype: Any) -> Any:
        return Far(x.near.astype(dtype))

    def conj(self, x: Any) -> Any:
        return Far(x.near.conj())

    def adjoint(self, x: Any) -> Any:
        return Far(x.near.conj().T)

    def all_finite(self, x: Any) -> bool:
        return bool(np.isfinite(x.near).all())

    def empty(self, shape: tuple[int, int], dtype: Any) -> Any:
        return Far(np.full(shape, np.nan, dtype))

    def copy(self, x: Any) -> Any:
        return Far(x.near.copy())

    def inner_of_pieces(self, x: Any, y: Any, double: Any) -> Any:
        parts = (x.near[lo : lo + ROWS].conj().T @ y.near[lo : lo + ROWS] for lo in range(0, len(x), ROWS))
        return Far(sum(part.astype(double) for part in parts))

    def hstack(self, x: Any, y: Any) -> Any:
        return Far(np.hstack([x.near, y.near]))

    def column_sums(self, x: Any) -> Any:
        return Far(x.near.sum(axis=0))

    def column_largest(self, x: Any) -> Any:
        return Far(x.near.max(axis=0))

    def qr(self, x: Any) -> Any:
        Q, R = np.linalg.qr(x.near)
        return Far(Q), Far(R)

    def by_rows(self, x: Any) -> Any:
        return Far(np.ascontiguousarray(x.near))

    def csr(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        return FarCSR(csr_array((data.near, indices.near, indptr.near), shape=shape))

    def parts(self, X: Any) -> Any:
        return Far(X.near.data), Far(X.near.indices), Far(X.near.indptr)

    def flipped(self, X: Any) -> Any:
        return FarCSR(csr_array(X.near.conj().T.tocsr()))

    def dense(self, X: Any) -> Any:
        return Far(X.near.toarray())

    def for_entries(self, x: Any, X: Any) -> Any:
        return Far(np.repeat(x.near, np.diff(X.near.indptr)))


def arrays_for(X: Any) -> FakeArrays:
    """An adapter of its own for each matrix, so that what crosses can be counted."""
    return FakeArrays()
