"""Evidence of several runs in one folder is told apart; ranks, exports and neighbours of one run stay together."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from doctor import api
from doctor.case.diagnosis_queries import other_runs
from doctor.case.runs.meetings import did_meet
from doctor.case.runs.names import runs_by_name
from doctor.case.runs.telling import contradiction, tell_apart
from doctor.case.runs.traits import EngineLog, Recording, Span, Traits
from doctor.cli.main import main
from tests.support import engine_texts
from tests.support.trace_builder import Program, decode_step
from tests.support.traces import shared_trace
from tests.support.verdicts import verdicts_on_all

SECOND = 10**9
NOON = 1_790_000_000 * SECOND
NOTHING = Traits("a", (0,), frozenset(), None, None, None)


def recording(
    start_s: float, end_s: float, rank: int | None = None, ops: int = 10, world_size: int | None = None
) -> Traits:
    span = Span(NOON + int(start_s * SECOND), NOON + int(end_s * SECOND))
    return replace(NOTHING, path=f"{start_s}-{rank}", recording=Recording(ops, "kineto", rank, world_size, span))


def log(engine: str, start_s: float, end_s: float, *, is_start: bool = True, is_serving: bool = True) -> Traits:
    span = Span(NOON + int(start_s * SECOND), NOON + int(end_s * SECOND))
    return replace(NOTHING, path=f"{engine}-{start_s}", log=EngineLog(engine, span, is_start, is_serving, None))


def eager(path: Path, *, later_s: float = 0.0, rank: int | None = None, steps: int = 6) -> Path:
    program = Program(rank=rank, world_size=None if rank is None else 2, device=rank or 0)
    program.silence(later_s * 1e6)
    for _ in range(steps):
        decode_step(program)
    return program.write(path)


def sorted_out(*paths: Path) -> tuple[list[str], list[tuple[str, int, str]]]:
    """Names of the files that are kept, and `(name, run, reason)` of the others."""
    with api.load(*paths) as case:
        kept = [Path(path).name for (path,) in case.execute("SELECT path FROM source ORDER BY source_id").fetchall()]
        return kept, [(Path(one.path).name, one.run_id, one.reason) for one in other_runs(case)]


def test_two_recordings_of_different_times_are_two_runs_and_the_larger_is_kept(tmp_path: Path) -> None:
    small = eager(tmp_path / "a.json", steps=4)
    large = eager(tmp_path / "b.json", later_s=20.0, steps=8)
    assert sorted_out(small, large) == (["b.json"], [("a.json", 2, "recorded at another time")])


def test_ranks_of_one_run_are_one_case_and_those_of_the_next_run_another(tmp_path: Path) -> None:
    first = [eager(tmp_path / f"one-{rank}.json", rank=rank, steps=8) for rank in (0, 1)]
    second = [eager(tmp_path / f"two-{rank}.json", rank=rank, later_s=30.0) for rank in (0, 1)]
    kept, others = sorted_out(*second, *first)
    assert kept == ["one-0.json", "one-1.json"]
    assert [(name, run) for name, run, _ in others] == [("two-0.json", 2), ("two-1.json", 2)]


def test_the_rows_of_another_run_are_gone_and_the_file_is_named(tmp_path: Path) -> None:
    with api.load(eager(tmp_path / "a.json"), eager(tmp_path / "b.json", later_s=20.0, steps=8)) as case:
        [(kernels,)] = case.execute("SELECT count(DISTINCT source_id) FROM kernel").fetchall()
        assert kernels == 1
        assert case.execute("SELECT kind, is_complete FROM other_run").fetchall() == [("kineto", True)]


def test_real_recordings_of_two_programs_their_exports_and_their_ranks_are_told_apart() -> None:
    names = [
        f"h200x2/{program}-sick.{form}"
        for program in ("scaling", "straggler")
        for form in ("nsys-rep", "sqlite.gz", "rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz")
    ]
    kept, others = sorted_out(*map(shared_trace, names))
    assert kept == ["straggler-sick.nsys-rep", "straggler-sick.sqlite.gz"] or kept[0].startswith("scaling-sick.nsys")
    runs: dict[int, set[str]] = {}
    for name, run, _ in others:
        runs.setdefault(run, set()).add(
            name.replace("rank0", "rank").replace("rank1", "rank").split(".p")[0].split(".sq")[0]
        )
    assert len(runs) == 3
    assert all(len({name.split("-")[0] for name in files}) == 1 for files in runs.values())


def test_another_rank_belongs_to_the_run_though_clocks_of_hosts_differ() -> None:
    assert contradiction(recording(0, 1, rank=0), recording(3, 4, rank=1)) == ""
    assert contradiction(recording(0, 1, rank=0), recording(3, 4, rank=0))
    assert contradiction(recording(0, 1, rank=0), recording(7200, 7201, rank=1))
    assert contradiction(recording(0, 1, rank=0, world_size=2), recording(0, 1, rank=1, world_size=4))


def test_ranks_of_two_jobs_are_told_apart_by_their_collectives(capfd: pytest.CaptureFixture[str]) -> None:
    pair = [shared_trace(f"h200x2/{name}.pt.trace.json.gz") for name in ("scaling-sick.rank0", "straggler-sick.rank1")]
    document = verdicts_on_all(pair, capfd).document
    [note] = [note for file in document["evidence"] for note in file["notes"] if "another run" in note]
    assert "25" in note
    assert "none of their collectives meet" in note
    found = {finding["rule"]: finding for finding in document["findings"]}
    assert not {"straggler-rank", "tp-too-wide"} & set(found)
    told = [entry["name"] for entry in found["comm-exposed"]["evidence"]]
    assert told == ["exposed communication"]  # one rank alone cannot tell how long it waits


def test_ranks_of_one_job_stay_together_though_their_hosts_clocks_are_a_minute_apart(tmp_path: Path) -> None:
    ahead = tmp_path / "rank1.json"
    with gzip.open(shared_trace("h200x2/straggler-sick.rank1.pt.trace.json.gz"), "rt") as text:
        document = json.load(text)
    document["baseTimeNanoseconds"] += 60 * SECOND
    ahead.write_text(json.dumps(document), encoding="utf-8")
    kept, others = sorted_out(shared_trace("h200x2/straggler-sick.rank0.pt.trace.json.gz"), ahead)
    assert len(kept) == 2
    assert not others


def test_collectives_meet_where_one_recording_begins_some_steps_later_and_not_where_their_pace_differs() -> None:
    ends = np.cumsum(np.tile([70_000, 90_000, 400_000, 1_300_000], 40) + np.arange(160) * 997)
    assert did_meet(ends, ends[9:] + 25 * SECOND) is True
    assert did_meet(ends, ends[:-5] - 25 * SECOND) is True
    assert did_meet(ends, np.cumsum(np.tile([80_000, 150_000], 80) + np.arange(160) * 911)) is False
    assert did_meet(ends, ends[:7]) is None


def test_recordings_that_overlap_stay_together() -> None:
    assert contradiction(recording(0, 2), recording(1, 3)) == ""
    assert len(tell_apart([recording(0, 2), recording(1, 3), recording(10, 11)])) == 2


def test_logs_of_servers_that_ran_side_by_side_stay_together() -> None:
    assert contradiction(log("vllm", 0, 60), log("vllm", 30, 90)) == ""
    assert contradiction(log("vllm", 0, 60), log("sglang", 30, 90)) == ""


def test_logs_of_another_start_engine_or_model_are_of_another_run() -> None:
    assert contradiction(log("vllm", 0, 60), log("vllm", 600, 660)) == "a log of another start"
    assert contradiction(log("vllm", 0, 60), log("sglang", 600, 660)) == "a log of vllm"
    untimed = [replace(NOTHING, log=EngineLog("vllm", None, True, True, size)) for size in (10**9, 2 * 10**9)]
    assert contradiction(*untimed) == "a log of another model"


def test_a_log_that_goes_on_in_the_next_file_is_one_run() -> None:
    assert contradiction(log("vllm", 0, 60), log("vllm", 600, 660, is_start=False)) == ""


def test_starts_that_never_served_are_looked_at_beside_each_other_within_a_working_day() -> None:
    first = log("vllm", 0, 60, is_serving=False)
    assert contradiction(first, log("vllm", 600, 660)) == ""
    assert contradiction(first, log("vllm", 86_400, 86_460)) == "a log of another start"


def test_a_year_left_out_of_a_log_does_not_set_it_apart() -> None:
    yearless = Span(*(NOON - int(26 * 365.25 * 86_400) * SECOND + at for at in (0, 60 * SECOND)))
    assert yearless.clock == "yearless"
    assert (Span(NOON, NOON + SECOND).gap_ns(yearless) or 0) < 2 * 86_400 * SECOND


def test_times_that_no_calendar_has_are_compared_as_they_are() -> None:
    damaged = Span(2**64, 2**64 + 1)
    assert damaged.gap_ns(damaged) == 0
    assert (damaged.gap_ns(Span(NOON - int(26 * 365.25 * 86_400) * SECOND, NOON)) or 0) > 0


def test_other_devices_are_another_run_and_a_name_cut_off_is_not() -> None:
    h200, a100 = (replace(NOTHING, devices=frozenset({name})) for name in ("h200", "a100-sxm4-80gb"))
    assert contradiction(h200, a100) == "another device, H200"
    assert contradiction(a100, replace(NOTHING, devices=frozenset({"a100-sxm4-80g"}))) == ""
    sized = [replace(NOTHING, device_bytes=size) for size in (80 * 2**30, 140 * 2**30, 79 * 2**30)]
    assert contradiction(sized[0], sized[1])
    assert contradiction(sized[0], sized[2]) == ""


@pytest.mark.parametrize("output", ["terminal", "markdown", "html", "github", "junit"])
def test_every_output_says_how_many_runs_there_are_and_how_to_diagnose_each(
    output: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    eager(tmp_path / "first.json", steps=4)
    eager(tmp_path / "second.json", later_s=20.0, steps=8)
    assert main(["diagnose", str(tmp_path), "--format", output]) == 0
    out, err = capfd.readouterr()
    words = "".join(out.replace("\\", "").replace("&#39;", "").split())
    folder = f"{tmp_path}/" if output == "terminal" else ""  # there the command can be run; a page names no folder
    assert f"2runsinthisevidence.Diagnosed:{folder}second.json." in words
    assert f"doctordiagnose{folder}first.json" in words
    assert ("2 runs" in err) == (output != "terminal")  # the screen has it already


def test_json_numbers_the_runs_and_a_check_names_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    eager(tmp_path / "first.json", steps=4)
    eager(tmp_path / "second.json", later_s=20.0, steps=8)
    assert main(["diagnose", str(tmp_path), "--format", "json"]) == 0
    files = {Path(file["path"]).name: file["run"] for file in json.loads(capfd.readouterr().out)["evidence"]}
    assert files == {"second.json": 1, "first.json": 2}
    assert main(["check", str(tmp_path)]) == 1
    assert "other runs: 2 runs in this evidence" in capfd.readouterr().out


def test_two_logs_of_one_engine_started_twice_are_not_mixed(tmp_path: Path) -> None:
    for place, name in enumerate(("before.log", "after.log")):
        lines = [
            f"(EngineCore pid=1) INFO 09-13 {15 + place}:59:01 [gpu_model_runner.py:2653] Model loading took 14.9889 "
            "GiB and 3.8 seconds",
            *(engine_texts.vllm_status(second + 3600 * place, 4) for second in range(0, 60, 10)),
        ]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    kept, others = sorted_out(tmp_path / "before.log", tmp_path / "after.log")
    assert kept == ["before.log"]
    assert others == [("after.log", 2, "a log of another start")]


ONE, TWO = (((4 << 30, 1 << 28),), ((256 << 20, 37 << 20),))


@pytest.mark.parametrize(
    "names",
    [
        ("foreign.txt", "foreign.nvml.json", "oomkv.txt", "oomkv.pickle"),
        ("run1/error.txt", "run1/nvidia-smi.txt", "run2/error.txt", "run2/snapshot.pickle"),
        ("case-1.log", "case-1.pickle", "case-2.log", "case-2.pickle"),
    ],
)
def test_failures_beside_files_of_their_own_names_are_of_two_runs(names: tuple[str, str, str, str]) -> None:
    first, beside, second, more = names
    runs = runs_by_name({first: ONE, beside: (), second: TWO, more: TWO, "README": ()})
    assert runs[first] == runs[beside] != runs[second] == runs[more]
    assert "README" not in runs or "/" in first


@pytest.mark.parametrize(
    ("names", "second"),
    [
        (("rank0.txt", "rank0.pickle", "rank1.txt", "rank1.pickle"), TWO),
        (("node0/err.txt", "node0/smi.txt", "node1/err.txt", "node1/smi.txt"), TWO),
        (("error.txt", "nvidia-smi.txt", "again.txt", "snapshot.pickle"), TWO),
        (("out.txt", "out.pickle", "err.txt", "err.log"), ONE),
    ],
    ids=["ranks", "hosts", "names of what they are", "one failure twice"],
)
def test_parts_of_one_run_stay_together_whatever_they_are_called(
    names: tuple[str, str, str, str], second: tuple[tuple[int, int], ...]
) -> None:
    assert runs_by_name(dict(zip(names, (ONE, (), second, ()), strict=True))) == {}


def test_a_folder_of_several_failures_names_the_run_that_it_leaves_out() -> None:
    names = ("foreign.txt", "foreign.nvidia-smi.txt", "oomkv.pickle", "oomkv.txt")
    kept, others = sorted_out(*(shared_trace(f"h200/{name}") for name in names))
    assert set(kept) == {"foreign.txt", "foreign.nvidia-smi.txt"}
    assert {(name, reason) for name, _, reason in others} == {
        (name, "its name or folder is that of another run, oomkv") for name in ("oomkv.pickle", "oomkv.txt")
    }


def placed(file: Traits, folder: str) -> Traits:
    return replace(file, path=f"runs/{folder}/{file.path}")


def test_of_several_runs_in_folders_of_their_own_each_log_is_of_its_folders_run() -> None:
    first, second = placed(recording(0, 2, ops=20), "a"), placed(recording(10, 11), "b")
    of_second, alone = placed(log("vllm", 500, 560), "b/logs"), placed(log("sglang", 900, 960), "c")
    runs = tell_apart([first, of_second, second, alone])
    assert [run.files for run in runs] == [(first,), (second, of_second), (alone,)]
    assert runs[2].reason == "in a folder of its own"


def test_a_log_beside_the_folders_of_several_runs_is_of_the_first_and_one_run_has_any_folders() -> None:
    first, second = placed(recording(0, 2, ops=20), "a"), placed(recording(10, 11), "b")
    beside = replace(log("vllm", 500, 560), path="runs/server.log")
    assert tell_apart([first, second, beside])[0].files == (first, beside)
    ranks = [placed(recording(0, 2, rank), f"rank{rank}") for rank in range(2)]
    elsewhere = placed(log("vllm", 500, 560), "logs")
    assert len(tell_apart([*ranks, elsewhere])) == 1
