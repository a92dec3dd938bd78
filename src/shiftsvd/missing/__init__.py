"""Handle missing values: matrices with gaps, imputation by means, and completion by a low-rank model."""
