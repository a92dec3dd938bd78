"""The tests, in folders as in the package; what several of them need is in `tests.support`."""
