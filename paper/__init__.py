"""The reproduction of Basirat (2019): its data, experiments, published numbers, figures and checks."""

EXPERIMENTS = ("fig-a", "fig-b", "fig-c", "fig-d", "fig-e", "fig-f", "digits", "faces", "words")


class DataError(Exception):
    """Input that cannot be used; the message names it and the remedy."""
