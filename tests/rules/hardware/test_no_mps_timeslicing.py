"""Reconstructed from sgl-project/sglang-omni#1115: replicas share a device, its multiprocessors 17 % busy."""

from __future__ import annotations

import json

from tests.support.device_texts import smi_table
from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "no-mps-timeslicing"
REPLICAS = [
    (0, 4711, "/usr/bin/python3", 22000),
    (0, 4712, "/usr/bin/python3", 22000),
    (0, 4713, "/usr/bin/python3", 22000),
]
PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0       4711     C     17      4      -      -      -      -    python3
    0       4712     C     16      4      -      -      -      -    python3
    0       4713     C     18      4      -      -      -      -    python3
"""


def test_fires_on_replicas_that_leave_the_device_idle(clinic: Clinic) -> None:
    verdicts = clinic.told(smi_table([{"busy": 51, "used": 66100}], REPLICAS) + PMON)
    assert verdicts.first == RULE
    assert "3 processes take turns on GPU 0" in verdicts.finding(RULE)["summary"]


def test_is_cleared_when_an_mps_server_is_among_them(clinic: Clinic) -> None:
    shared = [*REPLICAS, (0, 4000, "nvidia-cuda-mps-server", 30)]
    verdicts = clinic.told(smi_table([{"busy": 51, "used": 66100}], shared) + PMON)
    assert RULE not in verdicts.found
    assert "through MPS" in verdicts.ruled_out[RULE]


def test_is_cleared_when_the_device_is_full(clinic: Clinic) -> None:
    verdicts = clinic.told(smi_table([{"busy": 99, "used": 66100}], REPLICAS))
    assert "full" in verdicts.ruled_out[RULE]


def test_what_each_process_takes_counts_before_what_the_device_is_called(clinic: Clinic) -> None:
    """One table tells the memory of the processes, another what each takes of the device, which is called busy."""
    table = smi_table([{"busy": 98, "used": 66100}], REPLICAS)
    assert clinic.told(table + PMON).evidence(RULE, "multiprocessors busy") == 0.17
    full = PMON.replace("C     1", "C     3")
    assert "which is busy for 111% of the time: full" in clinic.told(table + full).ruled_out[RULE]


def recording(gap_us: float) -> str:
    """Two processes in one recording: the kernels of the second begin `gap_us` behind those of the first."""
    first, second = Program(), Program()
    second.now_us += gap_us
    for program in (first, second):
        for _ in range(60):
            program.launch(GEMM, 40)
            program.silence(150)
    document = first.document()
    for event in second.events:
        event["args"]["correlation"] += 100_000
        event["tid"] += 1
        if event["cat"].startswith("cuda_"):
            event["pid"] = 9001
        document["traceEvents"].append(event)
    return json.dumps(document)


def test_a_recording_shows_whether_they_take_turns(clinic: Clinic) -> None:
    table = smi_table([{"busy": 45, "used": 44100}], REPLICAS[:2]) + PMON
    summary = clinic.told(recording(80.0), table).finding(RULE)["summary"]
    assert "their kernels run at once for 0.0%" in summary
    assert "overlap for" in clinic.told(recording(10.0), table).ruled_out[RULE]
