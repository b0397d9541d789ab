from __future__ import annotations

import json

from tests.support.trace_builder import GEMM, Program, decode_step
from tests.support.verdicts import Clinic, verdicts_on

RULE = "capture-fault"


def test_comes_first_when_launches_have_no_kernels(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
    kernels = [event for event in program.events if event["cat"] == "kernel"]
    lost = {id(event) for event in kernels[::2]}
    program.events[:] = [event for event in program.events if id(event) not in lost]
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "high"


def test_says_what_a_recording_without_device_work_holds(clinic: Clinic) -> None:
    program = Program()
    with program.annotation("step"):
        for _ in range(30):
            program.call("cudaLaunchKernel", 5)
    finding = clinic.verdicts(program).finding(RULE)
    assert "30 launches and no kernel" in finding["summary"]


def test_says_that_a_trace_of_operators_alone_is_of_the_cpu(clinic: Clinic) -> None:
    program = Program()
    for _ in range(4):
        with program.annotation("aten::addmm", "cpu_op"):
            program.silence(900)
        with program.annotation("aten::relu", "cpu_op"):
            program.silence(100)
    finding = clinic.verdicts(program).finding(RULE)
    assert "no call to a GPU" in finding["title"]
    assert "computed on the CPU" in finding["summary"]
    assert "aten::addmm" in str(finding["evidence"])
    assert {fix["target"] for fix in finding["fixes"]} == {"pytorch", "engine"}


def test_names_a_device_of_another_kind(clinic: Clinic) -> None:
    program = Program()
    for _ in range(4):
        with program.annotation("aten::addmm", "cpu_op"), program.annotation("runFunction", "mtia_runtime"):
            program.silence(900)
    finding = clinic.verdicts(program).finding(RULE)
    assert "mtia_runtime" in finding["summary"]
    assert "computed on the CPU" not in finding["summary"]


def captured(program: Program) -> None:
    """A launch, and a hundred more that are only written down."""
    program.launch(GEMM, 3)
    program.call("cudaStreamBeginCapture")
    for _ in range(100):
        program.silence(5)
        program.call("cudaLaunchKernel", 4)
    program.call("cudaStreamEndCapture")


def test_tells_graph_capture_from_serving(clinic: Clinic) -> None:
    program = Program()
    for _ in range(3):
        captured(program)
    assert "being captured" in clinic.verdicts(program).finding(RULE)["summary"]


def test_is_silent_where_each_captured_graph_is_launched(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        captured(program)
        program.call("cudaGraphInstantiate", 300)
        program.graph([(GEMM, 3.0)] * 100)
    assert RULE not in clinic.verdicts(program).found


def test_does_not_blame_the_recorder_for_a_cut_file(clinic: Clinic) -> None:
    program = Program()
    for _ in range(30):
        program.launch(GEMM, 3)
    path = program.write(clinic.folder / "whole.json")
    lines = path.read_text().split('{"ph"')
    first_kernel = next(place for place, line in enumerate(lines) if '"cat": "kernel"' in line)
    path.write_text('{"ph"'.join(lines[:first_kernel]))
    assert "damaged" in verdicts_on(path, clinic.capfd).finding(RULE)["title"]


def test_is_silent_on_launches_still_in_the_queue_at_the_end(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
    for _ in range(200):
        program.call("cudaLaunchKernel", 4)
    assert RULE not in clinic.verdicts(program).found


def test_operators_of_a_file_that_is_cut_do_not_say_where_the_program_computed(clinic: Clinic) -> None:
    """The first half of a trace may hold operators alone: PyTorch writes calls and kernels behind them."""
    program = Program()
    for _ in range(400):
        with program.annotation("aten::mm", "cpu_op"):
            program.silence(20)
    whole = json.dumps(program.document())
    finding = clinic.told(whole[: len(whole) // 2]).finding(RULE)
    assert "damaged" in finding["title"]
    assert "with the calls to a GPU, is missing" in finding["summary"]
    assert "CPU" not in finding["summary"]
    assert "computed on the CPU" in clinic.told(whole).finding(RULE)["summary"]
