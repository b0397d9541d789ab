"""What gets installed: the whole package, and nothing of the checkout besides."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
PACKAGES = ("doctor", "engine", "rules")


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        return set(wheel.namelist())


def test_the_wheel_holds_every_module_view_and_marker(wheel_files: set[str]) -> None:
    for package in PACKAGES:
        files = {
            path
            for path in (ROOT / package).rglob("*")
            if path.suffix in {".py", ".sql", ".typed", ".tcss", ".html", ".css", ".js"}
        }
        assert files
        assert {str(path.relative_to(ROOT)) for path in files} <= wheel_files


def test_the_wheel_holds_nothing_else_of_the_checkout(wheel_files: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_files}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_installs_the_program_doctor(wheel_files: set[str]) -> None:
    assert any(name.endswith("entry_points.txt") for name in wheel_files)
