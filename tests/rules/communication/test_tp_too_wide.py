"""Reconstructed from vllm-project/vllm#1873 and #4238, and the article that this program goes back to."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

import json

from tests.support.device_texts import smi_table, topology
from tests.support.verdicts import Clinic

RULE = "tp-too-wide"
SEVEN_BILLION = json.dumps(
    {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16",
        "max_position_embeddings": 32768,
    }
)  # fmt: skip
SERVE = "$ vllm serve mistralai/Mistral-7B-v0.1 --tensor-parallel-size 2\n"


def table(*rows: tuple[int, float]) -> str:
    return "tp_size,concurrency,output_token_throughput\n" + "".join(f"{tp},32,{rate}\n" for tp, rate in rows)


def test_fires_on_eight_devices_that_give_three_times_the_throughput(clinic: Clinic) -> None:
    verdicts = clinic.told(table((1, 1000), (2, 1700), (4, 2400), (8, 3000)))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert "8 devices give 3.00 times the throughput of 1: 38% of linear" in finding["summary"]
    assert finding["severity"] == "critical"
    assert 2.6 < finding["gain"]["speedup_bound"] < 2.7


def test_is_cleared_by_scaling_that_pays(clinic: Clinic) -> None:
    verdicts = clinic.told(table((1, 1000), (2, 1900), (4, 3500)))
    assert RULE not in verdicts.found
    assert "88% of linear" in verdicts.ruled_out[RULE]


def test_fires_on_a_model_that_fits_on_one_device_over_a_slow_link(clinic: Clinic) -> None:
    half = smi_table([{"busy": 50, "used": 20000, "total": 24564, "name": "NVIDIA GeForce RTX 4090"}] * 2)
    slow, fast = topology([["X", "PHB"], ["PHB", "X"]]), topology([["X", "NV4"], ["NV4", "X"]])
    finding = clinic.told(SEVEN_BILLION, SERVE + slow + half).finding(RULE)
    assert "fits on one device" in finding["summary"]
    assert RULE not in clinic.told(SEVEN_BILLION, SERVE + fast + half).found


def test_room_that_no_vendor_states_says_so(clinic: Clinic) -> None:
    def summary(product: str) -> str:
        """Of two devices whose memory nothing else tells."""
        asked = "name, utilization.gpu [%]\n" + f"{product}, 50 %\n" * 2
        serve = SERVE + topology([["X", "PHB"], ["PHB", "X"]])
        return str(clinic.told(SEVEN_BILLION, serve, asked).finding(RULE)["summary"])

    assert "of its memory, unconfirmed: its vendor publishes no data sheet)" in summary("NVIDIA L20")
    assert "unconfirmed" not in summary("NVIDIA L40")


def test_a_model_that_does_not_fit_needs_its_width(clinic: Clinic) -> None:
    small = smi_table([{"busy": 50, "used": 9000, "total": 12282, "name": "NVIDIA GeForce RTX 4070 Ti"}] * 2)
    verdicts = clinic.told(SEVEN_BILLION, SERVE + topology([["X", "PHB"], ["PHB", "X"]]) + small)
    assert "one is not enough" in verdicts.ruled_out[RULE]
