from __future__ import annotations

import json

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "kv-unpaged-contiguous"
SILU = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel<c10::BFloat16>>"
CONCATENATE = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>"
)


def decoding(concat_us: list[float], silu_us: float = 25.0) -> Program:
    """One decode step a number: four layers on a busy device, each with two concatenations of that length."""
    program = Program()
    for kernel_us in concat_us:
        program.silence(5)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for kernel, long_us in ((GEMM, 20.0), (ADD, 10.0)):
                program.launch(kernel, long_us)
            for _ in range(2):
                program.launch(CONCATENATE, kernel_us)
            for kernel, long_us in ((FLASH, 20.0), (GEMM, 20.0), (SILU, silu_us)):
                program.launch(kernel, long_us)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def test_fires_on_copies_that_grow_with_the_sequence(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding([20 + 0.5 * step for step in range(12)]))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "rise a step") == pytest.approx(0.5 / 20, rel=0.1)
    # a layer takes 95 us and two copies of 20 to 25.5; then two of 3
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(140.5 / 101, rel=0.1)


def test_fires_on_copies_that_move_more_than_the_new_rows(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding([30.0 + 0.2 * (step % 3) for step in range(4)], silu_us=3.0))
    assert verdicts.evidence(RULE, "one of them against the new rows' kernels") == pytest.approx(10, rel=0.05)
    assert verdicts.evidence(RULE, "rise a step") == 0


def test_is_silent_on_concatenations_that_do_not_grow(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding([22.0 + 0.4 * (step % 3) for step in range(12)])).found


def test_is_silent_when_they_are_a_small_part(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding([1.5 + 0.02 * step for step in range(12)])).found


def test_is_silent_on_four_steps(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding([20 + 0.5 * step for step in range(4)])).found


@pytest.mark.parametrize(("copied", "is_found"), [(2_143_813_632, True), (0, False)])
def test_the_engine_may_have_counted_what_it_copied(clinic: Clinic, copied: int, is_found: bool) -> None:
    counters = {"steps": 48, "kv_bytes_copied": copied}
    verdicts = clinic.told(json.dumps({"schema": "engine.bench/1", "output_tokens_per_s": 160.9, "counters": counters}))
    assert (RULE in verdicts.found) is is_found
    if is_found:
        assert verdicts.evidence(RULE, "a step") == pytest.approx(copied / 48)
