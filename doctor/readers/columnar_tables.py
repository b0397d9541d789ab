"""The tables of a folder with one Parquet or Arrow file each, as Arrow batches; damage is noted and survived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from doctor.formats.nsys_export.tables import ExportTable, Only
from doctor.readers.protocol import Progress

SUFFIXES = (".parquet", ".arrow", ".feather")

_BATCH_ROWS = 1 << 16


class ColumnarTables:
    """A folder of table files.

    Attributes:
        damage: one line on each thing that could not be read so far.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.damage: list[str] = []
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
                rows = self._chosen(table, batch if only is None else _filtered(batch, only))
                count += rows.num_rows
                yield rows
        except (pa.ArrowException, OSError) as error:
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
                self._note_once(f"{table.name}.{name}: its values are not of the column's type and are left out")
                array = pa.nulls(batch.num_rows, kind)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _note_once(self, line: str) -> None:
        if line not in self.damage:
            self.damage.append(line)


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


def _filtered(batch: pa.RecordBatch, only: Only) -> pa.RecordBatch:
    stored = {name.lower(): name for name in batch.schema.names}
    if only.column.lower() not in stored:
        return batch.slice(0, 0)
    kind = pa.int64() if isinstance(only.values[0], int) else pa.string()
    values = _converted(batch.column(stored[only.column.lower()]), kind)
    if values is None:
        return batch.slice(0, 0)
    return batch.filter(pc.is_in(values, pa.array(only.values, kind)))


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The array as `kind`; None where its type has nothing to do with it."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == kind:
        return _legible(array) if pa.types.is_string(kind) else array
    if pa.types.is_string(kind) and (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        return pa.array([None if raw is None else raw.decode("utf-8", "replace") for raw in array.to_pylist()], kind)
    try:
        return _legible(array.cast(kind)) if pa.types.is_string(kind) else array.cast(kind)
    except pa.ArrowInvalid:
        return _within_range(array) if pa.types.is_uint64(array.type) else None
    except pa.ArrowNotImplementedError:
        return None


def _legible(texts: pa.Array) -> pa.Array | None:
    """The texts, with a mark for bytes that are no UTF-8, such as damage leaves; None where nothing fits."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        try:
            raw = texts.view(pa.binary())
            raw.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return pa.array(
            [None if one is None else one.decode("utf-8", "replace") for one in raw.to_pylist()], pa.string()
        )
    return texts


def _within_range(array: pa.Array) -> pa.Array:
    fits = pc.less(array, pa.scalar(1 << 63, pa.uint64()))
    return pc.if_else(fits, array, pa.scalar(None, pa.uint64())).cast(pa.int64())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
