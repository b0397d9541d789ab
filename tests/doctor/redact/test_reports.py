"""Secrets are planted wherever a report keeps such things, and looked for in every byte of the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.convert.conversion import convert_report
from doctor.errors import DamagedEvidenceError
from doctor.formats.nsys_report import container as sections
from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.report import open_report
from doctor.formats.nsys_report.strings import StringTable
from doctor.redact.redaction import redact
from tests.support.export_pairs import differences, unpacked
from tests.support.native_reports import (
    GLOBAL_PID,
    HEALTHY,
    SICK,
    TID,
    TakenApart,
    Value,
    call,
    chunk,
    event,
    everything,
    kernel,
    made_of,
    message,
    nvtx_range,
    report,
    take_apart,
)
from tests.support.samples import SAMPLES

HOST, USER, TOKEN, FLAG = b"gpu-box-17.corp.example", b"jdoe", b"hf_Q8sR2tUvWxYz", b"--api-key=hunter2-prod"
FOLDER, OUTPUT, OTHER = b"/home/jdoe/secret-project", b"loaded 17 prompts of customer ACME", b"secret-agent-daemon"
SECRETS = (HOST, b"gpu-box-17", USER, TOKEN, b"hunter2", b"secret-project", b"ACME", OTHER)
ENVIRONMENT = b"USER=jdoe\0HOME=/home/jdoe\0HF_TOKEN=" + TOKEN + b"\0HOSTNAME=" + HOST
NVTX_TEXT = b"decode_step of hunter2"
STRINGS = [
    b"[Unknown]",
    b"a_kernel<float>",
    b"cudaLaunchKernel",
    ENVIRONMENT,
    OUTPUT,
    FOLDER + b"/stdout.log",
    FOLDER + b"/libmine.so",
    b"python3",
    OTHER,
]
OPTIONS: dict[int, Value] = {
    1: b"Local (CLI)",
    9: HOST,
    26: {10: FOLDER + b"/run.sh", 11: FLAG, 12: FOLDER, 30: {1: b"HF_TOKEN", 2: TOKEN}},
}


def planted() -> TakenApart:
    """A report with a secret in every place that the format has for one."""
    process = event(
        27,
        113,
        [(1, 0), (2, GLOBAL_PID), (5, FOLDER + b"/venv/bin/python3"), (6, b"python3"), (8, FOLDER), (9, FLAG), (13, 3)],
    )
    diagnostic = event(
        49, 110, {1: {1: 5, 2: 1}, 2: 1, 3: 1, 4: b"see " + FOLDER + b"/log.txt on " + HOST, 5: GLOBAL_PID}
    )
    unknown = event(148, 150, {1: b"argument " + TOKEN})
    events = [process, diagnostic, unknown, kernel(100, 1), call(90, 2), nvtx_range(80, NVTX_TEXT)]
    generic = [message({1: 1 << 48, 2: 5, 3: b"\x01" + TOKEN})]
    properties: list[tuple[int, Value]] = [
        (1, {1: 610, 2: ENVIRONMENT}),
        (1, {1: 619, 2: HOST}),
        (1, {1: 13, 2: b"A CPU"}),
    ]
    header = message(
        [
            (1, message({1: b"Local (CLI)", 2: message(properties), 3: 1 << 48})),
            (2, message(OPTIONS)),
            (17, 1_000),
            (18, 9_000),
            (44, message({1: 255, 2: {1: {1: 160, 2: FOLDER + b"/libmine.so"}}})),
        ]
    )
    outputs = wire.Field(2, wire.BYTES, message({1: GLOBAL_PID, 2: 5, 3: 4}))
    threads = message([(1, {2: 7, 3: 20, 4: TID}), (1, {2: 8, 3: 20, 4: (1 << 48) + (99 << 24) + 99})])
    made = made_of(
        events,
        STRINGS,
        header=header,
        info=message({1: len(events), 3: len(STRINGS), 5: 2, 15: 1}),
        chunks=[chunk(events, generic)],
        tail=(threads, *made_of([], []).stream.tail),
    ).with_stream(strings=StringTable(STRINGS, (outputs,)))
    agents = message({1: {2: b"cudaLaunchKernel", 3: FOLDER, 4: {1: b"HF_TOKEN", 2: TOKEN}, 5: HOST}})
    screen = message({5: HOST, 6: b"2025.3.1.0", 23: FOLDER + b"/a.qdstrm", 24: HOST, 25: b"nsys profile " + FLAG})
    small = (
        (sections.ANALYSIS_OPTIONS, message(OPTIONS)),
        (sections.RAW_SAMPLING_DATA, b""),
        (sections.AGENT_ACTIVITY, agents),
        (sections.UI_DATA, screen),
    )
    return TakenApart(made.head, small, made.stream)


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    original = planted().put_together(tmp_path / "original.nsys-rep")
    redact(original, tmp_path / "copy.nsys-rep")
    return original, tmp_path / "copy.nsys-rep"


def test_every_secret_was_there_before(copies: tuple[Path, Path]) -> None:
    raw = everything(copies[0])
    assert [secret for secret in SECRETS if secret not in raw] == []


def test_no_secret_is_left_in_any_byte_or_block(copies: tuple[Path, Path]) -> None:
    raw = everything(copies[1]).replace(NVTX_TEXT, b"")
    assert [secret for secret in SECRETS if secret in raw] == []


def test_names_times_and_numbers_stay(copies: tuple[Path, Path]) -> None:
    original, copy = (open_report(path) for path in copies)
    before = {part.table: part.rows for part in original.event_tables()}
    after = {part.table: part.rows for part in copy.event_tables()}
    assert copy.is_complete
    assert before.keys() == after.keys()
    for table in before.keys() - {"PROCESSES", "DIAGNOSTIC_EVENT"}:
        assert after[table].equals(before[table])
    assert after["NVTX_EVENTS"].column("text").to_pylist() == [NVTX_TEXT.decode()]
    assert [copy.text(index) for index in (1, 2, 7)] == ["a_kernel<float>", "cudaLaunchKernel", "python3"]
    assert copy.session == original.session
    assert copy.thread_names == original.thread_names


def test_lengths_and_offsets_inside_stay(copies: tuple[Path, Path]) -> None:
    before, after = (take_apart(path) for path in copies)
    assert [len(block) for block in before.stream.chunks] == [len(block) for block in after.stream.chunks]
    assert list(map(len, before.stream.strings.strings)) == list(map(len, after.stream.strings.strings))
    assert [(name, len(content)) for name, content in before.small if name != sections.RAW_SAMPLING_DATA] == [
        (name, len(content)) for name, content in after.small if name != sections.RAW_SAMPLING_DATA
    ]


def test_a_second_redaction_changes_nothing(copies: tuple[Path, Path], tmp_path: Path) -> None:
    redact(copies[1], tmp_path / "again.nsys-rep")
    assert (tmp_path / "again.nsys-rep").read_bytes() == copies[1].read_bytes()


@pytest.mark.parametrize("name", [SICK, HEALTHY])
def test_a_redacted_real_report_still_equals_its_export(name: str, tmp_path: Path) -> None:
    redact(report(name), tmp_path / "copy.nsys-rep")
    convert_report(tmp_path / "copy.nsys-rep", tmp_path / "ours.sqlite")
    assert differences(unpacked(SAMPLES / f"{name}.sqlite.gz", tmp_path), tmp_path / "ours.sqlite") == {}


@pytest.mark.parametrize("name", [SICK, HEALTHY])
def test_the_shipped_reports_hold_no_environment(name: str) -> None:
    raw = everything(report(name))
    for word in (b"LD_LIBRARY_PATH", b"PATH=", b"HOME=", b"/home/", b"/root/", b"/tmp/case", b"serve.py", b"--sample"):
        assert word not in raw


def test_a_cut_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.nsys-rep").write_bytes(report(HEALTHY).read_bytes()[:-100])
    with pytest.raises(DamagedEvidenceError, match="redact the whole recording"):
        redact(tmp_path / "cut.nsys-rep", tmp_path / "copy.nsys-rep")
    assert not (tmp_path / "copy.nsys-rep").exists()
