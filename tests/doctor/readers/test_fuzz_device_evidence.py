from __future__ import annotations

from tests.fuzz.device_evidence import main


def test_some_damaged_texts_of_every_kind_are_survived() -> None:
    assert main(["25", "500000"]) == 0
