from __future__ import annotations

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, SOFTMAX, TOP_K, Program
from tests.support.verdicts import Clinic

RULE = "attention-not-fused"


def step(program: Program, attention: tuple[tuple[str, float], ...]) -> None:
    """One step of six layers, each with the given attention, behind a full queue."""
    program.copy("HtoD pinned", 64)
    for _ in range(6):
        for kernel, kernel_us in ((GEMM, 60.0), *attention, (GEMM, 60.0), (ADD, 10.0)):
            program.silence(4)
            program.launch(kernel, kernel_us)
    program.launch(HEAD_GEMM, 80)
    program.wait()


EAGER = ((GEMM, 50.0), (ADD, 300.0), (ADD, 200.0), (SOFTMAX, 500.0), (GEMM, 50.0))


def test_fires_when_scores_go_through_memory(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, EAGER)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    # 1000 of 1230 us a layer lie between the two products
    assert 3 < finding["gain"]["speedup_expected"] < 6
    assert verdicts.evidence(RULE, "softmax kernels") == 30


def test_is_silent_on_fused_attention(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, ((FLASH, 300.0),))
    assert RULE not in clinic.verdicts(program).found


def test_does_not_take_expert_routing_for_attention(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, ((FLASH, 100.0), (GEMM, 20.0), (SOFTMAX, 300.0), (TOP_K, 20.0), (GEMM, 50.0)))
    assert RULE not in clinic.verdicts(program).found


def test_is_cleared_when_the_scores_are_small(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, ((GEMM, 50.0), (SOFTMAX, 5.0), (GEMM, 50.0)))
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "of the device's time" in verdicts.ruled_out[RULE]


def test_eager_attention_by_name_is_enough_and_sdpa_is_not(clinic: Clinic) -> None:
    config = '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "_attn_implementation": "%s"}'
    assert clinic.told(config % "eager").first == RULE
    assert RULE not in clinic.told(config % "sdpa").found
