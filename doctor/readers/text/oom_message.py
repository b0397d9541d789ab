"""The figures in an out-of-memory message, of any generation: clause by clause, since every clause may be missing.

Known since 2018: `(GPU 0; T total capacity; A already allocated; F free; C cached)`, then `R reserved in total by
PyTorch)`, then sentences: `GPU 0 has a total capacity of T of which F is free. Process N has ... Including non-PyTorch
memory, this process has X memory in use. Of the allocated memory A is allocated by PyTorch, ...`. Other libraries give
a size at most.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_BYTES = 1 << 50
"""Larger figures are nonsense: drivers under Windows have reported 17179869184 GiB for a process."""

_POWERS = {"k": 10, "m": 20, "g": 30, "t": 40}
_NUMBER = r"(?<![\d.,])(\d{1,15}(?:,\d{3}){0,5}(?:\.\d{1,6})?)"
_SIZE = rf"{_NUMBER}\s{{0,4}}([Bb]ytes?|[KMGT]i?B|B)\b"
_GAP = r"\s{0,4}"
"""A line that was broken between two words may come without the space."""

_CLAUSES = {
    "tried_bytes": rf"[Tt]ried{_GAP}to{_GAP}allocate{_GAP}{_SIZE}",
    "total_bytes": rf"total{_GAP}capaci?ty{_GAP}of{_GAP}{_SIZE}|{_SIZE}{_GAP}total{_GAP}capacity",
    "free_bytes": rf"of{_GAP}which{_GAP}{_SIZE}{_GAP}is{_GAP}free|{_SIZE}{_GAP}free[;)]",
    "allocated_bytes": rf"{_SIZE}{_GAP}(?:is{_GAP}allocated{_GAP}by{_GAP}Py[Tt]orch|already{_GAP}allocated)",
    "reserved_bytes": rf"{_SIZE}{_GAP}reserved{_GAP}in{_GAP}total{_GAP}by{_GAP}Py[Tt]orch",
    "reserved_unallocated_bytes": (
        rf"{_SIZE}{_GAP}(?:is{_GAP}reserved{_GAP}by{_GAP}Py[Tt]orch{_GAP}but{_GAP}unallocated|cached\))"
    ),
    "private_pool_bytes": rf"{_SIZE}{_GAP}allocated{_GAP}in{_GAP}private{_GAP}pools",
    "own_process_bytes": rf"this{_GAP}process{_GAP}has{_GAP}{_SIZE}{_GAP}memory{_GAP}in{_GAP}use",
    "allowed_bytes": rf"{_SIZE}{_GAP}allowed;",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _CLAUSES.items()}
_PROCESS = re.compile(rf"\bProcess{_GAP}(\d{{1,10}}){_GAP}has{_GAP}{_SIZE}{_GAP}memory{_GAP}in{_GAP}use")
_DEVICE = re.compile(r"\bGPU\s{1,4}(\d{1,3})\b")
_ALLOCATOR = re.compile(r"\b(?:CUDA|HIP|XPU|NPU)\s{1,4}out\s{1,4}of\s{1,4}memory\b")

ASYNC = "would exceed allowed memory"
"""Words of the other allocator (`backend:cudaMallocAsync`), whose figures stand in a list below them."""
_ASYNC_CLAUSES = {
    "tried_bytes": re.compile(rf"\bRequested\s{{0,24}}:\s{{0,4}}{_SIZE}"),
    "total_bytes": re.compile(rf"\bDevice limit\s{{0,24}}:\s{{0,4}}{_SIZE}"),
    "free_bytes": re.compile(rf"\bFree \(according to \w{{2,8}}\)\s{{0,24}}:\s{{0,4}}{_SIZE}"),
    "allocated_bytes": re.compile(rf"\bCurrently allocated\s{{0,24}}:\s{{0,4}}{_SIZE}"),
    "allowed_bytes": re.compile(rf"memory fraction\)\s{{0,24}}:\s{{0,4}}{_SIZE}"),
}
_ASYNC_DEVICE = re.compile(r"Allocation on device (\d{1,3}) would")

_DRIVER = re.compile(
    r"(?:CUDA|Cuda|cuda|HIP) (?:runtime )?[Ee]rror(?: in .{1,200}?)?: out of memory"
    r"|Cuda Runtime \(out of memory\)"
    r"|cudaMalloc failed: out of memory"
    r"|CUDA failed with error out of memory"
    r"|cudaErrorMemoryAllocation"
    r"|CUDA_ERROR_OUT_OF_MEMORY"
    r"|[Cc]uda failure (?:2 )?'out of memory'"
    r"|RESOURCE_EXHAUSTED: [Oo]ut of memory"
    r"|Requested amount of GPU memory \(\d{1,20} bytes\) could not be allocated"
    r"|Error: (?:CUDA|HIP|XPU) out of memory\.?$"
)
_DRIVER_SIZE = re.compile(rf"(?:GPU memory \(|allocating |trying to allocate |cudaMallocAsync\([^,]{{1,60}}, ){_SIZE}")
_DRIVER_DEVICE = re.compile(r"\bdevice (\d{1,3})\b")

RETRIED = "memory allocation failed with OOM on device"
_RETRY = re.compile(
    r"with OOM on device (\d{1,3})\s{1,4}while\s{1,4}trying\s{1,4}to\s{1,4}allocate\s{1,4}(\d{1,18})\s{1,4}bytes"
    r"(?:\s{1,4}\(free:\s{1,4}(\d{1,18}),\s{1,4}total:\s{1,4}(\d{1,18}))?"
)

CONTINUED = re.compile(
    r"total capac|of which|is free|Process \d|this process|memory in use|allocated|reserved|by PyTorch|private pools"
    r"|fragmentation|ALLOC_CONF|[KMG]iB|bytes|GPU \d|See documentation|user-supplied"
)
"""Words by which the next line of a wrapped message is known."""
COMPLETE = re.compile(r"See documentation|cached\)|fragmentation|total:\s{1,4}\d")
"""Words after which nothing more comes."""


@dataclass(frozen=True)
class OomMessage:
    """What one message says.

    Attributes:
        text_form: see the table `oom_event`.
        device_id: device as the failing process counts.
        figures: bytes by column of `oom_event`; absent where the message does not say.
        processes: pid and bytes of each `Process N has ...`, in order.
    """

    text_form: str
    device_id: int | None
    figures: dict[str, int]
    processes: tuple[tuple[int, int], ...]


def parse(text: str) -> OomMessage | None:
    """Read a message; None where the text only speaks of memory, such as the source line that raised.

    Args:
        text: the message on one line, at most a few KiB.
    """
    if ASYNC in text:
        return _of_async(text)
    tried = _PATTERNS["tried_bytes"].search(text)
    if tried is None or not (_ALLOCATOR.search(text) or _PATTERNS["total_bytes"].search(text)):
        return _of_driver(text)
    figures = {
        name: size
        for name, pattern in _PATTERNS.items()
        if (found := pattern.search(text)) and (size := _bytes_of(*_filled(found))) is not None
    }
    processes = tuple(
        (int(pid), size)
        for pid, number, unit in _PROCESS.findall(text)
        if (size := _bytes_of(number, unit)) is not None
    )
    device = _DEVICE.search(text)
    return OomMessage(_form(text), int(device[1]) if device else None, figures, processes)


def retry(text: str) -> dict[str, int] | None:
    """Device and bytes of a warning about an allocation that the allocator will try again; None where it is none."""
    found = _RETRY.search(text)
    if found is None:
        return None
    names = ("device_id", "tried_bytes", "free_bytes", "total_bytes")
    return {name: int(value) for name, value in zip(names, found.groups(), strict=True) if value is not None}


def size_of(number: str, unit: str) -> int | None:
    """Bytes of a printed size; None where it is no possible one."""
    return _bytes_of(number, unit)


def _of_async(text: str) -> OomMessage:
    """The list of the other allocator; a limit that nobody set is printed as 17179869184 GiB and left out."""
    figures = {
        name: size
        for name, pattern in _ASYNC_CLAUSES.items()
        if (found := pattern.search(text)) and (size := _bytes_of(*_filled(found))) is not None
    }
    if figures.get("allowed_bytes", 0) >= figures.get("total_bytes", MOST_BYTES):
        figures.pop("allowed_bytes", None)  # the whole device is no limit
    device = _ASYNC_DEVICE.search(text)
    return OomMessage("async", int(device[1]) if device else None, figures, ())


def _form(text: str) -> str:
    if "cached)" in text:
        return "cached"
    return "reserved" if "total capacity;" in text else "process"


def _of_driver(text: str) -> OomMessage | None:
    if _DRIVER.search(text) is None:
        return None
    size, device = _DRIVER_SIZE.search(text), _DRIVER_DEVICE.search(text)
    tried = _bytes_of(*size.groups()) if size else None
    return OomMessage("driver", int(device[1]) if device else None, {} if tried is None else {"tried_bytes": tried}, ())


def _filled(found: re.Match[str]) -> tuple[str, str]:
    number, unit = [group for group in found.groups() if group is not None]
    return number, unit


def _bytes_of(number: str, unit: str) -> int | None:
    size = round(float(number.replace(",", "")) * 2 ** _POWERS.get(unit[0].lower(), 0))
    return size if size < MOST_BYTES else None
