from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.samples import sample, trace_of
from tests.support.terminal_app import saved_case


@pytest.fixture(scope="session")
def launch_bound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_case(trace_of(sample("launch-bound-decode-nsys-report")), tmp_path_factory.mktemp("case"))
