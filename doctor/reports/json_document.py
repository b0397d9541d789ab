"""The diagnosis as one JSON object, schema `doctor.diagnosis/1`, for scripts, dashboards and agents."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from doctor.diagnosis.outcome import Diagnosis, Display, EvidenceFile, Gain, NotRun, Program, RankedFinding, Window
from doctor.reports.collecting import recipe_for
from doctor.reports.presentation import Presentation
from doctor.rule import Evidence, Fix, Where
from doctor.version import __version__

SCHEMA = "doctor.diagnosis/1"


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """The document, indented, in ASCII so that it survives any encoding, ending in a line break."""
    return json.dumps(document(diagnosis), indent=1, allow_nan=False) + "\n"


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain JSON values; fields are only added while the schema's number stays."""
    plain: dict[str, Any] = _finite(
        {
            "schema": SCHEMA,
            "doctor": __version__,
            "evidence": [_file(file) for file in diagnosis.evidence],
            "window": _window(diagnosis.window),
            "vitals": dict(diagnosis.vitals),
            "frameworks": list(diagnosis.frameworks),
            "program": _program(diagnosis.program),
            "findings": [_finding(finding) for finding in diagnosis.findings],
            "ruled_out": [asdict(entry) for entry in diagnosis.ruled_out],
            "not_run": [_not_run(entry) for entry in diagnosis.not_run],
            "replay": asdict(diagnosis.replay) if diagnosis.replay else None,
            "display": _display(diagnosis.display),
        }
    )
    return plain


def _not_run(entry: NotRun) -> dict[str, Any]:
    """A rule that lacked evidence, and for each way to collect some the command to type."""
    recipes = dict.fromkeys(recipe_for(kind) for kind in entry.needs)
    return {
        "rule": entry.rule,
        "needs": list(entry.needs),
        "collect": [{"evidence": one.kind, "how": one.words, "command": one.command} for one in recipes if one.words],
    }


def _file(file: EvidenceFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "kind": file.kind,
        "tool": file.tool,
        "complete": file.is_complete,
        "read": file.is_read,
        "run": file.run,
        "notes": list(file.notes),
    }


def _display(display: Display) -> dict[str, Any]:
    """The coarse data; what people zoom into is for pages, and large."""
    return {
        "timeline": [asdict(cell) for cell in display.timeline],
        "kernels": [asdict(row) for row in display.kernels],
    }


def _window(window: Window | None) -> dict[str, Any] | None:
    if window is None:
        return None
    return {
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "seconds": window.seconds,
        "steps": window.steps,
        "chosen_by": window.chosen_by,
    }


def _finding(finding: RankedFinding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "title": finding.title,
        "summary": finding.summary,
        "severity": finding.severity.label,
        "confidence": finding.confidence,
        "gain": _gain(finding.gain),
        "same_cause_as": finding.same_cause_as,
        "after_first_speedup": finding.after_first_speedup,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "fixes": [_fix(fix) for fix in finding.fixes],
        "verify": finding.verify,
        "doc": f"doctor explain {finding.rule}",
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {"target": fix.target, "setting": fix.setting, "why": fix.why, "source": fix.source}


def _program(program: Program | None) -> dict[str, Any] | None:
    return None if program is None else {"kind": program.kind.value, "because": program.because}


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    return None if gain is None else asdict(gain)


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "name": evidence.name,
        "value": evidence.value,
        "unit": evidence.unit,
        "where": _where(evidence.where),
    }


def _where(where: Where | None) -> dict[str, Any] | None:
    if where is None:
        return None
    return {
        "range": where.range,
        "start_ns": where.start_ns,
        "end_ns": where.end_ns,
        "device": where.device_id,
        "stream": where.stream_id,
        "pid": where.pid,
        "tid": where.tid,
    }


def _finite(value: Any) -> Any:
    """The value with infinities and NaN, which JSON lacks, as null."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
