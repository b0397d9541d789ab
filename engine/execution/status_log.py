"""The line about the state of the engine that is written once a second; `engine.logs` documents its fields."""

from __future__ import annotations

import logging
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from engine.execution.counters import Counters

if TYPE_CHECKING:
    from engine.scheduling.scheduler import Scheduler

_STATUS = logging.getLogger("engine.status")
_PERIOD_S = 1.0


class StatusLog:
    """Writes a line about the state of the engine once a second."""

    def __init__(self, counters: Counters, scheduler: Scheduler) -> None:
        self._counters = counters
        self._scheduler = scheduler
        self._last = replace(counters)
        self._last_s = time.monotonic()

    def tick(self, now_s: float) -> None:
        """Write a line if a second has passed since the last one."""
        passed_s = now_s - self._last_s
        if passed_s >= _PERIOD_S:
            if _STATUS.isEnabledFor(logging.INFO):
                _STATUS.info("event=status %s", self._line(self._since_last(), passed_s))
            self._last, self._last_s = replace(self._counters), now_s

    def _since_last(self) -> Counters:
        # A reset in between makes counts smaller than they were: then they count from the reset.
        pairs = ((f.name, getattr(self._counters, f.name), getattr(self._last, f.name)) for f in fields(Counters))
        return Counters(**{name: now - before if now >= before else now for name, now, before in pairs})

    def _line(self, new: Counters, passed_s: float) -> str:
        pool = self._scheduler.tables.device
        prompt_tokens = new.prefill_tokens + new.prefix_hit_tokens
        values = {
            "running": len(self._scheduler.running),
            "waiting": len(self._scheduler.waiting),
            "kv_usage": f"{pool.num_used / pool.num_blocks:.3f}",
            "prefix_hit_rate": f"{new.prefix_hit_tokens / max(1, prompt_tokens):.3f}",
            "prompt_tokens_per_s": f"{new.prefill_tokens / passed_s:.1f}",
            "output_tokens_per_s": f"{new.sampled_tokens / passed_s:.1f}",
            "preemptions": new.preemptions,
            "graph_share": f"{new.graph_replays / max(1, new.pieces):.3f}",
            "drafted": new.drafted,
            "accepted": new.accepted,
        }
        return " ".join(f"{key}={value}" for key, value in values.items())
