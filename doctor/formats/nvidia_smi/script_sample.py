"""One JSON object that a script made of NVML's answers, with NVML's own words and units.

Such scripts name things alike: `total`, `used`, `free` in bytes, clocks in MHz, power in mW or W, the bit mask of event
reasons as `throttle` or `clocks_event_reasons`, processes with `pid` and `used`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi.fields import reasons_of_mask

_WORDS: Mapping[str, tuple[str, float]] = {
    "total": ("memory_total_bytes", 1),
    "used": ("memory_used_bytes", 1),
    "free": ("memory_free_bytes", 1),
    "reserved": ("memory_reserved_bytes", 1),
    "sm_clock": ("sm_clock_hz", 1e6),
    "max_sm_clock": ("sm_clock_max_hz", 1e6),
    "mem_clock": ("memory_clock_hz", 1e6),
    "max_mem_clock": ("memory_clock_max_hz", 1e6),
    "power_mw": ("power_watts", 1e-3),
    "power_limit_mw": ("power_limit_watts", 1e-3),
    "power_w": ("power_watts", 1),
    "power_limit_w": ("power_limit_watts", 1),
    "pcie_gen": ("pcie_generation", 1),
    "pcie_gen_max": ("pcie_generation_max", 1),
    "pcie_width": ("pcie_lanes_count", 1),
    "pcie_width_max": ("pcie_lanes_max_count", 1),
    "temperature": ("temperature_celsius", 1),
}
_FRACTIONS = frozenset({"power_watts", "power_limit_watts", "temperature_celsius"})
_MASKS = ("throttle", "throttle_reasons", "clocks_event_reasons", "event_reasons")
_LOAD = re.compile(r"gpu: ?(\d{1,3}) ?%, memory: ?(\d{1,3}) ?%")
_FEWEST = 3
_MOST_PROCESSES = 4096
_MOST = 2**62
_MOST_SMALL = 2**31
_SMALL = frozenset({"pcie_generation", "pcie_generation_max", "pcie_lanes_count", "pcie_lanes_max_count"})


def is_script_sample(found: Mapping[str, Any] | None) -> bool:
    """Tell whether an object is such a sample: memory of a device, and who holds it or how fast it runs."""
    if found is None or "schema" in found or "traceEvents" in found:
        return False
    return {"total", "used"} <= found.keys() and (
        isinstance(found.get("processes"), list) or sum(word in found for word in _WORDS) > _FEWEST
    )


def rows_of_script_sample(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows of `gpu_sample` and `gpu_process`."""
    device_id = _number(found.get("index", found.get("device", 0)))
    place = {"device_id": int(device_id) if device_id is not None and 0 <= device_id < _MOST_SMALL else 0}
    sample: dict[str, Any] = dict(place)
    for word, (column, factor) in _WORDS.items():
        value = _number(found.get(word))
        if value is not None and value >= 0 and (column not in _SMALL or value < _MOST_SMALL):
            scaled = value * factor
            sample[column] = scaled if column in _FRACTIONS else round(min(scaled, _MOST))
    for key, column in (("name", "name"), ("driver", "driver_version")):
        if isinstance(found.get(key), str):
            sample[column] = q.word(found[key])
    mask = next((_number(found[name]) for name in _MASKS if name in found), None)
    if mask is not None and mask >= 0:
        sample |= reasons_of_mask(int(mask))
    sample |= _load(found.get("util", found.get("utilization")))
    listed = found.get("processes")
    processes = [
        row for entry in (listed if isinstance(listed, list) else [])[:_MOST_PROCESSES] if (row := _process(entry))
    ]
    if isinstance(listed, list):
        sample["process_list"] = "listed" if processes else "empty"
    return {"gpu_sample": [sample], "gpu_process": [row | place for row in processes]}


def _process(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict) or (pid := _number(entry.get("pid"))) is None:
        return None
    used = _number(entry.get("used", entry.get("used_memory", entry.get("usedGpuMemory"))))
    name = entry.get("name")
    return {
        "pid": int(pid),
        "memory_bytes": None if used is None or used < 0 else int(used),
        "name": q.program(name) if isinstance(name, str) else None,
    }


def _load(text: Any) -> dict[str, float]:
    """`gpu: 41 %, memory: 5 %`, as the binding prints its structure."""
    found = _LOAD.search(text[:200]) if isinstance(text, str) else None
    if found is None:
        return {}
    return {"busy_share": int(found.group(1)) / 100, "memory_busy_share": int(found.group(2)) / 100}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _MOST else None
