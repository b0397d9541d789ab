from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.verdicts import Clinic


@pytest.fixture
def clinic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Clinic:
    return Clinic(tmp_path, capfd)
