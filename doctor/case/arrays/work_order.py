"""Everything that occupies a device, put in order of start: kernels, copies, memory sets and whole graph launches.

Times are sorted, which lie nearly in order; the other columns follow part by part while they are stored. SQL took twice
as long for rows of nineteen columns, and numbered them on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from doctor.case.arrays.columns import (
    UNKNOWN,
    Code,
    Groups,
    Int,
    Scan,
    Words,
    by_start,
    fetch,
    gather,
    in_order_of_keys,
    nullable,
    slices,
    spelled,
)
from doctor.case.arrays.operations import DeviceOps

Small = npt.NDArray[np.int8]

KINDS = {"kernel": "kernel", "memcpy": "memcpy", "memset": "memset", "graph_trace": "graph"}
"""What the rows of each table are."""
_SOURCES = """
SELECT source_id, shift_ns - coalesce(late_ns, 0) FROM timeline_source LEFT JOIN device_clock USING (source_id)
ORDER BY source_id
"""
_PLACE = ("source_id", "pid", "coalesce(device_id, 0)", "coalesce(stream_id, 0)")
_KERNEL_NAMES = """
SELECT name_id, enum_code(family)::INTEGER, coalesce(enum_code(precision)::INTEGER, -1) FROM kernel_name
WHERE name_id IS NOT NULL
"""
_NAME = "coalesce(name_id, short_name_id, -1)"
_WIDE = {
    "graph_node_id": dict.fromkeys(("kernel", "memcpy", "memset"), "graph_node_id"),
    "grid_blocks": {"kernel": "try(grid_x::BIGINT * grid_y * grid_z)"},
    "block_threads": {"kernel": "try(block_x::BIGINT * block_y * block_z)"},
    "size_bytes": dict.fromkeys(("memcpy", "memset"), "size_bytes"),
}
"""Whole numbers, by the tables that have them."""
_ENUMERATED = {"copy_kind": "copy_direction", "src_kind": "memory_place", "dst_kind": "memory_place"}
"""What only copies have."""


@dataclass(frozen=True)
class _Tables:
    """Rows of all tables, one table behind the other.

    Attributes:
        scans: of the tables that have rows.
        kinds: kind of work of each.
        first: first row of each.
        kind: of each row, a position in `kinds`.
    """

    scans: Mapping[str, Scan]
    kinds: tuple[str, ...]
    first: Int
    kind: Small

    @staticmethod
    def of(connection: duckdb.DuckDBPyConnection, sources: Sequence[int]) -> _Tables:
        """The rows of some sources that have times."""
        diagnosed = f"source_id IN ({', '.join(f'{one:d}' for one in sources)})" if sources else "false"
        where = f"{diagnosed} AND start_ns IS NOT NULL AND end_ns IS NOT NULL"
        scans = {table: Scan(connection, table, where) for table in KINDS}
        scans = {table: scan for table, scan in scans.items() if scan.count}
        counts = np.asarray([scan.count for scan in scans.values()], dtype=np.int64)
        kind = np.repeat(np.arange(len(counts), dtype=np.int8), counts)
        return _Tables(scans, tuple(KINDS[table] for table in scans), np.cumsum(counts) - counts, kind)

    def column(self, expression: str) -> Int:
        """Whole numbers of every row, `UNKNOWN` where NULL."""
        values = np.empty(len(self.kind), dtype=np.int64)
        for first, scan in zip(self.first.tolist(), self.scans.values(), strict=True):
            scan.fill(values[first : first + scan.count], f"coalesce({expression}, {UNKNOWN:d})")
        return values

    def columns(self, expressions: Mapping[str, str], kind: npt.DTypeLike, missing: int) -> dict[int, Any]:
        """A column that not all tables have, `missing` where NULL; of those only in which it tells anything."""
        found = {
            at: self.scans[table].column(f"coalesce({expressions[table]}, {missing:d})", kind)
            for at, table in enumerate(self.scans)
            if table in expressions
        }
        return {at: values for at, values in found.items() if (values != missing).any()}

    def places(self) -> Groups:
        """Every row numbered by source, process, device and stream."""
        found = [scan.groups(*_PLACE) for scan in self.scans.values()]
        keys = in_order_of_keys({key for groups in found for key in groups.keys})
        number = {key: at for at, key in enumerate(keys)}
        renamed = [np.asarray([number[key] for key in one.keys], dtype=np.int32)[one.code] for one in found]
        return Groups(np.concatenate([np.zeros(0, dtype=np.int32), *renamed]), keys)


@dataclass(frozen=True)
class _Names:
    """Names of kernels.

    Attributes:
        name_id: of each kernel, -1 where it has none.
        families: kinds of work.
        precisions: precisions of matrix products.
        family: by name id; the last is that of a kernel without one.
        precision: likewise, -1 where the name does not tell.
    """

    name_id: Code
    families: tuple[str, ...]
    precisions: tuple[str, ...]
    family: npt.NDArray[np.uint8]
    precision: Small

    @staticmethod
    def of(connection: duckdb.DuckDBPyConnection, tables: _Tables) -> _Names:
        """The names, and what they stand for."""
        families, precisions = _members(connection, "work_family"), _members(connection, "work_precision")
        known = connection.execute(_KERNEL_NAMES).fetchall()
        kernels = tables.scans.get("kernel")
        name = np.zeros(0, np.int32) if kernels is None else kernels.column(_NAME, np.int32)
        size = max(int(name.max(initial=-1)), *(name_id for name_id, *_ in known), -1) + 2  # a text may be missing
        family, precision = np.full(size, families.index("kernel"), dtype=np.uint8), np.full(size, -1, dtype=np.int8)
        for name_id, its_family, its_precision in known:
            family[name_id], precision[name_id] = its_family, its_precision
        return _Names(name, families, precisions, family, precision)


@dataclass(frozen=True)
class _Details:
    """Columns that only some tables have.

    Attributes:
        wide: whole numbers, by name and then by position of the table; `UNKNOWN` where NULL.
        enumerated: likewise, positions in the words of each, -1 where NULL.
        words: of each enumeration.
    """

    wide: Mapping[str, Mapping[int, Int]]
    enumerated: Mapping[str, Mapping[int, Small]]
    words: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(connection: duckdb.DuckDBPyConnection, tables: _Tables) -> _Details:
        """Read all of them."""
        words = {name: _members(connection, enumeration) for name, enumeration in _ENUMERATED.items()}
        codes = {name: _code_of(name, known) for name, known in words.items()}
        return _Details(
            {name: tables.columns(expressions, np.int64, UNKNOWN) for name, expressions in _WIDE.items()},
            {name: tables.columns({"memcpy": code}, np.int8, -1) for name, code in codes.items()},
            words,
        )

    def of_rows(self, kind: Small, row: Int) -> dict[str, pa.Array]:
        """The columns of some rows, of which the kind of work is given and the place in its table."""
        here = {at: np.flatnonzero(kind == at) for at in np.unique(kind).tolist()}
        wide = {name: nullable(_spread(columns, row, here, UNKNOWN, np.int64)) for name, columns in self.wide.items()}
        enumerated = {
            name: pa.array(_spread(columns, row, here, -1, np.int8)) for name, columns in self.enumerated.items()
        }
        return wide | enumerated


def read_work(connection: duckdb.DuckDBPyConnection) -> tuple[DeviceOps, Iterator[pa.Table], Words]:
    """Operations of the diagnosed sources on the case's clock, and the rows of `device_op`, made part by part.

    Both are in order of start, end, source and stream. Third, the words that columns of the rows name by numbers.
    """
    sources = connection.execute(_SOURCES).fetchall()
    tables = _Tables.of(connection, [source_id for source_id, _ in sources])
    shift = f"CASE source_id {' '.join(f'WHEN {source_id:d} THEN {ns:d}' for source_id, ns in sources)} ELSE 0 END"
    start, end = tables.column(f"start_ns + {shift}"), tables.column(f"greatest(end_ns, start_ns) + {shift}")
    places, names = tables.places(), _Names.of(connection, tables)
    source, stream = (np.asarray([key[digit] for key in places.keys]) for digit in (0, 3))
    order = by_start(start, lambda rows: (stream[places.code[rows]], source[places.code[rows]], end[rows]))
    start, end = gather(start, order), gather(end, order)
    place = Groups(gather(places.code, order), places.keys)
    ops = _operations(tables, order, place, start, end, names)
    details = _Details.of(connection, tables)
    words: Words = {
        "kind": ("work_kind", tables.kinds),
        "family": ("work_family", names.families),
        "precision": ("work_precision", names.precisions),
        **{column: (_ENUMERATED[column], known) for column, known in details.words.items()},
    }
    return ops, _rows(tables, order, place, names, ops, details), words


def _operations(tables: _Tables, order: Code, place: Groups, start: Int, end: Int, names: _Names) -> DeviceOps:
    family = np.asarray([names.families.index(kind) for kind in tables.kinds], dtype=np.uint8)[tables.kind]
    family[: len(names.name_id)] = names.family[names.name_id]  # kernels come first
    process, device = _projected(place, 0, 1), _projected(place, 0, 2)
    correlation = gather(tables.column("correlation_id"), order)
    return DeviceOps(
        process.keys,
        process.code,
        device.keys,
        device.code,
        start,
        end,
        correlation,
        names.families,
        gather(family, order),
    )


def _rows(
    tables: _Tables, order: Code, place: Groups, names: _Names, ops: DeviceOps, details: _Details
) -> Iterator[pa.Table]:
    of_place = [[key[at] for key in place.keys] for at in range(len(_PLACE))]
    for part in slices(len(order)):
        here, kind, family = place.code[part], tables.kind[order[part]], ops.family[part]
        row = order[part] - tables.first[kind]
        name = np.full(len(kind), -1, dtype=np.int32)
        kernel = np.flatnonzero(order[part] < len(names.name_id))  # kernels come first
        name[kernel] = gather(names.name_id, order[part][kernel])
        yield pa.table(
            {
                "device_op_id": np.arange(part.start, part.stop),
                "source_id": spelled(here, of_place[0], pa.int16()),
                "pid": spelled(here, of_place[1], pa.int64()),
                "device_id": spelled(here, of_place[2], pa.int32()),
                "stream_id": spelled(here, of_place[3], pa.int64()),
                "kind": kind,
                "start_ns": ops.start[part],
                "end_ns": ops.end[part],
                "correlation_id": nullable(ops.correlation[part]),
                "name_id": pa.array(name, mask=name < 0),
                "family": family,
                "precision": names.precision[name],
                **details.of_rows(kind, row),
            }
        )


def _spread(
    columns: Mapping[int, npt.NDArray[Any]], row: Int, here: Mapping[int, Int], missing: int, kind: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Values of rows out of the column of the table that each is in, `missing` where that has none."""
    values = np.full(len(row), missing, dtype=kind)
    for at, column in columns.items():
        if at in here:
            values[here[at]] = column[row[here[at]]]
    return values


def _code_of(column: str, words: Sequence[str]) -> str:
    """An expression for the position of a text among some words, NULL where it is none of them."""
    cases = (f"WHEN '{word}' THEN {at:d}" for at, word in enumerate(words))
    return f"CASE {column} {' '.join(cases)} END"


def _projected(place: Groups, *digits: int) -> Groups:
    """Rows numbered by a part of what they are numbered by."""
    keys = in_order_of_keys({tuple(key[digit] for digit in digits) for key in place.keys})
    number = {key: at for at, key in enumerate(keys)}
    renamed = [number[tuple(key[digit] for digit in digits)] for key in place.keys]
    return Groups(gather(np.asarray(renamed, dtype=np.int32), place.code), keys)


def _members(connection: duckdb.DuckDBPyConnection, enumeration: str) -> tuple[str, ...]:
    rows = fetch(connection, f"SELECT unnest(enum_range(NULL::{enumeration}))::VARCHAR AS word")
    return tuple(rows.column("word").to_pylist())
