"""One run of a comparison, from a diagnosis or from the JSON of `python -m engine bench`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doctor.case.step_queries import step_kernels, steps
from doctor.comparison.alignment import StepGroup, StepKind, Steps
from doctor.comparison.kernels import KernelShape, KernelUse, added, kernels_of, spelled_alike
from doctor.comparison.likeness import Workload, workload_of
from doctor.comparison.sight import Sight, sight_of
from doctor.errors import EvidenceError

if TYPE_CHECKING:
    import duckdb

    from doctor.diagnosis.outcome import Diagnosis
    from doctor.rule import Rule

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
        steps: steps by kind; of a benchmark its repeats.
        sight: what its evidence can show.
        workload: what ran, and on what.
        recorder_share: of the window that the recorder itself took, where it could be told.
    """

    kind: str
    figures: Mapping[str, float | None]
    findings: Mapping[str, str]
    kernels: Mapping[KernelShape, KernelUse]
    steps: Steps
    sight: Sight = field(default_factory=Sight)
    workload: Workload = field(default_factory=Workload)
    recorder_share: float | None = None


def side_of_case(case: duckdb.DuckDBPyConnection, diagnosis: Diagnosis, rules: tuple[Rule, ...]) -> Side:
    """The vitals, findings, kernels and steps of a case and its diagnosis by these rules."""
    window = diagnosis.window
    findings = {finding.rule: finding.summary for finding in diagnosis.findings}
    sight = sight_of(case, diagnosis, rules)
    if window is None:
        return Side("diagnosis", dict(diagnosis.vitals), findings, {}, {}, sight)
    return Side(
        "diagnosis",
        {"window_seconds": window.seconds, **_vitals(diagnosis)},
        findings,
        kernels_of(case),
        _steps(case),
        sight,
        workload_of(case),
        None if diagnosis.replay is None else diagnosis.replay.profiler_share,
    )


def _vitals(diagnosis: Diagnosis) -> dict[str, float | None]:
    """But for the length of a step, which is compared kind by kind."""
    return {name: value for name, value in diagnosis.vitals.items() if name != "step_seconds"}


def _steps(case: duckdb.DuckDBPyConnection) -> dict[StepKind, StepGroup]:
    """Lengths and kernels by kind."""
    lengths: dict[StepKind, list[float]] = {}
    device_ns: dict[StepKind, int] = {}
    for step in steps(case, _MOST_STEPS):
        kind = StepKind(step.phase, step.is_usual)
        lengths.setdefault(kind, []).append((step.end_ns - step.start_ns) / 1e9)
        device_ns[kind] = device_ns.get(kind, 0) + step.device_ns
    kernels: dict[StepKind, list[tuple[KernelShape, KernelUse]]] = {}
    for one in step_kernels(case):
        shape = KernelShape(spelled_alike(one.name), one.grid_blocks, one.block_threads)
        use = KernelUse(one.count, one.total_ns)
        kernels.setdefault(StepKind(one.phase, one.is_usual), []).append((shape, use))
    return {
        kind: StepGroup(tuple(seconds), added(kernels.get(kind, ())), device_ns[kind] / 1e9)
        for kind, seconds in lengths.items()
    }


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
    return Side("bench", dict(_numbers(document)), {}, {}, _repeats(document))


def _repeats(document: Mapping[str, Any]) -> dict[StepKind, StepGroup]:
    """Seconds of every repeat, else of the one run."""
    listed = document.get("repeats")
    found = listed if isinstance(listed, list) and listed else [document.get("seconds")]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in found):
        return {}
    return {StepKind("benchmark", is_usual=True): StepGroup(tuple(map(float, found)))}


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
