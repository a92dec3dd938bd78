"""Faults made by hand, and whether the tests see them: `python -m tests.mutations`."""
