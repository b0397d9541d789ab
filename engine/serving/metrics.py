"""Prometheus metrics of one engine: counters of the engine read when asked, latencies observed as they happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from engine.serving.worker import EngineWorker

_TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITL_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_COUNTED = ("prefill_tokens", "decode_tokens", "sampled_tokens", "prefix_hit_tokens", "preemptions", "steps", "pieces",
            "graph_replays", "drafted", "accepted", "step_failures")  # fmt: skip


class _EngineState(Collector):
    """Reads the engine at the moment of the scrape. Reads plain integers, so no lock is needed."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Gauges of the scheduler and the engine's own counters."""
        core = self._worker.core
        scheduler = core.loop.scheduler
        pool = scheduler.tables.device
        yield GaugeMetricFamily("engine_requests_running", "Requests in the batch", len(scheduler.running))
        yield GaugeMetricFamily("engine_requests_waiting", "Requests in the queue", len(scheduler.waiting))
        yield GaugeMetricFamily(
            "engine_kv_usage_ratio", "Share of the KV blocks in use", pool.num_used / max(pool.num_blocks, 1)
        )
        counters = core.counters
        texts = {field.name: field.name.replace("_", " ") for field in fields(counters)}
        for name in _COUNTED:
            yield CounterMetricFamily(f"engine_{name}", texts[name].capitalize(), getattr(counters, name))


class ServingMetrics:
    """What `/metrics` shows.

    Attributes:
        ttft_s: from the arrival of a request to its first token.
        itl_s: from each token to the next.
        finished: ended requests, by reason.
        refused: requests refused because too many were open.
    """

    def __init__(self, worker: EngineWorker) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineState(worker))
        self.ttft_s = Histogram(
            "engine_ttft_seconds", "Time to first token", buckets=_TTFT_BUCKETS_S, registry=self._registry
        )
        self.itl_s = Histogram(
            "engine_itl_seconds", "Inter-token latency", buckets=_ITL_BUCKETS_S, registry=self._registry
        )
        self.finished = Counter(
            "engine_requests_finished", "Ended requests by reason", ["reason"], registry=self._registry
        )
        self.refused = Counter("engine_requests_refused", "Requests refused with 429", registry=self._registry)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)
