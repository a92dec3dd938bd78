"""Fits of Dask arrays on worker processes: measured, modelled and simulated."""
