"""Arrow batches into a case file.

A batch carries the columns of one table of `schema`, in any order, without `source_id`; columns it lacks become
NULL. Interned columns come
as strings (plain or dictionary-encoded) and leave as ids of the table `text`. One `DuckDB INSERT ... SELECT` a
batch: about 2.5 million rows
a second, against ten thousand for `executemany`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb_engine import Dialect
from sqlalchemy import Table

from doctor.case import schema
from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.misfits import Misfits
from doctor.case.possible import Column, possible
from doctor.case.schema import Columns

GROUP_ROWS = 122_880
"""Rows of a group of DuckDB's, which is compressed at once; smaller batches are written twice. Two groups at a time
would take a core each, of which the reader needs one."""


class CaseLoader:
    """Fills the tables of one open case; not thread-safe, one loader a connection.

    Args:
        connection: the case.
        left_out: columns that the case does not have.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, left_out: Columns | None = None) -> None:
        self._connection = connection
        self._left_out = left_out or {}
        self._text_ids: dict[str, int] = dict(connection.execute("SELECT text, text_id FROM text").fetchall())
        # fetchall, not fetchone: a half-fetched result blocks the connection
        [(last,)] = connection.execute("SELECT coalesce(max(source_id), -1) FROM source").fetchall()
        [(last_unread,)] = connection.execute("SELECT coalesce(max(source_id), -1) FROM unread_file").fetchall()
        self._next_source_id: int = max(last, last_unread) + 1
        self._filled: set[str] = set()
        self._misfits = Misfits()

    def load(self, path: str, batches: Iterable[TableBatch | SourceFacts]) -> tuple[int, ...]:
        """Load one evidence file and return its source ids: one, or one for each kind of evidence in a text.

        A file that fails in the middle leaves no row behind.

        Raises:
            ValueError: a batch names a table or column that the schema lacks, or the reader gave no `SourceFacts`.
        """
        first = self._next_source_id
        self._filled.clear()
        self._misfits = Misfits()
        try:
            return self._load(path, batches)
        except BaseException:
            self._remove_from(first)
            raise

    def leave_out(self, path: str, kind: str | None, reason: str) -> None:
        """Keep in the case that a file was to be read and why it was not."""
        self._connection.execute(
            "INSERT INTO unread_file (source_id, path, kind, reason) VALUES (?, ?, ?, ?)",
            [self._next_source_id, path, kind, reason],
        )
        self._next_source_id += 1

    def _remove_from(self, first_source_id: int) -> None:
        with contextlib.suppress(duckdb.Error):  # whatever made the load fail is the error to show
            for table in (*self._filled, "source"):
                self._connection.execute(f'DELETE FROM "{table}" WHERE source_id >= ?', [first_source_id])

    def _load(self, path: str, batches: Iterable[TableBatch | SourceFacts]) -> tuple[int, ...]:
        ids: dict[str | None, int] = {}
        described: dict[int, SourceFacts] = {}
        waiting: dict[tuple[int, str], list[TableBatch]] = {}
        for batch in batches:
            if isinstance(batch, SourceFacts):
                described[self._source_id(ids, batch.kind if batch.kind in ids else None)] = batch
            else:
                self._collect(waiting, self._source_id(ids, batch.kind), batch)
        for (source_id, _), collected in waiting.items():
            if collected:
                self._insert(source_id, _joined(collected))
        if not described or set(ids.values()) != set(described):
            raise ValueError(f"the reader of {path} gave no SourceFacts")
        for source_id, facts in described.items():
            self._insert_source(source_id, path, self._misfits.noted(source_id, facts))
        return tuple(described)

    def _source_id(self, ids: dict[str | None, int], kind: str | None) -> int:
        """The id of a kind of evidence within one file, given out when it is first seen."""
        if kind not in ids:
            ids[kind] = self._next_source_id
            self._next_source_id += 1
        return ids[kind]

    def _collect(self, waiting: dict[tuple[int, str], list[TableBatch]], source_id: int, batch: TableBatch) -> None:
        """Insert rows as soon as there are as many of a table as DuckDB compresses at a time, and only so many."""
        collected = waiting.setdefault((source_id, batch.table), [])
        if collected and collected[0].rows.schema != batch.rows.schema:
            self._insert(source_id, _joined(collected))
            collected.clear()
        collected.append(batch)
        if sum(part.rows.num_rows for part in collected) >= GROUP_ROWS:
            whole_groups, rest = _split(_joined(collected))
            self._insert(source_id, whole_groups)
            collected[:] = rest

    def _insert(self, source_id: int, batch: TableBatch) -> None:
        table = schema.metadata.tables.get(batch.table)
        if table is None:
            raise ValueError(f"no table {batch.table} in a case file")
        columns: dict[str, pa.Array] = {}
        left_out = self._left_out.get(batch.table, frozenset[str]())
        for name in batch.rows.schema.names:
            if name in left_out:
                continue
            values = batch.rows.column(name)
            if name in table.columns:
                columns[name] = values
            elif f"{name}_id" in table.columns and table.columns[f"{name}_id"].info.get("interned"):
                columns[f"{name}_id"] = self._intern(values)
            else:
                raise ValueError(f"no column {name} in table {batch.table}")
        rows = self._possible(source_id, batch.table, columns)
        self._filled.add(batch.table)
        self._connection.register("_batch", rows)
        try:
            self._insert_batch(source_id, table, {name: f'"{name}"' for name in columns})
        except duckdb.ConversionException:  # looked for only now: a check of every value would cost every good file
            self._insert_what_fits(source_id, table, rows)
        finally:
            self._connection.unregister("_batch")

    def _possible(self, source_id: int, table: str, columns: Mapping[str, Column]) -> pa.Table:
        """A table of what can be; what is left out is counted."""
        found = possible(columns)
        self._misfits.count_rows(source_id, table, found.lost_rows)
        self._misfits.count_values(source_id, {f"{table}.{name}": lost for name, lost in found.lost_values.items()})
        return pa.table(dict(found.columns))

    def _insert_batch(self, source_id: int, table: Table, values: Mapping[str, str]) -> None:
        names = ", ".join(f'"{name}"' for name in values)
        chosen = ", ".join(values.values())
        self._connection.execute(
            f'INSERT INTO "{table.name}" (source_id, {names}) SELECT {source_id:d}, {chosen} FROM _batch'
        )

    def _insert_what_fits(self, source_id: int, table: Table, rows: pa.Table) -> None:
        """Insert with NULL for each number that its column has no room for, and count them."""
        types = {name: str(table.columns[name].type.compile(Dialect())) for name in rows.schema.names}
        values = {name: f'TRY_CAST("{name}" AS {kind})' for name, kind in types.items()}
        lost = ", ".join(f'count("{name}") - count({value})' for name, value in values.items())
        [counts] = self._connection.execute(f"SELECT {lost} FROM _batch").fetchall()
        self._misfits.count_values(
            source_id, {f"{table.name}.{name}": count for name, count in zip(values, counts, strict=True)}
        )
        self._insert_batch(source_id, table, values)

    def _intern(self, values: pa.Array) -> pa.Array:
        encoded = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = _in_one_piece(encoded)
        if isinstance(encoded, pa.ChunkedArray):  # zero chunks stay chunked
            return pa.array([], type=pa.int32())
        words: list[str | None] = encoded.dictionary.to_pylist()
        new = [word for word in dict.fromkeys(words) if word is not None and word not in self._text_ids]
        if new:
            first = len(self._text_ids)
            self._text_ids.update({word: first + offset for offset, word in enumerate(new)})
            self._connection.register(
                "_words", pa.table({"text_id": pa.array(range(first, first + len(new)), pa.int32()), "text": new})
            )
            self._connection.execute("INSERT INTO text SELECT text_id, text FROM _words")
            self._connection.unregister("_words")
        ids = pa.array([None if word is None else self._text_ids[word] for word in words], pa.int32())
        return pc.take(ids, encoded.indices)

    def _insert_source(self, source_id: int, path: str, facts: SourceFacts) -> None:
        row = {
            "source_id": source_id,
            "path": path,
            "kind": facts.kind,
            "tool": facts.tool,
            "is_complete": facts.is_complete,
            "notes": json.dumps(list(facts.notes)),
            "capture_start_ns": facts.capture_start_ns,
            "capture_end_ns": facts.capture_end_ns,
            "clock_offset_ns": facts.clock_offset_ns,
            "rank": facts.rank,
            "world_size": facts.world_size,
            "graph_trace_level": facts.graph_trace_level,
        }
        self._connection.execute(
            f"INSERT INTO source ({', '.join(row)}) VALUES ({', '.join('?' for _ in row)})",
            list(row.values()),
        )


def _in_one_piece(encoded: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Pieces with dictionaries of their own under one."""
    try:
        return encoded.combine_chunks()
    except pa.ArrowInvalid:  # a dictionary that holds NULL, which Arrow cannot put together with another
        plain = pa.chunked_array([piece.dictionary_decode() for piece in encoded.chunks])
        return pc.dictionary_encode(plain).combine_chunks()


def _split(batch: TableBatch) -> tuple[TableBatch, list[TableBatch]]:
    """Whole groups of rows, and what is left over."""
    count = batch.rows.num_rows // GROUP_ROWS * GROUP_ROWS
    rest = replace(batch, rows=batch.rows.slice(count))
    return replace(batch, rows=batch.rows.slice(0, count)), [rest] if rest.rows.num_rows else []


def _joined(batches: list[TableBatch]) -> TableBatch:
    """Batches of one table and the same columns as one."""
    if len(batches) == 1:
        return batches[0]
    parts = [pa.table(dict(zip(part.rows.schema.names, part.rows.columns, strict=True))) for part in batches]
    together = pa.concat_tables(parts)
    columns = {name: _without_seams(together.column(name)) for name in together.schema.names}
    return TableBatch(batches[0].table, pa.table(columns), batches[0].kind)


def _without_seams(column: pa.ChunkedArray) -> Column:
    """A column in one piece: DuckDB stores full vectors in nine tenths of the time. What is to be interned stays."""
    return column if pa.types.is_dictionary(column.type) else column.combine_chunks()
