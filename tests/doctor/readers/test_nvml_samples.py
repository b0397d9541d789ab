from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from doctor.errors import DamagedEvidenceError
from tests.support.device_texts import nvml_line
from tests.support.reading import read_all, rows
from tests.support.traces import shared_trace

PROCESS = {
    "device_id": 0,
    "pid": 2670,
    "memory_bytes": 129_392_181_248,
    "name": "python3",
    "is_in_proc": True,
    "process_state": "R",
}


def test_reads_what_a_script_wrote_of_a_real_h200() -> None:
    reading = read_all(shared_trace("h200/foreign.nvml.json"))
    columns = (
        "memory_used_bytes",
        "sm_clock_hz",
        "power_watts",
        "pcie_lanes_count",
        "busy_share",
        "is_throttled_power_cap",
    )
    assert rows(reading, "gpu_sample", *columns) == [(130_046_361_600, 1_980_000_000, 128.76, 16, 0.41, False)]
    assert rows(reading, "gpu_process", "pid", "memory_bytes") == [(2670, 129_392_181_248)]


def test_reads_samples_in_order_with_the_span_of_their_times(tmp_path: Path) -> None:
    path = tmp_path / "vitals.jsonl"
    lines = [nvml_line(second, [{"busy_share": 0.5}], processes=[PROCESS]) for second in range(3)]
    path.write_text("".join(lines), "utf-8")
    reading = read_all(path)
    assert rows(reading, "gpu_sample", "look_id", "device_id", "busy_share") == [(look, 0, 0.5) for look in range(3)]
    assert rows(reading, "gpu_process", "look_id", "pid", "process_state") == [(look, 2670, "R") for look in range(3)]
    assert reading.facts.capture_end_ns is not None
    assert reading.facts.capture_start_ns is not None
    assert reading.facts.capture_end_ns - reading.facts.capture_start_ns == 2_000_000_000


def test_a_cut_or_strange_line_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "vitals.jsonl"
    strange = nvml_line(1, [{"busy_share": "high", "memory_used_bytes": 2**80, "sm_count": 1, "is_idle": 3}])
    path.write_text(nvml_line(0, [{"busy_share": 0.5}]) + strange + nvml_line(2)[:40] + "\n", "utf-8")
    reading = read_all(path)
    assert reading.column("gpu_sample", "busy_share") == [0.5, None]
    assert not reading.facts.is_complete
    assert any("1 lines are no whole sample" in note for note in reading.facts.notes)
    assert any("sm_count" in note for note in reading.facts.notes)


def test_reads_the_same_samples_from_parquet(tmp_path: Path) -> None:
    lines = [nvml_line(second, [{"busy_share": 0.5}]).strip() for second in range(3)]
    pq.write_table(pa.table({"vitals_json": lines}), tmp_path / "vitals.parquet")
    assert len(read_all(tmp_path / "vitals.parquet").column("gpu_sample", "look_id")) == 3


def test_says_so_where_no_sample_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "vitals.jsonl"
    path.write_text(json.dumps({"schema": "doctor.vitals/1"})[:-1] + ', "x', "utf-8")
    with pytest.raises(DamagedEvidenceError, match="no whole sample"):
        read_all(path)
