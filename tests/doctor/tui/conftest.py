from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.samples import sample, trace_of
from tests.support.terminal_app import LARGE, SMALL, Stage, saved_case


@pytest.fixture(scope="session")
def launch_bound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_case(trace_of(sample("launch-bound-decode-nsys-report")), tmp_path_factory.mktemp("case"))


@pytest.fixture(scope="module")
def small(launch_bound: Path) -> Iterator[Stage]:
    stage = Stage(launch_bound, SMALL)
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def large(launch_bound: Path) -> Iterator[Stage]:
    stage = Stage(launch_bound, LARGE)
    yield stage
    stage.close()
