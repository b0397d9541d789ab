"""The tables of a folder with one Parquet or Arrow file each, as Arrow batches; damage is noted and survived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from doctor.formats.nsys_export.tables import OPTIONAL, ExportTable, Only
from doctor.readers.protocol import Progress

SUFFIXES = (".parquet", ".arrow", ".feather")

_BATCH_ROWS = 1 << 16


class ColumnarTables:
    """A folder of table files.

    Attributes:
        damage: one line on each thing that could not be read so far.
        remarks: the same of columns that rows are made without: nothing is incomplete for it.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.damage: list[str] = []
        self.remarks: list[str] = []
        self._files = {path.stem: path for path in table_files(folder)}
        self._progress = progress
        self._sizes = {table: path.stat().st_size for table, path in self._files.items()}
        self._seen: set[str] = set()

    def has(self, table: str) -> bool:
        """Tell whether the folder has the table."""
        return table in self._files

    def batches(self, table: ExportTable, only: Only | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table as `ExportTables.batches` promises."""
        if not self.has(table.name):
            return
        count = 0
        try:
            wanted = {name.lower() for name in (*table.columns, *([] if only is None else [only.column]))}
            for batch in _stored_batches(self._files[table.name], wanted):
                rows = self._chosen(table, batch)
                if only is not None:
                    rows = rows.filter(_where(batch, only))
                count += rows.num_rows
                yield rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: names of columns
            self.damage.append(f"{table.name}: damaged after {count:,} rows ({_first_line(error)}); the rest is lost")
        self._seen.add(table.name)
        self._progress(sum(self._sizes[name] for name in self._seen), sum(self._sizes.values()))

    def _chosen(self, table: ExportTable, batch: pa.RecordBatch) -> pa.RecordBatch:
        stored = {name.lower(): name for name in batch.schema.names}
        fields = [(name, pa.int64()) for name in table.integers] + [(name, pa.string()) for name in table.texts]
        arrays = []
        for name, kind in fields:
            if name.lower() not in stored:
                arrays.append(pa.nulls(batch.num_rows, kind))
                continue
            array = _converted(batch.column(stored[name.lower()]), kind)
            if array is None:
                self._note_once(table.name, name)
                array = pa.nulls(batch.num_rows, kind)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _note_once(self, table: str, column: str) -> None:
        told = self.remarks if column in OPTIONAL else self.damage
        line = f"{table}.{column}: its values are not of the column's type and are left out"
        if line not in told:
            told.append(line)


def table_files(folder: Path) -> list[Path]:
    """The files of a folder that may each hold a table."""
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _stored_batches(path: Path, wanted: set[str]) -> Iterator[pa.RecordBatch]:
    """The columns of a file whose lower-case names are wanted, others unread."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            chosen = [name for name in file.schema_arrow.names if name.lower() in wanted]
            yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=chosen)
        return
    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
            return
        for index in range(file.num_record_batches):
            yield file.get_batch(index)


def _where(batch: pa.RecordBatch, only: Only) -> pa.Array:
    """A mask of the rows that are wanted; none where the column says nothing."""
    stored = {name.lower(): name for name in batch.schema.names}
    kind = pa.int64() if isinstance(only.values[0], int) else pa.string()
    name = stored.get(only.column.lower())
    values = None if name is None else _converted(batch.column(name), kind)
    return pc.is_in(pa.nulls(batch.num_rows, kind) if values is None else values, pa.array(only.values, kind))


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The array as `kind`; None where its type has nothing to do with it, or its inside is damaged."""
    try:
        sound = _sound(array)
        if sound.type == kind:
            return sound
        if pa.types.is_string(kind) and (pa.types.is_binary(sound.type) or pa.types.is_large_binary(sound.type)):
            return _decoded(sound)
        return sound.cast(kind)
    except pa.ArrowInvalid:
        return _within_range(array) if pa.types.is_uint64(array.type) else None
    except pa.ArrowNotImplementedError:
        return None


def _sound(array: pa.Array) -> pa.Array:
    """The array in a form that Arrow's functions, which check nothing, can be given.

    Damage makes offsets and indices that point outside; following one ends the process. Bytes that are no UTF-8 get a
    mark in their place.

    Raises:
        pa.ArrowInvalid: nothing of it can be followed.
    """
    if pa.types.is_dictionary(array.type):
        array.indices.validate(full=True)
        coded = pa.DictionaryArray.from_arrays(array.indices, _sound(array.dictionary))  # checks where they point
        return coded.dictionary_decode()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise
        raw = array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary())
        raw.validate(full=True)
        return _decoded(raw)
    return array


def _decoded(raw: pa.Array) -> pa.Array:
    return pa.array([None if one is None else one.decode("utf-8", "replace") for one in raw.to_pylist()], pa.string())


def _within_range(array: pa.Array) -> pa.Array:
    fits = pc.less(array, pa.scalar(1 << 63, pa.uint64()))
    return pc.if_else(fits, array, pa.scalar(None, pa.uint64())).cast(pa.int64())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
