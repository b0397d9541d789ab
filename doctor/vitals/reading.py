"""One look at the machine: frozen data, named as the columns of a case file.

A figure that the device or the driver does not give is None and is left out of the JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = "doctor.vitals/1"


@dataclass(frozen=True)
class GpuReading:
    """The state of one device; see the table `gpu_sample` for what each figure means."""

    device_id: int
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    driver_model: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    busy_share: float | None = None
    memory_busy_share: float | None = None
    sm_clock_hz: int | None = None
    sm_clock_max_hz: int | None = None
    sm_clock_application_hz: int | None = None
    memory_clock_hz: int | None = None
    memory_clock_max_hz: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    power_limit_max_watts: float | None = None
    temperature_celsius: float | None = None
    temperature_slowdown_celsius: float | None = None
    performance_state: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_generation_device_max: int | None = None
    pcie_lanes_count: int | None = None
    pcie_lanes_max_count: int | None = None
    pcie_replay_count: int | None = None
    is_persistence_on: bool | None = None
    compute_mode: str | None = None
    is_mig_on: bool | None = None
    is_ecc_on: bool | None = None
    is_throttled_power_cap: bool | None = None
    is_throttled_hw_slowdown: bool | None = None
    is_throttled_hw_thermal: bool | None = None
    is_throttled_power_brake: bool | None = None
    is_throttled_sw_thermal: bool | None = None
    is_throttled_sync_boost: bool | None = None
    is_throttled_clock_setting: bool | None = None
    is_idle: bool | None = None
    power_cap_ns: int | None = None
    hw_thermal_ns: int | None = None
    power_brake_ns: int | None = None
    sw_thermal_ns: int | None = None
    sync_boost_ns: int | None = None
    ecc_corrected_count: int | None = None
    ecc_uncorrected_count: int | None = None
    ecc_uncorrected_volatile_count: int | None = None
    remapped_corrected_count: int | None = None
    remapped_uncorrected_count: int | None = None
    is_remap_pending: bool | None = None
    is_remap_failed: bool | None = None
    process_list: str | None = None
    is_pid_namespace: bool | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a device; see the table `gpu_process`."""

    device_id: int
    pid: int
    name: str | None = None
    process_type: str | None = None
    memory_bytes: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    sm_share: float | None = None
    is_in_proc: bool | None = None
    process_state: str | None = None
    parent_pid: int | None = None
    is_own: bool | None = None


@dataclass(frozen=True)
class MigInstance:
    """A slice of a device; see the table `mig_instance`."""

    device_id: int
    mig_device_id: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    sm_count: int | None = None


@dataclass(frozen=True)
class GpuAffinity:
    """CPUs and memory near a device; see the table `gpu_affinity`."""

    device_id: int
    cpu_affinity: str | None = None
    numa_node_id: int | None = None


@dataclass(frozen=True)
class HostReading:
    """The machine; see the table `host_sample`."""

    cpu_count: int | None = None
    cpu_allowed_count: int | None = None
    numa_node_count: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    operating_system: str | None = None


@dataclass(frozen=True)
class HostProcess:
    """A process of the recorded command, or one that holds a device; see the table `host_process`."""

    pid: int
    parent_pid: int | None = None
    name: str | None = None
    process_state: str | None = None
    thread_count: int | None = None
    runnable_count: int | None = None
    resident_bytes: int | None = None
    cpu_affinity: str | None = None
    cpu_allowed_count: int | None = None
    numa_node_id: int | None = None
    cpu_share: float | None = None
    device_id: int | None = None
    is_recorded: bool | None = None


@dataclass(frozen=True)
class CgroupReading:
    """CPU control of the container; see the table `cgroup_cpu`."""

    period_count: int | None = None
    throttled_count: int | None = None
    throttled_ns: int | None = None
    usage_ns: int | None = None
    quota_ns: int | None = None
    period_ns: int | None = None


@dataclass(frozen=True)
class PressureReading:
    """Pressure on one resource; see the table `pressure`."""

    resource: str
    level: str
    avg10_share: float
    avg60_share: float
    avg300_share: float
    total_ns: int | None = None


@dataclass(frozen=True)
class Reading:
    """One look.

    Attributes:
        time_ns: since the epoch.
        gpus: devices; empty where there are none.
        processes: who holds their memory.
        instances: slices.
        affinities: what lies near each device.
        host: the machine.
        host_processes: processes of the recorded command and of the devices.
        cgroup: CPU control of this container.
        pressure: pressure of the machine or container.
        notes: what could not be read, one line each.
    """

    time_ns: int
    gpus: tuple[GpuReading, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    affinities: tuple[GpuAffinity, ...] = ()
    host: HostReading | None = None
    host_processes: tuple[HostProcess, ...] = ()
    cgroup: CgroupReading | None = None
    pressure: tuple[PressureReading, ...] = ()
    notes: tuple[str, ...] = ()


def as_json(reading: Reading, tool: str) -> str:
    """The reading as one line of JSON, which `doctor diagnose` reads; figures that are unknown are left out."""
    document: dict[str, Any] = {"schema": SCHEMA, "tool": tool}
    document |= {name: _without_unknown(value) for name, value in asdict(reading).items() if value not in (None, ())}
    return json.dumps(document, separators=(",", ":"))


def _without_unknown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: inner for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_unknown(inner) for inner in value]
    return value
