"""`doctor tune` on a program that plays a sick engine: only its findings say what to try."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main

PLAYED = (sys.executable, "-m", "tests.support.played_engine", "bench")
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Told:
    """What one call printed."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def verdicts(self) -> list[tuple[str, list[str], str]]:
        """Rule, changes and verdict of every trial, in order."""
        steps = self.report["steps"]
        return [(one["rule"], one["changes"], one["verdict"]) for step in steps for one in step["trials"]]


@dataclass(frozen=True)
class Tuner:
    """Calls `doctor tune` in this process."""

    capfd: pytest.CaptureFixture[str]

    def __call__(self, engine_options: str, *options: str, output_format: str = "json") -> Told:
        command = [*PLAYED, *engine_options.split()]
        code = main(["tune", "--repeat", "2", "--format", output_format, *options, "--", *command])
        printed = self.capfd.readouterr()
        return Told(code, printed.out, printed.err)


@pytest.fixture
def tune(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tuner:
    monkeypatch.chdir(ROOT)
    return Tuner(capfd)


@pytest.mark.parametrize(
    ("sick", "rule", "change"),
    [
        ("--micro-batch-size 1", "micro-batch-too-small", "drop --micro-batch-size 1"),
        ("--bookkeeping audit", "step-gap-scheduler", "--bookkeeping audit -> --bookkeeping lean"),
        (
            "--weight-offload 0.5 --weight-copies blocking",
            "pageable-copies",
            "--weight-offload 0.5 -> --weight-offload 0",
        ),
    ],
)
def test_a_sick_command_becomes_as_fast_as_its_cure(tune: Tuner, sick: str, rule: str, change: str) -> None:
    told = tune(sick, "--at-least", "medium")
    healthy = 18_583  # tokens a second of the played engine with nothing wrong
    assert told.verdicts == [(rule, [change], "kept")]
    assert told.report["changes"] == [change]
    assert told.report["steps"][-1]["tokens_per_s"]["median"] == pytest.approx(healthy, rel=0.01)
    assert told.report["speedup"] > 2


def test_what_the_program_refuses_is_told_and_the_search_goes_on(tune: Tuner) -> None:
    told = tune("--weight-offload 0.5 --weight-copies blocking --memory 0.6")
    trials = [trial for step in told.report["steps"] for trial in step["trials"]]
    assert [trial["verdict"] for trial in trials[:2]] == ["refused", "kept"]
    assert trials[0]["note"] == "engine: out of memory while loading large"
    assert trials[1]["changes"] == ["--weight-copies blocking -> --weight-copies prefetch"]
    assert {trial["verdict"] for trial in trials[2:]} == {"refused"}
    assert told.report["ended"] == "nothing that was tried is faster"


def test_what_keeps_a_step_from_being_recorded_is_taken_away_with_it(tune: Tuner) -> None:
    told = tune("--layer-boundary synchronize --attention eager", "--at-least", "medium")
    assert [verdict for _, _, verdict in told.verdicts] == ["kept"]
    assert set(told.report["changes"]) == {
        "--layer-boundary synchronize -> --layer-boundary free",
        "--attention eager -> --attention auto",
        "--cuda-graphs",
    }


def test_a_setting_that_wins_nothing_is_not_kept_and_not_tried_twice(tune: Tuner) -> None:
    told = tune("--thinking 2000 --unsteady 0.5", "--at-least", "info")
    assert told.verdicts == [("step-gap-scheduler", ["--overlap"], "no win")]
    assert told.report["changes"] == []
    assert told.report["speedup"] == 1


def test_a_win_within_the_spread_of_the_runs_is_measured_in_turn(tune: Tuner) -> None:
    told = tune("--no-cuda-graphs --unsteady 2", "--at-least", "medium")
    [trial] = told.report["steps"][0]["trials"]
    assert trial["verdict"] == "kept"
    assert trial["pairs"] == 2
    assert len(trial["before_tokens_per_s"]["runs"]) == len(trial["after_tokens_per_s"]["runs"]) == 4
    assert told.report["runs"] == 4


def test_the_number_of_starts_is_limited(tune: Tuner) -> None:
    told = tune("--no-cuda-graphs", "--most-runs", "1")
    assert told.report["runs"] == 1
    assert told.report["ended"] == "the limit of 1 start is reached"


@pytest.mark.parametrize(
    ("condition", "advised", "fixed"),
    [
        ("no-cuda-graphs", "--cuda-graphs", "cuda-graphs=false"),
        ("micro-batch-small", "drop --micro-batch-size", "micro-batch-size=1"),
    ],
)
def test_what_a_condition_forbids_is_named_with_what_forbids_it(
    tune: Tuner, condition: str, advised: str, fixed: str
) -> None:
    told = tune(f"--condition {condition}", "--at-least", "medium", output_format="terminal")
    assert told.code == 0
    page = " ".join(told.out.split())
    reason = f"--condition {condition} fixes {fixed}"
    assert page.startswith(f"Nothing was changed: `{advised}` is advised, but {reason}. ")
    assert " after 1 run, the diagnosis suggests no other option" in page
    assert "forbidden" in page
    told = tune(f"--condition {condition}", "--at-least", "medium")
    assert {(trial["verdict"], trial["note"]) for trial in told.report["steps"][0]["trials"]} == {("forbidden", reason)}


def test_a_condition_forbids_nothing_else(tune: Tuner) -> None:
    told = tune("--condition no-cuda-graphs --bookkeeping audit", "--at-least", "medium")
    assert told.report["changes"] == ["--bookkeeping audit -> --bookkeeping lean"]
    assert told.report["steps"][-1]["trials"][-1]["verdict"] == "forbidden"


HELPLESS = """
import os, signal, sys
with open(sys.argv[0] + ".pids", "a") as file:
    print(os.getpid(), file=file)
os.fork()
signal.pause()
"""


def test_a_program_whose_help_never_ends_is_given_up_after_the_time_allowed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "helpless.py"
    program.write_text(HELPLESS)
    assert main(["tune", "--timeout", "0.5", "--", sys.executable, str(program)]) == 2
    assert "it ran longer than 0.5 s" in capfd.readouterr().err
    pids = [int(line) for line in Path(f"{program}.pids").read_text("utf-8").split()]
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_the_folder_holds_both_reports_and_the_recordings(tune: Tuner, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    told = tune("--no-cuda-graphs", "-o", str(folder), "--at-least", "medium", output_format="terminal")
    assert told.code == 0
    assert json.loads((folder / "tuning.json").read_text("utf-8"))["schema"] == "doctor.tuning/1"
    page = (folder / "tuning.md").read_text("utf-8")
    assert page.startswith("## 2.5x faster")
    assert "- `--no-cuda-graphs -> --cuda-graphs`" in page
    assert "| host-dispatch-bound | --no-cuda-graphs -\\> --cuda-graphs |" in page
    assert "2.5x faster: 7,459 -> 18,583 tokens/s in 2 runs" in told.out
    assert "kept  host-dispatch-bound: --no-cuda-graphs -> --cuda-graphs" in told.out
    assert [path.name for path in sorted(folder.glob("*.gz"))] == ["run-01.pt.trace.json.gz", "run-02.pt.trace.json.gz"]
    again = tune("--no-cuda-graphs", "-o", str(folder))
    assert again.code == 2
    assert "exists already: name a new folder" in again.err


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("--cuda-graphs --kv concat", "the command does not run as it was given: engine: cuda_graphs needs"),
        ("--speechless", "the command ran, but printed no engine.bench/1"),
        ("--slow-start", "the command does not run as it was given: it ran longer than 1 s"),
        ("--unknown", "the command does not run as it was given: Error: No such option"),
    ],
)
def test_an_unusable_command_is_told_in_a_line(tune: Tuner, command: str, line: str) -> None:
    told = tune(command, "--timeout", "1" if command == "--slow-start" else "60")
    assert told.code == 2
    assert told.err.startswith(f"doctor: {line}")
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_program_that_is_not_there_is_told_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--", "no-such-program", "bench"]) == 2
    assert capfd.readouterr().err == "doctor: no-such-program cannot be started: No such file or directory\n"
