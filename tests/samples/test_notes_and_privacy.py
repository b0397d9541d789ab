"""What is shipped is small, says what it is, and holds nothing private."""

from __future__ import annotations

import ast
import gzip
import re
from pathlib import Path

import pytest

from tests.support.native_reports import everything
from tests.support.samples import SAMPLES

RECORDINGS = sorted(path for path in SAMPLES.rglob("*") if path.name.endswith((".nsys-rep", ".gz")))
MOST_BYTES, MOST_BYTES_TOGETHER = 2**20, 25 * 2**20
PRIVATE = re.compile(
    rb"HOME=|LD_LIBRARY_PATH=|PATH=/|USER=|LANG=|HOSTNAME=|PWD="  # an environment
    rb"|/(?:home|root|tmp|opt|usr|work|mnt|data)/\w"  # folders
    rb"|--sample|--session|--trace|python3? \S+\.py"  # command lines
)


def plain_bytes(path: Path) -> bytes:
    """All bytes of a recording, unpacked."""
    return everything(path) if path.suffix == ".nsys-rep" else gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_environment_folder_or_command_line_is_inside(path: Path) -> None:
    assert PRIVATE.findall(plain_bytes(path)) == []


def test_recordings_are_small() -> None:
    sizes = {path: path.stat().st_size for path in RECORDINGS}
    assert max(sizes.values()) < MOST_BYTES
    assert sum(sizes.values()) < MOST_BYTES_TOGETHER


@pytest.mark.parametrize("folder", sorted({path.parent for path in RECORDINGS}), ids=lambda folder: folder.name)
def test_a_sample_says_how_it_was_made(folder: Path) -> None:
    note = (folder / "README.md").read_text("utf-8")
    for fact in ("NVIDIA H200", "2025.3.1" if list(folder.glob("*.nsys-rep")) else "H200", "doctor redact"):
        assert fact in note, fact
    for path in folder.iterdir():
        assert path.name in note or path.name in {"README.md", "expected.json"}
    assert folder.name in (SAMPLES / "README.md").read_text("utf-8")


def test_every_case_of_a_note_is_one_of_the_program() -> None:
    tree = ast.parse((SAMPLES / "workload.py").read_text("utf-8"))
    [cases] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CASES"
    ]
    assert isinstance(cases, ast.Dict)
    known = {ast.literal_eval(key) for key in cases.keys if key is not None}
    noted = [
        match
        for note in SAMPLES.glob("*/README.md")
        for match in re.findall(r"workload\.py (\w+) (\w+) nsys", note.read_text("utf-8"))
    ]
    assert len(noted) >= 7
    assert {case for case, _ in noted} <= known
    assert {variant for _, variant in noted} <= {"sick", "fixed"}
