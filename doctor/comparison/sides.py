"""One run of a comparison, from a diagnosis or from the JSON of `python -m engine bench`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doctor.case.step_queries import steps
from doctor.comparison.kernels import KernelShape, KernelUse, kernels_of
from doctor.errors import EvidenceError

if TYPE_CHECKING:
    import duckdb

    from doctor.diagnosis.outcome import Diagnosis

BENCH_SCHEMA = "engine.bench/1"
_MOST_BENCH_BYTES = 16 * 2**20
_MOST_STEPS = 100_000


@dataclass(frozen=True)
class Side:
    """What is known of one run.

    Attributes:
        kind: `diagnosis` or `bench`; only like is compared with like.
        figures: numbers by name; None where unknown.
        findings: summary by rule.
        kernels: every kernel of the window by name and shape.
        num_steps: steps of the window, a mean over processes, which step side by side; None where unknown.
        step_seconds: lengths of the steps by kind (`decode`, `prefill`, `usual`, ...), in order; of a benchmark, of its
            repeats.
    """

    kind: str
    figures: Mapping[str, float | None]
    findings: Mapping[str, str]
    kernels: Mapping[KernelShape, KernelUse]
    num_steps: float | None
    step_seconds: Mapping[str, tuple[float, ...]]


def side_of_case(case: duckdb.DuckDBPyConnection, diagnosis: Diagnosis) -> Side:
    """The vitals, findings, kernels and steps of a case and its diagnosis."""
    window = diagnosis.window
    num_steps = None if window is None or not window.steps else window.steps / max(_num_processes(case), 1)
    figures: dict[str, float | None] = {}
    if window is not None:
        figures["window_seconds"] = window.seconds
        figures["step_seconds"] = window.seconds / num_steps if num_steps else None
    return Side(
        "diagnosis",
        figures | diagnosis.vitals,
        {finding.rule: finding.summary for finding in diagnosis.findings},
        {} if window is None else kernels_of(case),
        num_steps,
        {} if window is None else _step_seconds(case),
    )


def _num_processes(case: duckdb.DuckDBPyConnection) -> int:
    """Processes that have steps: ranks of one job step side by side."""
    [(count,)] = case.execute("SELECT count(*) FROM (SELECT DISTINCT source_id, pid FROM step)").fetchall()
    return int(count)


def _step_seconds(case: duckdb.DuckDBPyConnection) -> dict[str, tuple[float, ...]]:
    """Lengths by kind; steps that are like no other are left out."""
    lengths: dict[str, list[float]] = {}
    for step in steps(case, _MOST_STEPS):
        if step.phase != "unusual":
            lengths.setdefault(step.phase, []).append((step.end_ns - step.start_ns) / 1e9)
    return {kind: tuple(seconds) for kind, seconds in lengths.items()}


def read_bench(path: Path) -> Side | None:
    """The figures of an engine's benchmark; None where the file is something else.

    Raises:
        EvidenceError: it says that it is a benchmark of another version, or its figures are no numbers.
    """
    document = _json_object(path)
    schema = str(document.get("schema", "")) if document is not None else ""
    if document is None or not schema.startswith("engine.bench/"):
        return None
    if schema != BENCH_SCHEMA:
        raise EvidenceError(f"{path} is {schema}, this doctor reads {BENCH_SCHEMA}")
    return Side("bench", dict(_numbers(document)), {}, {}, None, _repeats(document))


def _repeats(document: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Seconds of every repeat, else of the one run."""
    listed = document.get("repeats")
    found = listed if isinstance(listed, list) and listed else [document.get("seconds")]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in found):
        return {}
    return {"benchmark": tuple(map(float, found))}


def _json_object(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BENCH_BYTES:
            return None
        with path.open("rb") as file:
            if file.read(1) != b"{":
                return None
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _numbers(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((f"{prefix}{name}", float(value)))
    return found
