"""Where a worker runs and where its device hangs, as commands, their comments and sentences tell it.

`taskset -pc 4118  # the worker on GPU4`, `numactl --cpunodebind=0` beside one visible device, `GPU 4 hangs on node 1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import emptied

_MOST_LINE = 1000
_MOST_CLAUSES = 32
_MOST_ROWS = 1000
_GPU = re.compile(r"\b(?:GPU|CUDA:|cuda:|card|device)\s?#?(\d{1,2})\b", re.IGNORECASE)
_PID = re.compile(r"\b(?:pid|process|worker)\s?[#:=]?\s?(\d{3,10})\b", re.IGNORECASE)
_NODE = re.compile(r"\b(?:numa[ -]?node|numa|node|socket)\s?#?(\d)\b(?!\s?(?:node|gpus?|x))", re.IGNORECASE)
_WORKER = re.compile(
    r"\b(?:worker|process|rank|engine|server|job|threads?|program|pid|vllm|sglang|container|pod|script)\b",
    re.IGNORECASE,
)
_COMMENTED = re.compile(
    r"\b(?:taskset|numastat|numactl|ps|cat"
    r"|grep)\b[^#\n]{0,60}?\b(\d{3,10})\b[^#\n]{0,24}#[^\n]{0,60}?\bGPU\s?(\d{1,2})\b",
    re.IGNORECASE,
)
_AHEAD = re.compile(r"\bnvidia-smi\b[^#\n]{0,160}#[^\n]{0,60}?\bGPU\s?(\d{1,2})\b", re.IGNORECASE)
_ROW = re.compile(r"\s{0,8}(\d{2,10})\s{0,4},")
_BOUND = re.compile(r"\bnumactl\b[^\n]{0,80}?(?:--cpunodebind[= ]|-N ?)(\d)\b")
_VISIBLE = re.compile(r"\b(?:CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES)=[\"']?(\d{1,2})\b(?!,)")
_CLAUSE = re.compile(r"[.;,:](?=\s|$)|\b(?:but|while|whereas|and|though|although)\b|\s-\s|->|→")


class NumaWordsScanner:
    """Workers and devices with the NUMA node that a text gives them."""

    kind = "cgroup"
    clues = ("on GPU", "for GPU", "of GPU", "GPU ", "GPU#", "node ", "NUMA", "numa", "socket", "numactl", "cuda:")

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"host_process": [], "gpu_affinity": []}
        self._device_ahead: int | None = None
        self._count = 0

    @property
    def is_open(self) -> bool:
        """True while the row of the process that a comment tells of may come."""
        return self._device_ahead is not None

    def line(self, number: int, text: str) -> None:
        """Take what one line tells."""
        line = text[:_MOST_LINE]
        if self._device_ahead is not None:
            if (row := _ROW.match(line)) is not None:
                self._worker(pid=int(row[1]), device_id=self._device_ahead)
            self._device_ahead = None
            return
        if (commented := _COMMENTED.search(line)) is not None:
            self._worker(pid=int(commented[1]), device_id=int(commented[2]))
        elif (ahead := _AHEAD.search(line)) is not None:
            self._device_ahead = int(ahead[1])
        elif (bound := _BOUND.search(line)) is not None:
            if (visible := _VISIBLE.search(line)) is not None:
                self._worker(device_id=int(visible[1]), numa_node_id=int(bound[1]))
        elif _NODE.search(line) is not None:
            self._sentence(line)

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was told."""
        return SourceFacts(self.kind, "places of workers and devices", is_complete=True) if self._count else None

    def _sentence(self, line: str) -> None:
        """Clause by clause: a clause without a device speaks of the one before it."""
        device: int | None = None
        for clause in _CLAUSE.split(line, maxsplit=_MOST_CLAUSES):
            gpu, node, pid = _GPU.search(clause), _NODE.search(clause), _PID.search(clause)
            device = int(gpu[1]) if gpu is not None else device
            if node is None or device is None:
                continue
            if _WORKER.search(clause) is not None:
                told: dict[str, int] = {} if pid is None else {"pid": int(pid[1])}
                self._worker(device_id=device, numa_node_id=int(node[1]), **told)
            elif len(self._rows["gpu_affinity"]) < _MOST_ROWS:
                self._count += 1
                self._rows["gpu_affinity"].append({"device_id": device, "numa_node_id": int(node[1])})

    def _worker(self, **told: int) -> None:
        if len(self._rows["host_process"]) < _MOST_ROWS:
            self._count += 1
            self._rows["host_process"].append(dict(told))
