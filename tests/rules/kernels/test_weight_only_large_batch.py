from __future__ import annotations

import pytest

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

RULE = "weight-only-large-batch"


def test_names_the_load_at_which_16_bits_overtake_and_says_what_small_batches_gain(clinic: Clinic) -> None:
    table = "quantization,batch,tok/s\nawq_marlin,1,120\nnone,1,50\nawq_marlin,256,5200\nnone,256,7600\n"
    verdicts = clinic.told(table)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "at a load of") == 256
    assert "2.4 times as fast" in verdicts.finding(RULE)["summary"]


def test_is_silent_where_weight_only_wins_at_every_load(clinic: Clinic) -> None:
    table = "quantization,batch,tok/s\nawq_marlin,1,120\nnone,1,50\nawq_marlin,64,3200\nnone,64,2900\n"
    assert RULE not in clinic.told(table).found


@pytest.mark.parametrize(
    "table",
    [
        "quantization,batch_size,output_tokens_per_s\nfp16,1,40\nawq,1,23\nawq_marlin,1,123\n",
        "quantization,batch_size,output_tokens_per_s\nawq,1,23\nawq_marlin,1,123\n",
        "quantization,tok/s\nawq,23\nawq_marlin,123\n",
        "quantization,batch_size,output_tokens_per_s\nfp16,1,40\nawq,1,23\n",
        "quantization,batch,tok/s\nfp16,1,40\nawq,1,23\nfp16,64,2000\nawq,64,900\n",
    ],
)
def test_weights_that_are_slow_at_one_sequence_run_on_a_slow_kernel(clinic: Clinic, table: str) -> None:
    found = clinic.told(table).found
    assert "quant-kernel-legacy" in found
    assert RULE not in found


def test_weights_that_win_at_one_sequence_and_lose_at_eight_are_at_a_large_batch(clinic: Clinic) -> None:
    found = clinic.told("quantization,batch,tok/s\nfp16,1,40\nawq,1,90\nfp16,8,300\nawq,8,220\n").found
    assert RULE in found
    assert "quant-kernel-legacy" not in found


def test_a_log_with_many_running_on_weight_only_weights_is_a_hint_and_few_are_none(clinic: Clinic) -> None:
    def log(running: int) -> str:
        states = (texts.vllm_status(10.0 * place, running) for place in range(20))
        return texts.lines(texts.vllm_arguments(quantization="gptq_marlin"), states)

    finding = clinic.told(log(200)).finding(RULE)
    assert finding["severity"] == "low"
    assert finding["confidence"] < 0.5
    assert RULE not in clinic.told(log(16)).found
