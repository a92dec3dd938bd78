"""How matrices lie in HDF5 and Zarr files: their rows, their trees, and how they are written."""
