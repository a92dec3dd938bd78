"""Ours beside every peer: rows, contestants, environments, tables and charts."""
