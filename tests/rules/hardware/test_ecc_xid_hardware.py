"""Reconstructed from wtdcode/vllm-backport#62: Xid 48, 63, 94, 154 on one address, remapped rows 11, then 12."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

from tests.support.device_texts import busy, query_gpu, smi_table
from tests.support.verdicts import Clinic

RULE = "ecc-xid-hardware"
KERNEL_LOG = """\
[86400.125125] NVRM: Xid (PCI:0000:41:00): 48, pid=2345, name=python3, An uncorrectable double bit error (DBE) has been detected
[86400.125225] NVRM: Xid (PCI:0000:41:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.
[86400.125325] NVRM: Xid (PCI:0000:41:00): 94, pid=2345, name=python3, Contained: CE User Channel (0x9). RST: No, D-RST: No
[86401.125125] NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
"""
SOFTWARE_LOG = """\
[12345.678901] NVRM: Xid (PCI:0000:41:00): 31, pid=2345, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0
[12346.678901] NVRM: Xid (PCI:0000:41:00): 13, pid=2345, name=python3, Graphics Exception: ESR 0x504730=0xc0e000e
[12347.678901] NVRM: Xid (PCI:0000:41:00): 43, pid=2345, name=python3, Ch 00000008
"""


def test_fires_on_errors_that_hardware_raises(clinic: Clinic) -> None:
    verdicts = clinic.told(KERNEL_LOG)
    assert verdicts.first == RULE
    assert "3 hardware errors in the kernel log (Xid 48, 63, 94) beside Xid 154" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "critical"


def test_rules_out_errors_that_programs_raise(clinic: Clinic) -> None:
    verdicts = clinic.told(SOFTWARE_LOG)
    assert RULE not in verdicts.found
    assert "usually raised by a program" in verdicts.ruled_out[RULE]


def test_fires_on_uncorrected_errors_of_the_table(clinic: Clinic) -> None:
    assert RULE in clinic.told(smi_table([{"ecc": 2, "busy": 90}])).found


def test_rows_that_grow_are_worse_than_rows_of_the_past(clinic: Clinic) -> None:
    counters = {"remapped_rows.correctable": "0", "remapped_rows.pending": "No"}
    growing = [
        row | counters | {"remapped_rows.uncorrectable": str(11 + place // 5)} for place, row in enumerate(busy())
    ]
    assert clinic.told(query_gpu(growing)).finding(RULE)["severity"] == "critical"
    past = [row | counters | {"remapped_rows.uncorrectable": "11"} for row in busy()]
    assert clinic.told(query_gpu(past)).finding(RULE)["severity"] == "info"


def test_one_loss_that_two_lines_tell_is_one(clinic: Clinic) -> None:
    lost = """\
[55.100001] NVRM: GPU at PCI:0000:41:00: GPU-00000000-1111-2222-3333-444444444444
[55.100002] NVRM: Xid (PCI:0000:41:00): 79, pid=88, name=python3, GPU has fallen off the bus.
[55.100003] NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.
"""
    summary = clinic.told(lost).finding(RULE)["summary"]
    assert "a hardware error in the kernel log (Xid 79), it fell off the bus" in summary


def test_a_processor_that_stopped_is_said_with_less_confidence(clinic: Clinic) -> None:
    stopped = "[900.000001] NVRM: Xid (PCI:0000:41:00): 119, pid=88, name=python3, Timeout after 45s of waiting for RPC response\n"
    alone = clinic.told(stopped).finding(RULE)
    behind = clinic.told(SOFTWARE_LOG + stopped).finding(RULE)
    assert (alone["severity"], alone["confidence"]) == ("high", 0.6)
    assert (behind["severity"], behind["confidence"]) == ("medium", 0.4)
    assert "beside Xid 13, 31, 43" in behind["summary"]


def test_a_switch_that_lost_nothing_is_no_failing_device(clinic: Clinic) -> None:
    switch = (
        "[1.000001] nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error\n"
    )
    assert clinic.told(switch).finding(RULE)["severity"] == "high"
    assert clinic.told(switch.replace("Non-fatal", "Fatal")).finding(RULE)["severity"] == "critical"
