from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.errors import DamagedEvidenceError, UnknownEvidenceError, UsageError
from doctor.readers import registry
from doctor.redact.redaction import Redacted, redact
from doctor.redact.trace import redact_trace
from tests.support.export_pairs import unpacked
from tests.support.native_reports import HEALTHY
from tests.support.samples import SAMPLES

SECRETS = (b"jdoe", b"gpu-box-17", b"hf_Q8sR2tUvWxYz", b"hunter2", b"secret-project", b"ACME", b"mystery-daemon")
PID = 281475345809408
OTHER_TID = 281475362586647


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A real export with secrets planted where exports keep them."""
    path = unpacked(SAMPLES / f"{HEALTHY}.sqlite.gz", tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            f"""
            INSERT INTO META_DATA_CAPTURE VALUES
                ('PROCESS_0:ENVIRONMENT_VARIABLE', 'HF_TOKEN="hf_Q8sR2tUvWxYz"'),
                ('PROCESS_0:ENVIRONMENT_VARIABLE', 'USER="jdoe"'),
                ('PROCESS_0:ARGUMENT_0', '--api-key=hunter2-prod'),
                ('PROCESS_0:WORKING_DIR', '/home/jdoe/secret-project'),
                ('DEVICE_DISPLAY_NAME', 'gpu-box-17');
            INSERT INTO META_DATA_EXPORT VALUES
                ('EXPORT_HOST', 'gpu-box-17'), ('EXPORT_USER', 'jdoe'),
                ('EXPORT_PARAM_INPUT_PATH', '/home/jdoe/secret-project/a.nsys-rep');
            INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES
                (1, 'Local (CLI)', 'Hostname', 619, 'gpu-box-17'),
                (1, 'Local (CLI)', 'DeviceEnvironment', 610, 'USER=jdoe;HF_TOKEN=hf_Q8sR2tUvWxYz');
            INSERT INTO StringIds VALUES
                (9001, 'customer ACME said hunter2'), (9002, '/home/jdoe/secret-project/out.log'),
                (9003, 'USER=jdoe' || char(10) || 'HF_TOKEN=hf_Q8sR2tUvWxYz'), (9004, 'mystery-daemon');
            INSERT INTO ThreadNames VALUES (9004, 20, {OTHER_TID});
            INSERT INTO ProcessStreams VALUES ({PID}, 9002, 9001);
            INSERT INTO DIAGNOSTIC_EVENT VALUES
                (1, 1, 1, 1, 'see /home/jdoe/secret-project/x.log of jdoe on gpu-box-17', {PID});
            CREATE TABLE OSRT_FILE_ACCESS_DESCRIPTORS (fileAccessId INTEGER, filePath TEXT);
            INSERT INTO OSRT_FILE_ACCESS_DESCRIPTORS VALUES (1, '/home/jdoe/secret-project/weights.bin');
            CREATE TABLE own_notes (note TEXT);
            INSERT INTO own_notes VALUES ('of /home/jdoe/secret-project/notes and jdoe');
            CREATE TRIGGER spy AFTER UPDATE ON StringIds BEGIN INSERT INTO own_notes VALUES (OLD.value); END;
            """
        )
    return path


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_no_secret_is_left_in_any_page_of_the_export(export: Path, tmp_path: Path) -> None:
    raw = export.read_bytes()
    assert [secret for secret in SECRETS if secret not in raw] == []
    assert redact(export, tmp_path / "copy.sqlite") == Redacted("nsys-sqlite")
    raw = (tmp_path / "copy.sqlite").read_bytes()
    assert [secret for secret in SECRETS if secret in raw] == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY rowid",
        "SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY rowid",
        "SELECT * FROM NVTX_EVENTS ORDER BY rowid",
        "SELECT value FROM StringIds JOIN CUPTI_ACTIVITY_KIND_KERNEL ON id = demangledName ORDER BY 1",
        "SELECT * FROM ThreadNames ORDER BY rowid",
        "SELECT * FROM TARGET_INFO_GPU",
        "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%GRAPH_TRACE%'",
    ],
)
def test_rows_that_are_evidence_stay(query: str, export: Path, tmp_path: Path) -> None:
    redact(export, tmp_path / "copy.sqlite")
    assert rows(export, query) != []
    assert rows(tmp_path / "copy.sqlite", query) == rows(export, query)


def test_the_original_export_is_left_alone(export: Path, tmp_path: Path) -> None:
    before = export.read_bytes()
    redact(export, tmp_path / "copy.sqlite")
    assert export.read_bytes() == before


def test_a_cut_export_is_refused_and_leaves_nothing(export: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.sqlite").write_bytes(export.read_bytes()[:200_000])
    with pytest.raises(DamagedEvidenceError):
        redact(tmp_path / "cut.sqlite", tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()


TRACE = r"""{
  "schemaVersion": 1, "baseTimeNanoseconds": 1795963569732475878,
  "distributedInfo": {"rank": 0, "hostname": "gpu-box-17", "pg_config": [{"pg_name": "0"}]},
  "environment": {"HF_TOKEN": "hf_Q8sR2tUvWxYz", "nested": ["hunter2", {"USER": "jdoe"}]}, "after": 7,
  "command_line" : "serve.py --api-key=hunter2", "user":"jdoe", "cwd": "C:\\Users\\jdoe\\secret-project",
  "traceName": "/home/jdoe/secret-project/run.json",
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 7, "tid": 0,
     "args": {"name": "/home/jdoe/bin/python3 serve.py --key hunter2"}},
    {"ph": "X", "cat": "python_function", "name": "/home/jdoe/secret-project/model.py(12): forward",
     "ts": 1.5, "dur": 9223372036854775808},
    {"ph": "X", "cat": "kernel", "name": "void at::native::\"quoted/kernel\"<float>",
     "ts": 1795963569732.125, "dur": NaN, "args": {"grid": [1, 2, 3],
     "Call stack": "\/home\/jdoe\/secret-project\/a.py(3);torch/nn/modules/module.py(1511)"}}
  ]}"""


def test_no_secret_is_left_in_a_trace_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(TRACE)
    assert redact(tmp_path / "trace.json", tmp_path / "copy.json") == Redacted("kineto")
    text = (tmp_path / "copy.json").read_text()
    assert [secret for secret in SECRETS if secret.decode() in text] == []
    before, after = json.loads(TRACE), json.loads(text)
    assert after["traceEvents"][0]["args"]["name"] == "python3"
    assert after["traceEvents"][1]["name"].endswith("/model.py(12): forward")
    assert after["traceEvents"][1]["dur"] == 9223372036854775808
    assert after["traceEvents"][2]["name"] == before["traceEvents"][2]["name"]
    assert after["traceEvents"][2]["args"]["Call stack"].endswith("/a.py(3);torch/nn/modules/module.py(1511)")
    assert after["after"] == 7
    assert after["distributedInfo"]["pg_config"] == [{"pg_name": "0"}]
    assert after["environment"].keys() != before["environment"].keys()
    assert '"ts": 1795963569732.125, "dur": NaN' in text


def test_a_packed_trace_stays_packed_and_a_copy_of_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(TRACE.encode()))
    redact(tmp_path / "trace.json.gz", tmp_path / "copy.json.gz")
    redact(tmp_path / "copy.json.gz", tmp_path / "again.json.gz")
    assert b"hunter2" not in gzip.decompress((tmp_path / "copy.json.gz").read_bytes())
    assert (tmp_path / "again.json.gz").read_bytes() == (tmp_path / "copy.json.gz").read_bytes()


def test_a_cut_trace_loses_its_last_open_text(tmp_path: Path) -> None:
    for size in range(len(TRACE) // 2, len(TRACE), 7):
        (tmp_path / "cut.json").write_text(TRACE[:size])
        redact(tmp_path / "cut.json", tmp_path / "copy.json")
        text = (tmp_path / "copy.json").read_bytes()
        assert [secret for secret in SECRETS if secret in text] == []
        (tmp_path / "copy.json").unlink()


documents = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["traceEvents", "args", "env", "name", "x"]), documents, min_size=1))
@settings(deadline=None)
def test_any_document_stays_json_of_the_same_structure(document: dict[str, object]) -> None:
    out = io.BytesIO()
    redact_trace(io.BytesIO(json.dumps(document).encode()), out)
    assert shape(json.loads(out.getvalue())) == shape(document)


def shape(value: object) -> object:
    if isinstance(value, dict):
        return [shape(inner) for inner in value.values()] if len(value) < 2 else len(value) and "object"
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


def test_what_is_none_of_the_three_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnknownEvidenceError):
        redact(tmp_path / "notes.txt", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


ARRAYS = {
    "of the PyTorch profiler's events": (
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}},
        True,
    ),
    "of a compiler's own": ({"attr": {"Power": "3620872431"}, "name": "add_11", "ph": "B", "pid": 0, "ts": 2.0}, False),
    "of anything": ({"name": "x", "value": 1}, False),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_of_arrays_those_are_redacted_that_are_diagnosed(name: str, tmp_path: Path) -> None:
    event, is_known = ARRAYS[name]
    source, copy = tmp_path / "events.json", tmp_path / "copy.json"
    source.write_text(json.dumps([event, event], indent=1))
    assert (registry.kind_of(source) == "kineto") is is_known
    if is_known:
        assert redact(source, copy).kind == "kineto"
    else:
        with pytest.raises(UnknownEvidenceError):
            redact(source, copy)


def test_an_existing_output_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(TRACE)
    (tmp_path / "copy.json").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        redact(tmp_path / "trace.json", tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_text() == "mine"


def test_what_is_far_longer_than_its_content_is_refused_before_it_is_copied(export: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": [')
    for path in (export, tmp_path / "trace.json"):
        os.truncate(path, 1 << 30)  # a hole: it takes no room
        with pytest.raises(DamagedEvidenceError):
            redact(path, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
    os.truncate(export, 1 << 43)
    with pytest.raises(UsageError, match="no room for a copy"):
        redact(export, tmp_path / "copy")
