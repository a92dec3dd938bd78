"""Dask arrays: the operator, its graphs, what runs in a task, lazy scores, files on workers."""
