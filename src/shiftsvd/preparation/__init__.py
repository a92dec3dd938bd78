"""Preparation of data before the decomposition: shifts, covariates and groups, scales, weights."""
