"""What goes on around a computation: memory, journals, checkpoints, progress, outputs, warnings."""
