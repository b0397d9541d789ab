"""`doctor sql`: one query on a saved case."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from doctor.cli.output import say, write
from doctor.errors import CaseError

if TYPE_CHECKING:
    import duckdb

_ROWS_ON_SCREEN = 200
_SECONDS_BETWEEN_INTERRUPTS = 0.1


@click.command("sql", short_help="Run a query on a case that `diagnose --save` kept.")
@click.argument("case", type=click.Path(path_type=Path), metavar="CASE.duckdb")
@click.argument("query", metavar="QUERY")
@click.option(
    "--format", "output_format", type=click.Choice(("table", "csv", "json")), default="table", help="Kind of output."
)
def command(case: Path, query: str, output_format: str) -> None:
    """Run QUERY on a case file. The case is plain DuckDB: `SHOW ALL TABLES` lists what it holds.

    QUERY is one SELECT, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN; it reads the case and no other file.
    """
    import duckdb

    from doctor.case.free_query import refused
    from doctor.case.store import open_case

    with closing(open_case(case)) as connection:
        try:
            _stopped_by_keyboard(connection, partial(_answer, connection, query, output_format))
        except duckdb.Error as error:
            raise CaseError(f"the query fails: {refused(error).message}") from error


def _stopped_by_keyboard(connection: duckdb.DuckDBPyConnection, work: Callable[[], None]) -> None:
    """Do the work beside the main thread, which alone hears Ctrl-C: DuckDB hears nothing while it computes."""
    with ThreadPoolExecutor(1, "doctor-asks") as beside:
        working = beside.submit(work)
        try:
            working.result()
        except KeyboardInterrupt:
            while not working.done():  # a query that is only about to start does not hear the first
                connection.interrupt()
                wait((working,), _SECONDS_BETWEEN_INTERRUPTS)
            raise


def _answer(connection: duckdb.DuckDBPyConnection, query: str, output_format: str) -> None:
    from doctor.case.free_query import only_reading

    result = connection.execute(only_reading(query))
    columns = [column[0] for column in result.description or ()]
    if output_format == "table":
        rows = result.fetchmany(_ROWS_ON_SCREEN + 1)
        if len(rows) > _ROWS_ON_SCREEN:
            say(f"the first {_ROWS_ON_SCREEN} rows; --format csv gives all")
        write(_table(columns, rows[:_ROWS_ON_SCREEN]), None)
    elif output_format == "csv":
        write(_csv(columns, result.fetchall()), None)
    else:
        names = _distinct(columns)
        records = [dict(zip(names, map(_in_json, row), strict=True)) for row in result.fetchall()]
        write(json.dumps(records, indent=1, default=str, allow_nan=False) + "\n", None)


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


def _distinct(names: Sequence[str]) -> list[str]:
    """The names with a number behind those that stood before, so that no value hides another."""
    found: list[str] = []
    for name in names:
        count = sum(1 for other in names[: len(found)] if other == name)
        found.append(f"{name}:{count}" if count else name)
    return found


def _in_json(value: Any) -> Any:
    """The value with NaN and infinities, which JSON lacks, as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _in_json(entry) for key, entry in value.items()}
    return [_in_json(entry) for entry in value] if isinstance(value, list | tuple) else value


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
