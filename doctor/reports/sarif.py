"""The diagnosis as SARIF 2.1.0, for code hosts that list alerts.

Only findings become results: hosts show every result as an alert, whatever its kind, so what was ruled out and what was
not checked travels as properties of the run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.reports.json_document import document
from doctor.reports.presentation import Presentation
from doctor.version import __version__

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_HOME = "https://github.com/inference-doctor/inference-doctor"


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """One log with one run."""
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(diagnosis)]}
    return json.dumps(log, indent=1, allow_nan=False) + "\n"


def _run(diagnosis: Diagnosis) -> dict[str, Any]:
    plain = document(diagnosis)
    return {
        "tool": {
            "driver": {
                "name": "doctor",
                "version": __version__,
                "informationUri": _HOME,
                "rules": [_rule(finding) for finding in _one_per_rule(diagnosis)],
            }
        },
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(diagnosis)}],
        "artifacts": [{"location": {"uri": _uri(file.path)}} for file in diagnosis.evidence],
        "results": [_result(diagnosis, finding) for finding in diagnosis.findings],
        "properties": {key: plain[key] for key in ("window", "vitals", "ruled_out", "not_run", "replay")},
    }


def _one_per_rule(diagnosis: Diagnosis) -> list[RankedFinding]:
    return list({finding.rule: finding for finding in reversed(diagnosis.findings)}.values())[::-1]


def _rule(finding: RankedFinding) -> dict[str, Any]:
    return {
        "id": finding.rule,
        "shortDescription": {"text": wording.clean(finding.title)},
        "help": {"text": f"{wording.clean(finding.verify) or 'See the manual.'} (doctor explain {finding.rule})"},
        "defaultConfiguration": {"level": wording.level_of(finding.severity)},
    }


def _result(diagnosis: Diagnosis, finding: RankedFinding) -> dict[str, Any]:
    return {
        "ruleId": finding.rule,
        "level": wording.level_of(finding.severity),
        "message": {"text": wording.message(finding)},
        "locations": [_location(diagnosis, finding)],
        "partialFingerprints": {"doctorFinding/v1": f"{finding.rule}: {finding.title}"},
        "rank": round(100.0 * finding.confidence, 1),
        "properties": {"severity": finding.severity.label, "same_cause_as": finding.same_cause_as},
    }


def _location(diagnosis: Diagnosis, finding: RankedFinding) -> dict[str, Any]:
    """Hosts refuse results without a file and line: the first evidence file stands for the recording."""
    ranges = dict.fromkeys(entry.where.range for entry in finding.evidence if entry.where and entry.where.range)
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(diagnosis.evidence[0].path)}, "region": {"startLine": 1}}
        if diagnosis.evidence
        else {"artifactLocation": {"uri": "unknown"}},
    }
    if ranges:
        location["logicalLocations"] = [{"name": wording.clean(name), "kind": "function"} for name in ranges]
    return location


def _notifications(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    return [
        {"level": "note" if file.is_complete else "warning", "message": {"text": wording.clean(note)}}
        for file in diagnosis.evidence
        for note in file.notes
    ]


def _uri(path: str) -> str:
    return Path(path).as_uri() if Path(path).is_absolute() else quote(path.encode("utf-8", "surrogateescape"))
