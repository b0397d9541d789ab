from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from doctor.convert.conversion import convert_report
from doctor.errors import DamagedEvidenceError, EvidenceError, UnknownEvidenceError, UsageError
from tests.support.native_reports import HEALTHY, call, kernel, made_of, message, report, take_apart


def rows_of(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_the_parquet_folder_holds_the_same_rows_as_the_sqlite_file(tmp_path: Path) -> None:
    file, folder = tmp_path / "out.sqlite", tmp_path / "out.parquet"
    done = convert_report(report(HEALTHY), file)
    assert convert_report(report(HEALTHY), folder) == done
    for path in folder.iterdir():
        table = pq.read_table(path)
        chosen = ", ".join(f'"{name}"' for name in table.column_names)
        assert [tuple(row.values()) for row in table.to_pylist()] == rows_of(
            file, f'SELECT {chosen} FROM "{path.stem}"'
        )


def test_names_that_no_row_refers_to_are_not_written(tmp_path: Path) -> None:
    strings = [b"[Unknown]", b"a_kernel", b"HOME=/home/somebody\0TOKEN=hunter2", b"cudaLaunchKernel"]
    path = made_of([kernel(100, 1), call(90, 3)], strings).put_together(tmp_path / "made.nsys-rep")
    convert_report(path, tmp_path / "out.sqlite")
    assert rows_of(tmp_path / "out.sqlite", "SELECT id, value FROM StringIds") == [
        (1, "a_kernel"),
        (3, "cudaLaunchKernel"),
    ]
    assert b"hunter2" not in (tmp_path / "out.sqlite").read_bytes()


def test_nothing_private_of_the_header_is_written(tmp_path: Path) -> None:
    private = message(
        {1: b"Local (CLI)", 9: b"secret-host", 26: {10: b"/home/somebody/serve.py", 11: b"--key=hunter2"}}
    )
    header = message(
        [(1, message({1: b"Local (CLI)", 2: {1: {1: 619, 2: b"secret-host"}}})), (2, private), (17, 1), (18, 2)]
    )
    path = made_of([kernel(100, 1)], [b"[Unknown]", b"a_kernel"], header=header).put_together(
        tmp_path / "made.nsys-rep"
    )
    convert_report(path, tmp_path / "out.sqlite")
    written = (tmp_path / "out.sqlite").read_bytes()
    assert not any(word in written for word in (b"secret-host", b"hunter2", b"somebody"))


def test_symbols_are_written_beside_the_numbers(tmp_path: Path) -> None:
    convert_report(report(HEALTHY), tmp_path / "out.sqlite")
    query = "SELECT label FROM ENUM_CUDA_MEMCPY_OPER WHERE id = 1"
    assert rows_of(tmp_path / "out.sqlite", query) == [("Host-to-Device",)]


@pytest.mark.parametrize("name", ["out.csv", "out"])
def test_an_ending_that_says_nothing_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.sqlite"):
        convert_report(report(HEALTHY), tmp_path / name)


@pytest.mark.parametrize("name", ["out.sqlite", "out.parquet"])
def test_an_existing_output_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        convert_report(report(HEALTHY), tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["missing/out.sqlite", "missing/out.parquet"])
def test_a_folder_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        convert_report(report(HEALTHY), tmp_path / name)


def test_what_is_no_report_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.nsys-rep").write_text("hello")
    with pytest.raises(UnknownEvidenceError):
        convert_report(tmp_path / "text.nsys-rep", tmp_path / "out.sqlite")
    with pytest.raises(EvidenceError):
        convert_report(tmp_path / "missing.nsys-rep", tmp_path / "out.sqlite")
    (tmp_path / "short.nsys-rep").write_bytes(report(HEALTHY).read_bytes()[:60])
    with pytest.raises(DamagedEvidenceError):
        convert_report(tmp_path / "short.nsys-rep", tmp_path / "out.sqlite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.nsys-rep", "text.nsys-rep"]


def test_a_cut_report_converts_as_far_as_it_goes_and_says_so(tmp_path: Path) -> None:
    whole = take_apart(report(HEALTHY)).put_together(tmp_path / "whole.nsys-rep").read_bytes()
    (tmp_path / "cut.nsys-rep").write_bytes(whole[: len(whole) // 2])
    done = convert_report(tmp_path / "cut.nsys-rep", tmp_path / "out.sqlite")
    assert not done.is_complete
    assert any("cut" in note for note in done.notes)


@pytest.mark.parametrize(("version", "has_messages"), [(b"2022@4@2", False), (b"2025@3@1", True)])
def test_tables_that_the_recorders_own_exporter_does_not_know_are_left_out(
    version: bytes, has_messages: bool, tmp_path: Path
) -> None:
    parts = take_apart(report(HEALTHY))
    old = type(parts)(b"NVIDIA Tegra Profiler Report " + version + b"@1-1v0.", parts.small, parts.stream)
    convert_report(old.put_together(tmp_path / "old.nsys-rep"), tmp_path / "out.sqlite")
    tables = {name for (name,) in rows_of(tmp_path / "out.sqlite", "SELECT name FROM sqlite_master")}
    assert ("DIAGNOSTIC_EVENT" in tables) is has_messages
    assert ("TARGET_INFO_CUDA_DEVICE" in tables) is has_messages
