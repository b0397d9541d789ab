"""What a reader gives, gathered for a test: whole tables, the facts, a loaded case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.load import CaseLoader
from doctor.case.store import create_case
from doctor.errors import EvidenceError
from doctor.readers import registry


@dataclass(frozen=True)
class Reading:
    """Everything that one read gave.

    Attributes:
        parts: batches and facts in the order given.
        facts: the last part.
    """

    parts: tuple[TableBatch | SourceFacts, ...]
    facts: SourceFacts

    def row_counts(self) -> dict[str, int]:
        """Rows of each table that has any."""
        counts: dict[str, int] = {}
        for part in self.parts:
            if isinstance(part, TableBatch):
                counts[part.table] = counts.get(part.table, 0) + part.rows.num_rows
        return {table: count for table, count in counts.items() if count}

    def column(self, table: str, name: str) -> list[object]:
        """All values of one column, in the order read."""
        values: list[object] = []
        for part in self.parts:
            if isinstance(part, TableBatch) and part.table == table and name in part.rows.schema.names:
                values += _plain(part.rows.column(name)).to_pylist()
        return values


def rows(reading: Reading, table: str, *columns: str) -> list[tuple[object, ...]]:
    """Some columns of a table, row by row in the order read."""
    return list(zip(*(reading.column(table, column) for column in columns), strict=True))


def read_all(path: Path) -> Reading:
    """Read one evidence file to its end."""
    parts = tuple(registry.read(path))
    facts = parts[-1]
    assert isinstance(facts, SourceFacts), "the facts come last"
    return Reading(parts, facts)


def try_to_read(path: Path) -> Reading | EvidenceError:
    """Read one evidence file to its end, or give the error that it deserves."""
    try:
        return read_all(path)
    except EvidenceError as error:
        return error


@contextmanager
def loaded(*paths: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A case in memory with the evidence of some paths, source 0, 1, ..."""
    connection = create_case()
    try:
        loader = CaseLoader(connection)
        for path in paths:
            loader.load(str(path), registry.read(path))
        yield connection
    finally:
        connection.close()


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return array.cast(pa.string()) if pa.types.is_dictionary(array.type) else array
