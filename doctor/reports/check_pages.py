"""Results of health checks: for a screen, for scripts, for a comment, for the lists of CI hosts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from doctor.checks.check import Breach, CheckResult
from doctor.diagnosis.outcome import Diagnosis
from doctor.reports import github_annotations, junit, sarif, wording
from doctor.reports.json_document import document
from doctor.reports.markdown import escaped
from doctor.reports.runs import other_runs_line

SCHEMA = "doctor.checks/1"


def render_checks(results: Sequence[CheckResult], output: str) -> str:
    """The results as text that ends in a line break.

    Args:
        results: in the order to show them.
        output: one of `CHECK_FORMATS`.

    Raises:
        KeyError: there is no such output.
    """
    return _RENDERERS[output](results)


def breach_lines(breach: Breach, diagnosis: Diagnosis | None) -> Iterator[str]:
    """A breach, its evidence, its fixes and how to verify, a line each."""
    yield wording.clean(breach.words)
    finding = breach.finding
    if finding is None or diagnosis is None:
        return
    yield f"  {wording.sentence(finding.summary)}"
    for entry in finding.evidence:
        place = wording.place(entry.where, diagnosis.window)
        yield f"  {wording.clean(entry.name)}: {wording.evidence_value(entry)}{f'  ({place})' if place else ''}"
    win = wording.gain_sentence(finding.gain)
    if win:
        yield f"  to win: {win}"
    for fix in wording.shown_fixes(finding):
        yield f"  {wording.framework(fix.target)}: {wording.clean(fix.setting)}"
    yield f"  more: doctor explain {finding.rule}"


def result_lines(result: CheckResult) -> Iterator[str]:
    """One result: its verdict, what of its evidence was not read, then each breach."""
    yield f"{_word(result):<7} {wording.clean(result.check.name)}{_summary(result)}"
    if result.diagnosis is not None:
        yield from (f"        incomplete: {line}" for line in wording.incomplete_lines(result.diagnosis))
        if line := other_runs_line(result.diagnosis):
            yield f"        other runs: {line}"
    for breach in result.breaches:
        yield from (f"        {line}" for line in breach_lines(breach, result.diagnosis))


def _word(result: CheckResult) -> str:
    return "error" if result.error is not None else "healthy" if result.is_healthy else "ill"


def _summary(result: CheckResult) -> str:
    if result.error is not None:
        return f": {wording.clean(result.error)}"
    assert result.diagnosis is not None
    parts = wording.vitals_parts(result.diagnosis)
    return f": {', '.join(parts)}" if parts else ""


def _terminal(results: Sequence[CheckResult]) -> str:
    lines = [line for result in results for line in result_lines(result)]
    return "\n".join([*lines, "", _total(results)]) + "\n"


def _total(results: Sequence[CheckResult]) -> str:
    words = [_word(result) for result in results]
    counted = [f"{words.count(word)} {word}" for word in ("healthy", "ill", "error") if word in words]
    return f"{len(results)} {'check' if len(results) == 1 else 'checks'}: {', '.join(counted)}"


def _json(results: Sequence[CheckResult]) -> str:
    return json.dumps({"schema": SCHEMA, "checks": [_plain(result) for result in results]}, indent=1) + "\n"


def _plain(result: CheckResult) -> dict[str, Any]:
    return {
        "name": result.check.name,
        "healthy": result.is_healthy,
        "error": result.error,
        "breaches": [
            {"subject": breach.subject, "severity": breach.severity.label, "words": breach.words}
            for breach in result.breaches
        ],
        "diagnosis": None if result.diagnosis is None else document(result.diagnosis),
    }


def _markdown(results: Sequence[CheckResult]) -> str:
    lines = [f"## {escaped(_total(results))}", "", "| Check | Verdict | What |", "|---|---|---|"]
    for result in results:
        what = result.error or "; ".join(breach.words for breach in result.breaches) or _summary(result)[2:]
        lines.append(f"| {escaped(result.check.name)} | {_word(result)} | {escaped(what)} |")
    for result in results:
        for breach in result.breaches:
            head, *details = breach_lines(breach, result.diagnosis)
            if details:
                lines += ["", f"### {escaped(result.check.name)}: {escaped(head)}", ""]
                lines += [f"- {escaped(line.strip())}" for line in details]
    return "\n".join(lines) + "\n"


def _junit(results: Sequence[CheckResult]) -> str:
    suite = ET.Element("testsuite", name="doctor.check")
    for result in results:
        case = junit.case_in(suite, result.check.name)
        if result.error is not None:
            error = wording.clean(result.error)
            ET.SubElement(case, "error", message=error, type="unusable evidence").text = error
        elif result.breaches:
            first, more = result.breaches[0], len(result.breaches) - 1
            title = f"{first.words}{f' (and {more} more)' if more else ''}"
            lines = [line for breach in result.breaches for line in breach_lines(breach, result.diagnosis)]
            junit.fail(case, title, first.severity.label, "\n".join(lines))
        if result.diagnosis is not None:
            ET.SubElement(case, "system-out").text = "\n".join(_figures(result.diagnosis))
    return junit.text_of(suite)


def _figures(diagnosis: Diagnosis) -> Iterator[str]:
    for name, value in diagnosis.vitals.items():
        yield f"{wording.clean(name)}: {'unknown' if value is None else format(value, '.6g')}"


def _github(results: Sequence[CheckResult]) -> str:
    return "".join(line for result in results for line in _annotations(result))


def _annotations(result: CheckResult) -> Iterator[str]:
    name = wording.clean(result.check.name)
    if result.error is not None:
        yield github_annotations.annotation("error", f"doctor: {name}", wording.clean(result.error))
    for breach in result.breaches:
        text = "\n".join(breach_lines(breach, result.diagnosis))
        yield github_annotations.annotation("error", f"doctor: {name}", text)
    if result.is_healthy:
        yield github_annotations.annotation("note", f"doctor: {name}", f"healthy{_summary(result)}")


def _sarif(results: Sequence[CheckResult]) -> str:
    return sarif.log_of([_sarif_run(result) for result in results])


def _sarif_run(result: CheckResult) -> dict[str, Any]:
    """One run a check: only what breaks the check is a result."""
    if result.diagnosis is None:
        return sarif.failed_run(result.check.name, result.error or "")
    broken = {breach.finding.rule for breach in result.breaches if breach.finding is not None}
    run = sarif.run(result.diagnosis)
    run["results"] = [entry for entry in run["results"] if entry["ruleId"] in broken]
    run["results"] += [
        sarif.plain_result(result.diagnosis, breach.subject, breach.words)
        for breach in result.breaches
        if breach.finding is None
    ]
    run["automationDetails"] = {"id": f"doctor check/{wording.clean(result.check.name)}/"}
    return run


_RENDERERS: dict[str, Callable[[Sequence[CheckResult]], str]] = {
    "terminal": _terminal,
    "json": _json,
    "markdown": _markdown,
    "sarif": _sarif,
    "junit": _junit,
    "github": _github,
}
CHECK_FORMATS = tuple(_RENDERERS)
