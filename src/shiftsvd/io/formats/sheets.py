"""Print the rows of a sheet as lines of JSON: the script of a process of its own, which a damaged workbook may end.

calamine allocates what a file claims, and Rust ends the process if that fails.
"""

import json
import sys
from datetime import date, datetime, time, timedelta
from typing import Any

_FIRST = 100  # rows in which numbers are counted, to suggest a sheet


def shown(value: Any) -> Any:
    """Return dates and times as texts, and other values as they are."""
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ")
    if isinstance(value, timedelta):
        minutes, seconds = divmod(int(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return value.isoformat() if isinstance(value, date | time) else value


def _n_numbers(sheet: Any) -> int:
    return sum(isinstance(value, int | float) for row in sheet.to_python(nrows=_FIRST) for value in row)


def main(path: str, key: str, n_bytes: int) -> None:
    import python_calamine as calamine

    if sys.platform == "linux":
        import resource

        with open("/proc/self/statm") as pages:
            most = int(pages.read().split()[0]) * resource.getpagesize() + n_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        with open(path, "rb") as file, calamine.load_workbook(file) as book:
            kinds = {sheet.name: sheet.typ for sheet in book.sheets_metadata}
            names = [name for name, kind in kinds.items() if kind == calamine.SheetTypeEnum.WorkSheet]
            if key not in names and len(names) > 1:
                names = [name for name in names if book.get_sheet_by_name(name).total_height]
            is_chosen = key in names or (len(names) == 1 and not key)
            counts = [] if is_chosen else [_n_numbers(book.get_sheet_by_name(name)) for name in names]
            sys.stdout.write(f"{json.dumps([names, counts])}\n")
            if is_chosen:
                sheet = book.get_sheet_by_name(key or names[0])
                rows = sheet.to_python(skip_empty_area=False)
                sys.stdout.writelines(f"{json.dumps([shown(value) for value in row])}\n" for row in rows)
    except calamine.CalamineError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
