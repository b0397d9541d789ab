from __future__ import annotations

import gzip
import os
import pickle
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from doctor.errors import EvidenceError, UnknownEvidenceError
from doctor.readers import registry
from doctor.readers.evidence_file import open_evidence
from tests.support.columnar_export import write_parquet_folder
from tests.support.reading import read_all
from tests.support.sqlite_export import SAMPLE, export_with
from tests.support.torch_traces import kernel, write_trace

FOREIGN = {
    "a text": (b"just words\n", "is a text that is not known as evidence"),
    "an ncu report": (b"NVR\x00\x01\x02\x03\x04", "is an Nsight Compute report"),
    "an unfinished recording": (b"QDSTRM\x00\x00rest", "is an unfinished recording of nsys"),
    "a pickle": (pickle.dumps({"a": 1}), "is a Python pickle"),
    "json": (b'{"some": "thing"}', "is JSON, but no trace"),
    "html": (b"<!DOCTYPE html><html><body>Please log in</body></html>", "is an HTML page"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(30), "is an image"),
    "pdf": (b"%PDF-1.7\n", "is a PDF document"),
    "a program": (b"\x7fELF\x02\x01\x01" + bytes(30), "is a program or library"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is a Git LFS pointer"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
    "parquet": (b"PAR1" + bytes(20), "is one table of a columnar export"),
    "nvprof": (
        b"SQLite format 3\x00" + b"CREATE TABLE StringTable CUPTI_ACTIVITY_KIND_KERNEL",
        "is a profile of nvprof",
    ),
    "xz": (b"\xfd7zXZ\x00" + bytes(9), "is compressed in a way that is not read directly"),
    "duckdb": (bytes(8) + b"DUCK" + bytes(40), "is a DuckDB file"),
    "noise": (bytes(range(1, 256)), "is no evidence that is known here"),
    "zeros": (bytes(5000), "is no evidence that is known here"),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("wrapping", ["none", "gzip", "zstd"])
def test_a_wrong_file_is_named_with_what_to_do_in_one_line(what: str, wrapping: str, tmp_path: Path) -> None:
    content, expected = FOREIGN[what]
    packed = {"none": content, "gzip": gzip.compress(content), "zstd": zstandard.compress(content)}[wrapping]
    path = tmp_path / "trace.nsys-rep"  # the name says nothing
    path.write_bytes(packed)
    with pytest.raises(UnknownEvidenceError) as caught:
        registry.reader_for(path)
    message = caught.value.message
    assert message.startswith(f"{path} {expected}")
    assert ": " in message.removeprefix(f"{path} ")
    assert "\n" not in message
    assert (f"(inside {wrapping})" in message) == (wrapping != "none")


def test_archives_are_named(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json", kernel("k", 1))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(trace)
    with tarfile.open(tmp_path / "a.tar", "w") as bundle:
        bundle.add(trace)
    for name, what in (("a.zip", "is a zip archive"), ("a.tar", "is a tar archive")):
        with pytest.raises(UnknownEvidenceError, match=what):
            registry.reader_for(tmp_path / name)


def test_an_empty_file_plain_or_packed_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    (tmp_path / "packed").write_bytes(gzip.compress(b""))
    for name in ("plain", "packed"):
        with pytest.raises(EvidenceError, match="is empty"):
            registry.reader_for(tmp_path / name)


def test_a_missing_file_a_pipe_and_a_folder_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("missing", "does not exist"), ("pipe", "is no regular file"), (".", "is a folder")):
        with pytest.raises(EvidenceError, match=what):
            registry.reader_for(tmp_path / name)
        assert not registry.knows(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", kernel("k", 1))
    path.chmod(0)
    with pytest.raises(EvidenceError, match="Permission denied"):
        registry.reader_for(path)


def test_the_format_is_told_by_content_whatever_the_name(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.sqlite", kernel("k", 1))
    (tmp_path / "b.json").write_bytes(SAMPLE.read_bytes())
    assert registry.reader_for(tmp_path / "a.sqlite").kind == "kineto"
    assert registry.reader_for(tmp_path / "b.json").kind == "nsys-sqlite"


def test_a_packed_export_whose_first_pages_name_no_table_is_known(tmp_path: Path) -> None:
    export = export_with(tmp_path)
    late = tmp_path / "late"
    with closing(sqlite3.connect(late)) as connection:
        for at in range(60):  # 60 definitions of about 2 KiB each stand in front of those that matter
            connection.execute(f"CREATE TABLE mine_{at} ({', '.join(f'column_{n} INTEGER' for n in range(120))})")
        connection.execute("ATTACH ? AS export", (str(export),))
        for name in ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"):
            connection.execute(f"CREATE TABLE main.{name} AS SELECT * FROM export.{name}")
        connection.commit()
    assert b"StringIds" not in late.read_bytes()[: 64 * 1024]
    packed = tmp_path / "late.gz"
    packed.write_bytes(gzip.compress(late.read_bytes(), 1))
    for path in (late, packed):
        assert read_all(path).row_counts()["kernel"] == 990


def test_a_columnar_folder_is_evidence_and_any_other_folder_is_not(tmp_path: Path) -> None:
    write_parquet_folder(export_with(tmp_path), tmp_path / "export")
    assert registry.reader_for(tmp_path / "export").kind == "nsys-columnar"
    write_trace(tmp_path / "t.json", kernel("k", 1))
    assert not registry.knows(tmp_path)


def test_errors_name_the_users_file_and_no_temporary_copy(tmp_path: Path) -> None:
    path = tmp_path / "broken.gz"
    plain = bytearray(b"".join(open_evidence(SAMPLE).chunks()))
    plain[4096 : len(plain)] = bytes(len(plain) - 4096)
    path.write_bytes(gzip.compress(bytes(plain), 1))
    with pytest.raises(EvidenceError) as caught:
        read_all(path)
    assert caught.value.message.startswith(str(path))
    assert "unpacked" not in caught.value.message


def test_a_bad_checksum_of_the_packing_marks_the_evidence_incomplete(tmp_path: Path) -> None:
    packed = bytearray(SAMPLE.read_bytes())
    packed[-6] ^= 0xFF
    path = tmp_path / "t.gz"
    path.write_bytes(bytes(packed))
    facts = read_all(path).facts
    assert not facts.is_complete
    assert facts.notes[0] == "its gzip data is damaged"


def test_readers_are_imported_only_when_their_turn_comes() -> None:
    code = (
        "import sys; import doctor.readers.registry; print([m for m in sys.modules if m.startswith('doctor.formats')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
