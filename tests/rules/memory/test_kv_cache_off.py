from __future__ import annotations

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "kv-cache-off"
SILU = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel<c10::BFloat16>>"


def steps(rows: list[int], product_us_per_row: float, product_us: float = 0.0) -> Program:
    """One step a number of rows: four layers on a busy device, products of a fixed part and one that follows rows."""
    program = Program()
    for count in rows:
        program.silence(5)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for kernel in (GEMM, GEMM, GEMM):
                program.launch(kernel, product_us + product_us_per_row * count)
            program.launch(FLASH, 20)
            program.launch(SILU, 10, grid=(8 * count, 1, 1))
            program.launch(ADD, 10)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def test_fires_when_every_step_is_a_prefill_of_one_token_more(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(steps(list(range(512, 524)), 0.2))
    assert verdicts.first == RULE
    assert 450 < verdicts.evidence(RULE, "tokens computed again a step") < 560
    assert 3.0 < verdicts.finding(RULE)["gain"]["speedup_expected"] <= 5.2


def test_is_silent_on_pictures_whose_sizes_rise(clinic: Clinic) -> None:
    program = steps(list(range(512, 524)), 0.2)
    for event in program.events:
        if event["name"] == FLASH:
            event["name"] = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64"
            event["dur"] = 5 * event["dur"]
    verdicts = clinic.verdicts(program)
    assert verdicts.document["program"]["kind"] == "vision"
    assert RULE not in verdicts.found


def test_is_silent_on_a_training_whose_batches_are_sorted_by_length(clinic: Clinic) -> None:
    program = steps(list(range(512, 524)), 0.2)
    with program.annotation("Optimizer.step#AdamW.step"):
        program.launch(ADD, 10)
    assert RULE not in clinic.verdicts(program).found


def test_fires_where_products_vary_more_than_they_grow(clinic: Clinic) -> None:
    # products run in tiles: one token more in 2,000 rows rarely adds one, and their time varies by a percent
    program = steps(list(range(2000, 2008)), 0.0, product_us=100)
    for place, event in enumerate(
        event for event in program.events if event.get("name") == GEMM and event.get("cat") == "kernel"
    ):
        event["dur"] += (place % 7) * 0.4
    assert RULE in clinic.verdicts(program).found


def test_is_silent_on_decode_behind_a_prefill(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(steps([512] + [8] * 12, 0.2, product_us=20)).found


def test_is_silent_on_batches_that_grow_while_products_read_weights(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(steps(list(range(64, 76)), 0.0, product_us=60)).found


def test_is_silent_on_prefill_in_chunks_of_one_length(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(steps([512] * 12, 0.2)).found


def test_is_silent_on_four_steps(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(steps([512, 513, 514, 515], 0.2)).found


def test_a_configuration_without_cache_counts_unless_an_engine_ignores_it(clinic: Clinic) -> None:
    config = (
        '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "use_cache": false}'
    )
    assert clinic.told(config).first == RULE
    verdicts = clinic.told(config, "vllm serve org/name --max-num-seqs 8\n")
    assert RULE not in verdicts.found
    assert "does not look at" in verdicts.ruled_out[RULE]
