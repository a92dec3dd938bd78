"""Measurements: what the README and the pages claim, peers, clusters, certificates, and how the house is built."""
