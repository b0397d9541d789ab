from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from doctor.errors import DamagedEvidenceError
from tests.support.columnar_export import write_arrow_folder, write_parquet_folder
from tests.support.reading import read_all
from tests.support.sqlite_export import export_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "report_pqtdir"
    write_parquet_folder(export_with(tmp_path), target)
    return target


def test_a_table_that_is_damaged_is_said_and_the_others_are_read(folder: Path) -> None:
    kernels = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernels.write_bytes(kernels.read_bytes()[:-100])
    reading = read_all(folder)
    assert "kernel" not in reading.row_counts()
    assert reading.row_counts()["api_call"] == 2241
    assert not reading.facts.is_complete
    assert reading.facts.notes[0].startswith("CUPTI_ACTIVITY_KIND_KERNEL: damaged after 0 rows")


@pytest.mark.parametrize("write", [write_arrow_folder, write_parquet_folder])
def test_names_of_columns_that_are_no_text_cost_their_table_alone(
    write: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "tables"
    write(export_with(tmp_path), folder)
    [kernels] = folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*")
    kernels.write_bytes(kernels.read_bytes().replace(b"correlationId", b"\xff\xe1rrelationId"))
    reading = read_all(folder)
    assert reading.facts.notes[0].startswith("CUPTI_ACTIVITY_KIND_KERNEL: damaged after 0 rows")
    assert reading.row_counts()["api_call"] == 2241


def test_a_folder_whose_every_table_is_damaged_is_refused(folder: Path) -> None:
    for table in folder.iterdir():
        table.write_bytes(b"PAR1 nothing")
    with pytest.raises(DamagedEvidenceError, match="no table can be read"):
        read_all(folder)


def test_columns_of_other_types_are_converted_where_they_mean_the_same(folder: Path) -> None:
    path = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table = pq.read_table(path)
    changed = {
        "gridX": table["gridX"].cast(pa.int32()),
        "correlationId": table["correlationId"].cast(pa.uint32()),
        "blockX": table["blockX"].cast(pa.float64()),
        "deviceId": pa.array(["gpu"] * table.num_rows),
    }
    for name, values in changed.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    pq.write_table(table, path)
    reading = read_all(folder)
    assert reading.column("kernel", "grid_x") == table["gridX"].to_pylist()
    assert reading.column("kernel", "correlation_id") == table["correlationId"].to_pylist()
    assert reading.column("kernel", "block_x") == table["blockX"].to_pylist()
    assert set(reading.column("kernel", "device_id")) == {None}
    assert reading.facts.notes == (
        "CUPTI_ACTIVITY_KIND_KERNEL.deviceId: its values are not of the column's type and are left out",
    )


def test_ids_beyond_63_bits_are_unknown(folder: Path) -> None:
    path = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table = pq.read_table(path)
    ids = [2**64 - 1, *table["correlationId"].to_pylist()[1:]]
    table = table.set_column(table.schema.get_field_index("correlationId"), "correlationId", pa.array(ids, pa.uint64()))
    pq.write_table(table, path)
    found = read_all(folder).column("kernel", "correlation_id")
    assert found == [None, *ids[1:]]


def test_bytes_in_place_of_text_read_as_text(folder: Path) -> None:
    path = folder / "StringIds.parquet"
    table = pq.read_table(path)
    texts = [str(text).encode() + b"\xff" for text in table["value"].to_pylist()]
    pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", pa.array(texts, pa.binary())), path)
    names = read_all(folder).column("kernel", "name")
    assert all(str(name).endswith("\N{REPLACEMENT CHARACTER}") for name in names)


def test_arrow_streams_read_like_arrow_files(tmp_path: Path) -> None:
    folder = tmp_path / "report_arwdir"
    write_arrow_folder(export_with(tmp_path), folder)
    expected = read_all(folder).row_counts()
    for path in folder.iterdir():
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    assert read_all(folder).row_counts() == expected


def test_texts_that_point_outside_their_file_do_not_end_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "report_arwdir"
    write_arrow_folder(export_with(tmp_path), folder)
    path = folder / "StringIds.arrow"
    words = pa.ipc.open_file(path.read_bytes()).read_all()["value"].combine_chunks()
    with pa.OSFile(str(path), "wb") as sink:
        table = pa.table({"id": pa.array(range(len(words.dictionary)), pa.int64()), "value": words.dictionary})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    lengths = [len(str(word).encode()) for word in words.dictionary.to_pylist()[:8]]
    ends = [sum(lengths[: count + 1]) for count in range(8)]
    content = path.read_bytes()
    place = content.index(struct.pack("<8i", *ends)) + 8
    path.write_bytes(content[:place] + struct.pack("<2i", 1 << 30, -(1 << 30)) + content[place + 8 :])
    program = [sys.executable, "-m", "doctor.cli.main", "diagnose", str(folder), "--format", "json", "--no-progress"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "StringIds.value: its values are not of the column's type" in done.stdout
