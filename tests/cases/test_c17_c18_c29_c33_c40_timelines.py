"""Public cases whose evidence is a time-line: rebuilt as Kineto traces with their figures, in the tools' own names.

C17 NVIDIA/TensorRT-LLM PR#16680, C18 kekzl/imp PR#1409, C29 vllm-project/vllm PR#44677, C33 NVIDIA/TensorRT-LLM#1144, C40
NVIDIA/DeepLearningExamples#1336. Each also runs with its tempting cause made true, or its own taken away, which must turn the
verdict. What a case does not tell (layers of a model, order of calls) is of our choice.
"""

# ruff: noqa: E501 - kernel names are long

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trace_builder import GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic, Verdicts

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EXCHANGE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
FULL = (2048, 1, 1)
LAYERS = 61


def prefills(*, copies_in_layers: bool, waits_behind_kernels: bool = False) -> Program:
    """C17: four prompts of 8,192 tokens, 269.7 ms of kernels each; a blocking copy a layer brings it to 298.3 ms."""
    program = Program()
    for _ in range(4):
        program.silence(200)
        program.copy("HtoD pinned", 32_768)
        for _ in range(LAYERS):
            if copies_in_layers:
                program.silence(30)
                program.copy("HtoD pageable", 512, host_us=12)
                program.wait()
                program.silence((298.3e3 - 269.7e3) / LAYERS - 40)
            for _ in range(10):
                program.launch(GEMM, 269.7e3 / LAYERS / 10, grid=FULL)
            if waits_behind_kernels:
                program.wait()
        program.launch(HEAD_GEMM, 50)
        program.copy("DtoH pinned", 8)
        program.wait()
    return program


def test_c17_a_blocking_copy_in_every_layer(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(prefills(copies_in_layers=True))
    assert verdicts.first == "sync-in-step"
    assert verdicts.evidence("sync-in-step", "waits per step") == pytest.approx(LAYERS + 1, abs=1)
    gain = verdicts.finding("sync-in-step")["gain"]
    assert gain["speedup_bound"] == pytest.approx(298.3 / 269.7, rel=0.02)
    assert gain["speedup_low"] <= 298.3 / 269.7 <= gain["speedup_high"] * 1.02


def test_c17_long_waits_while_the_device_works_are_no_fault(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(prefills(copies_in_layers=False, waits_behind_kernels=True))
    assert "sync-in-step" not in verdicts.found
    assert "sync-in-step" not in clinic.verdicts(prefills(copies_in_layers=False)).found


LOST_US = (298.3e3 - 269.7e3) / LAYERS


def blocking_call(program: Program) -> None:
    """The old call, which returns when the copy is done; the host then makes what the layer needs."""
    program.silence(20)
    program.copy("HtoD pageable", 70_000, host_us=12)
    program.events[-2]["name"] = "cudaMemcpy"
    program.silence(LOST_US - 32)


def operator_call(program: Program) -> None:
    """`.to(device, dtype)` as the profiler of PyTorch records it, operators and all."""
    with program.annotation("aten::to", "cpu_op"):
        program.silence(20)
        with program.annotation("aten::copy_", "cpu_op"):
            program.copy("HtoD pageable", 256, host_us=10)
            program.wait()
    program.silence(LOST_US - 30)


@pytest.mark.parametrize(
    ("step", "prompts", "expected"),
    [(blocking_call, 4, "pageable-copies"), (operator_call, 4, "sync-in-step"), (operator_call, 1, "sync-in-step")],
    ids=["a blocking call", "operators", "one prompt alone"],
)
def test_c17_in_other_recordings(clinic: Clinic, step: Callable[[Program], None], prompts: int, expected: str) -> None:
    program = Program()
    for _ in range(prompts):
        for _ in range(LAYERS):
            step(program)
            for _ in range(12):
                program.launch(GEMM, 269.7e3 / LAYERS / 12, grid=FULL)
        program.copy("DtoH pinned", 8)
        program.wait()
    assert clinic.verdicts(program).first == expected


def decoding_with_experts_on_the_host(memory: str) -> Program:
    """C18: copies of 84 KiB, 45 us of the host and 9 us of the device each (4.13 s against 795 ms in 90,759 calls)."""
    program = Program()
    for _ in range(30):
        for _ in range(30):
            if memory == "pageable":
                program.copy("HtoD pageable", 84_500, gigabytes_per_s=9.6, host_us=34.5)
            else:
                program.copy("HtoD pinned", 84_500, gigabytes_per_s=32.4, stream=13)
            program.launch(GEMM, 12)
        program.copy("DtoH pinned", 8)
        program.wait()
    return program


def test_c18_copies_out_of_memory_that_is_not_pinned(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding_with_experts_on_the_host("pageable"))
    assert verdicts.first == "pageable-copies"
    assert 7 < verdicts.evidence("pageable-copies", "rate of these copies") < 9.7


def test_c18_the_same_bytes_out_of_pinned_memory_are_another_matter(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding_with_experts_on_the_host("pinned"))
    assert "pageable-copies" not in verdicts.found


def test_c18_a_load_in_pageable_memory_before_decoding_is_not_counted(clinic: Clinic) -> None:
    program = Program()
    for _ in range(40):
        program.copy("HtoD pageable", 64 * 2**20, gigabytes_per_s=9.6)
    decoding = decoding_with_experts_on_the_host("pinned")
    offset = program.now_us + 1000 - decoding.events[0]["ts"]
    program.events += [
        event
        | {"ts": event["ts"] + offset, "args": event["args"] | {"correlation": event["args"]["correlation"] + 10_000}}
        for event in decoding.events
    ]
    assert "pageable-copies" not in clinic.verdicts(program).found


def prefill_of_four_ranks(*, is_overlapped: bool) -> list[Program]:
    """C29: 838 ms of products and 248 ms of all-reduce in 1,110 ms, on the stream of the products or beside it."""
    programs = [Program(rank=rank, world_size=4, device=rank) for rank in range(4)]
    for program in programs:
        for _ in range(2):
            program.silence(24_000)
            for _ in range(64 * 2):
                for _ in range(4):
                    program.launch(GEMM, 838e3 / 128 / 4, grid=FULL)
                program.launch(ALL_REDUCE, 248e3 / 128, stream=20 if is_overlapped else 7)
            program.copy("DtoH pinned", 8)
            program.wait()
    return programs


def test_c29_all_reduce_that_nothing_hides(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*prefill_of_four_ranks(is_overlapped=False))
    assert verdicts.first == "comm-exposed"
    finding = verdicts.finding("comm-exposed")
    assert verdicts.evidence("comm-exposed", "exposed communication") == pytest.approx(248 / 1110, abs=0.02)
    assert finding["gain"]["speedup_low"] <= 1110 / 1047 <= finding["gain"]["speedup_bound"]


def test_c29_the_same_bytes_beside_the_products_are_no_fault(clinic: Clinic) -> None:
    assert "comm-exposed" not in clinic.verdicts(*prefill_of_four_ranks(is_overlapped=True)).found


def four_stages(micro_batches: int) -> list[Program]:
    """C33: four stages of a 13B model; each waits in a receive until the stage before it has passed its piece on."""
    programs = [Program(rank=rank, world_size=4, device=rank) for rank in range(4)]
    for _ in range(6):
        for stage, program in enumerate(programs):
            if stage:
                program.launch(EXCHANGE, stage * 1000.0)
            for piece in range(micro_batches):
                for _ in range(10):
                    program.launch(GEMM, 100)
                if piece < micro_batches - 1:
                    program.launch(EXCHANGE, 5)
            if stage < 3:
                program.launch(EXCHANGE, (3 - stage) * 1000.0)
    return programs


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_c33_stages_wait_for_each_other(clinic: Clinic, micro_batches: int) -> None:
    verdicts = clinic.verdicts(*four_stages(micro_batches))
    assert verdicts.first == "pp-bubble"
    assert verdicts.evidence("pp-bubble", "stages standing still") == pytest.approx(3 / (micro_batches + 3), abs=0.02)


def test_c33_a_full_pipeline_is_no_fault(clinic: Clinic) -> None:
    assert "pp-bubble" not in clinic.verdicts(*four_stages(32)).found


PROFILES = """\
| GPU | profiler | elapsed |
|-----|----------|---------|
| H100 | none | 5m29 |
| H100 | nsys | {recorded} |
| A100 | none | 3m51 |
| A100 | nsys | 7m49 |
"""


def test_c40_recorded_times_are_no_measure(clinic: Clinic) -> None:
    verdicts = clinic.told(PROFILES.format(recorded="23m16"))
    assert verdicts.found == {"profiler-distorted"}
    assert verdicts.evidence("profiler-distorted", "recorded against plain") == pytest.approx(1396 / 329, rel=0.01)


def test_c40_a_recorder_that_costs_little_is_cleared(clinic: Clinic) -> None:
    text = PROFILES.format(recorded="5m50").replace("7m49", "4m01")
    assert "profiler-distorted" in clinic.told(text).ruled_out


def short_steps(frames: int, tmp: Path) -> Path:
    """C40 as a recording: many short calls under a recorder of everything."""
    program = Program()
    for _ in range(40):
        for _ in range(frames):
            with program.annotation("model.py(12): forward", "python_function"):
                program.silence(1)
        program.copy("HtoD pinned", 64)
        for _ in range(60):
            program.launch(GEMM, 30)
        program.copy("DtoH pinned", 8)
        program.wait()
    return program.write(tmp / f"frames{frames}.json")


def test_c40_the_recording_says_so_itself(clinic: Clinic) -> None:
    verdicts: Verdicts = clinic.told(short_steps(400, clinic.folder))
    assert "profiler-distorted" in verdicts.found
    assert verdicts.finding("profiler-distorted")["severity"] == "info"
    assert "profiler-distorted" not in clinic.told(short_steps(0, clinic.folder)).found
