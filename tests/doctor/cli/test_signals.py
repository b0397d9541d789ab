"""Whoever ends doctor finds one line, the exit code that shells expect, and nothing left behind."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.native_reports import HEALTHY, report
from tests.support.samples import sample

TRACE = sample("graph-decode-torch-trace") / "healthy-fixed.pt.trace.json.gz"
START = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
def hook(event, arguments):
    if event == os.environ.get("AT_EVENT"):
        os.kill(os.getpid(), signal.SIGTERM)
sys.addaudithook(hook)
from doctor.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""The program, which signals itself at an event that Python audits: a file renamed, a folder made, a base opened."""
RULE = """
import os, signal, threading
from typing import NamedTuple
from doctor.rule import About, Rule, Stage, Verdict

{at_import}

class Row(NamedTuple):
    answer: int

def judge(row: Row) -> Verdict:
    {at_judging}
    return None

RULE = Rule(
    about=About("own-rule", "A rule", Stage.GENERAL, reads=("kernel",), needs=("kineto",)),
    thresholds={{}}, sql="{sql} AS answer", row=Row, judge=judge, fixes=(), verify="", doc="",
)
"""
KILL = "os.kill(os.getpid(), signal.SIGTERM)"
ENDLESS = "SELECT (SELECT sum(a.range + b.range) FROM range(1000000) a, range(100000000) b)"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
WORDS = {
    signal.SIGINT: b"doctor: interrupted\n",
    signal.SIGTERM: b"doctor: ended by SIGTERM\n",
    signal.SIGHUP: b"doctor: ended by SIGHUP\n",
}


Ended = subprocess.CompletedProcess[bytes]


def doctor(folder: Path, *arguments: str | Path, event: str = "") -> Ended:
    scratch = folder / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "AT_EVENT": event}
    command = [sys.executable, "-c", START, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=False)


def nothing_is_left(folder: Path, *but: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(["scratch", *but])
    assert list((folder / "scratch").iterdir()) == []


@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_evidence_is_read_gives_one_line(number: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", START, "diagnose", "-"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"{" + b" " * 2**20)  # more than a pipe holds: the write returns once the program reads
    process.stdin.flush()
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (CODES[number], b"", WORDS[number])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("tempfile.mkdtemp", ["diagnose", "packed.nsys-rep.gz"]),
        ("os.link", ["diagnose", "packed.nsys-rep.gz", "--save", "out.duckdb"]),
        ("sqlite3.connect", ["convert", "packed.nsys-rep.gz", "-o", "out.sqlite"]),
        ("os.rename", ["convert", "packed.nsys-rep.gz", "-o", "out.sqlite"]),
        ("os.rename", ["convert", "packed.nsys-rep.gz", "-o", "out.parquet"]),
        ("os.rename", ["redact", "packed.nsys-rep.gz", "-o", "out.nsys-rep"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0] + " " + value[-1].rpartition(".")[2],
)
def test_a_signal_at_the_work_leaves_nothing(event: str, arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "packed.nsys-rep.gz").write_bytes(gzip.compress(report(HEALTHY).read_bytes(), 1))
    ended = doctor(tmp_path, *arguments, event=event)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, b"", WORDS[signal.SIGTERM])
    nothing_is_left(tmp_path, "packed.nsys-rep.gz")


@pytest.mark.parametrize(
    ("at_import", "at_judging", "sql"),
    [
        (KILL, "pass", "SELECT 1"),
        ("", KILL, "SELECT 1"),
        (f"threading.Timer(0.2, lambda: {KILL}).start()", "pass", ENDLESS),
    ],
    ids=["the rules are loaded", "a rule judges", "the case is asked"],
)
def test_a_signal_while(at_import: str, at_judging: str, sql: str, tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.py").write_text(RULE.format(at_import=at_import, at_judging=at_judging, sql=sql))
    ended = doctor(tmp_path, "diagnose", TRACE, "--rules", "rules", "--select", "own-rule", "--save", "case.duckdb")
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, b"", WORDS[signal.SIGTERM])
    nothing_is_left(tmp_path, "rules")


def test_what_nohup_keeps_out_stays_out(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    hang_up = "os.kill(os.getpid(), signal.SIGHUP)"
    (tmp_path / "rules" / "own.py").write_text(RULE.format(at_import="", at_judging=hang_up, sql="SELECT 1"))
    started = START.replace("signal.SIG_DFL", "signal.SIG_IGN")
    command = [sys.executable, "-c", started, "diagnose", str(TRACE), "--rules", "rules", "--select", "own-rule"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "diagnose", str(TRACE), "--format", "html"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1) == b"<"
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait() == 0


@pytest.mark.parametrize(("closed", "code"), [(0, 2), (1, 2), (2, 0)])
def test_a_stream_that_was_closed_before_is_no_bug(closed: int, code: int) -> None:
    arguments = ["diagnose", "-" if closed == 0 else str(TRACE)]
    program = f"import os, sys; os.close({closed}); os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])"
    command = [sys.executable, "-c", program, START, *arguments]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == code
    assert b"unexpected" not in ended.stderr


def test_sigterm_right_after_a_ctrl_c_that_nobody_took_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    swallowed = "try: os.kill(os.getpid(), signal.SIGINT); signal.pause()\n    except KeyboardInterrupt: pass"
    at_judging = f"{swallowed}\n    {KILL}\n    signal.pause()"
    (tmp_path / "rules" / "own.py").write_text(RULE.format(at_import="", at_judging=at_judging, sql="SELECT 1"))
    ended = doctor(tmp_path, "diagnose", TRACE, "--rules", "rules", "--select", "own-rule")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", WORDS[signal.SIGINT])
    nothing_is_left(tmp_path, "rules")
