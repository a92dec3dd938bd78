"""open_matrix: a matrix from a file of any known format, with the names of its rows and columns."""

from shiftsvd.io.opening import Names, Opened, open_matrix

__all__ = ["Names", "Opened", "open_matrix"]
