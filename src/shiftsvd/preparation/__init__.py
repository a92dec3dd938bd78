"""What is done to data before they are decomposed: shifts, covariates and groups, scales, weights."""
