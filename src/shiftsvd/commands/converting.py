"""Run `shiftsvd convert`, which needs no estimator."""

from shiftsvd.commands.options import check_files, print_message
from shiftsvd.commands.settings import Settings
from shiftsvd.io import convert as converted


def convert(settings: Settings) -> None:
    check_files(settings)
    how = {name: value for name, value in settings.where.items() if name not in ("stack", "join")}
    how |= {"force": settings.force, "memory_limit": settings.memory, "compression": settings.compression}
    converted(settings.files[0], str(settings.out), choices=settings.choices, **how)
    print_message(f"written: {settings.out}", settings.quiet)
