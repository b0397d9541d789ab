"""Reconstructed from sgl-project/sglang-omni#1115: replicas share a device, its multiprocessors 17 % busy."""

from __future__ import annotations

from tests.support.device_texts import smi_table
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
    assert "3 processes compute on GPU 0 without MPS" in verdicts.finding(RULE)["summary"]


def test_is_cleared_when_an_mps_server_is_among_them(clinic: Clinic) -> None:
    shared = [*REPLICAS, (0, 4000, "nvidia-cuda-mps-server", 30)]
    verdicts = clinic.told(smi_table([{"busy": 51, "used": 66100}], shared) + PMON)
    assert RULE not in verdicts.found
    assert "through MPS" in verdicts.ruled_out[RULE]


def test_is_cleared_when_the_device_is_full(clinic: Clinic) -> None:
    verdicts = clinic.told(smi_table([{"busy": 99, "used": 66100}], REPLICAS))
    assert "full" in verdicts.ruled_out[RULE]


def test_one_process_has_nobody_to_share_with(clinic: Clinic) -> None:
    assert RULE not in clinic.told(smi_table([{"busy": 17, "used": 22100}], REPLICAS[:1])).found
