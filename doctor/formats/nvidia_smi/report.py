"""The long report of one device (`nvidia-smi -q`), as text or XML: a tree of names, told by the last parts of a path.

The text says `GPU Link Info / PCIe Generation / Current`, the XML `pcie_gen / current_link_gen`; both are put into
lower case with underscores, and one table knows both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi.fields import CELSIUS, COUNTERS, REASONS, WATTS

Path = tuple[str, ...]


def part(name: str) -> str:
    """One name of a path as this module writes it."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


_FIGURES: Mapping[Path, tuple[str, Callable[[str], Any]]] = {
    ("product_name",): ("name", q.word),
    ("persistence_mode",): ("is_persistence_on", q.truth),
    ("mig_mode", "current"): ("is_mig_on", q.truth),
    ("mig_mode", "current_mig"): ("is_mig_on", q.truth),
    ("driver_model", "current"): ("driver_model", q.driver_model),
    ("driver_model", "current_dm"): ("driver_model", q.driver_model),
    ("pci", "bus_id"): ("pci_bus_id", q.bus_id),
    ("pci", "pci_bus_id"): ("pci_bus_id", q.bus_id),
    ("pcie_generation", "current"): ("pcie_generation", q.small),
    ("pcie_gen", "current_link_gen"): ("pcie_generation", q.small),
    ("pcie_generation", "max"): ("pcie_generation_max", q.small),
    ("pcie_gen", "max_link_gen"): ("pcie_generation_max", q.small),
    ("pcie_generation", "device_max"): ("pcie_generation_device_max", q.small),
    ("pcie_gen", "max_device_link_gen"): ("pcie_generation_device_max", q.small),
    ("link_width", "current"): ("pcie_lanes_count", q.lanes),
    ("link_widths", "current_link_width"): ("pcie_lanes_count", q.lanes),
    ("link_width", "max"): ("pcie_lanes_max_count", q.lanes),
    ("link_widths", "max_link_width"): ("pcie_lanes_max_count", q.lanes),
    ("replays_since_reset",): ("pcie_replay_count", q.whole),
    ("replay_counter",): ("pcie_replay_count", q.whole),
    ("performance_state",): ("performance_state", q.performance_state),
    ("fb_memory_usage", "total"): ("memory_total_bytes", q.size_bytes),
    ("fb_memory_usage", "reserved"): ("memory_reserved_bytes", q.size_bytes),
    ("fb_memory_usage", "used"): ("memory_used_bytes", q.size_bytes),
    ("fb_memory_usage", "free"): ("memory_free_bytes", q.size_bytes),
    ("compute_mode",): ("compute_mode", q.compute_mode),
    ("utilization", "gpu"): ("busy_share", q.share),
    ("utilization", "gpu_util"): ("busy_share", q.share),
    ("utilization", "memory"): ("memory_busy_share", q.share),
    ("utilization", "memory_util"): ("memory_busy_share", q.share),
    ("ecc_mode", "current"): ("is_ecc_on", q.truth),
    ("ecc_mode", "current_ecc"): ("is_ecc_on", q.truth),
    ("remapped_rows", "correctable_error"): ("remapped_corrected_count", q.whole),
    ("remapped_rows", "remapped_row_corr"): ("remapped_corrected_count", q.whole),
    ("remapped_rows", "uncorrectable_error"): ("remapped_uncorrected_count", q.whole),
    ("remapped_rows", "remapped_row_unc"): ("remapped_uncorrected_count", q.whole),
    ("remapped_rows", "pending"): ("is_remap_pending", q.truth),
    ("remapped_rows", "remapped_row_pending"): ("is_remap_pending", q.truth),
    ("remapped_rows", "remapping_failure_occurred"): ("is_remap_failed", q.truth),
    ("remapped_rows", "remapped_row_failure"): ("is_remap_failed", q.truth),
    ("retired_pages", "double_bit_ecc"): ("retired_pages_count", q.whole),
    ("double_bit_retirement", "retired_count"): ("retired_pages_count", q.whole),
    ("temperature", "gpu_current_temp"): ("temperature_celsius", CELSIUS),
    ("temperature", "gpu_temp"): ("temperature_celsius", CELSIUS),
    ("temperature", "gpu_slowdown_temp"): ("temperature_slowdown_celsius", CELSIUS),
    ("temperature", "gpu_temp_slow_threshold"): ("temperature_slowdown_celsius", CELSIUS),
    ("clocks", "sm"): ("sm_clock_hz", q.clock_hz),
    ("clocks", "sm_clock"): ("sm_clock_hz", q.clock_hz),
    ("clocks", "memory"): ("memory_clock_hz", q.clock_hz),
    ("clocks", "mem_clock"): ("memory_clock_hz", q.clock_hz),
    ("max_clocks", "sm"): ("sm_clock_max_hz", q.clock_hz),
    ("max_clocks", "sm_clock"): ("sm_clock_max_hz", q.clock_hz),
    ("max_clocks", "memory"): ("memory_clock_max_hz", q.clock_hz),
    ("max_clocks", "mem_clock"): ("memory_clock_max_hz", q.clock_hz),
    ("applications_clocks", "graphics"): ("sm_clock_application_hz", q.clock_hz),
    ("applications_clocks", "graphics_clock"): ("sm_clock_application_hz", q.clock_hz),
} | {
    (section, name): (figure, WATTS)
    for section in ("gpu_power_readings", "power_readings")
    for name, figure in (
        ("power_draw", "power_watts"),
        ("average_power_draw", "power_watts"),
        ("instantaneous_power_draw", "power_watts"),
        ("instant_power_draw", "power_watts"),
        ("current_power_limit", "power_limit_watts"),
        ("power_limit", "power_limit_watts"),
        ("enforced_power_limit", "power_limit_watts"),
        ("default_power_limit", "power_limit_default_watts"),
        ("max_power_limit", "power_limit_max_watts"),
    )
}

_REASON_NAMES = {
    "idle": "is_idle",
    "sw_power_cap": "is_throttled_power_cap",
    "hw_slowdown": "is_throttled_hw_slowdown",
    "hw_thermal_slowdown": "is_throttled_hw_thermal",
    "hw_power_brake_slowdown": "is_throttled_power_brake",
    "sync_boost": "is_throttled_sync_boost",
    "sw_thermal_slowdown": "is_throttled_sw_thermal",
    "applications_clocks_setting": "is_throttled_clock_setting",
} | dict(REASONS)
_COUNTER_NAMES = {
    "sw_power_capping": "power_cap_ns",
    "hw_power_braking": "power_brake_ns",
} | dict(COUNTERS)
_REASON_PREFIX = re.compile(r"clocks_(?:event|throttle)_reasons?_(?:counters_)?")
_UNCORRECTED = frozenset(
    f"{memory}_uncorrectable{kind}" for memory in ("dram", "sram") for kind in ("", "_parity", "_secded", "_sec_ded")
)
_CORRECTED = frozenset({"dram_correctable", "sram_correctable"})


def figures(entries: Iterable[tuple[Path, str]]) -> dict[str, Any]:
    """The figures of one device.

    Args:
        entries: path and printed value of each leaf; paths as written by `part`, without the device's own name.
    """
    found: dict[str, Any] = {}
    for path, text in entries:
        name, value = _figure(path, text)
        if name is None or value is None:
            continue
        if name.startswith("ecc_"):
            found[name] = found.get(name, 0) + value  # parts of a memory are counted apart
        else:
            found.setdefault(name, value)
    return found


def _figure(path: Path, text: str) -> tuple[str | None, Any]:
    if any(name.startswith("mig_device") for name in path):
        return None, None
    known = _FIGURES.get(path[-2:]) or (_FIGURES.get(path) if len(path) == 1 else None) or _FIGURES.get(path[-1:])
    if known is not None:
        return known[0], known[1](text)
    sections = "/".join(path[:-1])
    if "reasons_counters" in sections:
        return _COUNTER_NAMES.get(_REASON_PREFIX.sub("", path[-1])), q.duration_ns(text)
    if "event_reasons" in sections or "throttle_reasons" in sections:
        return _REASON_NAMES.get(_REASON_PREFIX.sub("", path[-1])), q.truth(text)
    return _ecc(path, text)


def _ecc(path: Path, text: str) -> tuple[str | None, Any]:
    """Memory errors: old reports give totals, newer ones one line for each memory and kind."""
    if "ecc_errors" not in path:
        return None, None
    leaf, is_volatile = path[-1], "volatile" in path
    is_total = leaf == "total"  # of single bits (corrected) or double bits
    if leaf in _UNCORRECTED or (is_total and "double_bit" in path):
        return ("ecc_uncorrected_volatile_count" if is_volatile else "ecc_uncorrected_count"), q.whole(text)
    if (leaf in _CORRECTED or (is_total and "single_bit" in path)) and not is_volatile:
        return "ecc_corrected_count", q.whole(text)
    return None, None


def process(values: Mapping[str, str]) -> dict[str, Any] | None:
    """One process of the report; None where it has no id.

    Args:
        values: by name as written by `part`.
    """
    pid = q.whole(values.get("process_id", values.get("pid", "")))
    if pid is None:
        return None
    return {
        "pid": pid,
        "name": q.program(values.get("name", values.get("process_name", ""))),
        "process_type": q.word(values.get("type", "").lower()),
        "memory_bytes": q.size_bytes(values.get("used_gpu_memory", values.get("used_memory", ""))),
        "gpu_instance_id": q.small(values.get("gpu_instance_id", "")),
        "compute_instance_id": q.small(values.get("compute_instance_id", "")),
    }


def mig_instance(values: Mapping[str, str]) -> dict[str, Any]:
    """One slice of the report.

    Args:
        values: by name as written by `part`; names inside a section joined to it by `/`.
    """
    return {
        "mig_device_id": q.small(values.get("index", "")),
        "gpu_instance_id": q.small(values.get("gpu_instance_id", "")),
        "compute_instance_id": q.small(values.get("compute_instance_id", "")),
        "memory_total_bytes": q.size_bytes(values.get("fb_memory_usage/total", "")),
        "memory_used_bytes": q.size_bytes(values.get("fb_memory_usage/used", "")),
        "sm_count": q.small(values.get("shared/multiprocessor_count", "")),
    }
