"""What was recorded is told from its work, and advice that means nothing to such a program is left out."""

from __future__ import annotations

import pytest

from doctor.case.program_queries import ProgramRow
from doctor.diagnosis.fix_order import fitting
from doctor.diagnosis.outcome import Diagnosis
from doctor.diagnosis.program import described
from doctor.reports import wording
from doctor.rule import Fix, ProgramKind
from tests.support.recorded import diagnosis_of
from tests.support.samples import SAMPLES
from tests.support.traces import shared_trace

RECORDED = [
    ("encoder-one-text-at-a-time/sick.nsys-rep", ProgramKind.ENCODER),
    ("compiled-bert/sick.nsys-rep", ProgramKind.ENCODER),
    ("launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz", ProgramKind.GENERATION),
    ("transformers-generate/sick.pt.trace.json.gz", ProgramKind.GENERATION),
]
PUBLIC = [
    ("tbplugin_resnet50_w0.pt.trace.json.gz", ProgramKind.TRAINING),
    ("hta_alexnet.json.gz", ProgramKind.VISION),
    ("tracelens_h100_Qwen1.5-0.5B-Chat.json.gz", ProgramKind.GENERATION),
]
# as many attentions of a prompt, whose keys are copied plainly, as of the decode steps behind it
PROMPT_AND_THREE_STEPS = ["hostgap-sick", "h2d-sick", "healthy-fixed"]
DECODE_ONLY = ("decode", "static", "detokenising", "KV", "--enforce-eager", "--async-scheduling", "stop test")


def kind_of(diagnosis: Diagnosis) -> ProgramKind | None:
    return None if diagnosis.program is None else diagnosis.program.kind


@pytest.mark.parametrize(("name", "kind"), RECORDED)
def test_a_sample_is_taken_for_what_it_is_and_the_report_says_by_what(name: str, kind: ProgramKind) -> None:
    diagnosis = diagnosis_of(SAMPLES / name)
    assert diagnosis.program is not None
    assert diagnosis.program.kind is kind
    assert diagnosis.program.because
    assert wording.program_words(diagnosis.program) in wording.vitals_parts(diagnosis)


@pytest.mark.parametrize(("name", "kind"), PUBLIC)
def test_other_peoples_programs_are_taken_for_what_they_are(name: str, kind: ProgramKind) -> None:
    assert kind_of(diagnosis_of(shared_trace(f"public/{name}"))) is kind


@pytest.mark.parametrize("name", PROMPT_AND_THREE_STEPS)
def test_a_prompt_of_many_layers_leaves_a_decode_what_it_is(name: str) -> None:
    assert kind_of(diagnosis_of(shared_trace(f"h200/{name}.pt.trace.json.gz"))) is ProgramKind.GENERATION


@pytest.mark.parametrize("name", ["encoder-one-text-at-a-time/sick.nsys-rep", "compiled-bert/sick.nsys-rep"])
def test_an_encoder_gets_no_advice_on_decoding(name: str) -> None:
    fixes = [fix.setting for finding in diagnosis_of(SAMPLES / name).findings for fix in finding.fixes]
    assert fixes
    assert not [setting for setting in fixes for word in DECODE_ONLY if word in setting]


def test_a_training_that_waits_for_data_gets_its_loader_changed() -> None:
    diagnosis = diagnosis_of(shared_trace("public/tbplugin_resnet50_w0.pt.trace.json.gz"))
    [pause] = [finding for finding in diagnosis.findings if finding.rule == "step-gap-scheduler"]
    assert "num_workers" in pause.fixes[0].setting
    assert not [fix for fix in pause.fixes if "detokenising" in fix.setting]


FIXES = (
    Fix("pytorch", "any", ""),
    Fix("pytorch", "decode", "", fits=(ProgramKind.GENERATION,)),
    Fix("pytorch", "loader", "", fits=(ProgramKind.TRAINING,)),
    Fix("vllm", "engine", ""),
)


@pytest.mark.parametrize(
    ("kind", "frameworks", "kept"),
    [
        (ProgramKind.GENERATION, (), ["any", "decode", "engine"]),
        (ProgramKind.UNKNOWN, (), ["any", "decode", "engine"]),
        (ProgramKind.TRAINING, (), ["any", "loader"]),
        (ProgramKind.TRAINING, ("vllm",), ["any", "loader", "engine"]),
        (ProgramKind.VISION, (), ["any"]),
    ],
)
def test_fixes_fit_the_program(kind: ProgramKind, frameworks: tuple[str, ...], kept: list[str]) -> None:
    assert [fix.setting for fix in fitting(FIXES, kind, frameworks)] == kept


def test_where_no_fix_fits_all_are_left() -> None:
    assert fitting(FIXES[1:2], ProgramKind.VISION, ()) == FIXES[1:2]


def test_an_engine_that_is_named_writes_text_whatever_its_kernels_look_like() -> None:
    row = ProgramRow("encoder", 0.0, 0.0, 12, 0, None, None)
    program = described(row, ("sglang",))
    assert program is not None
    assert program.kind is ProgramKind.GENERATION
    assert "sglang" in program.because


@pytest.mark.parametrize("place", ["straggler-sick.rank0.pt.trace.json.gz", "straggler-sick.rank1.pt.trace.json.gz"])
def test_one_rank_of_a_straggler_promises_nothing_for_communication_and_asks_for_the_others(place: str) -> None:
    diagnosis = diagnosis_of(shared_trace(f"h200x2/{place}"))
    for finding in diagnosis.findings:
        if finding.rule == "comm-exposed":
            assert finding.gain is None
            assert "rank*.json" in finding.fixes[0].setting


def test_one_pause_in_one_step_is_a_question() -> None:
    diagnosis = diagnosis_of(shared_trace("public/hta_cuda_event_sync.json.gz"))
    first = diagnosis.findings[0]
    assert first.rule == "step-gap-scheduler"
    assert first.gain is None
    assert "five steps or more" in first.verify


def test_where_decode_replays_graphs_the_fix_is_for_the_steps_that_do_not() -> None:
    first = diagnosis_of(SAMPLES / "engine-prompts-between-decodes/sick.nsys-rep").findings[0]
    assert first.rule == "host-dispatch-bound"
    assert "--max-cudagraph-capture-size" in first.fixes[0].setting
    assert "53 steps replay graphs" in first.summary


def test_a_healthy_run_says_why_the_device_is_busy_for_so_little() -> None:
    diagnosis = diagnosis_of(SAMPLES / "graph-decode-torch-trace/healthy-fixed.pt.trace.json.gz")
    assert "but its 3 steps fill" in wording.verdict(diagnosis)
