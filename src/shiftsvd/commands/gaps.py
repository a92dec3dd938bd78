"""What helps with entries that are no numbers, by what the subcommand that met them can do about them."""

import click

from shiftsvd.backends.not_finite import NotFinite

IN_FIT = "--missing mean or --missing em says what stands for them"
IN_ESTIMATE = "--missing mean puts the means in their place"
IN_TRANSFORM = "fill them, or fit the model with --missing mean or --missing em: it knows what stands for them then"
BEFORE = "fill them first: --preprocess is for data without gaps"
ELSEWHERE = "fill them first"
INFINITE = "replace the infinite ones in the file"


def remedied(error: BaseException) -> BaseException:
    if not isinstance(error, NotFinite):
        return error
    found = error.found
    if found.names is None:
        error = error.but(names={int(place): int(place) + 1 for place in found.columns[0]})
    if found.nothing_else:
        return error
    return error.but(remedy=INFINITE if found.n_inf else _of_missing(click.get_current_context().command))


def _of_missing(command: click.Command) -> str:
    if click.get_current_context().params.get("preprocess"):  # which has no --missing beside it
        return BEFORE
    return {"fit": IN_FIT, "estimate": IN_ESTIMATE, "transform": IN_TRANSFORM}.get(str(command.name), ELSEWHERE)
