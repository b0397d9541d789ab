"""The time sign of the rule; its signs in memory are tested beside the other texts and snapshots."""

from __future__ import annotations

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "logits-logprob-peak"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>"
SOFTMAX = "void at::native::cunn_SoftMaxForward<8, c10::BFloat16, float, float, at::native::LogSoftMaxForwardEpilogue>"


def passes(*behind: tuple[str, float], scale: float = 1.0) -> Program:
    """Passes over a prompt of 8,192 tokens, as long as on an H200; `behind` follows the output layer."""
    program = Program()
    for _ in range(3):
        program.copy("HtoD pinned", 65_536)
        for _ in range(4):
            for kernel, kernel_us in (
                (ADD, 45),
                (GEMM, 230),
                (FLASH, 145),
                (GEMM, 25),
                (ADD, 45),
                (GEMM, 230),
                (GEMM, 235),
            ):
                program.launch(kernel, kernel_us * scale)
        program.launch(ADD, 45 * scale)
        program.launch(HEAD_GEMM, 6_100 * scale)
        for kernel, behind_us in behind:
            program.launch(kernel, behind_us)
        program.copy("DtoH pinned", 32)
        program.wait()
    return program


def test_finds_an_output_layer_over_every_position_of_which_the_last_is_read(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(passes((ADD, 5), (ARGMAX, 8)))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["severity"] == "critical"
    # 6.1 of 10.5 ms a pass, of which a twentieth stays
    assert 1.9 < finding["gain"]["speedup_expected"] < 2.4
    assert any("logits_to_keep=1" in fix["setting"] for fix in finding["fixes"])


def test_is_silent_where_the_logits_of_every_position_are_read(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(passes((SOFTMAX, 1_400), (ARGMAX, 800))).found


def test_is_silent_on_decode_steps_whose_output_layer_is_the_longest_too(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(passes((ADD, 2), (ARGMAX, 3), scale=0.03)).found
