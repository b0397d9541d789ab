from __future__ import annotations

import pytest

from tests.fuzz.trace_evidence import KINDS, main


@pytest.mark.parametrize("kind", KINDS)
def test_sixty_damaged_exports_and_traces_are_survived(kind: str) -> None:
    assert main(["60", "700000", kind]) == 0
