"""The diagnosis as JUnit XML: a test case a rule, so that CI shows which checks failed, passed and were skipped."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from doctor.diagnosis.outcome import Diagnosis, RankedFinding, Window
from doctor.reports import wording
from doctor.reports.presentation import Presentation
from doctor.rule import Severity


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """One suite; findings at or above the presentation's bar are failures."""
    suite = ET.Element("testsuite", name="doctor")
    for finding in diagnosis.findings:
        _finding(suite, finding, diagnosis.window, presentation.bar)
    for entry in diagnosis.ruled_out:
        ET.SubElement(_case(suite, entry.rule), "system-out").text = wording.clean(entry.because)
    for missing in diagnosis.not_run:
        needs = wording.clean(", ".join(missing.needs))
        ET.SubElement(_case(suite, missing.rule), "skipped", message=f"needs {needs}")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites, " ")
    # character references for everything beyond ASCII: the text survives any encoding
    text: bytes = ET.tostring(suites, encoding="us-ascii", xml_declaration=True)
    return text.decode("ascii") + "\n"


def _finding(suite: ET.Element, finding: RankedFinding, window: Window | None, bar: Severity) -> None:
    case = _case(suite, finding.rule)
    if finding.severity >= bar:
        title = f"{finding.severity.label}: {wording.clean(finding.title)}"
        ET.SubElement(case, "failure", message=title, type=finding.severity.label).text = _body(finding, window)
    else:
        ET.SubElement(case, "system-out").text = _body(finding, window)


def _body(finding: RankedFinding, window: Window | None) -> str:
    evidence = (
        f"{wording.clean(entry.name)}: {wording.evidence_value(entry)} {wording.place(entry.where, window)}".rstrip()
        for entry in finding.evidence
    )
    verify = wording.sentence(finding.verify)
    return "\n".join([wording.message(finding), *evidence, *([f"Verify: {verify}"] if verify else [])])


def _case(suite: ET.Element, rule: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname="doctor", name=wording.clean(rule))
