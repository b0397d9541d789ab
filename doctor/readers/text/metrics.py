"""Prometheus text of vLLM, SGLang, TensorRT-LLM, text-generation-inference and the engine of this project.

One scrape or several.

A scrape begins where a series comes a second time. Of the labels, those that tell replicas, positions, reasons and
bucket bounds apart are kept; names of models and hosts are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.engine_options import setting_of
from doctor.readers.text.engine_lines import number
from doctor.readers.text.scanner import batch_of

MOST_SCRAPES = 32_000
_SAMPLE = re.compile(
    r"\s{0,8}(?P<engine>vllm:|sglang:|trtllm_|nv_trt_llm_|tgi_|engine_)(?P<name>[a-z0-9_:]{1,100})(?:\{(?P<labels>[^{}]{0,2000})\})?"
    r"\s{1,4}(?P<value>[+\-]?(?:[\d.]{1,40}(?:[eE][+\-]?\d{1,4})?|Inf|NaN))(?:\s{1,4}(?P<time>\d{10,16}))?\s{0,8}\Z"
)
_LABEL = re.compile(r'([a-zA-Z_]{1,40})="([^"\\]{0,200})"')
_ENGINES = {
    "vllm:": "vllm",
    "sglang:": "sglang",
    "trtllm_": "tensorrt-llm",
    "nv_trt_llm_": "tensorrt-llm",
    "tgi_": "tgi",
    "engine_": "engine",
}
_REPLICA_LABELS = ("engine", "dp_rank", "engine_index")
_KIND_LABELS = (
    "request_type",
    "kv_cache_block_type",
    "inflight_batcher_specific_metric",
    "runtime_memory_type",
    "memory_type",
)
"""Triton's backend of TensorRT-LLM names what it counts in a label: `request_metrics{request_type="waiting"}`."""
_DETAIL_LABELS = ("position", "finished_reason", "reason", "mode", "source", "err", "method")
_SUFFIXES = (("_bucket", "bucket"), ("_sum", "sum"), ("_count", "count"), ("_total", "counter"))
_INFO = re.compile(r"(?:cache|model|parallel|speculative)_config_info")
_INFO_NAMES = {"cache_dtype": "kv_cache_dtype", "spec_num_tokens": "num_speculative_tokens", "spec_method": ""}
_OF_BLOCKS = ("num_gpu_blocks", "num_pages")
_PAGE_SIZES = {"vllm": "block_size", "sglang": "page_size", "tensorrt-llm": "tokens_per_block"}


class MetricsScanner:
    """Series of engines in a text."""

    kind = "metrics"
    clues = (
        "vllm:",
        "sglang:",
        "trtllm_",
        "nv_trt_llm_",
        "tgi_",
        "engine_requests_",
        "engine_kv_usage",
        "engine_pre",
        "engine_draft",
        "engine_acc",
    )

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._settings: dict[tuple[str, str], dict[str, Any]] = {}
        self._blocks: list[dict[str, Any]] = []
        self._seen: set[tuple[str, str]] = set()
        self._scrape = 0
        self._engine: str | None = None
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Always false: a series is one line."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        found = _SAMPLE.match(text)
        if found is None:
            return
        labels = dict(_LABEL.findall(found["labels"] or ""))
        series = (found["engine"] + found["name"], found["labels"] or "")
        if series in self._seen and self._scrape < MOST_SCRAPES:
            self._scrape, self._seen = self._scrape + 1, set()
        self._seen.add(series)
        self._engine = _ENGINES[found["engine"]]
        if _INFO.fullmatch(found["name"]):
            self._keep_info(number, self._engine, labels)
        else:
            self._keep(found, labels)

    def drain(self) -> Iterator[TableBatch]:
        """Readings found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("metric", rows, self.kind)
        if self._is_over and self._settings:
            yield batch_of("engine_setting", self._settings.values(), self.kind)
        if self._is_over and self._blocks:
            yield batch_of("engine_figure", self._blocks[:1], self.kind)

    def facts(self) -> SourceFacts | None:
        """The engine; None where the text holds no series of one."""
        self._is_over = True
        if self._engine is None:
            return None
        notes = () if self._scrape else ("one scrape: counters are since the start of the server",)
        return SourceFacts(self.kind, f"metrics of {self._engine}", is_complete=True, notes=notes)

    def _keep_info(self, line: int, engine: str, labels: dict[str, str]) -> None:
        """A series of one whose labels are the configuration that runs; each scrape repeats it."""
        for name, value in labels.items():
            spelled = (
                _PAGE_SIZES.get(engine, name) if name in {"page_size", "block_size"} else _INFO_NAMES.get(name, name)
            )
            kept = setting_of(engine, spelled, value)
            if kept is not None and kept.setting != "dtype":
                row = {**kept.row_of_command(engine, line), "said_by": "log"}
                self._settings.setdefault((engine, kept.setting), row)
            elif name in _OF_BLOCKS and (blocks := number(value)) is not None:
                self._blocks.append({"engine": engine, "line_id": line, "figure": "kv_blocks", "amount_count": blocks})

    def _keep(self, found: re.Match[str], labels: dict[str, str]) -> None:
        name, kind = found["name"], "gauge"
        if found["engine"] == "nv_trt_llm_":
            name = next((f"{name}.{labels[key]}" for key in _KIND_LABELS if key in labels), name)[:100]
        for suffix, meant in _SUFFIXES:
            if name.endswith(suffix):
                name, kind = name.removesuffix(suffix), meant
                break
        reading = number(found["value"])
        if reading is None:
            return
        time = found["time"]
        self._rows.append(
            {
                "engine": _ENGINES[found["engine"]],
                "replica_id": _small(next((labels[key] for key in _REPLICA_LABELS if key in labels), None)),
                "scrape_id": self._scrape,
                "time_ns": None if time is None else int(time.ljust(13, "0")[:13]) * 10**6,
                "metric": name,
                "reading_kind": kind,
                "bucket_le": _bound(labels.get("le")),
                "detail": next((labels[key][:40] for key in _DETAIL_LABELS if key in labels), None),
                "reading": reading,
            }
        )


def _small(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 6 else None


def _bound(text: str | None) -> float | None:
    return None if text is None or text == "+Inf" else number(text)
