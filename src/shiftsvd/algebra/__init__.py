"""The algebra of the shift, one kind of operator a file; its names are imported from `shiftsvd.operators`."""
