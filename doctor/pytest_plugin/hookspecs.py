"""What a conftest may say otherwise."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest


@pytest.hookspec(firstresult=True)
def pytest_doctor_record(item: pytest.Function, folder: Path) -> AbstractContextManager[None] | None:
    """How the body of a test marked `healthy` is recorded.

    Args:
        item: the marked test.
        folder: an empty folder; whatever evidence lies in it afterwards is diagnosed.

    Returns:
        A context around the body; None leaves it to the profiler of torch.
    """
