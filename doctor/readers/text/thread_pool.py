"""How many threads a program starts and how many CPUs it may use, as sessions and sentences tell it.

`torch.get_num_threads()` and the 64 below it; `pod has 4 CPUs, node has 128`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import emptied

_MOST_LINE = 1000
_ANSWER_LINES = 3
_PERIOD_NS = 100_000_000
_ASKED_THREADS = re.compile(r"\b(?:torch\.get_num_threads|get_num_interop_threads|omp_get_max_threads)\(\)")
_ASKED_CPUS = re.compile(r"\b(?:os|multiprocessing|mp)\.cpu_count\(\)|^[\s$>#\w.@:~\-/]{0,40}\bnproc(?: --all)?\s*$")
_ANSWER = re.compile(r"(?:Out\[\d{1,4}\]: ?|[=>:#\-\s]{0,6})(\d{1,5})\s*\Z")
_BESIDE = re.compile(r"[\s=>:#\-)]{1,8}(\d{1,5})\b(?![.\d])")
_THREADS = re.compile(
    r"\b(?:OMP_NUM_THREADS|MKL_NUM_THREADS|num_threads|torch threads|openmp threads)\b[\s=:\"']{1,4}(\d{1,5})\b"
    r"|(?<![\w.,])(\d{1,5})\s(?:torch|pytorch|omp|openmp|intra-?op|blas|mkl|cpu|worker|python|grammar"
    r"|compile)\s(?:worker )?threads\b",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"\b(?:pod|container|cgroup|docker)\b[^\d.\n]{0,24}?(?:has|gets|is limited to|limited to|limit(?: is"
    r"| of)?|with|allowed|:)\s{1,3}(\d{1,4}(?:\.\d{1,2})?)\s?(m\b|v?cpus?\b|cores?\b)"
    r"|\b(?:limits?\.cpu|cpu[ _]limit|cpu[ _]quota|--cpus|cpus?_limit"
    r"|nano_cpus)\b[\s=:\"'of]{1,5}(\d{1,5}(?:\.\d{1,2})?)(m?)\b",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"\b(?:node|host|machine|server|box)\b[^\d.\n]{0,16}?(?:has|with|:)\s{1,3}(\d{1,5})\s?(?:v?cpus?|cores|threads)?\b",
    re.IGNORECASE,
)


class ThreadPoolScanner:
    """Sizes of thread pools and of what they run on."""

    kind = "cgroup"
    clues = (
        "get_num_threads()", "get_num_interop_threads()", "get_max_threads()", "cpu_count()", "nproc", "NUM_THREADS",
        " threads", "num_threads", " CPUs", " cpus", " cores", " CPU", " vCPU", "limits.cpu", "cpu limit",
        "CPU limit", "cpu_limit", "--cpus",
    )  # fmt: skip

    def __init__(self) -> None:
        self._asked: str | None = None
        self._lines_left = 0
        self._told: dict[str, float] = {}
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """True while an answer may come."""
        return self._lines_left > 0

    def line(self, number: int, text: str) -> None:
        """A question, its answer, or a sentence."""
        line = text[:_MOST_LINE]
        if self._asked is not None and (answer := _ANSWER.match(line.strip())) is not None:
            self._take(self._asked, answer[1])
            self._asked, self._lines_left = None, 0
            return
        self._lines_left = max(self._lines_left - 1, 0)
        if self._lines_left == 0:
            self._asked = None
        for name, form in (("threads", _ASKED_THREADS), ("machine", _ASKED_CPUS)):
            if (asked := form.search(line)) is not None:
                beside = _BESIDE.match(line[asked.end() :])
                self._asked, self._lines_left = (None, 0) if beside is not None else (name, _ANSWER_LINES)
                self._take(name, beside[1] if beside is not None else None)
        self._sentence(line)

    def drain(self) -> Iterator[TableBatch]:
        """One row of each kind, once the text is over."""
        if self._is_given:
            self._is_given = False
            told = self._told
            rows: dict[str, list[dict[str, Any]]] = {
                "host_process": [{"name": "threads", "thread_count": int(told["threads"])}]
                if "threads" in told
                else [],
                "host_sample": [{"cpu_count": int(told["machine"])}] if "machine" in told else [],
                "cgroup_cpu": [{"quota_ns": round(told["quota"] * _PERIOD_NS), "period_ns": _PERIOD_NS}]
                if "quota" in told
                else [],
            }
            yield from emptied(rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was told; a pool alone says nothing."""
        self._is_given = "threads" in self._told
        return SourceFacts(self.kind, "sizes of thread pools", is_complete=True) if self._is_given else None

    def _sentence(self, line: str) -> None:
        if (threads := _THREADS.search(line)) is not None:
            self._take("threads", threads[1] or threads[2])
        if (quota := _QUOTA.search(line)) is not None:
            amount, unit = quota[1] or quota[3], (quota[2] or quota[4] or "").lower()
            self._take("quota", amount, 0.001 if unit == "m" else 1.0)
        if (machine := _MACHINE.search(line)) is not None:
            self._take("machine", machine[1])

    def _take(self, name: str, amount: str | None, scale: float = 1.0) -> None:
        if amount is not None and float(amount) > 0:
            self._told.setdefault(name, float(amount) * scale)
