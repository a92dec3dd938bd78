"""Arithmetic on arrays that knows no operator: panels, diagonals, moments, orthonormal bases, bounds."""
