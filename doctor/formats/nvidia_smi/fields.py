"""Which field of which form of `nvidia-smi` is which figure of a device.

The names on the right are those of the tables `gpu_sample` and `gpu_process` of a case file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from doctor.formats.nvidia_smi import quantities as q

Field = tuple[str, Callable[[str], Any]]
"""Figure, and what reads it from the printed text."""

WATTS: Callable[[str], Any] = lambda text: q.amount(text, "w")  # noqa: E731
CELSIUS: Callable[[str], Any] = lambda text: q.amount(text, "c")  # noqa: E731

QUERY_GPU: Mapping[str, Field] = {
    "index": ("device_id", q.small),
    "name": ("name", q.word),
    "gpu_name": ("name", q.word),
    "pci.bus_id": ("pci_bus_id", q.bus_id),
    "gpu_bus_id": ("pci_bus_id", q.bus_id),
    "driver_version": ("driver_version", q.word),
    "driver_model.current": ("driver_model", q.driver_model),
    "timestamp": ("time_ns", q.time_ns),
    "pstate": ("performance_state", q.performance_state),
    "persistence_mode": ("is_persistence_on", q.truth),
    "compute_mode": ("compute_mode", q.compute_mode),
    "mig.mode.current": ("is_mig_on", q.truth),
    "ecc.mode.current": ("is_ecc_on", q.truth),
    "memory.total": ("memory_total_bytes", q.size_bytes),
    "memory.used": ("memory_used_bytes", q.size_bytes),
    "memory.free": ("memory_free_bytes", q.size_bytes),
    "memory.reserved": ("memory_reserved_bytes", q.size_bytes),
    "utilization.gpu": ("busy_share", q.share),
    "utilization.memory": ("memory_busy_share", q.share),
    "temperature.gpu": ("temperature_celsius", CELSIUS),
    "power.draw": ("power_watts", WATTS),
    "power.draw.instant": ("power_watts", WATTS),
    "power.draw.average": ("power_watts", WATTS),
    "power.limit": ("power_limit_watts", WATTS),
    "enforced.power.limit": ("power_limit_watts", WATTS),
    "power.default_limit": ("power_limit_default_watts", WATTS),
    "power.max_limit": ("power_limit_max_watts", WATTS),
    "clocks.current.sm": ("sm_clock_hz", q.clock_hz),
    "clocks.sm": ("sm_clock_hz", q.clock_hz),
    "clocks.current.graphics": ("sm_clock_hz", q.clock_hz),
    "clocks.gr": ("sm_clock_hz", q.clock_hz),
    "clocks.max.sm": ("sm_clock_max_hz", q.clock_hz),
    "clocks.max.graphics": ("sm_clock_max_hz", q.clock_hz),
    "clocks.max.gr": ("sm_clock_max_hz", q.clock_hz),
    "clocks.applications.graphics": ("sm_clock_application_hz", q.clock_hz),
    "clocks.applications.gr": ("sm_clock_application_hz", q.clock_hz),
    "clocks.current.memory": ("memory_clock_hz", q.clock_hz),
    "clocks.mem": ("memory_clock_hz", q.clock_hz),
    "clocks.max.memory": ("memory_clock_max_hz", q.clock_hz),
    "clocks.max.mem": ("memory_clock_max_hz", q.clock_hz),
    "pcie.link.gen.current": ("pcie_generation", q.small),
    "pcie.link.gen.gpucurrent": ("pcie_generation", q.small),
    "pcie.link.gen.max": ("pcie_generation_max", q.small),
    "pcie.link.gen.gpumax": ("pcie_generation_device_max", q.small),
    "pcie.link.width.current": ("pcie_lanes_count", q.lanes),
    "pcie.link.width.max": ("pcie_lanes_max_count", q.lanes),
    "ecc.errors.corrected.aggregate.total": ("ecc_corrected_count", q.whole),
    "ecc.errors.uncorrected.aggregate.total": ("ecc_uncorrected_count", q.whole),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_volatile_count", q.whole),
    "remapped_rows.correctable": ("remapped_corrected_count", q.whole),
    "remapped_rows.uncorrectable": ("remapped_uncorrected_count", q.whole),
    "remapped_rows.pending": ("is_remap_pending", q.truth),
    "remapped_rows.failure": ("is_remap_failed", q.truth),
    "retired_pages.double_bit.count": ("retired_pages_count", q.whole),
    "retired_pages.dbe": ("retired_pages_count", q.whole),
}

REASONS: Mapping[str, str] = {
    "gpu_idle": "is_idle",
    "applications_clocks_setting": "is_throttled_clock_setting",
    "sw_power_cap": "is_throttled_power_cap",
    "hw_slowdown": "is_throttled_hw_slowdown",
    "hw_thermal_slowdown": "is_throttled_hw_thermal",
    "hw_power_brake_slowdown": "is_throttled_power_brake",
    "sync_boost": "is_throttled_sync_boost",
    "sw_thermal_slowdown": "is_throttled_sw_thermal",
}
"""Reasons why clocks are below their most, in the words of `--query-gpu` (clocks_event_reasons.NAME, formerly
clocks_throttle_reasons.NAME)."""

COUNTERS: Mapping[str, str] = {
    "sw_power_cap": "power_cap_ns",
    "sync_boost": "sync_boost_ns",
    "sw_thermal_slowdown": "sw_thermal_ns",
    "sw_therm_slowdown": "sw_thermal_ns",
    "hw_thermal_slowdown": "hw_thermal_ns",
    "hw_therm_slowdown": "hw_thermal_ns",
    "hw_power_brake_slowdown": "power_brake_ns",
    "hw_power_brake": "power_brake_ns",
}

REASON_BITS: Mapping[int, str] = {
    0x1: "is_idle",
    0x2: "is_throttled_clock_setting",
    0x4: "is_throttled_power_cap",
    0x8: "is_throttled_hw_slowdown",
    0x10: "is_throttled_sync_boost",
    0x20: "is_throttled_sw_thermal",
    0x40: "is_throttled_hw_thermal",
    0x80: "is_throttled_power_brake",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, from nvml.h."""

QUERY_APPS: Mapping[str, Field] = {
    "pid": ("pid", q.whole),
    "process_name": ("name", q.program),
    "name": ("name", q.program),
    "used_memory": ("memory_bytes", q.size_bytes),
    "used_gpu_memory": ("memory_bytes", q.size_bytes),
    "gpu_bus_id": ("pci_bus_id", q.bus_id),
    "timestamp": ("time_ns", q.time_ns),
}


def reasons_of_mask(mask: int) -> dict[str, bool]:
    """Every reason as a truth value, from the bit mask that NVML gives."""
    return {name: bool(mask & bit) for bit, name in REASON_BITS.items()}
