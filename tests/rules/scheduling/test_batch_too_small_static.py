from __future__ import annotations

from tests.support import engine_texts as texts
from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "batch-too-small-static"
GEMV = "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4, false>"


def decoding(product: str, product_us: float = 30.0, layers: int = 12, silence_us: float = 0.0) -> Program:
    """Steps with two such products a layer."""
    program = Program()
    for _ in range(5):
        program.silence(5)
        program.copy("HtoD pinned", 64)
        for _ in range(layers):
            for kernel, kernel_us in ((product, product_us), (FLASH, 10.0), (product, product_us), (ADD, 5.0)):
                program.silence(silence_us)
                program.launch(kernel, kernel_us)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def test_mentions_single_rows_on_a_busy_device_and_promises_nothing(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(GEMV))
    finding = verdicts.finding(RULE)
    assert finding["severity"] == "low"
    assert finding["gain"] is None
    assert finding["confidence"] < 0.5
    assert 0.9 < verdicts.evidence(RULE, "matrix-vector kernels") < 1.0


def test_is_silent_on_batched_products(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding(GEMM)).found


def test_is_silent_when_the_device_waits_for_launches(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding(GEMV, product_us=3.0, silence_us=15.0)).found


def test_is_silent_on_a_few_vector_products(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding(GEMV, layers=4)).found


def test_names_a_limit_at_which_requests_wait_beside_an_empty_cache(clinic: Clinic) -> None:
    lines = [texts.vllm_status(10.0 * place, 4, 20, 6.0) for place in range(20)]
    verdicts = clinic.told(texts.lines(texts.vllm_arguments(max_num_seqs=4), lines))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_bound"] == 6.0


def test_is_silent_where_the_cache_is_what_holds_the_queue_up(clinic: Clinic) -> None:
    lines = [texts.vllm_status(10.0 * place, 4, 20, 97.0) for place in range(20)]
    verdicts = clinic.told(texts.lines(texts.vllm_arguments(max_num_seqs=4), lines))
    assert RULE not in verdicts.found
    assert verdicts.first == "kv-pool-too-small"
