from __future__ import annotations

from tests.fuzz.engine_evidence import main


def test_a_hundred_damaged_logs_tables_and_configurations_are_survived() -> None:
    assert main(["100", "700000"]) == 0
