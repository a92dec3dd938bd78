"""Arithmetic on arrays that knows no operator: panels, diagonals, moments, bases, bounds, powers of two."""
