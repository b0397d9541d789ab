"""Quantities as `nvidia-smi` prints them: `143771 MiB`, `128.76 W`, `5 %`, `1980 MHz`, `P0`, `16x`, `Not Active`.

Each function gives None for what is no such quantity: `N/A`, `[Not Supported]`, `ERR!`, an empty cell, nonsense.
"""

from __future__ import annotations

import calendar
import re
import time

_NUMBER = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,9})?)\s?([A-Za-z%/]{0,5})\s*$")
_WHOLE = re.compile(r"\s*(\d{1,15})\s*$")
_SMALL = re.compile(r"\s*(\d{1,9})\s*$")
_LANES = re.compile(r"\s*(\d{1,2})x?\s*$")
_STATE = re.compile(r"\s*P(\d{1,2})\s*$")
_BUS = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?")
_BYTES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "mb": 2**20, "gb": 2**30, "kb": 2**10}
_HERTZ = {"hz": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_YES = frozenset({"active", "enabled", "on", "yes"})
_NO = frozenset({"not active", "disabled", "off", "no"})
_MOST = 2**62
_COMPUTE_MODES = {
    "default": "default",
    "e. process": "exclusive_process",
    "exclusive_process": "exclusive_process",
    "exclusive process": "exclusive_process",
    "e. thread": "exclusive_process",
    "prohibited": "prohibited",
}
_DRIVER_MODELS = frozenset({"wddm", "tcc", "mcdm"})
_TIMES = ("%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S")


def amount(text: str, unit: str = "") -> float | None:
    """A number, with or without a unit behind it.

    Args:
        text: as printed.
        unit: the only unit that is accepted besides none, in lower case; empty for a bare number.
    """
    found = _NUMBER.match(text)
    if found is None or found.group(2).lower() not in ("", unit):
        return None
    return float(found.group(1))


def whole(text: str) -> int | None:
    """A whole number without a unit."""
    found = _WHOLE.match(text)
    return int(found.group(1)) if found else None


def small(text: str) -> int | None:
    """A whole number of at most nine digits: an index, a generation."""
    found = _SMALL.match(text)
    return int(found.group(1)) if found else None


def size_bytes(text: str, unit: str = "mib") -> int | None:
    """Bytes; a bare number is in `unit`, MiB as nvidia-smi counts memory."""
    return _scaled(text, _BYTES, unit)


def clock_hz(text: str) -> int | None:
    """A clock; a bare number is in MHz."""
    return _scaled(text, _HERTZ, "mhz")


def duration_ns(text: str) -> int | None:
    """A counter of time; a bare number is in microseconds."""
    return _scaled(text, _NANOSECONDS, "us")


def share(text: str) -> float | None:
    """A percentage as a share of one."""
    value = amount(text, "%")
    return value / 100 if value is not None and 0 <= value <= 100 else None


def truth(text: str) -> bool | None:
    """Active, enabled, on, yes; or the opposite."""
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else None


def lanes(text: str) -> int | None:
    """Lanes of a link: `16x` or `16`."""
    found = _LANES.match(text)
    return int(found.group(1)) if found else None


def performance_state(text: str) -> int | None:
    """`P0` to `P15`."""
    found = _STATE.match(text)
    return int(found.group(1)) if found else None


def compute_mode(text: str) -> str | None:
    """Who may use the device, in the words of the case file."""
    return _COMPUTE_MODES.get(text.strip().lower())


def driver_model(text: str) -> str | None:
    """Model of a Windows driver, in lower case."""
    word = text.strip().lower()
    return word if word in _DRIVER_MODELS else None


def word(text: str) -> str | None:
    """A name or version; at most 100 characters."""
    stripped = text.strip().strip("[]")
    return None if stripped.lower() in ("", "n/a", "not supported", "unknown error", "none") else stripped[:100]


def bus_id(text: str) -> str | None:
    """A PCI address with a domain of eight digits and a function: `00000000:00:06.0`."""
    found = _BUS.search(text)
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):08x}:{bus}:{device}.{function or '0'}".lower()


def time_ns(text: str) -> int | None:
    """A time as printed, as if the clock were UTC, in ns since the epoch."""
    stripped, _, fraction = text.strip().partition(".")
    for layout in _TIMES:
        try:
            seconds = calendar.timegm(time.strptime(stripped, layout))
        except (ValueError, OverflowError):
            continue
        if not 0 <= seconds * 10**9 < _MOST:
            return None
        digits = fraction[:9] if fraction.isascii() and fraction.isdigit() else ""
        return seconds * 10**9 + (int(digits.ljust(9, "0")) if digits else 0)
    return None


_ENGINE = re.compile(r"(?:\.{3})?(?:[^\s]{0,200}/)?python[\d.]{0,6} -m (vllm|sglang|lmdeploy|tensorrt_llm)\b")


def program(text: str) -> str | None:
    """Base name of an executable: no folder, no arguments; None where the name was cut in front or hidden.

    Of `python -m vllm.entrypoints` it is `vllm`: which engine runs is told by the module.
    """
    stripped = text.strip()
    if (engine := _ENGINE.match(stripped)) is not None:
        return engine[1]
    if not stripped or stripped.startswith(("...", "[", "-")):
        return _after_cut(stripped)
    if re.match(r"[A-Za-z]:\\", stripped):
        name = re.split(r"(?<=\.exe)\s", stripped, maxsplit=1, flags=re.IGNORECASE)[0].rsplit("\\", 1)[-1]
    else:
        name = stripped.split()[0].rsplit("/", 1)[-1]
    name = name.rstrip(":")
    return name[:64] if name and not name.endswith("...") else None


def _after_cut(text: str) -> str | None:
    """A long path is cut in front: `...nda3/envs/vllm/bin/python` still ends with the name."""
    if not text.startswith("...") or "/" not in text:
        return None
    return program(text[3:].lstrip("."))


def _scaled(text: str, units: dict[str, int], bare: str) -> int | None:
    found = _NUMBER.match(text)
    if found is None:
        return None
    factor = units.get(found.group(2).lower() or bare)
    if factor is None:
        return None
    value = float(found.group(1)) * factor
    return round(value) if 0 <= value < _MOST else None
