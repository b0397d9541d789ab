"""Numbers that nothing can have: they are left out and counted, and never break what is right beside them."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main

Output = pytest.CaptureFixture[str]
MIB = 1 << 20


def diagnosed(capsys: Output, path: Path) -> dict[str, Any]:
    code = main(["diagnose", str(path), "--format", "json", "--no-progress"])
    out, err = capsys.readouterr()
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def notes_of(document: dict[str, Any]) -> str:
    [evidence] = document["evidence"]
    assert not evidence["complete"]
    return "; ".join(evidence["notes"])


def kernel(number: int, **changed: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": number, "grid": [1, 1, 1], "block": [32, 1, 1]}
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1000 + 10 * number, "dur": 5}
    top = {name: value for name, value in changed.items() if name in event}
    return event | top | {"args": args | {name: value for name, value in changed.items() if name not in event}}


def trace(folder: Path, events: list[dict[str, Any]], **others: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **others, "traceEvents": events}), "utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "value", "note"),
    [
        ("grid", [1 << 40, 1, 1], "kernel.grid_x: values beyond what can be, left out: 1"),
        ("grid", [-5, 1, 1], "kernel.grid_x: values beyond what can be, left out: 1"),
        ("block", [1 << 62, 1 << 62, 1 << 62], "kernel.block_z: values beyond what can be, left out: 1"),
        ("grid", [(1 << 31) - 1] * 3, "kernel.grid_z: values beyond what can be, left out: 1"),
        ("block", [(1 << 31) - 1] * 3, "kernel.block_x: values beyond what can be, left out: 1"),
        ("device", 1 << 50, "kernel.device_id: values beyond what can be, left out: 1"),
        ("ts", 9e15, "kernel: rows with times that no recording can have, left out: 1"),
        ("ts", -9e15, "kernel: rows with times that no recording can have, left out: 1"),
    ],
)
def test_one_absurd_kernel_takes_nothing_from_the_others(
    capsys: Output, tmp_path: Path, name: str, value: Any, note: str
) -> None:
    usual = [kernel(number) for number in range(50)]
    document = diagnosed(capsys, trace(tmp_path, [*usual, kernel(50, **{name: value})]))
    assert note in notes_of(document)
    assert document["vitals"]["gpu_busy"] == pytest.approx(0.5, abs=0.05)


def test_a_rank_and_a_device_beyond_any_number_are_unknown(capsys: Output, tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        [kernel(number) for number in range(50)],
        distributedInfo={"rank": 1 << 40, "world_size": 1 << 50, "backend": "nccl"},
        deviceProperties=[{"id": 1 << 40, "name": "x", "totalGlobalMem": -(1 << 70), "numSms": 1e300}],
    )
    said = notes_of(diagnosed(capsys, path))
    assert "rank, capture or clock" in said
    assert "device.device_id" in said


def segment(number: int, **changed: Any) -> dict[str, Any]:
    address = (1 << 47) + number * 2 * MIB
    blocks = [
        {"address": address, "size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": []},
        {"address": address + MIB, "size": MIB, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    return {
        "device": 0,
        "address": address,
        "total_size": 2 * MIB,
        "allocated_size": MIB,
        "active_size": MIB,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "frames": [],
        "blocks": blocks,
    } | changed


def snapshot(folder: Path, segments: list[dict[str, Any]]) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [[]]}))
    return path


@pytest.mark.parametrize("size", [-2 * MIB, 0, 1 << 62, 1 << 100, math.nan, None])
def test_segments_of_impossible_sizes_are_left_out_of_a_snapshot(
    capsys: Output, tmp_path: Path, size: float | None
) -> None:
    segments = [segment(number) for number in range(40)] + [segment(40, total_size=size)]
    document = diagnosed(capsys, snapshot(tmp_path, segments))
    assert "1 segments are left out" in notes_of(document)
    assert "40.0 MiB free" in json.dumps(document["ruled_out"])


def test_a_snapshot_without_one_possible_size_is_refused(capsys: Output, tmp_path: Path) -> None:
    path = snapshot(tmp_path, [segment(number, total_size=1 << 62) for number in range(3)])
    assert main(["diagnose", str(path)]) == 2
    assert "no segment whose size can be read" in capsys.readouterr().err


@pytest.mark.parametrize("window", ["1e400:2", "0:1e400", "1e30:2e30", "-1e300s:5", "nan:2"])
def test_a_window_beyond_any_clock_is_refused(capsys: Output, tmp_path: Path, window: str) -> None:
    path = trace(tmp_path, [kernel(number) for number in range(50)])
    assert main(["diagnose", str(path), f"--window={window}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "two times such as" in line
