"""One secret stands in every text of real evidence; no copy, no case and no page of a diagnosis may hold it."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from doctor.cli.main import main
from doctor.formats.nsys_report import container as sections
from doctor.redact.masking import TextRules, hide_texts
from doctor.redact.redaction import redact
from doctor.redact.trace import redact_trace
from tests.fuzz.trace_evidence import small_sqlite, small_trace
from tests.support.native_reports import HEALTHY, TakenApart, everything, report, take_apart
from tests.support.samples import sample

SECRET = "zebra-Quagga77 of okapi"
TIMED = {"ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
MARKS = ("zebra", "quagga", "okapi")
SPOKEN_KEYS = {"ph", "cat", "name", "s", "bp", "id"}


def marks_in(text: bytes) -> list[str]:
    return [mark for mark in MARKS if mark.encode() in text.lower()]


def planted_everywhere(value: Any, key: str = "") -> Any:
    """The same JSON with the secret in every text but names; names get a secret folder."""
    if isinstance(value, dict):
        return {inner: planted_everywhere(value[inner], inner) for inner in value}
    if isinstance(value, list):
        return [planted_everywhere(inner, key) for inner in value]
    return SECRET if isinstance(value, str) and key not in SPOKEN_KEYS else value


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A real trace with the secret in all of its texts, and in all that a program may add."""
    path = small_trace(tmp_path)
    document = planted_everywhere(json.loads(path.read_text()))
    events = document["traceEvents"]
    for event in events:
        if event["ph"] == "M":
            event["args"] = {
                key: value if key != "name" else "/srv/zebra/python3 --key quagga okapi"
                for key, value in event["args"].items()
            }
        elif event["ph"] == "X":
            event["args"] = {
                **event.get("args", {}), "Concrete Inputs": ["", "[1, 2]", SECRET, ["okapi"]],
                "Input type": ["float", SECRET], "note": SECRET, "Trace name": SECRET,
                "deep": {"zebra": ["quagga", {"okapi": 1}]},
                "Call stack": "/home/zebra quagga/okapi/a.py(3): f;okapi/b.py(4): g;torch/nn/module.py(5): h",
            }  # fmt: skip
    events += [
        {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": SECRET}},
        {**TIMED, "cat": "user_annotation", "name": "step", "args": {"text": SECRET}},
        {**TIMED, "cat": "python_function", "name": "/home/zebra quagga/okapi/a.py(3): f"},
        {"args": {"name": "/srv/zebra/python3 --key quagga"}, "name": "process_name", "ph": "M", "pid": 2},
    ]  # fmt: skip
    document |= {
        "username": "zebra", "traceName": "/tmp/zebra_1.json", "metadata": {"okapi": {"quagga": ["zebra"]}},
        "WARNING": ["WARNING:2026-01-01 10:00:00 1:1 A.cpp:1] okapi of zebra lost 7 events, quagga"], "ERROR": [SECRET],
        "distributedInfo": {"rank": 0, "hostname": "zebra", "backend": "okapi", "pg_config": [{"pg_desc": "quagga"}]},
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def test_no_copy_of_a_trace_holds_the_secret(trace: Path, tmp_path: Path) -> None:
    redact(trace, tmp_path / "copy.json")
    raw = (tmp_path / "copy.json").read_bytes()
    assert marks_in(raw) == []
    before, after = (json.loads(text)["traceEvents"] for text in (trace.read_text(), raw))
    assert [event["ts"] for event in before if "ts" in event] == [event["ts"] for event in after if "ts" in event]
    kernels = [[event["name"] for event in events if event.get("cat") == "kernel"] for events in (before, after)]
    assert kernels[0] == kernels[1] != []
    arguments = next(event["args"] for event in after if event["ph"] == "X")
    assert arguments["Concrete Inputs"][:2] == ["", "[1, 2]"]
    assert arguments["Input type"][0] == "float"
    assert arguments["Call stack"].endswith("/a.py(3): f;xxxxx/b.py(4): g;torch/nn/module.py(5): h")


@pytest.mark.parametrize("indent", [None, 1])
def test_real_traces_keep_what_a_reader_needs(indent: int | None) -> None:
    raw = gzip.decompress((sample("graph-decode-torch-trace") / "healthy-fixed.pt.trace.json.gz").read_bytes())
    document = json.loads(raw)
    out = io.BytesIO()
    assert redact_trace(io.BytesIO(json.dumps(document, indent=indent).encode()), out)
    redacted = json.loads(out.getvalue())
    assert redacted["traceEvents"] == document["traceEvents"]
    assert redacted["deviceProperties"] == document["deviceProperties"]


def test_a_cut_trace_is_said_to_be_cut(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.json").write_bytes(trace.read_bytes()[:60_000])
    assert main(["redact", str(tmp_path / "cut.json"), "-o", str(tmp_path / "copy.json")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "the trace is cut" in line
    assert marks_in((tmp_path / "copy.json").read_bytes()) == []


UNKNOWN = """
CREATE TABLE unknown (note TEXT, raw BLOB, number, "na""me" VARCHAR(9));
CREATE TABLE "sqliteXtable" (id INTEGER PRIMARY KEY, label TEXT UNIQUE) STRICT;
CREATE TABLE rowless (label TEXT PRIMARY KEY, nameId INTEGER) WITHOUT ROWID;
CREATE INDEX by_note ON unknown (note);
CREATE VIEW zebra_view AS SELECT 'okapi';
"""


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A real export with the secret in a row of every column that takes text, known or not."""
    path = small_sqlite(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(UNKNOWN)
        database.executemany("INSERT INTO sqliteXtable (label) VALUES (?)", [("zebra1",), ("okapi1",)])
        database.execute("INSERT INTO unknown VALUES (?, ?, ?, ?)", [SECRET, SECRET.encode(), SECRET, SECRET])
        database.execute("INSERT INTO rowless VALUES (?, 1)", [SECRET])
        for table, column in text_columns(database):
            rows = database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            if table in {"unknown", "sqliteXtable", "rowless", "StringIds"}:
                continue
            if rows:
                database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 2 = 0', [SECRET])
            else:
                columns = [(row[1], row[3]) for row in database.execute(f'PRAGMA table_info("{table}")')]
                values = [SECRET if name == column else 0 for name, _ in columns]
                database.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(values))})', values)
        database.execute(
            "INSERT INTO StringIds VALUES (77001, ?), (77002, 'zebra'), (77003, '/srv/zebra/okapi.txt')", [SECRET]
        )
        database.execute("ANALYZE")
    return path


def text_columns(database: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [
        (table, row[1])
        for table in tables
        if not table.startswith("sqlite_")
        for row in database.execute(f'PRAGMA table_info("{table}")')
        if row[2].upper().startswith(("TEXT", "VARCHAR", "BLOB")) and (table, row[1]) != ("NVTX_EVENTS", "text")
    ]


def test_no_page_of_the_copy_of_an_export_holds_the_secret(export: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(export)) as database:
        assert len(text_columns(database)) > 20
    assert marks_in(export.read_bytes()) == list(MARKS)
    redact(export, tmp_path / "copy.sqlite")
    raw = (tmp_path / "copy.sqlite").read_bytes()
    assert marks_in(raw.replace(b"zebra_view", b"")) == []


def test_no_byte_of_the_copy_of_a_report_holds_the_secret(tmp_path: Path) -> None:
    planted(take_apart(report(HEALTHY))).put_together(tmp_path / "planted.nsys-rep")
    assert marks_in(everything(tmp_path / "planted.nsys-rep")) == list(MARKS)
    redact(tmp_path / "planted.nsys-rep", tmp_path / "copy.nsys-rep")
    assert marks_in(everything(tmp_path / "copy.nsys-rep")) == []


def planted(parts: TakenApart) -> TakenApart:
    """The secret over every text of the small messages that is long enough, and over each that was private before."""
    rules = TextRules(_over, {})
    stream = parts.stream
    strings = [SECRET.encode() if b"xxx" in text else text for text in stream.strings.strings]
    assert SECRET.encode() in strings
    messages = (sections.ANALYSIS_OPTIONS, sections.UI_DATA, sections.AGENT_ACTIVITY)
    small = ((name, hide_texts(content, rules) if name in messages else content) for name, content in parts.small)
    return TakenApart(parts.head, tuple(small), stream).with_stream(
        header=hide_texts(stream.header, rules),
        tail=tuple(hide_texts(part, rules) for part in stream.tail),
        strings=replace(stream.strings, strings=strings),
    )


def _over(text: bytes) -> bytes:
    return text if len(text) < len(SECRET) else (SECRET.encode() * (len(text) // len(SECRET) + 1))[: len(text)]


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    if request.param == "export":  # names of devices are shown, and so are those of ranges and threads
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"):
                database.execute(f"DROP TABLE IF EXISTS {table}")
    return path


@pytest.mark.parametrize("evidence", ["trace", "export"], indirect=True)
def test_a_diagnosis_neither_keeps_nor_prints_the_secret(
    evidence: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case, page = tmp_path / "case.duckdb", tmp_path / "page.html"
    assert main(["diagnose", str(evidence), "--save", str(case), "--format", "json"]) == 0
    for kind in ("html", "terminal", "markdown", "sarif", "junit"):
        assert main(["diagnose", str(case), "--format", kind]) == 0
    assert main(["diagnose", str(evidence), "--format", "html", "-o", str(page)]) == 0
    with closing(duckdb.connect(str(case), read_only=True)) as database:
        tables = [name for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
    for table in tables:
        assert main(["sql", str(case), f'SELECT * FROM "{table}"', "--format", "csv"]) == 0
    out, err = capfd.readouterr()
    assert len(tables) > 20
    assert marks_in(out.encode() + err.encode() + case.read_bytes() + page.read_bytes()) == []
