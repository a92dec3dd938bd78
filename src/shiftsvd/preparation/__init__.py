"""What is done to data before they are decomposed: covariates and groups, scales, weights."""
