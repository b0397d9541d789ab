"""Reconstructed from vllm-project/vllm#49460 (6 CPUs allowed, 172 in the machine, 86 threads, stopped nearly always)
and Tanguille/cluster#4879 (starved by shares: never stopped)."""

from __future__ import annotations

from tests.support.device_texts import cpu_stat, pressure, process_status, smi_table
from tests.support.verdicts import Clinic

RULE = "cpu-quota-throttle"
IDLE = smi_table([{"busy": 10, "used": 70000}], [(0, 4711, "/usr/bin/python3", 69900)])
FULL = smi_table([{"busy": 98, "used": 70000}], [(0, 4711, "/usr/bin/python3", 69900)])


def test_fires_on_a_container_that_is_stopped_at_its_quota(clinic: Clinic) -> None:
    verdicts = clinic.told(cpu_stat(6000, 5880) + process_status(4711, threads=86) + IDLE)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert "a quota of 6 CPUs in 98% of 6,000 periods" in finding["summary"]
    assert finding["severity"] == "high"
    assert any("OMP_NUM_THREADS" in fix["setting"] for fix in finding["fixes"])


def test_is_cleared_when_the_device_is_busy_all_the_same(clinic: Clinic) -> None:
    verdicts = clinic.told(cpu_stat(6000, 5880) + FULL)
    assert RULE not in verdicts.found
    assert "waits for nobody" in verdicts.ruled_out[RULE]


def test_pressure_shows_what_no_counter_counts(clinic: Clinic) -> None:
    verdicts = clinic.told(cpu_stat(6000, 0, quota_cpus=None) + pressure(41.5) + IDLE)
    assert "tasks wait for a CPU for 42%" in verdicts.finding(RULE)["summary"]


def test_is_cleared_when_the_host_side_gets_all_it_wants(clinic: Clinic) -> None:
    verdicts = clinic.told(cpu_stat(6000, 3, quota_cpus=32) + pressure(0.4) + IDLE)
    assert RULE not in verdicts.found
    assert "stopped at its quota in 0.1%" in verdicts.ruled_out[RULE]


def test_threads_counted_from_the_machine_are_too_many_for_a_pod(clinic: Clinic) -> None:
    """Reconstructed from vllm-project/vllm#9113: ten CPUs of a node with 128, and a thread pool for all of them."""
    pod = "$ nproc\nnproc: 128\n$ cat /sys/fs/cgroup/cpu.max\n1000000 100000\n"
    summary = clinic.told(pod + process_status(4711, threads=260) + IDLE).finding(RULE)["summary"]
    assert "260 threads were started under a quota of 10 CPUs on a machine of 128 CPUs" in summary
