from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from doctor.checks import settings
from doctor.checks.check import Bound, Direction
from doctor.checks.settings import default_demand, find_settings, read_checks
from doctor.errors import UsageError
from doctor.rule import Severity


def documented() -> str:
    """The example of the module's documentation."""
    lines = (settings.__doc__ or "").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith("    ") or not line)


def written(folder: Path, text: str, name: str = "doctor.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_documented_example_is_read(tmp_path: Path) -> None:
    (check,) = read_checks(written(tmp_path, documented()))
    assert check.name == "decode"
    assert check.evidence == (str(tmp_path / "traces/decode.nsys-rep"),)
    assert check.demand.at_most is Severity.MEDIUM
    assert check.demand.allow == ("lazy-module-load", "tiny-kernels")
    assert check.demand.bounds == (
        Bound("gpu_busy", Direction.AT_LEAST, 0.6),
        Bound("syncs_per_step", Direction.AT_MOST, 1.0),
        Bound("step_seconds", Direction.AT_MOST, 0.02),
    )
    assert (check.options.range_name, check.options.unprofiled_seconds) == ("decode_step", 1.31)


def test_the_same_is_read_from_a_project_file(tmp_path: Path) -> None:
    moved = re.sub(r"^\[checks", "[tool.doctor.checks", documented(), flags=re.MULTILINE)
    project = written(tmp_path, f"[project]\nname = 'x'\n[tool.doctor]\n{moved}", "pyproject.toml")
    own = written(tmp_path, documented())
    assert [check.demand for check in read_checks(project)] == [check.demand for check in read_checks(own)]
    assert "checks" in tomllib.loads(documented())


def test_evidence_below_the_working_folder_is_named_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (check,) = read_checks(written(tmp_path, "[checks.a]\nevidence = 'traces/*.json'"))
    assert check.evidence == ("traces/*.json",)


def test_the_nearest_file_above_is_found_and_the_own_file_goes_first(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    project = written(tmp_path, "[tool.doctor]\nat_most = 'high'", "pyproject.toml")
    written(below, "[tool.ruff]\nline-length = 100", "pyproject.toml")
    assert find_settings(below) == project
    assert default_demand(project).at_most is Severity.HIGH
    own = written(tmp_path, "[checks.a]\nevidence = 'a'")
    assert find_settings(below) == own


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("checks = 3", "checks"),
        ("[checks.a]\nat_most = 'low'", "evidence"),
        ("[checks.a]\nevidence = []", "names no evidence"),
        ("[checks.a]\nevidence = 'a'\npermit = []", "unknown field `permit`"),
        ("[checks.a]\nevidence = 'a'\nat_most = 'awful'", "check a: at_most is 'awful'"),
        ("[checks.a]\nevidence = 'a'\nwindow = '3'", "two times such as"),
        ("[checks.a]\nevidence = 'a'\nwindow = '2s:1s'", "ends before it starts"),
        ("[checks.a]\nevidence = 'a'\nwindow = '1s:2s'\nrange = 'x'", "give one"),
        ("[checks.a]\nevidence = 'a'\nunprofiled_seconds = 0", "over zero"),
        ("[checks.a]\nevidence = 'a'\n[checks.a.vitals]\nbusy = 1", "no vital 'busy'"),
        ("[checks.a", "no TOML"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_file(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "doctor.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError) as refused:
        read_checks(path)
    assert str(path) in refused.value.message
    assert complaint in refused.value.message
    assert "\n" not in refused.value.message
