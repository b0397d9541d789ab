from __future__ import annotations

from tests.support.trace_builder import GEMM, LAYER, Program, decode_step, forward_pass
from tests.support.verdicts import Clinic

RULE = "lazy-module-load"


def load(program: Program, length_us: float = 30_000) -> None:
    """A library builds a plan: silence, a module call, silence, then the launch."""
    program.silence(length_us / 2)
    program.call("cuLibraryLoadData", 800)
    program.silence(length_us / 2)
    program.launch(GEMM, 5)


def test_fires_when_code_is_loaded_step_after_step(clinic: Clinic) -> None:
    program = Program()
    for step in range(8):
        decode_step(program)
        if step % 2:
            load(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "longest interval") > 29


def test_fires_on_silence_under_one_operator_where_module_calls_are_not_recorded(clinic: Clinic) -> None:
    program = Program()
    for step in range(8):
        decode_step(program)
        if step % 2:
            with program.annotation("aten::_cudnn_attention_forward", "cpu_op"):
                program.silence(30_000)
                program.launch(GEMM, 5)
    assert clinic.verdicts(program).first == RULE


def test_leaves_an_operator_that_works_on_the_host_to_the_step_gap(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        with program.annotation("aten::normal_", "cpu_op"):
            program.silence(30_000)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert verdicts.first == "step-gap-scheduler"
    assert "aten::normal_" in verdicts.finding("step-gap-scheduler")["title"]


def test_is_information_when_only_the_first_steps_load(clinic: Clinic) -> None:
    program = Program()
    decode_step(program)
    load(program, 6_000)
    for _ in range(60):
        decode_step(program)
    assert clinic.verdicts(program).finding(RULE)["severity"] == "info"


def test_leaves_a_silence_without_module_calls_to_the_step_gap(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.silence(30_000)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert verdicts.first == "step-gap-scheduler"


CUDNN_ATTENTION = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_kernel0_0"


def test_fires_on_silence_before_a_kernel_that_cudnn_generates(clinic: Clinic) -> None:
    program = Program()
    for _ in range(8):
        decode_step(program)
        program.silence(30_000)
        program.launch(CUDNN_ATTENTION, 5)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert "cuDNN plans attention" in verdicts.finding(RULE)["title"]


def test_leaves_a_pause_before_other_work_alone_where_cudnn_runs_without_delay(clinic: Clinic) -> None:
    program = Program()
    for _ in range(8):
        program.silence(30_000)
        decode_step(program)
        program.launch(CUDNN_ATTENTION, 5)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert verdicts.first == "step-gap-scheduler"


def layers(program: Program, *, pause_us: float, count: int = 8) -> None:
    """Layers of three kernels; the host falls silent before the last kernel of the first layer."""
    for layer in range(count):
        for place, kernel in enumerate((GEMM, *LAYER[:2])):
            program.silence(12 + (pause_us if (layer, place) == (0, 2) else 0))
            program.launch(kernel, 5)


def test_fires_on_silence_at_the_first_use_of_code_that_every_layer_runs(clinic: Clinic) -> None:
    program = Program()
    for step in range(6):
        program.copy("HtoD pinned", 64)
        layers(program, pause_us=30_000 + step)
        program.copy("DtoH pinned", 64)
        program.wait()
    assert clinic.verdicts(program).first == RULE


def test_leaves_a_silence_in_every_layer_to_others(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        for _ in range(8):
            layers(program, pause_us=4_000, count=1)
        program.copy("DtoH pinned", 64)
        program.wait()
    assert RULE not in clinic.verdicts(program).found


def test_leaves_a_silence_before_the_first_of_many_pieces_to_the_step_gap(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.silence(30_000)
        for _ in range(8):
            forward_pass(program, layers=2)
        program.wait()
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "step-gap-scheduler" in verdicts.found


def test_threads_that_load_at_the_same_time_share_the_window(clinic: Clinic) -> None:
    program = Program()
    for _ in range(4):
        began_us = program.now_us
        for tid in (4242, 5151):
            program.now_us = began_us
            with program.thread(tid):
                load(program)
                decode_step(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.evidence(RULE, "time in loading intervals") <= 1


CONVOLUTION = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1"


def test_pictures_of_new_sizes_are_told_of_the_search_for_algorithms_not_of_attention(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.call("cuLibraryLoadData", 300)
        program.silence(10_000)
        for _ in range(12):
            program.launch(CONVOLUTION, 120)
        program.wait()
    fixes = clinic.verdicts(program).finding(RULE)["fixes"]
    assert any("cudnn.benchmark" in fix["setting"] for fix in fixes)
    assert not any("cudnn_sdp" in fix["setting"] for fix in fixes)
