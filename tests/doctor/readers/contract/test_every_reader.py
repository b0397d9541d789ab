"""What every reader promises, on every recording there is."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import zstandard

from doctor.case import schema
from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import EvidenceError
from doctor.readers import registry
from doctor.readers.evidence_file import open_evidence
from doctor.readers.memory_snapshot import MemorySnapshotReader
from doctor.readers.nsys_columnar import NsysColumnarReader
from doctor.readers.nsys_report import NsysReportReader
from doctor.readers.nsys_sqlite import NsysSqliteReader
from doctor.readers.protocol import Reader
from doctor.readers.torch_trace import TorchTraceReader
from tests.doctor.readers.contract.recordings import as_parameters, small_samples, whole_recordings
from tests.support.reading import Reading, loaded, read_all, try_to_read

RECORDINGS = as_parameters(whole_recordings())
CLOSED_SETS: dict[tuple[str, str], set[str | None]] = {
    ("memcpy", "copy_kind"): {"htod", "dtoh", "dtod", "htoh", "ptop", None},
    ("memcpy", "src_kind"): {"pageable", "pinned", "device", "array", "managed", None},
    ("memcpy", "dst_kind"): {"pageable", "pinned", "device", "array", "managed", None},
    ("memset", "memory_kind"): {"pageable", "pinned", "device", "array", "managed", None},
    ("device_sync", "sync_kind"): {"event", "stream_wait", "stream", "context", None},
    ("api_call", "api"): {"runtime", "driver"},
    ("nvtx_range", "range_kind"): {"push_pop", "start_end", "mark"},
    ("host_op", "op_kind"): {"cpu_op", "python_function"},
    ("gpu_memory_event", "operation"): {"allocate", "free"},
    ("graph_event", "event_kind"): {"graph", "exec", "node"},
    ("diagnostic", "severity"): {"info", "warning", "error", None},
    ("device", "vendor"): {"nvidia", "amd", "other", None},
}
READERS: tuple[Reader, ...] = (
    NsysReportReader(),
    NsysSqliteReader(),
    NsysColumnarReader(),
    TorchTraceReader(),
    MemorySnapshotReader(),
)
KINDS = {"nsys-report", "nsys-sqlite", "nsys-columnar", "kineto"}
ABSOLUTE_PATH = re.compile(r"(?:^|[\s'\"(])(?:/[\w.-]+){2,}|[A-Za-z]:\\")


@pytest.fixture(scope="module")
def readings() -> dict[Path, Reading]:
    return {}


@pytest.fixture
def reading(recording: Path, readings: dict[Path, Reading]) -> Reading:
    if recording not in readings:
        readings.clear()  # one at a time: the recordings of a run come in order
        readings[recording] = read_all(recording)
    return readings[recording]


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_gives_its_facts_once_and_last(reading: Reading) -> None:
    assert [isinstance(part, SourceFacts) for part in reading.parts].count(True) == 1
    assert reading.facts.kind in KINDS
    assert reading.facts.is_complete
    assert reading.facts.tool


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_names_tables_and_columns_of_the_case_file(reading: Reading) -> None:
    for part in reading.parts:
        if isinstance(part, TableBatch):
            columns = schema.metadata.tables[part.table].columns
            unknown = {name for name in part.rows.schema.names if name not in columns and f"{name}_id" not in columns}
            assert not unknown
            assert part.rows.num_rows > 0


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_uses_the_words_of_the_case_file(reading: Reading) -> None:
    for (table, column), words in CLOSED_SETS.items():
        assert set(reading.column(table, column)) <= words, f"{table}.{column}"


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_no_interval_ends_before_it_starts(reading: Reading) -> None:
    for table in {part.table for part in reading.parts if isinstance(part, TableBatch)}:
        starts, ends = reading.column(table, "start_ns"), reading.column(table, "end_ns")
        backwards = [
            (start, end)
            for start, end in zip(starts, ends, strict=True)
            if isinstance(start, int) and isinstance(end, int) and end < start
        ]
        assert not backwards, table


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_device_work_stands_under_a_process_that_called_the_driver(reading: Reading) -> None:
    callers = set(reading.column("api_call", "pid"))
    if not callers:
        pytest.skip("the recording holds no API call")
    for table in ("kernel", "memcpy", "memset", "graph_trace"):
        assert set(reading.column(table, "pid")) <= callers, table


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_keeps_no_folder_and_no_argument(reading: Reading) -> None:
    for table, column in (("process", "name"), ("diagnostic", "message"), ("host_op", "name")):
        texts = [str(text) for text in set(reading.column(table, column)) if text]
        assert not [text for text in texts if ABSOLUTE_PATH.search(text)], table
    assert not [note for note in reading.facts.notes if ABSOLUTE_PATH.search(note)]
    assert not [name for name in reading.column("process", "name") if name and " " in str(name)]


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_loads_into_a_case_row_by_row(recording: Path, reading: Reading) -> None:
    with loaded(recording) as case:
        for table, count in reading.row_counts().items():
            assert case.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)


@pytest.mark.parametrize("recording", RECORDINGS, scope="module")
def test_is_known_by_one_reader_and_left_untouched(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "evidence"
    copy.write_bytes(recording.read_bytes())
    before = copy.read_bytes()
    read_all(copy)
    file = open_evidence(copy)
    with file.unpacked() as plain:
        assert [reader.recognises(plain, file.head()) for reader in READERS].count(True) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]
    assert copy.read_bytes() == before


@pytest.mark.parametrize("recording", as_parameters(small_samples()))
def test_reads_the_same_plain_or_wrapped_in_gzip_or_zstd(recording: Path, tmp_path: Path) -> None:
    plain = b"".join(open_evidence(recording).chunks())
    wrapped = {
        "plain": plain,
        "gzip": gzip.compress(plain, 1),
        "two-member-gzip": gzip.compress(plain[:1000], 1) + gzip.compress(plain[1000:], 1),
        "zstd": zstandard.compress(plain, 1),
    }
    counts = {}
    for name, content in wrapped.items():
        (tmp_path / name).write_bytes(content)
        counts[name] = read_all(tmp_path / name).row_counts()
    assert set(map(str, counts.values())) == {str(read_all(recording).row_counts())}


@pytest.mark.parametrize("recording", as_parameters(small_samples()))
@pytest.mark.parametrize("kept_share", [0.001, 0.05, 0.3, 0.5, 0.77, 0.9, 0.999])
def test_a_cut_recording_is_refused_or_marked_incomplete(recording: Path, kept_share: float, tmp_path: Path) -> None:
    plain = b"".join(open_evidence(recording).chunks())
    cut = tmp_path / "cut"
    cut.write_bytes(plain[: int(len(plain) * kept_share)])
    reading = try_to_read(cut)
    if isinstance(reading, EvidenceError):
        assert str(cut) in reading.message
        return
    assert not reading.facts.is_complete
    assert any("cut" in note for note in reading.facts.notes)
    whole = read_all(recording).row_counts()
    assert not {table: count for table, count in reading.row_counts().items() if count > whole.get(table, 0)}


@pytest.mark.parametrize("recording", as_parameters(small_samples()))
@pytest.mark.parametrize("kept_share", [0.05, 0.5, 0.95])
def test_a_cut_gzip_is_refused_or_marked_incomplete(recording: Path, kept_share: float, tmp_path: Path) -> None:
    packed = recording.read_bytes()
    cut = tmp_path / "cut.gz"
    cut.write_bytes(packed[: int(len(packed) * kept_share)])
    reading = try_to_read(cut)
    if isinstance(reading, EvidenceError):
        assert str(cut) in reading.message
    else:
        assert not reading.facts.is_complete


@pytest.mark.parametrize("recording", as_parameters(small_samples()))
def test_reports_progress_up_to_the_size_of_the_file(recording: Path) -> None:
    seen: list[tuple[int, int]] = []
    for _ in registry.read(recording, progress=lambda done, total: seen.append((done, total))):
        pass
    assert seen == sorted(seen)
    assert seen[-1][1] >= seen[-1][0] > 0
