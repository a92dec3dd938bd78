"""What goes on around a computation: memory, journals, checkpoints, progress, files that are written whole."""
