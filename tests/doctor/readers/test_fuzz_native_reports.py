from __future__ import annotations

from tests.fuzz.native_reports import main


def test_a_few_hundred_damaged_reports_are_survived() -> None:
    assert main(["200", "500000"]) == 0
