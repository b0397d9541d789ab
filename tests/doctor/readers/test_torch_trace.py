from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from doctor.readers.evidence_file import open_evidence
from tests.support.reading import loaded, read_all, rows
from tests.support.torch_traces import HOST_PID, call, event, kernel, write_trace
from tests.support.traces import SAMPLES, shared_trace

SAMPLE = SAMPLES / "launch-bound-decode-torch-trace" / "launch-sick.pt.trace.json.gz"
TABLE_OF_CATEGORY = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "cuda_sync": "device_sync",
    "cuda_runtime": "api_call",
    "cuda_driver": "api_call",
    "Runtime": "api_call",
    "cpu_op": "host_op",
    "Operator": "host_op",
    "python_function": "host_op",
    "user_annotation": "nvtx_range",
    "overhead": "profiler_overhead",
}


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events as the standard library reads them, numbers exact."""
    text = b"".join(open_evidence(path).chunks()).decode()
    found = json.loads(text, parse_float=Decimal, strict=False)["traceEvents"]
    assert isinstance(found, list)
    return found


def brute_force(path: Path) -> dict[str, tuple[int, int, int]]:
    """Rows, sum of starts and sum of durations in nanoseconds of each table, one event after the other."""
    totals: dict[str, tuple[int, int, int]] = {}
    for one in events_of(path):
        table = TABLE_OF_CATEGORY.get(one.get("cat", ""))
        if one["ph"] == "X" and table is not None:
            table = "nvtx_range" if one["cat"] == "Operator" and one["name"].startswith("ProfilerStep#") else table
            count, starts, durations = totals.get(table, (0, 0, 0))
            start, duration = round(Decimal(one["ts"]) * 1000), round(Decimal(one["dur"]) * 1000)
            totals[table] = (count + 1, starts + start, durations + duration)
    return totals


def assert_equals_brute_force(path: Path) -> None:
    expected = brute_force(path)
    with loaded(path) as case:
        for table, figures in expected.items():
            query = f"SELECT count(*), sum(start_ns), sum(end_ns - start_ns) FROM {table}"
            assert case.execute(query).fetchone() == figures, table
        kernels = Counter(one["name"] for one in events_of(path) if one.get("cat") in ("kernel", "Kernel"))
        named = case.execute("SELECT text, count(*) FROM kernel JOIN text ON text_id = name_id GROUP BY 1").fetchall()
        assert dict(named) == kernels


def test_every_event_of_a_trace_is_read_to_the_nanosecond() -> None:
    assert_equals_brute_force(SAMPLE)


@pytest.mark.parametrize(
    "name",
    [
        "public/hta_ns_resolution_rank-0.pt.trace.json.gz",
        "public/hta_nccl_data.json.gz",
        "public/tbplugin_resnet50_w0.pt.trace.json.gz",
        "public/tracelens_mi300_Qwen1.5-0.5B-Chat.json.gz",
        "public/tracelens_sglang_Qwen3-8B_decode.json.gz",
        "public/hta_alexnet.json.gz",
    ],
)
def test_every_event_of_public_traces_of_all_ages_and_vendors_is_read(name: str) -> None:
    assert_equals_brute_force(shared_trace(name))


def test_microseconds_since_the_epoch_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, kernel("k", 0, 0), call("cudaLaunchKernel", 1))
    path.write_text(path.read_text().replace('"ts": 0,\n      "dur": 0', '"ts": 1712195495519689.047, "dur": 12.001'))
    reading = read_all(path)
    assert rows(reading, "kernel", "start_ns", "end_ns") == [(1712195495519689047, 1712195495519701048)]
    assert reading.facts.clock_offset_ns == 0


def test_relative_times_stay_relative_and_the_base_becomes_the_clock_offset(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", kernel("k", 12.5), baseTimeNanoseconds=1790857026000000000)
    reading = read_all(path)
    assert reading.column("kernel", "start_ns") == [12500]
    assert reading.facts.clock_offset_ns == 1790857026000000000


def test_a_clock_without_a_base_is_unknown(tmp_path: Path) -> None:
    assert read_all(write_trace(tmp_path / "t", kernel("k", 5106942142044.566))).facts.clock_offset_ns is None


def test_kernels_stand_under_the_process_that_launched_them_even_if_its_call_comes_later(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", kernel("k", 2, correlation=5), call("cudaLaunchKernel", 1, correlation=5))
    assert read_all(trace).column("kernel", "pid") == [HOST_PID]


def test_kernels_of_two_processes_in_one_file_go_to_their_own(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "t",
        kernel("a", 2, correlation=5),
        kernel("b", 2, correlation=6, device=1),
        call("cudaLaunchKernel", 1, pid=100, correlation=5),
        call("cudaLaunchKernel", 1, pid=200, correlation=6),
    )
    assert rows(read_all(trace), "kernel", "name", "pid") == [("a", 100), ("b", 200)]


def test_without_any_call_the_launching_process_is_unknown(tmp_path: Path) -> None:
    assert read_all(write_trace(tmp_path / "t", kernel("k", 1))).column("kernel", "pid") == [None]


def test_an_events_process_id_never_decides_what_it_is(tmp_path: Path) -> None:
    function = event("python_function", "torch/nn/modules/module.py(1): forward", pid=0, tid=0)
    gpu = {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}
    reading = read_all(write_trace(tmp_path / "t", function, kernel("k", 1), gpu))
    assert "process" not in reading.row_counts()
    assert reading.row_counts()["host_op"] == 1
    assert reading.row_counts()["kernel"] == 1


def test_the_window_of_the_profiler_is_a_fact_and_no_range(tmp_path: Path) -> None:
    window = event("Trace", "PyTorch Profiler (0)", 10, 90, pid="Spans", tid="PyTorch Profiler")
    reading = read_all(write_trace(tmp_path / "t", window, kernel("k", 20)))
    assert (reading.facts.capture_start_ns, reading.facts.capture_end_ns) == (10_000, 100_000)
    assert "nvtx_range" not in reading.row_counts()


def test_annotations_of_the_device_rows_are_no_ranges_of_the_host(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "t",
        event("user_annotation", "decode"),
        event("gpu_user_annotation", "decode", pid=0, tid=7),
        event("Operator", "ProfilerStep#3"),
    )
    assert rows(read_all(trace), "nvtx_range", "name", "range_kind", "pid") == [
        ("decode", "push_pop", HOST_PID),
        ("ProfilerStep#3", "push_pop", HOST_PID),
    ]


def test_a_trace_of_2021_reads_with_its_own_names(tmp_path: Path) -> None:
    old = kernel("k", 100, 0)
    old.update(cat="Kernel", tid="stream 7")
    del old["args"]["stream"]
    trace = write_trace(
        tmp_path / "t",
        old,
        event("Operator", "aten::add", args={"external id": 9}),
        event("Runtime", "cudaLaunchKernel", args={"correlation": 1}),
        {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": {"Device Type": 0, "Bytes": 4}},
    )
    reading = read_all(trace)
    assert rows(reading, "kernel", "stream_id", "start_ns", "end_ns") == [(7, 100_000, 100_000)]
    assert rows(reading, "host_op", "op_kind", "sequence_id") == [("cpu_op", 9)]
    assert rows(reading, "allocator_event", "size_bytes", "device_id", "allocated_bytes") == [(4, None, None)]


def test_rocm_numbers_as_text_and_names_without_a_device_name_read(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "CopyHostToDevice", pid=6, tid=0, args={"device": "6", "stream": "3", "bytes": "4096"})
    trace = write_trace(
        tmp_path / "t",
        copy,
        event("cuda_runtime", "hipMemcpyWithStream", args={"correlation": 3}),
        deviceProperties=[{"id": 6, "name": "", "totalGlobalMem": 5, "numSms": 304}],
        hip_runtime_version=60443483,
    )
    reading = read_all(trace)
    assert rows(reading, "memcpy", "device_id", "stream_id", "size_bytes", "copy_kind", "src_kind", "dst_kind") == [
        (6, 3, 4096, "htod", None, "device")
    ]
    assert rows(reading, "device", "name", "vendor", "sm_count") == [(None, "amd", 304)]
    assert rows(reading, "api_call", "name", "api") == [("hipMemcpyWithStream", "runtime")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Stream Sync", "stream"),
        ("Event Sync", "event"),
        ("Context Sync", "context"),
        ("Stream Wait Event", "stream_wait"),
        ("Something New", None),
    ],
)
def test_synchronisations_say_what_was_waited_for(name: str, kind: str | None, tmp_path: Path) -> None:
    sync = event("cuda_sync", name, pid=0, tid=-1, args={"stream": 4294967295, "correlation": 3, "device": 0})
    reading = read_all(write_trace(tmp_path / "t", sync))
    assert rows(reading, "device_sync", "sync_kind", "stream_id") == [(kind, None)]


def test_collectives_keep_what_the_recorder_knew(tmp_path: Path) -> None:
    known: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Description": "default_pg",
    }
    trace = write_trace(
        tmp_path / "t",
        kernel("ncclDevKernel_AllReduce", 1, 1, **{**known, "correlation": 4}),
        call("cudaLaunchKernel", 0, correlation=4),
    )
    columns = ("pid", "correlation_id", "name", "dtype", "in_count", "group_size_count", "group_name")
    assert rows(read_all(trace), "collective", *columns) == [(HOST_PID, 4, "allreduce", "BFloat16", 8, 2, "default_pg")]


def test_rank_and_world_size_come_from_the_distributed_info(tmp_path: Path) -> None:
    facts = read_all(write_trace(tmp_path / "t", kernel("k", 1), distributedInfo={"rank": 3, "world_size": 8})).facts
    assert (facts.rank, facts.world_size) == (3, 8)


def test_warnings_of_the_profiler_are_diagnostics_without_folders(tmp_path: Path) -> None:
    beside = {
        "WARNING": ["WARNING:2024 /home/alice/CuptiActivity.cpp:9] buffers dropped", 7],
        "ERROR": "none",
        "INFO": [],
    }
    reading = read_all(write_trace(tmp_path / "t", kernel("k", 1), **beside))
    assert rows(reading, "diagnostic", "severity", "message") == [
        ("warning", "WARNING:2024 CuptiActivity.cpp:9] buffers dropped")
    ]


def test_the_profilers_own_time_belongs_to_no_process(tmp_path: Path) -> None:
    overhead = event("overhead", "Activity Buffer Request", pid=-1, tid=0)
    reading = read_all(write_trace(tmp_path / "t", overhead))
    assert rows(reading, "profiler_overhead", "name", "pid") == [("Activity Buffer Request", None)]


def test_names_of_the_machine_beside_the_events_are_never_read(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "t",
        event("python_function", "/home/alice/secret-project/serve.py(7): main"),
        {
            "ph": "M",
            "name": "process_name",
            "pid": HOST_PID,
            "ts": 0,
            "args": {"name": "/opt/py/python serve.py --key=K"},
        },
        username="alice",
        hostname="alice-box",
        metadata={"uname": {"node": "alice-box"}, "env": {"TOKEN": "s3cret"}},
    )
    reading = read_all(trace)
    assert reading.column("host_op", "name") == ["serve.py(7): main"]
    assert reading.column("process", "name") == ["python"]
    shown = str(reading)
    assert not [word for word in ("alice", "s3cret", "--key") if word in shown]


def test_events_of_unknown_categories_are_counted_in_the_notes(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", kernel("k", 1), event("mtia_ccp_events", "x"), event("mtia_ccp_events", "y"))
    facts = read_all(trace).facts
    assert facts.notes == ("2 events of category mtia_ccp_events are not read",)


def test_kernels_of_one_public_graph_launch_share_its_correlation_id() -> None:
    with loaded(shared_trace("public/tracelens_sglang_Qwen3-8B_decode.json.gz")) as case:
        most = case.execute("SELECT count(*) FROM kernel GROUP BY correlation_id ORDER BY 1 DESC").fetchall()
        assert sum(count for (count,) in most) == 555
        assert most[0] == (544,)
        assert case.execute("SELECT DISTINCT vendor FROM device").fetchall() == [("amd",)]
