from __future__ import annotations

from tests.fuzz.engine_evidence import main


def test_two_hundred_damaged_logs_tables_and_configurations_are_survived() -> None:
    assert main(["200", "700000"]) == 0
