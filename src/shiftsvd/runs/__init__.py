"""Services of a run: memory limits, checkpoints, progress, outputs, locks and warnings."""
