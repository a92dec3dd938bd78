"""Workbooks and databases with given cells."""

import sqlite3
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from tests.support.written import COLUMNS, ROWS, truth

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OPEN = "urn:oasis:names:tc:opendocument:xmlns"

Sheets = Mapping[str, Sequence[Sequence[Any]]]


def column_name(j: int) -> str:
    return (column_name(j // 26 - 1) if j >= 26 else "") + chr(65 + j % 26)


def write_xlsx(path: Path, sheets: Sheets, merged: str = "") -> Path:
    """Write numbers, dates, truth values, texts and errors of formulas (#N/A); None leaves a cell out."""
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    named = "".join(
        f'<sheet name="{escape(name)}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, start=1)
    )
    of_sheets = "".join(
        f'<Relationship Id="r{i}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    styles = '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/></cellXfs>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{kind}.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_SPREADSHEET}" xmlns:r="{_OFFICE}"><sheets>{named}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{of_sheets}<Relationship '
        f'Id="s" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{_SPREADSHEET}">{styles}</styleSheet>',
    }
    for i, rows in enumerate(sheets.values(), start=1):
        lines = "".join(f'<row r="{n}">{_cells(n, row)}</row>' for n, row in enumerate(rows, start=1))
        merge = f'<mergeCells count="1"><mergeCell ref="{merged}"/></mergeCells>' if merged else ""
        parts[f"xl/worksheets/sheet{i}.xml"] = (
            f'<worksheet xmlns="{_SPREADSHEET}"><sheetData>{lines}</sheetData>{merge}</worksheet>'
        )
    return _zipped(path, {name: _HEAD + text for name, text in parts.items()})


def _cells(n: int, row: Sequence[Any]) -> str:
    return "".join(_cell(f"{column_name(j)}{n}", value) for j, value in enumerate(row) if value is not None)


def _cell(place: str, value: Any) -> str:
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, date):
        days = (datetime(value.year, value.month, value.day) - datetime(1899, 12, 30)).days
        return f'<c r="{place}" s="1"><v>{days}</v></c>'
    if isinstance(value, int | float):
        return f'<c r="{place}"><v>{value!r}</v></c>'
    if value.startswith("#") and value.endswith(("!", "A", "?")):
        return f'<c r="{place}" t="e"><f>1/0</f><v>{value}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'


def write_ods(path: Path, sheets: Sheets) -> Path:
    tables = "".join(
        f'<table:table table:name="{escape(name)}">'
        + "".join(f"<table:table-row>{''.join(map(_open_cell, row))}</table:table-row>" for row in rows)
        + "</table:table>"
        for name, rows in sheets.items()
    )
    names = " ".join(f'xmlns:{each}="{_OPEN}:{each}:1.0"' for each in ("office", "table", "text"))
    body = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = (
        f'<manifest:manifest xmlns:manifest="{_OPEN}:manifest:1.0"><manifest:file-entry manifest:full-path="/" '
        f'manifest:media-type="{kind}"/></manifest:manifest>'
    )
    content = f"{_HEAD}<office:document-content {names}>{body}</office:document-content>"
    return _zipped(path, {"mimetype": kind, "META-INF/manifest.xml": _HEAD + manifest, "content.xml": content})


def _open_cell(value: Any) -> str:
    if value is None:
        return "<table:table-cell/>"
    if isinstance(value, date):
        kind = f'office:value-type="date" office:date-value="{value.isoformat()}"'
    elif isinstance(value, bool):
        kind = f'office:value-type="boolean" office:boolean-value="{str(value).lower()}"'
    elif isinstance(value, int | float):
        kind = f'office:value-type="float" office:value="{value!r}"'
    else:
        kind = 'office:value-type="string"'
    return f"<table:table-cell {kind}><text:p>{escape(str(value))}</text:p></table:table-cell>"


def _zipped(path: Path, parts: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return path


def write_xls(path: Path, sheets: Sheets) -> Path:
    xlwt = pytest.importorskip("xlwt")
    book = xlwt.Workbook()
    for name, rows in sheets.items():
        sheet = book.add_sheet(name)
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                style = [xlwt.easyxf(num_format_str="YYYY-MM-DD")] if isinstance(value, date) else []
                if value is not None:
                    sheet.write(i, j, value, *style)
    book.save(str(path))
    return path


def in_sqlite(path: Path, query: str) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(query)
    return path


def in_duckdb(path: Path, query: str) -> Path:
    with pytest.importorskip("duckdb").connect(str(path)) as connection:
        connection.execute(query)
    return path


BOOKS: dict[str, Callable[[Path, Sheets], Path]] = {
    ".xlsx": write_xlsx,
    ".xlsm": write_xlsx,
    ".ods": write_ods,
    ".xls": write_xls,
}


def write_grid(path: Path) -> Path:
    """Write the matrix of all formats, with its names, as a sheet or as a table of a database."""
    pytest.importorskip("pyarrow")
    rows = [["", *COLUMNS], *([name, *values] for name, values in zip(ROWS, truth().tolist(), strict=True))]
    if path.suffix in BOOKS:
        pytest.importorskip("python_calamine")
        return BOOKS[path.suffix](path, {"S": rows})
    columns = ", ".join(f'"{name}" DOUBLE' for name in COLUMNS)
    values = ", ".join(f"({', '.join(map(repr, row))})" for row in rows[1:])
    write = in_sqlite if path.suffix == ".sqlite" else in_duckdb
    return write(path, f"CREATE TABLE t (name VARCHAR, {columns}); INSERT INTO t VALUES {values};")
