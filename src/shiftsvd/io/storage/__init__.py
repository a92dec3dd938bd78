"""HDF5 and Zarr files: row sources, trees of groups, and a writer of AnnData."""
