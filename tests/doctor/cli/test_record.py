"""`doctor record` on real commands; nsys is played by a small program of its name, which writes a real report."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main
from tests.support.native_reports import HEALTHY
from tests.support.samples import SAMPLES

ROOT = Path(__file__).parents[3]
STEPS = """
import subprocess, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
for _ in range(int(sys.argv[1])):
    model(torch.randn(1, 4))
orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("orphan", orphan.pid, "user", sys.modules["sitecustomize"].GREETING)
sys.exit(7)
"""
WORKER_AND_SIGNAL = """
import multiprocessing, os, signal, time, torch

def steps():
    model = torch.nn.Linear(4, 4)
    for _ in range(8):
        model(torch.randn(1, 4))

worker = multiprocessing.get_context("fork").Process(target=steps)
worker.start()
worker.join()
steps()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
PLAYED_NSYS = f"""#!/bin/sh
while [ "${{1#--}}" != "$1" ] || [ "$1" = profile ]; do
    case "$1" in --output=*) output="${{1#--output=}}";; esac; shift
done
cp "{SAMPLES / HEALTHY}.nsys-rep" "$output.nsys-rep"
exec "$@"
"""


def recorded(folder: Path, *command: str, path: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `doctor record` as a process of its own, with nothing but `path` and the usual folders in PATH."""
    words = [sys.executable, "-m", "doctor.cli.main", "record", "-o", str(folder / "case"), *command]
    python_path = os.pathsep.join([str(ROOT), environment.pop("PYTHONPATH", "")])
    env = {"PATH": f"{path}:/usr/bin:/bin", "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)


def trace_in(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "case").glob("torch-*.pt.trace.json.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return dict(json.load(file))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A program of 40 steps, recorded once, which leaves a process behind and exits with 7."""
    pytest.importorskip("torch", reason="needs the extra 'engine'")
    folder = tmp_path_factory.mktemp("steps")
    (folder / "program.py").write_text(STEPS)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("GREETING = 'still here'\n")
    words = ("--skip-steps", "5", "--steps", "10", "--", sys.executable, "program.py", "40", "--token=geheim")
    return folder, recorded(folder, *words, PYTHONPATH=str(folder / "site"), SECRET_TOKEN="geheim")


def test_the_window_holds_the_steps_that_were_asked_for(
    steps: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = steps
    marks = [event["name"] for event in trace_in(folder)["traceEvents"] if "ProfilerStep" in event.get("name", "")]
    assert len(set(marks)) == 10, done.stderr


def test_exit_code_and_output_are_those_of_the_command(steps: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = steps
    assert done.returncode == 7
    assert done.stdout.startswith("orphan ")
    assert "now: doctor diagnose" in done.stderr


def test_the_users_own_start_of_python_still_runs(steps: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    assert steps[1].stdout.endswith("user still here\n")


def test_no_process_is_left_behind(steps: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    orphan = int(steps[1].stdout.split()[1])
    assert not Path(f"/proc/{orphan}").exists()


def test_nothing_private_is_kept(steps: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    case = steps[0] / "case"
    assert {path.name.split("-")[0] for path in case.iterdir()} == {"torch", "vitals.jsonl"}
    kept = json.dumps(trace_in(steps[0])) + (case / "vitals.jsonl").read_text(encoding="utf-8")
    assert not [word for word in ("geheim", "SECRET_TOKEN", str(steps[0]), os.uname().nodename + '"') if word in kept]


def test_a_forked_worker_and_a_process_told_to_end_both_leave_their_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'engine'")
    (tmp_path / "program.py").write_text(WORKER_AND_SIGNAL)
    done = recorded(tmp_path, "--profiler", "torch", "--skip-steps", "2", "--", sys.executable, "program.py")
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert len(list((tmp_path / "case").glob("torch-*.pt.trace.json.gz"))) == 2


def test_the_documented_engine_is_recorded_and_the_case_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra 'engine'")
    from tests.support.tiny_models import make_model, save_model

    model = save_model(make_model("llama"), tmp_path / "model")
    sizes = ["--num-requests", "2", "--prompt-tokens", "4", "8", "--output-tokens", "30", "30"]
    options = ["--model", str(model), "--device", "cpu", "--dtype", "float32", "--max-model-len", "128", *sizes]
    done = recorded(tmp_path, "--", sys.executable, "-m", "engine", "bench", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == "engine.bench/1"
    assert main(["diagnose", str(tmp_path / "case"), "--format", "json"]) == 0
    kinds = {file["kind"] for file in json.loads(capfd.readouterr().out)["evidence"]}
    assert {"kineto", "nvml"} <= kinds


def test_nsys_in_the_path_records_and_its_report_is_kept_without_private_things(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(PLAYED_NSYS)
    program.chmod(0o755)
    done = recorded(tmp_path, "--", "sh", "-c", "exit 3", path=str(program.parent))
    assert done.returncode == 3
    assert (tmp_path / "case" / "trace.nsys-rep").exists(), done.stderr
    assert not (tmp_path / "case" / ".unfinished").exists()
    assert main(["diagnose", str(tmp_path / "case"), "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["window"] is not None


def test_an_unfit_nsys_is_explained_where_it_is_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    done = recorded(tmp_path, "--profiler", "nsys", "--", "true", path=str(program.parent))
    assert done.returncode == 2
    assert "is incomplete: QdstrmImporter is missing" in done.stderr
    assert "--profiler torch" in done.stderr


def test_a_command_that_imports_no_torch_gives_two_and_says_why(tmp_path: Path) -> None:
    done = recorded(tmp_path, "--profiler", "torch", "--", "true")
    assert done.returncode == 2
    assert "no Python process of the command imported torch" in done.stderr
    is_kept = "only the vitals of the devices were kept" in done.stderr
    assert (tmp_path / "case").exists() == is_kept
    if "vitals of devices are missing" in done.stderr:
        assert not is_kept


def test_a_signal_goes_on_to_the_command(tmp_path: Path) -> None:
    told = "trap 'echo told; exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.1; done"
    done = recorded(tmp_path, "--profiler", "torch", "--", "sh", "-c", told)
    assert (done.returncode, done.stdout) == (9, "told\n")


def test_a_command_that_does_not_listen_is_killed_at_the_third_interrupt(tmp_path: Path) -> None:
    deaf = "trap '' INT; for i in 1 2 3; do kill -INT $PPID; sleep 0.2; done; exec sleep 600"
    done = recorded(tmp_path, "--profiler", "torch", "--", "sh", "-c", deaf)
    assert done.returncode == 128 + signal.SIGKILL


def test_a_command_ended_by_a_signal_gives_the_code_that_shells_give(tmp_path: Path) -> None:
    done = recorded(tmp_path, "--profiler", "torch", "--", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL


def test_a_command_over_its_time_is_told_to_end(tmp_path: Path) -> None:
    done = recorded(tmp_path, "--profiler", "torch", "--timeout", "0.1", "--", "sleep", "600")
    assert done.returncode == 128 + signal.SIGINT
    assert "it ran longer than 0.1 s" in done.stderr


def test_a_recording_over_its_size_is_ended(tmp_path: Path) -> None:
    script = 'head -c 100000 /dev/zero > "$DOCTOR_RECORD_FOLDER/torch-1.partial"; sleep 600'
    done = recorded(tmp_path, "--profiler", "torch", "--most-gib", "0.00001", "--", "sh", "-c", script)
    assert done.returncode == 128 + signal.SIGINT
    assert re.search(r"the recording grew over 10\.\d KiB", done.stderr)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "say what to record"),
        (["--attach", "1", "--", "true"], "say what to record"),
        (["--profiler", "torch", "--attach", "1"], "cannot attach"),
        (["--profiler", "torch", "--", "no-such-program"], "no-such-program cannot be started"),
        (["--profiler", "torch", "-o", "full", "--", "true"], "full exists already"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["record", *words]) == 2
    assert complaint in capfd.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
