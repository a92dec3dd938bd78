"""Matrices in files of any known format, with the names of their rows and columns: open_matrix, profile, convert."""

from shiftsvd.io.base import Names, Opened
from shiftsvd.io.caching import cache
from shiftsvd.io.choices import Choices
from shiftsvd.io.convert import convert
from shiftsvd.io.formats.table import ColumnProfile, TableProfile, profile
from shiftsvd.io.opening import open_matrix

__all__ = ["Choices", "ColumnProfile", "Names", "Opened", "TableProfile", "cache", "convert", "open_matrix", "profile"]
