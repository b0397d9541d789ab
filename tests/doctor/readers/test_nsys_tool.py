"""The installed nsys is played by a small program of the same name, a real process that writes files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from doctor import nsight
from doctor.errors import EvidenceError, ToolMissingError
from doctor.readers import nsys_tool, registry
from tests.support.native_reports import HEALTHY, report
from tests.support.samples import SAMPLES

EXPORTS = f"""#!/bin/sh
for word in "$@"; do case "$word" in --output=*) output="${{word#--output=}}";; esac; last="$word"; done
case "$last" in *.nsys-rep) ;; *) echo "not a report: $last" >&2; exit 3;; esac
[ -s "$last" ] || exit 4
gunzip -c {SAMPLES / HEALTHY}.sqlite.gz > "$output"
"""
REFUSES = "#!/bin/sh\necho 'cannot load this report version' >&2\nexit 1\n"


def install(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nsys"
    program.write_text(script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_the_program_in_the_path_is_taken_first(tmp_path: Path) -> None:
    install(tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin", EXPORTS)
    here = install(tmp_path / "bin", EXPORTS)
    assert nsight.find_nsys(str(tmp_path / "bin"), tmp_path) == here


@pytest.mark.parametrize(
    "folder",
    [
        "opt/nvidia/nsight-systems/2025.3.1/bin",
        "opt/nvidia/nsight-systems-cli/2024.6.2/target-linux-x64",
        "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64",
        "usr/local/cuda-13.0/bin",
    ],
)
def test_the_usual_install_folders_are_searched(folder: str, tmp_path: Path) -> None:
    program = install(tmp_path / folder, EXPORTS)
    assert nsight.find_nsys("", tmp_path) == program


def test_the_newest_of_several_is_taken(tmp_path: Path) -> None:
    install(tmp_path / "opt/nvidia/nsight-systems/2023.4.1/bin", EXPORTS)
    newest = install(tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin", EXPORTS)
    assert nsight.find_nsys("", tmp_path) == newest


def test_without_nsys_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match="leave --reader away"):
        nsight.find_nsys("", tmp_path)


def test_an_export_is_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    with nsys_tool.exported(report(HEALTHY), install(tmp_path, EXPORTS)) as export:
        assert export.read_bytes().startswith(b"SQLite format 3")
    assert not export.exists()
    assert not export.parent.exists()


def test_a_refusal_is_one_line_with_the_words_of_nsys(tmp_path: Path) -> None:
    with (
        pytest.raises(EvidenceError, match="cannot load this report version") as caught,
        nsys_tool.exported(report(HEALTHY), install(tmp_path, REFUSES)),
    ):
        pass
    assert "\n" not in caught.value.message


def test_the_reader_nsys_reads_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, EXPORTS)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    facts = list(registry.read(report(HEALTHY), reader="nsys"))[-1]
    assert getattr(facts, "kind", None) == "nsys-sqlite"
