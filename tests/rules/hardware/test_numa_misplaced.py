"""Reconstructed from vllm PR#30492: 22 % of a worker's memory on the remote node, weights offloaded to the host."""

from __future__ import annotations

from tests.support.device_texts import process_status, smi_table, topology
from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "numa-misplaced"
LINKS = [["X", "NV18"], ["NV18", "X"]]
MACHINE = topology(LINKS, [("0-31", "0"), ("32-63", "1")])
HOLDERS = smi_table(
    [{"busy": 60, "used": 70000}] * 2, [(0, 4711, "/usr/bin/python3", 69000), (1, 4712, "/usr/bin/python3", 69000)]
)
REMOTE = """\
Per-node process memory usage (in MBs) for PID 4711 (python3)
                           Node 0          Node 1           Total
                  --------------- --------------- ---------------
Huge                         0.00            0.00            0.00
Heap                       120.00           80.00          200.00
Private                  77900.00        21920.00        99820.00
----------------  --------------- --------------- ---------------
Total                    78020.00        22000.00       100020.00
"""


def streaming() -> Program:
    """Every step brings weights from the host."""
    program = Program()
    for _ in range(30):
        program.copy("HtoD pinned", 8_000_000)
        program.launch(GEMM, 300)
    return program


def test_fires_on_cpus_of_the_other_socket(clinic: Clinic) -> None:
    verdicts = clinic.told(MACHINE + HOLDERS + process_status(4711, cpus="32-63"))
    assert verdicts.first == RULE
    assert "(32-63) are not those near the device (0-31)" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "medium"


def test_remote_memory_is_high_where_weights_are_streamed(clinic: Clinic) -> None:
    trace = streaming().write(clinic.folder / "trace.json")
    verdicts = clinic.told(trace, MACHINE + HOLDERS + REMOTE)
    finding = verdicts.finding(RULE)
    assert "22% of its memory" in finding["summary"]
    assert finding["severity"] == "high"


def test_is_silent_on_the_right_socket_and_on_machines_with_one(clinic: Clinic) -> None:
    assert RULE not in clinic.told(MACHINE + HOLDERS + process_status(4711, cpus="0-15")).found
    verdicts = clinic.told(topology(LINKS) + HOLDERS + process_status(4711, cpus="0-31"))
    assert RULE in verdicts.not_run
