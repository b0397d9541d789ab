from __future__ import annotations

from tests.fuzz.memory_evidence import main


def test_a_few_hundred_damaged_snapshots_and_texts_are_survived() -> None:
    assert main(["300", "500000"]) == 0
