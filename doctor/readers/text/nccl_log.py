"""Logs of NCCL or RCCL at `NCCL_DEBUG=INFO`: ranks, the network chosen, how channels are connected, settings.

Host names stand in front of every line; they are replaced by numbers in order of appearance and not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_LINE = re.compile(r"(?:^|[\s>:])([^\s:<>]{1,100}):(\d{1,10}):(\d{1,10}) \[(\d{1,3})\] (?:NCCL|RCCL) (INFO|WARN) (.*)")
_LINE_WITHOUT_DEVICE = re.compile(
    r"(?:^|[\s>:])([^\s:<>]{1,100}):(\d{1,10}):(\d{1,10}) (?:\[\w{1,8}\] )?(?:NCCL|RCCL) (INFO|WARN) (.*)"
)
_LINE_WITHOUT_HOST = re.compile(r"\[(\d{1,3})\] (?:NCCL|RCCL) (?:INFO|WARN) (.*)")
_SEVERAL = re.compile(r"(?=\[\d{1,3}\] (?:NCCL|RCCL) (?:INFO|WARN) )")
"""People take the names of their hosts out, and web forms join the lines."""
_TEST = re.compile(r"\b\w{3,20}_perf\b")
_ASSIGNED = re.compile(r"\b(NCCL_[A-Z0-9_]{1,40})=([A-Za-z0-9_^,-]{1,40})(?=[\s\"'\\]|$)")
_VERSION = re.compile(r"(NCCL|RCCL) version ([\w.+]{1,40})")
_INIT = re.compile(r"comm (0x[0-9a-f]{1,16}) rank (\d{1,6}) n[rR]anks (\d{1,6})\b(.{0,200})")
_PLACE = {
    name: re.compile(rf"\b{name} (\w{{1,20}})") for name in ("cudaDev", "nvmlDev", "commId", "nNodes", "localRanks")
}
_CONNECTION = re.compile(
    r"(?:Channel|Ring) (\d{1,4})(?:/\d{1,4})? : (\d{1,6})\[(\w{1,12})\] -> (\d{1,6})\[(\w{1,12})\] "
    r"(?:\[(?:send|receive)\] )?via (\S.{0,60})"
)
_SET = re.compile(r"(NCCL_[A-Z0-9_]{1,40}) set (?:by environment )?to ([A-Za-z0-9_^=,:-]{1,80})\.?\s*$")
_NETWORK = re.compile(r"Using network (\S{1,40})$")
_SOCKET = re.compile(r"NET/Socket : Using \[0\](\w{1,20}):")
_CHANNELS = re.compile(r"(\d{1,4}) coll channels")
_CHANNEL_OF = re.compile(r"Channel \d{1,4}/(\d{1,4}) :")
_TIMING = re.compile(r"Init timings.{0,60}: rank (\d{1,6}) nranks \d{1,6} total (\d{1,6}\.\d{1,6})")
_PEERS = re.compile(r"isAllDirectP2p (\d)")
_DIRECT = re.compile(r"GPU Direct RDMA (Enabled|Disabled)", re.IGNORECASE)
_NO_IB = ("NET/IB : No device found", "Failed to open libibverbs", "No IB device", "Failed to initialize NET plugin IB")
_TRANSPORTS = ("p2p", "shm", "net", "collnet", "nvls")
_MOST_CONNECTIONS = 200_000
_MOST_RANKS = 100_000
_MOST_SETTINGS = 1000
_MOST_LINE = 4000


class NcclLogScanner:
    """Lines of a communication library within a text."""

    kind = "nccl-log"
    clues = ("NCCL INFO", "NCCL WARN", "RCCL INFO", "NCCL version", "RCCL version", "NCCL_")
    is_open = False

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._ranks: dict[tuple[int, int, str], dict[str, Any]] = {}
        self._of_process: dict[tuple[int, int], dict[str, Any]] = {}
        self._connections: list[dict[str, Any]] = []
        self._connected: set[tuple[Any, ...]] = set()
        self._settings: dict[str, str] = {}
        self._version: str | None = None
        self._found = False
        self._is_over = False

    def line(self, number: int, text: str) -> None:
        """One line of the library."""
        text = text[:_MOST_LINE]
        for name, value in _ASSIGNED.findall(text):
            self._set(name, value)
            self._found |= _TEST.search(text) is not None
        parts = _SEVERAL.split(text) if text.count("NCCL INFO") > 1 else [text]
        for part in parts:
            self._part(part)

    def _part(self, text: str) -> None:
        """One message."""
        version = _VERSION.search(text)
        if version is not None:
            self._version = f"{version.group(1)} {version.group(2)}"
        process, words = self._process(text)
        if process is None:
            self._found |= version is not None
            return
        self._found = True
        self._of_host(process, words)
        for scan in (self._setting, self._connection, self._initialised, self._timing):
            if scan(process, words):
                return

    def drain(self) -> Iterator[TableBatch]:
        """Connections so far; ranks once the text is over."""
        if self._connections:
            yield batch_of("nccl_connection", self._connections, self.kind)
            self._connections = []
        if not self._is_over:
            return
        if self._settings and self._found:
            settings = [{"name": name, "value": value} for name, value in self._settings.items()]
            yield batch_of("nccl_setting", settings, self.kind)
        rows = [self._told(row) for row in self._ranks.values()]
        if not rows and self._of_process:  # cut before the first communicator
            rows = [self._told({"node_id": node, "pid": pid}) for node, pid in self._of_process]
        if rows:
            yield batch_of("nccl_rank", rows, self.kind)
        self._settings, self._ranks, self._of_process = {}, {}, {}

    def facts(self) -> SourceFacts | None:
        """What was found."""
        self._is_over = True
        return SourceFacts(self.kind, self._version, is_complete=True) if self._found else None

    def _process(self, text: str) -> tuple[tuple[int, int] | None, str]:
        found = _LINE.search(text)
        if found is not None:
            host, pid, words = found.group(1), found.group(2), found.group(6)
        elif (found := _LINE_WITHOUT_DEVICE.search(text)) is not None:
            host, pid, words = found.group(1), found.group(2), found.group(5)
        elif (found := _LINE_WITHOUT_HOST.search(text)) is not None:
            host, pid, words = "", found.group(1), found.group(2)
        else:
            return None, ""
        node = self._nodes.setdefault(host, len(self._nodes)) if len(self._nodes) < 10_000 else 0
        return (node, int(pid)), words

    def _of_host(self, process: tuple[int, int], words: str) -> None:
        """What holds for all ranks of a process."""
        if len(self._of_process) >= _MOST_RANKS and process not in self._of_process:
            return
        facts = self._of_process.setdefault(process, {})
        if (network := _NETWORK.search(words)) is not None:
            facts["network"] = network.group(1).lower()
        elif (socket := _SOCKET.search(words)) is not None:
            facts["socket_interface"] = socket.group(1)
        elif any(sign in words for sign in _NO_IB):
            facts["is_ib_missing"] = True
        elif "NET/IB : Using [0]" in words:
            facts["is_ib_found"] = True
        elif (direct := _DIRECT.search(words)) is not None:
            facts["is_gpu_direct"] = direct.group(1).lower() == "enabled"
        elif (channels := _CHANNELS.search(words)) is not None:
            facts["channel_count"] = int(channels.group(1))
        elif (channel := _CHANNEL_OF.search(words)) is not None and "->" not in words:
            facts.setdefault("channel_count", int(channel.group(1)))
        elif (peers := _PEERS.search(words)) is not None:
            facts["is_p2p_everywhere"] = peers.group(1) == "1"

    def _setting(self, process: tuple[int, int], words: str) -> bool:
        found = _SET.search(words)
        if found is not None:
            self._set(found.group(1), found.group(2))
        return found is not None

    def _set(self, name: str, value: str) -> None:
        is_private = any(part in name for part in ("HOST", "COMM_ID", "FILE", "ADDR"))
        if not is_private and len(self._settings) < _MOST_SETTINGS:
            self._settings[name] = value

    def _connection(self, process: tuple[int, int], words: str) -> bool:
        found = _CONNECTION.search(words)
        if found is None:
            return False
        channel, sender, from_device, receiver, to_device, via = found.groups()
        transport, detail, is_direct = _transport(via)
        key = (sender, receiver, channel, transport, detail)
        if key not in self._connected and len(self._connected) < _MOST_CONNECTIONS:
            self._connected.add(key)
            self._connections.append(
                {
                    "node_id": process[0],
                    "pid": process[1],
                    "channel_id": int(channel),
                    "from_rank": int(sender),
                    "to_rank": int(receiver),
                    "from_device_id": _ordinal(from_device),
                    "to_device_id": _ordinal(to_device),
                    "transport": transport,
                    "detail": detail,
                    "is_gpu_direct": is_direct,
                }
            )
        return True

    def _initialised(self, process: tuple[int, int], words: str) -> bool:
        found = _INIT.search(words)
        if found is None:
            return False
        address, rank, ranks, rest = found.groups()
        node, pid = process
        if len(self._ranks) >= _MOST_RANKS and (node, pid, address) not in self._ranks:
            return True
        row = self._ranks.setdefault((node, pid, address), {"node_id": node, "pid": pid})
        row |= {"rank": int(rank), "world_size": int(ranks)}
        told = {name: match.group(1) for name, pattern in _PLACE.items() if (match := pattern.search(rest)) is not None}
        for name, column in (
            ("cudaDev", "device_id"),
            ("nvmlDev", "nvml_device_id"),
            ("nNodes", "node_count"),
            ("localRanks", "local_rank_count"),
        ):
            if (number := _ordinal(told.get(name, ""))) is not None:
                row[column] = number
        if "commId" in told:
            row["communicator"] = told["commId"]
        return True

    def _timing(self, process: tuple[int, int], words: str) -> bool:
        found = _TIMING.search(words)
        if found is None:
            return False
        rank, seconds = int(found.group(1)), float(found.group(2))
        for (node, pid, _), row in self._ranks.items():
            if (node, pid) == process and row.get("rank") == rank:
                row["init_ns"] = round(seconds * 1e9)
        return True

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """A rank with what its process said, and the version."""
        shared = self._of_process.get((row["node_id"], row["pid"]), {})
        version = self._version.split(" ", 1)[1] if self._version else None
        return {"version": version, **shared, **row}


def _transport(via: str) -> tuple[str | None, str | None, bool]:
    """`P2P/IPC/read` is (`p2p`, `ipc`); `direct shared memory` is what old versions call shm."""
    words = via.strip().lower()
    if words.startswith("direct shared memory"):
        return "shm", "direct", False
    parts = words.split("/")
    kind = parts[0] if parts[0] in _TRANSPORTS else None
    detail = re.sub(r"[^a-z0-9 _-]", "", parts[1])[:20] if len(parts) > 1 else None
    return kind, detail, "gdrdma" in words


def _ordinal(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None
