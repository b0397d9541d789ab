from __future__ import annotations

import gzip
import shutil
import sqlite3
from pathlib import Path

import pytest

from doctor.discovery import discovered
from doctor.errors import UnknownEvidenceError, UsageError
from tests.support.samples import sample


def kineto(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"device": 0}}'
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{event}]}}')
    return path


def found(*names: str | Path) -> list[str]:
    with discovered(str(name) for name in names) as result:
        return [entry.shown for entry in result.evidence]


def test_a_named_file_is_found_under_the_name_the_user_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kineto(tmp_path / "trace.json")
    monkeypatch.chdir(tmp_path)
    assert found("trace.json") == ["trace.json"]


def test_a_folder_gives_its_evidence_by_name_at_any_depth(tmp_path: Path) -> None:
    kineto(tmp_path / "b.json")
    kineto(tmp_path / "a" / "z.json")
    (tmp_path / "notes.txt").write_text("about these traces\n")
    with discovered([str(tmp_path)]) as result:
        assert [entry.path.name for entry in result.evidence] == ["b.json", "z.json"]
        assert [Path(name).name for name in result.skipped] == ["notes.txt"]


def test_what_is_about_the_evidence_is_passed_by_without_a_word() -> None:
    folder = sample("launch-bound-decode-nsys-report")
    assert {path.name for path in folder.iterdir()} >= {"README.md", "expected.json"}
    with discovered([str(folder)]) as result:
        assert [entry.path.name for entry in result.evidence] == ["launch-sick.nsys-rep", "launch-sick.sqlite.gz"]
        assert result.skipped == ()


def test_links_that_lead_nowhere_are_passed_by_unless_a_recording_is_gone(tmp_path: Path) -> None:
    kineto(tmp_path / "trace.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "latest").symlink_to(tmp_path / "nowhere")
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "gone.nsys-rep").symlink_to(tmp_path / "nowhere")
    with discovered([str(tmp_path)]) as result:
        assert [entry.path.name for entry in result.evidence] == ["gone.nsys-rep", "trace.json"]
        assert [entry.fault is None for entry in result.evidence] == [False, True]
        assert [Path(name).name for name in result.skipped] == ["latest", "loop.json"]


def test_hidden_files_and_folders_are_passed_by(tmp_path: Path) -> None:
    kineto(tmp_path / "trace.json")
    kineto(tmp_path / ".trace.json")
    kineto(tmp_path / ".cache" / "trace.json")
    assert len(found(tmp_path)) == 1


def test_a_pattern_gives_what_it_matches(tmp_path: Path) -> None:
    for rank in range(3):
        kineto(tmp_path / f"rank{rank}" / "trace.json")
    assert len(found(tmp_path / "rank*" / "trace.json")) == 3


def test_a_pattern_passes_by_what_is_no_evidence(tmp_path: Path) -> None:
    kineto(tmp_path / "trace.json")
    (tmp_path / "notes.txt").write_text("about these traces\n")
    with discovered([str(tmp_path / "*")]) as result:
        assert [entry.path.name for entry in result.evidence] == ["trace.json"]
        assert [Path(name).name for name in result.skipped] == ["notes.txt"]


def test_a_pattern_that_matches_no_evidence_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about these traces\n")
    with pytest.raises(UnknownEvidenceError, match=r"\*\.md"), discovered([str(tmp_path / "*.md")]):
        pass


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    trace = kineto(tmp_path / "trace.json")
    (tmp_path / "link.json").symlink_to(trace)
    assert len(found(trace, tmp_path, tmp_path / "link.json", tmp_path / "*.json")) == 1


def test_a_name_that_looks_like_a_pattern_but_exists_is_a_file(tmp_path: Path) -> None:
    assert len(found(kineto(tmp_path / "trace[1].json"))) == 1


def test_the_kind_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    trace = kineto(tmp_path / "trace.json")
    shutil.copy(trace, tmp_path / "notes.txt")
    (tmp_path / "packed.dat").write_bytes(gzip.compress(trace.read_bytes()))
    assert len(found(tmp_path / "notes.txt", tmp_path / "packed.dat")) == 2


def test_a_database_of_somebody_else_is_no_evidence(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "photos.sqlite") as database:
        database.execute("CREATE TABLE photo (name TEXT)")
    with pytest.raises(UnknownEvidenceError, match=r"photos\.sqlite"), discovered([str(tmp_path / "photos.sqlite")]):
        pass


@pytest.mark.parametrize("name", ["no-such-file", "no-such-*"])
def test_a_name_that_matches_nothing_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no-such"), discovered([name]):
        pass


def test_a_readme_in_a_folder_is_no_evidence_whatever_it_quotes(tmp_path: Path) -> None:
    text = (sample("oom-fragmentation") / "error.txt").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(text)
    (tmp_path / "oom.txt").write_text(text)
    with discovered([str(tmp_path)]) as found:
        assert [entry.path.name for entry in found.evidence] == ["oom.txt"]
    with discovered([str(tmp_path / "README.md")]) as found:
        assert [entry.path.name for entry in found.evidence] == ["README.md"]
