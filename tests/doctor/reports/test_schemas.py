"""What CI hosts read is held against the schemas that they read it by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from doctor.checks.check import Check, CheckResult, Demand
from doctor.checks.judging import bounds_of, breaches
from doctor.diagnosis.outcome import Diagnosis
from doctor.reports.check_pages import CHECK_FORMATS, render_checks
from doctor.reports.presentation import Presentation, render
from tests.support import diagnoses
from tests.support.report_schemas import faults_of_annotations, faults_of_junit, faults_of_sarif

DIAGNOSES = (
    diagnoses.launch_bound,
    diagnoses.healthy,
    diagnoses.healthy_with_a_note,
    diagnoses.untrusted_replay,
    diagnoses.foreign_process,
    diagnoses.hostile,
)
FAULTS: dict[str, Callable[[str], list[str]]] = {
    "sarif": faults_of_sarif,
    "junit": faults_of_junit,
    "github": faults_of_annotations,
}
every_diagnosis = pytest.mark.parametrize("diagnosis", DIAGNOSES, ids=lambda build: build.__name__)


def results(diagnosis: Diagnosis) -> tuple[CheckResult, ...]:
    demand = Demand(bounds=bounds_of({"gpu_busy": 0.99, "step_seconds": 1e-9}))
    check = Check("decode <b>|`&\x00", ("a.json",), demand)
    ill = CheckResult(check, diagnosis, breaches(diagnosis, demand))
    return ill, CheckResult(replace(check, name="gone"), None, (), "there is no \x1b[31mfile")


@every_diagnosis
@pytest.mark.parametrize("output", FAULTS)
def test_a_diagnosis_is_valid(diagnosis: Callable[[], Diagnosis], output: str) -> None:
    assert FAULTS[output](render(diagnosis(), output, Presentation())) == []


@every_diagnosis
@pytest.mark.parametrize("output", FAULTS)
def test_results_of_checks_are_valid(diagnosis: Callable[[], Diagnosis], output: str) -> None:
    assert FAULTS[output](render_checks(results(diagnosis()), output)) == []


@pytest.mark.parametrize("output", CHECK_FORMATS)
def test_results_of_checks_name_the_ill_check_and_no_control_character(output: str) -> None:
    text = render_checks(results(diagnoses.launch_bound()), output)
    assert "decode" in text
    assert not {"\x00", "\x1b"} & set(text)


@every_diagnosis
def test_markdown_is_tables_and_text_and_never_html_or_links(diagnosis: Callable[[], Diagnosis]) -> None:
    reader = MarkdownIt("commonmark", {"linkify": False}).enable("table")
    for text in (
        render(diagnosis(), "markdown", Presentation()),
        render_checks(results(diagnosis()), "markdown"),
    ):
        blocks = reader.parse(text)
        kinds = {token.type for block in blocks for token in (block, *(block.children or ()))}
        assert "heading_open" in kinds
        assert not kinds & {"html_block", "html_inline", "link_open", "image", "code_block", "fence"}
    assert len([block for block in blocks if block.type == "table_open"]) == 1


def test_the_schemas_refuse_what_is_wrong() -> None:
    assert faults_of_sarif('{"version": "2.1.0", "runs": [{"tool": {}, "results": []}]}')
    assert faults_of_junit('<testsuites><testsuite name="x" tests="2" failures="0" errors="0"/></testsuites>')
    assert faults_of_annotations("::error title=a:b::c\n")
