"""The machine around the devices: kernel log, control groups, pressure, processes."""

from __future__ import annotations

from sqlalchemy import Column, Table

from doctor.case.schema.columns import flag, metadata, of_source, real, small, text_column, whole


def _time() -> Column[int]:
    return whole("time_ns", "when, on the source's clock; NULL where the evidence is one look")


kernel_log_event = Table(
    "kernel_log_event",
    metadata,
    of_source(),
    _time(),
    text_column("event_kind", "xid, sxid, fallen_off_bus, ecc_error, oom_kill, pcie_error"),
    small("xid", "number of the NVIDIA driver's error"),
    text_column("pci_bus_id", "device, domain of eight digits and function .0 added; NULL where not said"),
    whole("pid", "process named in the line"),
    text_column("name", "base name of that process"),
    text_column("message", "the driver's own words, cut to 200 characters"),
    comment="Lines of the kernel log that tell of a device or of a killed process",
)

cgroup_cpu = Table(
    "cgroup_cpu",
    metadata,
    of_source(),
    _time(),
    whole("period_count", "scheduling periods so far (nr_periods)"),
    whole("throttled_count", "periods in which the group was stopped at its quota (nr_throttled)"),
    whole("throttled_ns", "time its threads stood still at the quota"),
    whole("usage_ns", "CPU time used"),
    whole("quota_ns", "CPU time a period; NULL is unlimited or unknown"),
    whole("period_ns", "length of a period"),
    comment="CPU control of a container: cpu.stat and cpu.max, or the files of cgroup v1",
)

pressure = Table(
    "pressure",
    metadata,
    of_source(),
    _time(),
    text_column("resource", "cpu, memory, io"),
    text_column("level", "some: at least one task waited; full: all did"),
    real("avg10_share", "share of the last 10 s"),
    real("avg60_share", "share of the last minute"),
    real("avg300_share", "share of the last five minutes"),
    whole("total_ns", "since boot"),
    comment="Pressure stall information of the kernel",
)

host_sample = Table(
    "host_sample",
    metadata,
    of_source(),
    _time(),
    small("cpu_count", "CPUs of the machine"),
    small("cpu_allowed_count", "CPUs that the process may run on"),
    small("numa_node_count", "NUMA nodes"),
    whole("memory_total_bytes", "memory of the machine, or limit of the container"),
    whole("memory_used_bytes", "in use"),
    whole("memory_limit_bytes", "limit of the container"),
    real("cpu_busy_share", "share of all CPUs' time in use"),
    text_column("operating_system", "linux, wsl, windows"),
    comment="The machine, or the container, at one time",
)

host_process = Table(
    "host_process",
    metadata,
    of_source(),
    _time(),
    whole("pid", "process id"),
    whole("parent_pid", "parent"),
    text_column("name", "base name of the executable, never its command line"),
    text_column("process_state", "R, S, D, Z, T of ps or /proc; X: dead, as a log says"),
    small("thread_count", "threads"),
    small("runnable_count", "threads that run or want to run"),
    whole("resident_bytes", "resident memory"),
    whole("resident_remote_bytes", "of it on other NUMA nodes than its CPUs'"),
    real("cpu_share", "CPU time over wall time; 1 is one CPU"),
    text_column("cpu_affinity", "CPUs it may run on, as a list of ranges"),
    small("cpu_allowed_count", "how many those are"),
    small("numa_node_id", "the one NUMA node its CPUs belong to; NULL where several"),
    small("device_id", "device it holds memory of, where that is known"),
    flag("is_recorded", "belongs to the recorded command"),
    comment="Processes of the machine at one time: ps, /proc/PID/status, the sampler",
)

request_latency = Table(
    "request_latency",
    metadata,
    of_source(),
    whole("request_id", "place in the client's log, from 0"),
    _time(),
    whole("idle_ns", "silence before the request; NULL where neither said nor told by the times"),
    whole("latency_ns", "how long it took"),
    comment="What a client logged of single requests, one after the other",
)
