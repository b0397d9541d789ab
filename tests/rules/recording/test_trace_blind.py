from __future__ import annotations

from pathlib import Path

from tests.support.samples import sample, trace_of
from tests.support.trace_builder import Program, decode_step
from tests.support.traces import shared_trace
from tests.support.verdicts import Clinic, verdicts_on

RULE = "trace-blind"


def test_says_so_when_kernels_hide_in_graph_rows(clinic: Clinic) -> None:
    finding = verdicts_on(shared_trace("h200/launch-fixed.nsys-rep"), clinic.capfd).finding(RULE)
    assert finding["severity"] == "info"
    assert [fix["setting"] for fix in finding["fixes"]] == ["nsys profile --cuda-graph-trace=node for a short window"]
    assert "inside graph launches" in finding["verify"]  # one device: no word of ranks


def test_says_so_when_the_host_side_is_missing(clinic: Clinic) -> None:
    program = Program()
    for _ in range(4):
        decode_step(program)
    program.events[:] = [event for event in program.events if not event["cat"].startswith("cuda_")]
    verdicts = clinic.verdicts(program)
    assert "no launch" in verdicts.finding(RULE)["summary"]
    assert "host-dispatch-bound" in verdicts.not_run
    assert {fix["target"] for fix in verdicts.finding(RULE)["fixes"]} == {"pytorch", "system"}
    assert "launches stand beside" in verdicts.finding(RULE)["verify"]


def test_is_silent_when_every_kernel_is_seen(clinic: Clinic) -> None:
    program = Program()
    for _ in range(4):
        decode_step(program)
    assert RULE not in clinic.verdicts(program).found


def test_names_the_ranks_that_are_missing(clinic: Clinic) -> None:
    recorded = [Program(rank=rank, world_size=4) for rank in (0, 2)]
    for program in recorded:
        decode_step(program)
    verdicts = clinic.verdicts(*recorded)
    assert "only 2 were recorded (missing: 1, 3)" in verdicts.finding(RULE)["summary"]
    assert [fix["setting"].split(",")[0] for fix in verdicts.finding(RULE)["fixes"]] == [
        "record every rank in the same window"
    ]
    assert "files of all ranks" in verdicts.finding(RULE)["verify"]
    assert verdicts.finding(RULE)["severity"] == "info"


def test_a_report_that_was_cut_is_told_to_be_copied_again(clinic: Clinic, tmp_path: Path) -> None:
    whole = trace_of(sample("launch-bound-decode-nsys-report")).read_bytes()
    cut = tmp_path / "cut.nsys-rep"
    cut.write_bytes(whole[: len(whole) // 2])
    finding = verdicts_on(cut, clinic.capfd).finding(RULE)
    assert finding["severity"] == "high"
    assert "read in part only" in finding["summary"]
    assert [fix["setting"] for fix in finding["fixes"]] == [
        "copy or export the file again, and compare its size with the original's"
    ]
