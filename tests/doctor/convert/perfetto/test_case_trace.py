"""A trace of Perfetto holds what the case holds: parsed back with the official definitions and compared row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

import doctor
from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.derive import derive
from doctor.case.load import CaseLoader
from doctor.cli.main import main
from doctor.convert.perfetto.case_trace import write_trace
from doctor.convert.perfetto.marks import FindingTrack, Mark
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis
from doctor.diagnosis.runner import diagnose_case
from tests.support.case_rows import GEMM, Rows
from tests.support.perfetto_reading import PerfettoTrace, read_perfetto
from tests.support.samples import sample, trace_of
from tests.support.trace_builder import Program

REAL = ("launch-bound-decode-nsys-report", "launch-bound-decode-torch-trace")


@dataclass(frozen=True)
class Converted:
    """A real recording, what doctor says of it, and the trace that the command wrote."""

    case: duckdb.DuckDBPyConnection
    diagnosis: Diagnosis
    trace: PerfettoTrace

    def rows(self, sql: str) -> Counter[tuple[object, ...]]:
        """The case's own rows."""
        return Counter(self.case.execute(sql).fetchall())


@pytest.fixture(scope="module", params=REAL)
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converted]:
    evidence = trace_of(sample(request.param))
    output = tmp_path_factory.mktemp("perfetto") / "out.pftrace"
    assert main(["convert", str(evidence), "-o", str(output), "--no-progress"]) == 0
    with closing(doctor.load(evidence)) as case:
        yield Converted(case, diagnose_case(case, load_catalogue(), DiagnosisOptions()), read_perfetto(output))


def test_every_piece_of_device_work_is_there_with_its_time_and_name(converted: Converted) -> None:
    trace = converted.trace
    known = converted.rows("SELECT start_ns, end_ns, family::TEXT FROM device_op")
    assert Counter((one.start_ns, one.end_ns, one.category) for one in trace.inside("stream ")) == known
    kernels = converted.rows("SELECT end_ns - start_ns, text FROM device_op JOIN text ON text_id = name_id")
    shown = Counter((one.end_ns - one.start_ns, one.name) for one in trace.inside("stream "))
    assert kernels <= shown


def test_every_call_range_and_operator_is_there(converted: Converted) -> None:
    trace = converted.trace
    known = converted.rows(
        """SELECT start_ns, end_ns, text FROM (
            SELECT start_ns, end_ns, name_id FROM api_call
            UNION ALL SELECT start_ns, end_ns, name_id FROM nvtx_range WHERE end_ns IS NOT NULL
            UNION ALL SELECT start_ns, end_ns, name_id FROM host_op) JOIN text ON text_id = name_id""",
    )
    host = (
        one for one in trace.slices if one.category not in {"finding", "step"} and not one.tracks[0].startswith("GPU")
    )
    assert Counter((one.start_ns, one.end_ns, one.name) for one in host) == known


def test_arrows_lead_from_each_launch_to_its_kernel(converted: Converted) -> None:
    trace = converted.trace
    [(launched,)] = converted.rows(
        "SELECT count(*) FROM launch JOIN device_op USING (device_op_id) WHERE kind = 'kernel'"
    )
    started = {flow: one for one in trace.slices for flow in one.flows_out}
    arrived = [(started[flow], one) for one in trace.inside("stream ") for flow in one.flows_in if flow in started]
    assert len([kernel for _, kernel in arrived if "blocks" in kernel.details]) == launched
    assert all(call.start_ns <= kernel.start_ns for call, kernel in arrived)


def test_findings_stand_on_tracks_of_their_own_with_what_to_change(converted: Converted) -> None:
    trace = converted.trace
    diagnosis = converted.diagnosis
    shown = trace.inside("Findings of Inference Doctor")
    tracks = dict.fromkeys(one.tracks[1] for one in sorted(shown, key=lambda one: int(one.tracks[1].split(".")[0])))
    assert [name.split(". ", 1)[1] for name in tracks] == [
        f"{finding.title} ({finding.severity.label})" for finding in diagnosis.findings
    ]
    first = diagnosis.findings[0]
    places = {
        (entry.where.start_ns, entry.where.end_ns, entry.name)
        for entry in first.evidence
        if entry.where is not None and entry.where.start_ns is not None
    }
    assert places
    assert places <= {(one.start_ns, one.end_ns, one.name) for one in shown}
    [whole] = [one for one in shown if one.tracks[1].startswith("1. ") and "summary" in one.details]
    assert diagnosis.window is not None
    assert (whole.start_ns, whole.end_ns) == (diagnosis.window.start_ns, diagnosis.window.end_ns)
    assert first.fixes[0].setting in whole.details.values()


def test_steps_are_a_track(converted: Converted) -> None:
    trace = converted.trace
    assert Counter((one.start_ns, one.end_ns) for one in trace.inside("Steps")) == converted.rows(
        "SELECT start_ns, end_ns FROM step"
    )


def test_memory_is_a_counter_that_ends_where_the_events_add_up(converted: Converted) -> None:
    known = converted.rows(
        "SELECT sum(CASE operation WHEN 'allocate' THEN size_bytes ELSE -size_bytes END) FROM gpu_memory_event"
        " WHERE memory_kind = 'device' HAVING count(*) > 0"
    )
    values = converted.trace.values.get("GPU 0 device memory by cudaMalloc (bytes)", [])
    assert [(value,) for _, value in values[-1:]] == list(known)


def written(case: duckdb.DuckDBPyConnection, output: Path, *findings: FindingTrack) -> PerfettoTrace:
    write_trace(case, findings, output)
    return read_perfetto(output)


def test_work_that_overlaps_on_one_stream_keeps_its_times(tmp_path: Path) -> None:
    made = Rows()
    made.kernel(GEMM, 0, 10)
    made.kernel(GEMM, 5, 15)
    made.kernel(GEMM, 15, 15)
    made.kernel(GEMM, 15, 20)
    with made.derived() as case:
        trace = written(case, tmp_path / "out.pftrace")
    shown = sorted((one.start_ns // 1000, one.end_ns // 1000) for one in trace.inside("stream "))
    assert shown == [(0, 10), (5, 15), (15, 15), (15, 20)]
    assert len([path for path in trace.tracks.values() if path[-1].startswith("stream ")]) == 2


def test_samples_of_nvml_are_put_on_the_clock_of_the_recording(tmp_path: Path) -> None:
    made = Rows()
    made.launched(GEMM, 0, 10, 50)
    with made.case() as case:
        case.execute("UPDATE source SET clock_offset_ns = 1_000_000_000")
        sample_rows = pa.table(
            {"device_id": [0, 0], "time_ns": [1_000_010_000, 1_000_030_000], "busy_share": [0.5, 1.0]}
        )
        facts = SourceFacts("nvml", "doctor", is_complete=True, clock_offset_ns=0)
        CaseLoader(case).load("vitals.jsonl", [TableBatch("gpu_sample", sample_rows), facts])
        derive(case)
        trace = written(case, tmp_path / "out.pftrace")
    assert trace.values["GPU 0 busy, NVML (%)"] == [(10_000, 50), (30_000, 100)]


def test_times_below_zero_are_moved_and_stay_apart(tmp_path: Path) -> None:
    made = Rows()
    made.launched(GEMM, -30, -20, -10)
    with made.derived() as case:
        mark = Mark("place", -20_000, -10_000)
        trace = written(case, tmp_path / "out.pftrace", FindingTrack("1. problem", (mark,)))
    [kernel] = trace.inside("stream ")
    [place] = trace.inside("Findings")
    assert (kernel.start_ns, kernel.end_ns) == (place.start_ns, place.end_ns) == (10_000, 20_000)


def test_ranks_that_share_a_process_id_do_not_become_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        program = Program(rank=rank, world_size=2)
        for _ in range(20):
            program.launch("some_gemm_kernel", 50.0)
        program.write(folder / f"rank{rank}.json")
    output = tmp_path / "out.pftrace"
    assert main(["convert", str(folder), "-o", str(output), "--no-progress"]) == 0
    trace = read_perfetto(output)
    assert {one.tracks[0].split(":")[0] for one in trace.inside("rank ")} == {"rank 0", "rank 1"}
    assert not any(
        packet.track_descriptor.HasField("process") for packet in proto.Trace.FromString(output.read_bytes()).packet
    )


def test_a_saved_case_converts_as_its_evidence_does(tmp_path: Path) -> None:
    evidence, saved = trace_of(sample(REAL[1])), tmp_path / "kept.duckdb"
    assert main(["diagnose", str(evidence), "--save", str(saved), "-o", str(tmp_path / "text"), "--no-progress"]) == 0
    for name, source in (("a", evidence), ("b", saved)):
        assert main(["convert", str(source), "-o", str(tmp_path / f"{name}.pftrace"), "--no-progress"]) == 0
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()


def test_what_cannot_be_converted_is_one_line_and_leaves_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.pftrace").touch()
    (tmp_path / "text.txt").write_text("hello")
    evidence = str(trace_of(sample(REAL[1])))
    for arguments in (
        [evidence, "-o", str(tmp_path / "there.pftrace")],
        [evidence, "-o", str(tmp_path / "no-folder" / "x.pftrace")],
        [str(tmp_path / "text.txt"), "-o", str(tmp_path / "x.pftrace")],
        [str(tmp_path / "missing"), "-o", str(tmp_path / "x.pftrace")],
    ):
        assert main(["convert", *arguments]) == 2
        assert len(capfd.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt", "there.pftrace"]
