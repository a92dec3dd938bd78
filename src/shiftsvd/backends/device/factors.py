"""What a panel is to the parts of a shifted sparse matrix on a device."""

from typing import Any, NamedTuple


class Factors(NamedTuple):
    """What a panel is to the parts of a block, on the device.

    Attributes
    ----------
    rest : array of shape (n, b)
        The panel, with zeros at the full columns.
    shift : array of shape (r, b), or None
        What L of the shift multiplies.
    full : array of shape (f, b), or None
        The panel at the full columns.
    """

    rest: Any
    shift: Any
    full: Any
