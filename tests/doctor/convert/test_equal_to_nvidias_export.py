"""`doctor convert` gives what `nsys export` gives, row by row."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from doctor.convert.conversion import convert_report
from tests.support.export_pairs import count_rows, differences, unpacked
from tests.support.native_reports import HEALTHY, SICK, report
from tests.support.samples import SAMPLES
from tests.support.traces import shared_trace, shared_traces

SHIPPED = [report(SICK), report(HEALTHY)]
COLLECTION = [
    str(path.relative_to(path.parents[1]))
    for path in shared_traces("*/*.nsys-rep")
    if path.with_name(path.name.replace(".nsys-rep", ".sqlite.gz")).exists()
] or ["h200/launch-sick.nsys-rep"]


def compare(path: Path, folder: Path) -> tuple[int, dict[str, int]]:
    theirs = unpacked(path.with_name(path.name.replace(".nsys-rep", ".sqlite.gz")), folder)
    ours = folder / "ours.sqlite"
    convert_report(path, ours)
    return count_rows(theirs), differences(theirs, ours)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: os.fspath(path.relative_to(SAMPLES)))
def test_a_shipped_report_equals_its_export(path: Path, tmp_path: Path) -> None:
    rows, different = compare(path, tmp_path)
    assert rows > 5_000
    assert different == {}


@pytest.mark.parametrize("name", COLLECTION)
def test_a_report_of_the_collection_equals_its_export(name: str, tmp_path: Path) -> None:
    rows, different = compare(shared_trace(name), tmp_path)
    assert rows > 0
    assert different == {}


def test_the_comparison_sees_a_single_changed_number(tmp_path: Path) -> None:
    theirs = unpacked(SAMPLES / f"{HEALTHY}.sqlite.gz", tmp_path)
    ours = tmp_path / "ours.sqlite"
    convert_report(report(HEALTHY), ours)
    with closing(sqlite3.connect(ours)) as connection, connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = gridX + 1 WHERE rowid = 5")
    assert differences(theirs, ours) == {"CUPTI_ACTIVITY_KIND_KERNEL": 2}
