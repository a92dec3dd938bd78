"""One script for each claim of the README and the pages, which prints its numbers."""
