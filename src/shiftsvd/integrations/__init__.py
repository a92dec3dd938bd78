"""What the modules for scanpy, xarray and genotypes are made of."""
