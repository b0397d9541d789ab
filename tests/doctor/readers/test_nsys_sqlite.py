from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from doctor.case.batch import TableBatch
from doctor.errors import EvidenceError
from doctor.readers import sqlite_tables
from tests.support.reading import loaded, read_all
from tests.support.sqlite_export import ask, export_with
from tests.support.traces import shared_trace

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NO_ID = 0xFFFFFFFF
GLOBAL_PID = 281475345809408
GLOBAL_TID = GLOBAL_PID + 22


def test_sums_and_names_are_those_that_sqlite_itself_gives(tmp_path: Path) -> None:
    export = export_with(tmp_path)
    with loaded(export) as case:
        assert case.execute(
            "SELECT count(*), sum(end_ns - start_ns), sum(correlation_id) FROM kernel"
        ).fetchall() == ask(export, f"SELECT count(*), sum(end - start), sum(correlationId) FROM {KERNEL}")
        ours = case.execute("""
            SELECT t.text, s.text, count(*) FROM kernel
            JOIN text t ON t.text_id = name_id JOIN text s ON s.text_id = short_name_id GROUP BY 1, 2 ORDER BY 1, 2
        """).fetchall()
        theirs = ask(
            export,
            f"""
            SELECT d.value, s.value, count(*) FROM {KERNEL}
            JOIN StringIds d ON d.id = demangledName JOIN StringIds s ON s.id = shortName GROUP BY 1, 2 ORDER BY 1, 2
        """,
        )
        assert ours == theirs
        assert case.execute(
            "SELECT api, count(*), sum(end_ns - start_ns) FROM api_call GROUP BY 1 ORDER BY 1"
        ).fetchall() == ask(
            export,
            "SELECT iif(eventClass = 1, 'driver', 'runtime'), count(*), sum(end - start) "
            "FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1 ORDER BY 1",
        )


def test_process_and_thread_ids_are_unpacked(tmp_path: Path) -> None:
    with loaded(export_with(tmp_path)) as case:
        assert case.execute("SELECT DISTINCT pid, tid FROM api_call").fetchall() == [(22, 22)]
        assert case.execute("SELECT DISTINCT pid FROM kernel").fetchall() == [(22,)]


def test_facts_give_window_clock_and_graph_level(tmp_path: Path) -> None:
    facts = read_all(export_with(tmp_path)).facts
    assert (facts.capture_start_ns, facts.capture_end_ns) == (0, 69854771)
    assert facts.clock_offset_ns == 1795963555355139662
    assert facts.graph_trace_level == "graph"
    assert facts.tool == "nsys 2025.3.2.0 (exporter)"


def test_a_time_shift_of_the_export_moves_window_and_clock_alike(tmp_path: Path) -> None:
    shifted = export_with(
        tmp_path, "UPDATE META_DATA_EXPORT SET value = '5000' WHERE name = 'EXPORT_CONFIG_TIME_SHIFT'"
    )
    facts = read_all(shifted).facts
    assert (facts.capture_start_ns, facts.capture_end_ns) == (5000, 69859771)
    assert facts.clock_offset_ns == 1795963555355139662 - 5000


def test_the_graph_level_follows_from_the_rows_where_no_option_is_stored(tmp_path: Path) -> None:
    no_option = "DROP TABLE META_DATA_CAPTURE"
    assert read_all(export_with(tmp_path, no_option)).facts.graph_trace_level == "graph"
    no_graph = "DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    assert read_all(export_with(tmp_path, no_option, no_graph)).facts.graph_trace_level is None
    nodes = f"UPDATE {KERNEL} SET graphNodeId = 7 WHERE correlationId % 2"
    assert read_all(export_with(tmp_path, no_option, no_graph, nodes)).facts.graph_trace_level == "node"


def test_words_survive_without_tables_of_enumerations(tmp_path: Path) -> None:
    whole = export_with(tmp_path)
    enumerations = [name for (name,) in ask(whole, "SELECT name FROM sqlite_master WHERE name LIKE 'ENUM%'")]
    with loaded(whole) as case:
        expected = case.execute("SELECT copy_kind, src_kind, dst_kind, count(*) FROM memcpy GROUP BY ALL ORDER BY ALL")
        words = expected.fetchall()
    bare = export_with(tmp_path, *(f"DROP TABLE {name}" for name in enumerations))
    with loaded(bare) as case:
        found = case.execute("SELECT copy_kind, src_kind, dst_kind, count(*) FROM memcpy GROUP BY ALL ORDER BY ALL")
        assert found.fetchall() == words
        assert words == [("dtod", "device", "device", 24), ("htod", "pageable", "device", 8)]


def test_the_numbers_of_the_files_own_enumeration_win(tmp_path: Path) -> None:
    renumbered = export_with(
        tmp_path,
        "UPDATE ENUM_CUDA_MEM_KIND SET id = id + 100",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcKind = srcKind + 100, dstKind = dstKind + 100",
    )
    assert set(read_all(renumbered).column("memcpy", "src_kind")) == {"device", "pageable"}


def test_numbers_of_a_newer_recorder_are_named(tmp_path: Path) -> None:
    newer = export_with(
        tmp_path,
        "INSERT INTO ENUM_CUDA_MEM_KIND (id, name) VALUES (41, 'CUDA_MEMOPR_MEMORY_KIND_FABRIC')",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 99, srcKind = 41",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMSET SET memKind = 7",  # the file's own UNKNOWN
        "CREATE TABLE EVENTS_OF_TOMORROW (start INTEGER, what TEXT)",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN ofTomorrow INTEGER DEFAULT 7",
    )
    found = read_all(newer)
    assert set(found.column("memcpy", "copy_kind")) == {None}
    assert found.facts.is_complete
    assert found.facts.notes == (
        "memKind holds kinds that are not known here: 41 (FABRIC)",
        "copyKind holds kinds that are not known here: 99",
    )


@pytest.mark.parametrize(
    ("current", "deprecated", "event", "stream", "kind"),
    [
        (0, 1, 5, NO_ID, "event"),
        (0, 2, 5, 7, "stream_wait"),
        (0, 2, NO_ID, 7, "stream"),
        (0, 0, NO_ID, NO_ID, "context"),
        (0, 0, NO_ID, 7, None),
        (2, None, NO_ID, 7, "stream"),
        (2, None, 5, 7, "stream_wait"),
        (3, None, NO_ID, 7, "stream"),
        (4, 1, NO_ID, NO_ID, "context"),
        (99, None, NO_ID, 7, None),
    ],
)
def test_synchronisation_kinds_of_old_and_new_recorders(
    current: int, deprecated: int | None, event: int, stream: int, kind: str | None, tmp_path: Path
) -> None:
    old = "NULL" if deprecated is None else str(deprecated)
    export = export_with(
        tmp_path,
        f"UPDATE {SYNC} SET syncType = {current}, deprecatedSyncType = {old}, eventId = {event}, streamId = {stream}",
    )
    reading = read_all(export)
    assert set(reading.column("device_sync", "sync_kind")) == {kind}
    assert set(reading.column("device_sync", "stream_id")) == {None if stream == NO_ID else stream}


def test_an_old_export_without_the_columns_of_later_schemas_reads(tmp_path: Path) -> None:
    old = export_with(
        tmp_path,
        *(f"ALTER TABLE {KERNEL} DROP COLUMN {name}" for name in ("mangledName", "greenContextId", "graphNodeId")),
        *(f"ALTER TABLE {SYNC} DROP COLUMN {name}" for name in ("deprecatedSyncType", "eventSyncId")),
        "DROP TABLE META_DATA_EXPORT",
        "DROP TABLE META_DATA_CAPTURE",
        "DROP TABLE TARGET_INFO_GPU",
        "DROP TABLE TARGET_INFO_CUDA_DEVICE",
        "DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO",
        "CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INTEGER, name TEXT, numMultiprocessors INTEGER, "
        "globalMemorySize INTEGER, globalMemoryBandwidth INTEGER, coreClockRate INTEGER, "
        "computeCapabilityMajor INTEGER, computeCapabilityMinor INTEGER)",
        "INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, 'Tesla V100', 80, 34089730048, 898048000, 1530000, 7, 0)",
    )
    reading = read_all(old)
    assert reading.facts.is_complete
    assert reading.facts.tool == "nsys"
    assert reading.row_counts()["kernel"] == 990
    assert reading.column("device", "memory_rate_bytes_per_s") == [898048000000.0]
    assert reading.column("device", "clock_hz") == [1530000000.0]
    assert reading.row_counts()["stream"] > 0


def test_exports_that_know_no_null_and_write_zero_instead_read_alike(tmp_path: Path) -> None:
    old = export_with(
        tmp_path,
        "DROP TABLE META_DATA_CAPTURE",
        "DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        f"UPDATE {KERNEL} SET graphNodeId = 0",
        "UPDATE NVTX_EVENTS SET text = '', textId = 168, end = 0 WHERE rowid = 1",
        "UPDATE NVTX_EVENTS SET textId = 0 WHERE rowid > 1",
        "DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO",
        "CREATE TABLE TARGET_INFO_CUDA_NULL_STREAM "
        "AS SELECT 7 AS streamId, 0 AS hwId, 1 AS vmId, 22 AS processId, 1 AS contextId",
    )
    (name,) = ask(old, "SELECT value FROM StringIds WHERE id = 168")
    texts = ask(old, "SELECT text FROM NVTX_EVENTS WHERE rowid > 1 AND eventType = 59 ORDER BY rowid")
    reading = read_all(old)
    assert reading.facts.graph_trace_level is None
    assert reading.column("nvtx_range", "name") == [name[0], *(text for (text,) in texts)]
    assert reading.column("nvtx_range", "end_ns").index(None) == 0
    assert reading.column("stream", "is_null_stream").count(True) == 1


def test_gpus_of_other_vendors_are_no_devices(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        "INSERT INTO TARGET_INFO_GPU (vmId, id, name, busLocation) VALUES (0, 1, 'Intel(R) Iris(R) Xe Graphics', '')",
    )
    assert read_all(export).column("device", "name") == ["NVIDIA H200"]
    unmapped = export_with(
        tmp_path,
        "INSERT INTO TARGET_INFO_GPU (vmId, id, name, busLocation) VALUES (0, 1, 'Intel(R) Iris(R) Xe Graphics', '')",
        "DROP TABLE TARGET_INFO_CUDA_DEVICE",
    )
    assert read_all(unmapped).column("device", "name") == ["NVIDIA H200"]


def test_one_ordinal_is_one_device_even_if_processes_see_different_gpus_under_it(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        "CREATE TEMP TABLE other AS SELECT * FROM TARGET_INFO_GPU",
        "UPDATE other SET id = 1, name = 'NVIDIA L4'",
        "INSERT INTO TARGET_INFO_GPU SELECT * FROM other",
        "INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) VALUES (1, 0, 23), (1, 1, 22)",
    )
    reading = read_all(export)
    columns = (reading.column("device", name) for name in ("device_id", "name"))
    assert list(zip(*columns, strict=True)) == [(0, "NVIDIA H200"), (1, "NVIDIA L4")]


def test_ranges_are_named_by_text_or_by_id_and_know_their_domain(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        "DELETE FROM NVTX_EVENTS",
        "INSERT INTO StringIds VALUES (900001, 'ncclAllReduce')",
        *(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, domainId, globalTid) "
            f"VALUES ({start}, {end}, {kind}, {text}, {text_id}, {domain}, {GLOBAL_TID})"
            for start, end, kind, text, text_id, domain in (
                (1, "NULL", 75, "'NCCL'", "NULL", 1),
                (-10, 20, 59, "NULL", 900001, 1),
                (2, "NULL", 60, "'open range'", "NULL", 0),
                (3, 3, 34, "'mark'", "NULL", 2),
                (4, 5, 33, "'a category is no range'", "NULL", 0),
            )
        ),
    )
    reading = read_all(export)
    columns = (reading.column("nvtx_range", name) for name in ("name", "domain", "range_kind", "start_ns", "end_ns"))
    assert list(zip(*columns, strict=True)) == [
        ("ncclAllReduce", "NCCL", "push_pop", -10, 20),
        ("open range", None, "start_end", 2, None),
        ("mark", None, "mark", 3, 3),
    ]


def test_text_that_is_not_utf8_is_replaced_and_columns_of_the_users_own_are_ignored(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        "UPDATE NVTX_EVENTS SET text = CAST(x'6cff6d' AS TEXT)",
        f"ALTER TABLE {KERNEL} ADD COLUMN mine TEXT DEFAULT 'x'",
    )
    reading = read_all(export)
    assert set(reading.column("nvtx_range", "name")) == {"l\N{REPLACEMENT CHARACTER}m"}
    assert reading.facts.is_complete


def test_numbers_and_bytes_among_texts_are_left_out_and_said(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        "UPDATE NVTX_EVENTS SET text = 'a text'",
        "UPDATE NVTX_EVENTS SET text = x'ff6d' WHERE rowid = (SELECT min(rowid) FROM NVTX_EVENTS WHERE eventType = 59)",
    )
    reading = read_all(export)
    names = reading.column("nvtx_range", "name")
    assert (set(names), names.count(None)) == ({"a text", None}, 1)
    assert any("NVTX_EVENTS.text: 1 values" in note for note in reading.facts.notes)


def test_texts_in_utf_16_read_alike(tmp_path: Path) -> None:
    export = export_with(tmp_path, "UPDATE NVTX_EVENTS SET text = 'd\N{LATIN SMALL LETTER E WITH ACUTE}code'")
    other = tmp_path / "utf16.sqlite"
    with closing(sqlite3.connect(export)) as source, closing(sqlite3.connect(other)) as target:
        target.execute("PRAGMA encoding = 'UTF-16le'")
        target.executescript("\n".join(source.iterdump()))
    assert read_all(other).column("nvtx_range", "name") == read_all(export).column("nvtx_range", "name")


def test_values_of_another_type_are_left_out_and_said(tmp_path: Path) -> None:
    export = export_with(tmp_path, f"UPDATE {KERNEL} SET gridX = 'many' WHERE rowid = 500")
    reading = read_all(export)
    assert reading.column("kernel", "grid_x").count(None) == 1
    assert reading.row_counts()["kernel"] == 990
    assert not reading.facts.is_complete
    assert any(f"{KERNEL}.gridX: 1 values" in note for note in reading.facts.notes)


def test_correlation_ids_of_two_processes_stay_apart(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        f"CREATE TEMP TABLE again AS SELECT * FROM {KERNEL} LIMIT 5",
        "UPDATE again SET globalPid = globalPid + 16777216, deviceId = 1",
        f"INSERT INTO {KERNEL} SELECT * FROM again",
    )
    with loaded(export) as case:
        assert case.execute("SELECT pid, count(*) FROM kernel GROUP BY 1 ORDER BY 1").fetchall() == [(22, 990), (23, 5)]


def test_only_processes_with_work_in_the_recording_are_named_without_their_folders(tmp_path: Path) -> None:
    reading = read_all(export_with(tmp_path))
    assert reading.column("process", "pid") == [22]
    assert reading.column("process", "name") == ["python3"]
    assert set(reading.column("thread", "pid")) == {22}


def test_stream_priorities_are_signed_and_the_null_stream_is_marked(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        "DELETE FROM TARGET_INFO_CUDA_STREAM WHERE streamId <> 154",
        "UPDATE TARGET_INFO_CUDA_STREAM SET priority = 4294967291",
    )
    reading = read_all(export)
    columns = (reading.column("stream", name) for name in ("stream_id", "priority", "is_null_stream", "device_id"))
    assert list(zip(*columns, strict=True)) == [(154, -5, False, 0), (7, None, True, 0)]


def test_views_and_virtual_tables_are_not_read(tmp_path: Path) -> None:
    export = export_with(
        tmp_path,
        f"ALTER TABLE {KERNEL} RENAME TO kept",
        f"CREATE VIEW {KERNEL} AS SELECT * FROM kept",
    )
    assert "kernel" not in read_all(export).row_counts()


def test_a_read_only_folder_is_enough_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    export = export_with(folder)
    with closing(sqlite3.connect(export)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    digest = hashlib.sha256(export.read_bytes()).hexdigest()
    export.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert read_all(export).row_counts()["kernel"] == 990
        assert sorted(os.listdir(folder)) == ["export.sqlite"]  # noqa: PTH208 - names only
        assert hashlib.sha256(export.read_bytes()).hexdigest() == digest
    finally:
        folder.chmod(0o755)


def test_a_log_beside_the_file_is_said_to_be_unread(tmp_path: Path) -> None:
    export = export_with(tmp_path)
    export.with_name("export.sqlite-wal").write_bytes(b"something")
    facts = read_all(export).facts
    assert not facts.is_complete
    assert "write-ahead log" in facts.notes[0]


def test_a_name_with_question_mark_and_percent_opens(tmp_path: Path) -> None:
    odd = tmp_path / "a?b%20c#d.sqlite"
    export_with(tmp_path).rename(odd)
    assert read_all(odd).row_counts()["kernel"] == 990


def test_a_damaged_page_costs_the_rows_behind_it_only_and_is_said(tmp_path: Path) -> None:
    export = export_with(tmp_path)
    content = bytearray(export.read_bytes())
    pages = ask(export, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    assert pages == [(2241,)]
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 12288] = bytes(12288)
    export.write_bytes(bytes(content))
    facts = read_all(export).facts
    assert not facts.is_complete
    assert any("damaged after" in note for note in facts.notes)


def test_a_database_of_somebody_else_is_named_as_such(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE users (id INTEGER)")
        connection.commit()
    with pytest.raises(EvidenceError, match="is an SQLite database, but no export of Nsight Systems"):
        read_all(other)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nsysai_h100_2gpu_1s", {"kernel": 3442, "api_call": 5796, "memcpy": 904, "memset": 22, "nvtx_range": 16782}),
        ("nsysai_mfu_2gpu_before", {"kernel": 4010, "api_call": 7466, "memcpy": 1020, "device_sync": 366}),
        ("athrun_result", {"kernel": 4485, "api_call": 6628, "memcpy": 113, "memset": 130, "nvtx_range": 180}),
        ("jsun_result", {"kernel": 17032, "api_call": 20436, "memset": 1510, "device_sync": 169, "nvtx_range": 31}),
        ("yoon_poolformer_d", {"nvtx_range": 21996}),
        ("nevakrien_report1", {"os_call": 9401, "profiler_overhead": 50}),
        ("ihor_result", {"os_call": 153}),
        ("jacc_report1", {"device": 4}),
    ],
)
def test_public_exports_of_many_versions_give_the_rows_they_hold(name: str, expected: dict[str, int]) -> None:
    counts = read_all(shared_trace(f"public/{name}.sqlite.gz")).row_counts()
    assert {table: counts.get(table, 0) for table in expected} == expected


def test_public_weights_streamed_from_host_memory_are_counted_by_the_files_own_enumeration() -> None:
    with loaded(shared_trace("public/nsysai_h100_2gpu_1s.sqlite.gz")) as case:
        row = case.execute("""
            SELECT sum(size_bytes) / 1e9 FROM memcpy
            WHERE copy_kind = 'htod' AND src_kind = 'pinned' AND device_id = 0
        """).fetchone()
        assert row is not None
        assert row[0] == pytest.approx(25.5, abs=0.1)


def test_a_public_export_that_is_cut_gives_its_whole_rows_and_says_so() -> None:
    reading = read_all(shared_trace("public/trunc60_athrun.sqlite.gz"))
    assert not reading.facts.is_complete
    assert "the file is cut: 589,824 of 983,040 bytes are there" in reading.facts.notes[0]
    assert reading.row_counts()["kernel"] == 4485


def test_a_gpu_whose_figures_no_gpu_has_is_unknown_and_not_a_fault(tmp_path: Path) -> None:
    changes = (
        "UPDATE TARGET_INFO_GPU SET memoryBandwidth = -4814304000000000000, clockRate = -1, smCount = -3",
        "INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO SELECT * FROM TARGET_INFO_CUDA_CONTEXT_INFO",
        "UPDATE TARGET_INFO_CUDA_CONTEXT_INFO SET processId = 'nobody' WHERE rowid = 1",
    )
    with loaded(export_with(tmp_path, *changes)) as case:
        found = case.execute("SELECT memory_rate_bytes_per_s, clock_hz, sm_count FROM device").fetchall()
    assert found == [(None, None, None)]


def test_calls_and_kernels_come_in_turn_each_time_alike_however_many_batches_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = export_with(tmp_path)
    whole = read_all(export)
    monkeypatch.setattr(sqlite_tables, "_BATCH_ROWS", 64)
    in_parts, again = read_all(export), read_all(export)
    order = [part.table for part in in_parts.parts if isinstance(part, TableBatch)]
    assert order == [part.table for part in again.parts if isinstance(part, TableBatch)]
    assert order[:6] == ["api_call", "kernel"] * 3
    for table, column in (("api_call", "start_ns"), ("kernel", "start_ns"), ("kernel", "name")):
        assert in_parts.column(table, column) == whole.column(table, column)


def test_damage_in_calls_and_kernels_costs_what_it_did_and_is_said_in_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tables, "_BATCH_ROWS", 64)
    export = export_with(
        tmp_path,
        f"UPDATE {KERNEL} SET gridX = 'many' WHERE rowid = 500",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 'none' WHERE rowid IN (3, 700)",
    )
    readings = [read_all(export) for _ in range(4)]
    assert len({reading.facts.notes for reading in readings}) == 1
    for reading in readings:
        assert reading.row_counts()["kernel"] == 990
        assert reading.column("kernel", "grid_x").count(None) == 1
        assert reading.column("api_call", "return_value").count(None) == 2
