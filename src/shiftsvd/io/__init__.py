"""Matrices in files of any known format, with the names of their rows and columns: open_matrix, convert."""

from shiftsvd.io.base import Names, Opened
from shiftsvd.io.choices import Choices
from shiftsvd.io.convert import convert
from shiftsvd.io.opening import open_matrix

__all__ = ["Choices", "Names", "Opened", "convert", "open_matrix"]
