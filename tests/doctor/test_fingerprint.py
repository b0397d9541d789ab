from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.diagnosis.outcome import EvidenceFile
from doctor.discovery import EvidencePath
from doctor.errors import EvidenceError
from doctor.fingerprint import sha256_of, with_fingerprints
from tests.support import diagnoses


def test_a_file_has_the_digest_that_sha256sum_prints(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 100_000)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_a_folder_changes_with_the_content_and_the_names_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "a").write_text("one")
    first = sha256_of(folder)
    assert sha256_of(folder) == first
    (folder / "a").rename(folder / "b")
    renamed = sha256_of(folder)
    (folder / "b").write_text("two")
    assert len({first, renamed, sha256_of(folder)}) == 3


def test_each_file_of_a_diagnosis_gets_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    files = (EvidenceFile("as named", "kineto", None, True, ()), EvidenceFile("other", "kineto", None, True, ()))
    known = replace(diagnoses.healthy(), evidence=files)
    told = with_fingerprints(known, [EvidencePath(tmp_path / "file", "as named")])
    assert [file.sha256 for file in told.evidence] == [hashlib.sha256(b"x").hexdigest(), None]


def test_a_file_that_is_gone_is_one_line() -> None:
    with pytest.raises(EvidenceError, match="cannot be read again"):
        sha256_of(Path("/nowhere/at/all"))
