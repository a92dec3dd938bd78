"""open_matrix: a matrix from a file of any known format, with the names of its rows and columns."""
