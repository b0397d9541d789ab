"""The diagnosis as JUnit XML: a test case a rule, so that CI shows which checks failed, passed and were skipped."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.reports.presentation import Presentation
from doctor.reports.runs import other_runs_line


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """One suite; findings at or above the presentation's bar are failures.

    Findings of one cause are one failure: those that follow are skipped, and say whom they follow. Files that were not
    read whole are skipped ones of a test case `evidence`, those of other runs of a test case `other runs`.
    """
    suite = ET.Element("testsuite", name="doctor")
    if lost := wording.incomplete_lines(diagnosis):
        ET.SubElement(case_in(suite, "evidence"), "skipped", message="; ".join(lost))
    if line := other_runs_line(diagnosis):
        ET.SubElement(case_in(suite, "other runs"), "skipped", message=line)
    for finding in diagnosis.findings:
        if finding.same_cause_as is not None:
            reason = f"same cause as {wording.clean(finding.same_cause_as)}"
            ET.SubElement(case_in(suite, finding.rule), "skipped", message=reason)
        elif finding.severity >= presentation.bar:
            title = f"{finding.severity.label}: {wording.clean(finding.title)}"
            fail(case_in(suite, finding.rule), title, finding.severity.label, body(finding, diagnosis))
        else:
            ET.SubElement(case_in(suite, finding.rule), "system-out").text = body(finding, diagnosis)
    for entry in diagnosis.ruled_out:
        ET.SubElement(case_in(suite, entry.rule), "system-out").text = wording.clean(entry.because)
    for missing in diagnosis.not_run:
        needs = wording.clean(", ".join(missing.needs))
        ET.SubElement(case_in(suite, missing.rule), "skipped", message=f"needs {needs}")
    return text_of(suite)


def case_in(suite: ET.Element, name: str) -> ET.Element:
    """A new test case of the suite."""
    return ET.SubElement(suite, "testcase", classname=suite.get("name", "doctor"), name=wording.clean(name), time="0")


def fail(case: ET.Element, title: str, kind: str, text: str) -> None:
    """Let a test case fail; `title` is one line, `text` is shown below it."""
    ET.SubElement(case, "failure", message=wording.clean(title), type=kind).text = text


def body(finding: RankedFinding, diagnosis: Diagnosis) -> str:
    """A finding with its evidence, a line each."""
    evidence = (
        f"{wording.clean(entry.name)}: {wording.evidence_value(entry)} "
        f"{wording.place(entry.where, diagnosis.window)}".rstrip()
        for entry in finding.evidence
    )
    verify = wording.sentence(finding.verify)
    told = wording.message(finding, wording.followers(diagnosis, finding))
    return "\n".join([told, *evidence, *([f"Verify: {verify}"] if verify else [])])


def text_of(suite: ET.Element) -> str:
    """The document of one suite, its counts filled in, ending in a line break."""
    counts = {"tests": len(suite.findall("testcase"))}
    for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[name] = len(suite.findall(f"testcase/{element}"))
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", "0")
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites, " ")
    # character references for everything beyond ASCII: the text survives any encoding
    text: bytes = ET.tostring(suites, encoding="us-ascii", xml_declaration=True)
    return text.decode("ascii") + "\n"
