from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from doctor.diagnosis.outcome import Diagnosis, EvidenceFile
from doctor.reports.presentation import Presentation, render
from doctor.rule import Severity
from tests.support import diagnoses


def sarif_run(diagnosis: Diagnosis) -> dict[str, Any]:
    log = json.loads(render(diagnosis, "sarif", Presentation()))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def junit_suite(diagnosis: Diagnosis, bar: Severity = Severity.LOW) -> ET.Element:
    suite = ET.fromstring(render(diagnosis, "junit", Presentation(bar=bar))).find("testsuite")
    assert suite is not None
    return suite


def test_sarif_has_a_result_a_cause_and_its_rule() -> None:
    run = sarif_run(diagnoses.launch_bound())
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("host-dispatch-bound", "error"),
        ("lazy-module-load", "warning"),
    ]
    assert "Same cause: CUDA graphs are off." in run["results"][0]["message"]["text"]
    assert run["results"][0]["properties"]["same_cause"] == ["cudagraph-off"]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}


def test_sarif_places_a_result_in_the_evidence_and_its_range() -> None:
    location = sarif_run(diagnoses.launch_bound())["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "traces/launch-sick.nsys-rep"
    assert location["logicalLocations"][0]["name"] == "decode_step"


def test_sarif_locations_are_uris() -> None:
    odd = replace(diagnoses.healthy(), evidence=(EvidenceFile("/data/a b#c.sqlite", "nsys-sqlite", None, True, ()),))
    assert sarif_run(odd)["artifacts"][0]["location"]["uri"] == "file:///data/a%20b%23c.sqlite"


def test_sarif_does_not_alert_on_what_was_ruled_out() -> None:
    run = sarif_run(diagnoses.healthy())
    assert run["results"] == []
    assert run["properties"]["ruled_out"][0]["rule"] == "sync-in-step"


def test_junit_fails_at_the_bar_passes_below_and_skips_what_was_not_run() -> None:
    suite = junit_suite(diagnoses.launch_bound(), Severity.HIGH)
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    skipped = [case.get("name") for case in suite if case.find("skipped") is not None]
    assert failed == ["host-dispatch-bound"]
    assert "foreign-gpu-process" in skipped
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("8", "1", "4")


def test_junit_skips_what_has_the_cause_of_another_finding() -> None:
    follower = junit_suite(diagnoses.launch_bound()).find("testcase[@name='cudagraph-off']/skipped")
    assert follower is not None
    assert follower.get("message") == "same cause as host-dispatch-bound"


def test_junit_shows_the_evidence_in_the_failure() -> None:
    failure = junit_suite(diagnoses.launch_bound()).find("testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert "queue-empty gaps: 81.0 % of window" in failure.text


def test_github_gets_one_command_a_cause() -> None:
    lines = render(diagnoses.launch_bound(), "github", Presentation()).splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::warning"]
    assert "Same cause: CUDA graphs are off." in lines[0]


def test_github_gets_a_notice_where_nothing_was_found() -> None:
    assert render(diagnoses.healthy(), "github", Presentation()).startswith("::notice title=doctor::No rule found")


def test_names_from_evidence_cannot_become_commands_or_elements() -> None:
    lines = render(diagnoses.hostile(), "github", Presentation()).splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"::warning title=[^:,]*::.*", line) for line in lines)
    assert junit_suite(diagnoses.hostile()).find(".//script") is None
