from __future__ import annotations

from tests.support import engine_texts as texts
from tests.support.trace_builder import FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "spec-not-paying"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>"


def layers_of(program: Program, layers: int, heads: int) -> None:
    """An eager forward pass up to its output layer."""
    for _ in range(layers):
        for kernel in (GEMM, FLASH, GEMM):
            program.silence(10)
            program.launch(kernel, 3, grid=(heads, 1, 1) if kernel == FLASH else (264, 1, 1))


def one_pass(program: Program, layers: int) -> None:
    """A pass that ends with the choice of a token; the smaller model has fewer heads."""
    layers_of(program, layers, heads=2 * layers)
    program.launch(HEAD_GEMM, 6)
    program.launch(ARGMAX, 3)
    program.copy("DtoH pinned", 8)
    program.wait()


def decoding(draft_layers: int, drafted: int) -> Program:
    """Six steps of a model of 16 layers, before each of which a smaller one drafts some tokens."""
    program = Program()
    one_pass(program, 16)
    for _ in range(6):
        for _ in range(drafted):
            one_pass(program, draft_layers)
        one_pass(program, 16)
    return program


def test_asks_whether_a_draft_pays_where_two_models_take_turns(clinic: Clinic) -> None:
    finding = clinic.verdicts(decoding(4, 3)).finding(RULE)
    assert "18 passes with 4 attention kernels" in finding["summary"]
    assert finding["severity"] == "low"
    assert finding["gain"] is None
    assert "mean acceptance length" in finding["verify"]


def test_one_model_alone_drafts_nothing(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding(16, 1)).found


def test_pieces_of_a_prompt_between_decode_steps_are_of_one_model(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        one_pass(program, 8)
        layers_of(program, 8, heads=64)  # a piece of a prompt picks no token
        one_pass(program, 8)
    assert RULE not in clinic.verdicts(program).found


def test_the_log_beside_the_time_line_has_the_word(clinic: Clinic) -> None:
    trace = decoding(4, 3).write(clinic.folder / "trace.json")
    log = texts.lines(texts.vllm_speculation(10 * place, 3.4, 300, 240, 3) for place in range(20))
    assert RULE not in clinic.told(trace, log).found
