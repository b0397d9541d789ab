"""The kernel log, control groups, pressure and processes, as Linux prints them."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

from pathlib import Path

from tests.support.device_texts import cpu_stat, pressure, process_status
from tests.support.reading import Reading, read_all, rows

LOG = """\
[12345.678901] NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
[Sun Nov 29 14:43:43 2026] NVRM: Xid (0000:03:00): 62, 0cb5(2d50)
2026-11-29T14:43:43.123456+00:00 box kernel: NVRM: GPU 0000:3d:00.0: GPU has fallen off the bus.
Nov 29 14:43:43 box kernel: Out of memory: Killed process 4711 (goofys) total-vm:98765kB, anon-rss:4321kB, file-rss:0kB, UID:1000
[12345.678901] nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
"""
PS = """\
USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
alice       4711  345  1.2 987654 123456 ?       Rl   10:00  99:59 /usr/bin/python3 serve.py --api-key secret
root        4000  0.0  0.0   1234   567 ?        D    09:00   0:00 [nvidia-uvm]
"""


def said(tmp_path: Path, text: str) -> Reading:
    path = tmp_path / "said.txt"
    path.write_text(text, encoding="utf-8")
    return read_all(path)


def test_reads_errors_of_the_driver_in_every_kind_of_log(tmp_path: Path) -> None:
    reading = said(tmp_path, LOG)
    assert rows(reading, "kernel_log_event", "event_kind", "xid", "pci_bus_id", "pid", "name") == [
        ("xid", 79, "00000000:41:00.0", 1234, "python3"),
        ("xid", 62, "00000000:03:00.0", None, None),
        ("fallen_off_bus", None, "00000000:3d:00.0", None, None),
        ("oom_kill", None, None, 4711, "goofys"),
        ("sxid", 12028, "00000000:c4:00.0", None, None),
    ]
    assert reading.column("kernel_log_event", "time_ns")[:3] == [
        12_345_678_901_000,
        1_795_963_423_000_000_000,
        1_795_963_423_000_000_000,
    ]


def test_reads_the_cpu_control_of_a_container(tmp_path: Path) -> None:
    reading = said(tmp_path, cpu_stat(6000, 5880) + pressure(41.5))
    assert rows(reading, "cgroup_cpu", "period_count", "throttled_count", "quota_ns", "period_ns") == [
        (6000, 5880, 600_000_000, 100_000_000)
    ]
    assert rows(reading, "pressure", "resource", "level", "avg10_share") == [
        ("cpu", "some", 0.415),
        ("cpu", "full", 0.0),
    ]


def test_reads_control_groups_of_the_first_version(tmp_path: Path) -> None:
    text = "$ cat cpu.cfs_quota_us\n600000\n$ cat cpu.cfs_period_us\n100000\nnr_periods 100\nnr_throttled 50\nthrottled_time 4200000000\n"
    reading = said(tmp_path, text)
    assert rows(reading, "cgroup_cpu", "period_count", "throttled_ns", "quota_ns", "period_ns") == [
        (100, 4_200_000_000, 600_000_000, 100_000_000)
    ]


def test_reads_the_status_of_a_process(tmp_path: Path) -> None:
    reading = said(tmp_path, process_status(4711, threads=86, cpus="0-3,8") + process_status(4712, cpus="8-11"))
    columns = ("pid", "name", "process_state", "thread_count", "cpu_affinity", "cpu_allowed_count")
    assert rows(reading, "host_process", *columns) == [
        (4711, "python3", "S", 86, "0-3,8", 5),
        (4712, "python3", "S", 40, "8-11", 4),
    ]


def test_reads_ps_without_owners_and_arguments(tmp_path: Path) -> None:
    reading = said(tmp_path, PS)
    assert rows(reading, "host_process", "pid", "name", "process_state", "resident_bytes", "cpu_share") == [
        (4711, "python3", "R", 123456 * 1024, 3.45),
        (4000, None, "D", 567 * 1024, 0.0),
    ]
    assert not any(word in str(reading.parts) for word in ("alice", "secret", "serve.py"))


def test_reads_affinity_and_memory_by_node(tmp_path: Path) -> None:
    text = (
        "pid 4711's current affinity list: 0-15\nPer-node process memory usage (in MBs) for PID 4711 (python3)\n"
        "                           Node 0          Node 1           Total\nPrivate                  780.00          220.00         1000.00\n"
        "Total                    780.00          220.00         1000.00\n"
    )
    reading = said(tmp_path, text)
    assert reading.column("host_process", "cpu_allowed_count") == [16, None]
    assert reading.column("host_process", "resident_remote_bytes") == [None, 220 * 2**20]


def test_reads_what_nvidia_smi_and_programs_say_of_lost_devices(tmp_path: Path) -> None:
    text = (
        "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    reading = said(tmp_path, text)
    assert rows(reading, "kernel_log_event", "event_kind", "pci_bus_id") == [
        ("fallen_off_bus", "00000000:41:00.0"),
        ("ecc_error", None),
    ]


def test_reads_resident_memory_over_time_from_a_table(tmp_path: Path) -> None:
    reading = said(tmp_path, "timestamp,pid,rss_mb\n2026-11-29 14:43:43,4711,1024\n2026-11-29 14:44:43,4711,1030.5\n")
    assert rows(reading, "host_process", "pid", "time_ns", "resident_bytes") == [
        (4711, 1_795_963_423_000_000_000, 2**30),
        (4711, 1_795_963_483_000_000_000, round(1030.5 * 2**20)),
    ]


def test_reads_pidstat_and_ps_with_dates_between(tmp_path: Path) -> None:
    pidstat = (
        "02:43:43 PM   UID       PID  minflt/s  majflt/s     VSZ     RSS   %MEM  Command\n"
        "02:43:44 PM  1000      4711      1.00      0.00  987654  123456   1.20  python3\n"
    )
    reading = said(tmp_path, pidstat + PS.splitlines(keepends=True)[0] + "Sun Nov 29 14:43:43 2026\n" + PS)
    assert rows(reading, "host_process", "pid", "time_ns", "resident_bytes")[:2] == [
        (4711, (14 * 3600 + 43 * 60 + 44) * 10**9, 123456 * 1024),
        (4711, 1_795_963_423_000_000_000, 123456 * 1024),
    ]


def test_reads_limits_of_memory(tmp_path: Path) -> None:
    reading = said(
        tmp_path,
        "$ cat /sys/fs/cgroup/memory.max\n68719476736\n$ grep MemTotal /proc/meminfo\nMemTotal:       263857792 kB\n",
    )
    assert rows(reading, "host_sample", "memory_limit_bytes", "memory_total_bytes") == [(64 * 2**30, 263857792 * 1024)]


LOST_IN_THREE_LINES = """\
[  912.100001] NVRM: The NVIDIA GPU 0000:5e:00.0
               NVRM: (PCI ID: 10de:2330) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
"""
CAUSED = """\
kernel: NVRM: Xid (PCI:0000:5e:00): 45, pid=77, name=python3, Ch 00000001 caused by previous Xid 145
kernel: NVRM: Xid (PCI:0000:5e:00): 45, pid=77, name=python3, Ch 00000002 caused by previous Xid 145
"""


def test_a_loss_that_is_told_in_three_lines_has_its_address(tmp_path: Path) -> None:
    reading = said(tmp_path, LOST_IN_THREE_LINES)
    assert rows(reading, "kernel_log_event", "event_kind", "pci_bus_id") == [("fallen_off_bus", "00000000:5e:00.0")]


def test_an_error_that_others_name_as_their_cause_is_kept_once(tmp_path: Path) -> None:
    assert said(tmp_path, CAUSED).column("kernel_log_event", "xid") == [145, 45, 45]
