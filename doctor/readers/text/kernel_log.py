"""The kernel log (dmesg, journal, syslog): Xid errors of the driver, lost devices, processes killed for memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.readers.text.scanner import batch_of

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{4,16})\): (\d{1,4})(?:, (.{0,200}))?")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]{4,16})\): (\d{1,6})(?:, (.{0,200}))?")
_LOST = re.compile(r"NVRM: .{0,40}?GPU (?:at )?([0-9a-fA-F:.]{4,16}).{0,40}fallen off the bus")
_NAMED = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]{4,16})")
_LOST_BELOW = re.compile(r"NVRM: fallen off the bus")
"""Newer drivers say it in three lines, the address in the first."""
_CAUSED = re.compile(r"caused by previous Xid (\d{1,4})")
_KILLED = re.compile(r"(?:Out of memory|out of memory): Killed process (\d{1,10}) \(([^)]{1,64})\)(.{0,120})")
_LOST_FOR_SMI = re.compile(r"Unable to determine the device handle for (?:GPU|gpu)\s?([0-9a-fA-F:.]{4,16})?.{0,80}")
_ECC = re.compile(r"CUDA error: uncorrectable ECC error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE")
_AER = re.compile(r"(?:pcieport|nvidia) ([0-9a-fA-F:.]{4,16}): (?:AER: |PCIe Bus Error: )(.{0,160})")
_PROCESS = re.compile(r"pid='?(\d{1,10})'?(?:, name=([^,]{1,64}))?")
_UPTIME = re.compile(r"\[ {0,8}(\d{1,9})\.(\d{6})\]")
_DATED = re.compile(r"\[((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})\]")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d:\d\d:\d\d)")
_MOST_LINE = 1000
_MOST_EVENTS = 50_000
_MESSAGE = 200


class KernelLogScanner:
    """Lines of the kernel log within a text that tell of devices."""

    kind = "kernel-log"
    clues = (
        "NVRM: ", "Xid (", "Killed process ", "fallen off the bus", "AER: ", "PCIe Bus Error", "GPU is lost",
        "Unable to determine the device handle", "uncorrectable ECC error", "ECC_UNCORRECTABLE",
        "ErrorECCUncorrectable",
    )  # fmt: skip
    is_open = False

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._count = 0
        self._named: str | None = None
        self._told: set[tuple[str | None, int]] = set()

    def line(self, number: int, text: str) -> None:
        """One line."""
        line = text[:_MOST_LINE]
        if (named := _NAMED.search(line)) is not None:
            self._named = named.group(1)
        row = _event(line)
        if row is None and _LOST_BELOW.search(line) is not None:
            row = {"event_kind": "fallen_off_bus", "pci_bus_id": q.bus_id(self._named or ""), "message": "device lost"}
        if row is not None:
            self._keep({"time_ns": _time_ns(line), **row}, _CAUSED.search(line))

    def _keep(self, row: dict[str, Any], cause: re.Match[str] | None) -> None:
        """A row, and before it the error that it names as its cause, where the text lacks that one's own line."""
        named = (row.get("pci_bus_id"), int(cause.group(1))) if cause is not None else None
        if named is not None and named not in self._told:
            self._keep({**row, "xid": named[1], "pid": None, "name": None, "message": "named as the cause"}, None)
        if self._count < _MOST_EVENTS:
            self._count += 1
            self._told.add((row.get("pci_bus_id"), row.get("xid") or 0))
            self._rows.append(row)

    def drain(self) -> Iterator[TableBatch]:
        """Events so far."""
        if self._rows:
            yield batch_of("kernel_log_event", self._rows, self.kind)
            self._rows = []

    def facts(self) -> SourceFacts | None:
        """What was found."""
        return SourceFacts(self.kind, "kernel log", is_complete=True) if self._count else None


def _event(line: str) -> dict[str, Any] | None:
    for kind, pattern in (("xid", _XID), ("sxid", _SXID)):
        if (found := pattern.search(line)) is not None:
            return _xid(kind, *found.groups())
    if (killed := _KILLED.search(line)) is not None:
        pid, name, rest = killed.groups()
        kept = re.findall(r"(?:total-vm|anon-rss|file-rss|shmem-rss):\d{1,14}kB", rest)
        return {"event_kind": "oom_kill", "pid": int(pid), "name": q.program(name), "message": ", ".join(kept)}
    return _fault(line)


def _fault(line: str) -> dict[str, Any] | None:
    """A device or link that failed, in words without a number."""
    if (lost := _LOST.search(line) or _LOST_FOR_SMI.search(line)) is not None:
        return {"event_kind": "fallen_off_bus", "pci_bus_id": q.bus_id(lost.group(1) or ""), "message": "device lost"}
    if _ECC.search(line) is not None:
        return {"event_kind": "ecc_error", "message": "a program was stopped by an uncorrectable memory error"}
    if (error := _AER.search(line)) is not None:
        return {"event_kind": "pcie_error", "pci_bus_id": q.bus_id(error.group(1)), "message": error.group(2).strip()}
    return None


def _xid(kind: str, bus: str, number: str, rest: str | None) -> dict[str, Any]:
    words = (rest or "").strip()
    process = _PROCESS.search(words)
    return {
        "event_kind": kind,
        "xid": int(number),
        "pci_bus_id": q.bus_id(bus),
        "pid": int(process.group(1)) if process else None,
        "name": q.program(process.group(2)) if process and process.group(2) else None,
        "message": _PROCESS.sub("", words).strip(", ")[:_MESSAGE] or None,
    }


def _time_ns(line: str) -> int | None:
    """Since boot, or since the epoch where the line has a date with its year."""
    if (uptime := _UPTIME.search(line[:80])) is not None:
        return int(uptime.group(1)) * 10**9 + int(uptime.group(2)) * 1000
    if (dated := _DATED.search(line[:80])) is not None:
        return q.time_ns(" ".join(dated.group(1).split()))
    if (iso := _ISO.search(line[:80])) is not None:
        year, month, day, clock = iso.groups()
        return q.time_ns(f"{year}/{month}/{day} {clock}")
    return None
