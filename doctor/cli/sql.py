"""`doctor sql`: one query on a saved case."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from doctor.cli.output import say, write
from doctor.errors import CaseError

if TYPE_CHECKING:
    import duckdb

_ROWS_ON_SCREEN = 200


@click.command("sql", short_help="Run a query on a case that `diagnose --save` kept.")
@click.argument("case", type=click.Path(path_type=Path), metavar="CASE.duckdb")
@click.argument("query", metavar="QUERY")
@click.option(
    "--format", "output_format", type=click.Choice(("table", "csv", "json")), default="table", help="Kind of output."
)
def command(case: Path, query: str, output_format: str) -> None:
    """Run QUERY on a case file, read-only. The case is plain DuckDB: `SHOW ALL TABLES` lists what it holds."""
    import duckdb

    from doctor.case.store import open_case

    with closing(open_case(case)) as connection:
        try:
            _answer(connection, query, output_format)
        except duckdb.Error as error:
            raise CaseError(f"the query fails: {_reason(error)}") from error


def _answer(connection: duckdb.DuckDBPyConnection, query: str, output_format: str) -> None:
    result = connection.execute(query)
    columns = [column[0] for column in result.description or ()]
    if output_format == "table":
        rows = result.fetchmany(_ROWS_ON_SCREEN + 1)
        if len(rows) > _ROWS_ON_SCREEN:
            say(f"the first {_ROWS_ON_SCREEN} rows; --format csv gives all")
        write(_table(columns, rows[:_ROWS_ON_SCREEN]), None)
    elif output_format == "csv":
        write(_csv(columns, result.fetchall()), None)
    else:
        records = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
        write(json.dumps(records, indent=1, default=str) + "\n", None)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned: numbers to the right, text to the left, NULL as nothing."""
    cells = [["" if value is None else _one_line(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(columns)]
    is_number = [all(_is_number(row[place]) for row in rows) for place in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        padded = (
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, is_number, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)]) + "\n"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _one_line(value: object) -> str:
    return "".join(character if character.isprintable() else " " for character in str(value))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split("\n\nLINE", maxsplit=1)[0].split())
