"""The diagnosis as SARIF 2.1.0, for code hosts that list alerts.

Only findings become results: hosts show every result as an alert, whatever its kind, so what was ruled out and what was
not checked travels as properties of the run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    return log_of([run(diagnosis)])


def log_of(runs: list[dict[str, Any]]) -> str:
    """A log of runs, indented, in ASCII, ending in a line break."""
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}
    return json.dumps(log, indent=1, allow_nan=False) + "\n"


def run(diagnosis: Diagnosis) -> dict[str, Any]:
    """One run: a result a cause. Findings of one cause are one alert; the message names the others."""
    plain = document(diagnosis)
    causes = wording.own_findings(diagnosis)
    return {
        "tool": {"driver": _driver([_rule(finding) for finding in _one_per_rule(causes)])},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(diagnosis)}],
        "artifacts": [{"location": {"uri": _uri(file.path)}} for file in diagnosis.evidence],
        "results": [_result(diagnosis, finding) for finding in causes],
        "properties": {key: plain[key] for key in ("window", "vitals", "ruled_out", "not_run", "replay")},
    }


def plain_result(diagnosis: Diagnosis, subject: str, words: str) -> dict[str, Any]:
    """A result that no rule found, such as a vital out of its bound."""
    return {
        "ruleId": subject,
        "level": "error",
        "message": {"text": wording.clean(words)},
        "locations": _places(diagnosis),
        "partialFingerprints": {"doctorFinding/v1": subject},
    }


def failed_run(name: str, reason: str) -> dict[str, Any]:
    """A run that could read nothing."""
    note = {"level": "error", "message": {"text": wording.clean(f"{name}: {reason}")}}
    return {
        "tool": {"driver": _driver([])},
        "invocations": [{"executionSuccessful": False, "toolExecutionNotifications": [note]}],
        "results": [],
    }


def _driver(rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "doctor", "version": __version__, "informationUri": _HOME, "rules": rules}


def _one_per_rule(causes: Sequence[RankedFinding]) -> list[RankedFinding]:
    return list({finding.rule: finding for finding in reversed(causes)}.values())[::-1]


def _rule(finding: RankedFinding) -> dict[str, Any]:
    return {
        "id": finding.rule,
        "shortDescription": {"text": wording.clean(finding.title)},
        "help": {"text": f"{wording.clean(finding.verify) or 'See the manual.'} (doctor explain {finding.rule})"},
        "defaultConfiguration": {"level": wording.level_of(finding.severity)},
    }


def _result(diagnosis: Diagnosis, finding: RankedFinding) -> dict[str, Any]:
    followers = wording.followers(diagnosis, finding)
    return {
        "ruleId": finding.rule,
        "level": wording.level_of(finding.severity),
        "message": {"text": wording.message(finding, followers)},
        "locations": _locations(diagnosis, finding),
        "partialFingerprints": {"doctorFinding/v1": f"{finding.rule}: {finding.title}"},
        "rank": round(100.0 * finding.confidence, 1),
        "properties": {"severity": finding.severity.label, "same_cause": [other.rule for other in followers]},
    }


def _locations(diagnosis: Diagnosis, finding: RankedFinding) -> list[dict[str, Any]]:
    ranges = dict.fromkeys(entry.where.range for entry in finding.evidence if entry.where and entry.where.range)
    logical = [{"name": wording.clean(name), "kind": "function"} for name in ranges]
    return [{**place, **({"logicalLocations": logical} if logical else {})} for place in _places(diagnosis)]


def _places(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Hosts refuse results without a file and line: the first evidence file stands for the recording."""
    return [
        {"physicalLocation": {"artifactLocation": {"uri": _uri(file.path)}, "region": {"startLine": 1}}}
        for file in diagnosis.evidence[:1]
    ]


def _notifications(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    return [
        {"level": "note" if file.is_complete else "warning", "message": {"text": wording.clean(note)}}
        for file in diagnosis.evidence
        for note in file.notes
    ]


def _uri(path: str) -> str:
    return Path(path).as_uri() if Path(path).is_absolute() else quote(path.encode("utf-8", "surrogateescape"))
