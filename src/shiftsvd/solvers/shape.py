"""How wide the products and the basis of a run of block Lanczos are."""

from typing import NamedTuple


class Shape(NamedTuple):
    """Columns of what a run holds.

    Attributes
    ----------
    block : int
        Of a product.
    wanted : int
        Components that the basis is made for.
    columns : int
        Of the basis before it is restarted.
    room : int
        The same, and what a probe is likely to add.
    """

    block: int
    wanted: int
    columns: int
    room: int
