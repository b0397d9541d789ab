"""Memory evidence of one H200, recorded where the cause is known."""

from __future__ import annotations

import pytest

from tests.support.traces import shared_trace
from tests.support.verdicts import Clinic

OF_OTHERS = ("foreign.txt", "foreign.nvml.json", "foreign.nvidia-smi.txt")


@pytest.mark.parametrize("names", [OF_OTHERS, OF_OTHERS[:1]], ids=["all three", "the text alone"])
def test_another_process_fills_the_gpu(names: tuple[str, ...], clinic: Clinic) -> None:
    verdicts = clinic.told(*(shared_trace(f"h200/{name}") for name in names))
    assert verdicts.found == {"foreign-gpu-process"}
    assert verdicts.finding("foreign-gpu-process")["severity"] == "critical"
    assert "2670" in verdicts.finding("foreign-gpu-process")["title"]
    assert "fragmentation" in verdicts.ruled_out


@pytest.mark.parametrize(
    "names", [("oomkv.txt", "oomkv.pickle"), ("oomkv.pickle",)], ids=["both", "the snapshot alone"]
)
def test_a_cache_is_reserved_whole_for_each_request(names: tuple[str, ...], clinic: Clinic) -> None:
    verdicts = clinic.told(*(shared_trace(f"h200/{name}") for name in names))
    assert verdicts.found == {"kv-unpaged-contiguous"}
    assert verdicts.evidence("kv-unpaged-contiguous", "requests that this serves") == 34
    assert verdicts.evidence("kv-unpaged-contiguous", "share of the device") > 0.95
    assert {"fragmentation", "memory-leak-growth"} <= verdicts.ruled_out.keys()


SHAPE = (
    '{"num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8,'
    ' "torch_dtype": "float16"}'
)


def test_what_is_won_of_a_reserved_cache_is_what_requests_leave_unused(clinic: Clinic) -> None:
    alone = clinic.told(shared_trace("h200/oomkv.pickle")).finding("kv-unpaged-contiguous")
    assert alone["gain"] is None or alone["gain"]["bytes"] is None
    assert "no snapshot says" in alone["summary"]
    assert not any("preallocated" in fix["setting"] for fix in alone["fixes"])
    lengths = "isl,osl,tok/s\n9000,4107,900\n"
    beside = clinic.told(shared_trace("h200/oomkv.pickle"), SHAPE, lengths).finding("kv-unpaged-contiguous")
    used = 34 * (9000 + 4107) * 2 * 16 * 8 * 128 * 2
    assert beside["gain"]["bytes"] == (1088 + 11) * 128 * 2**20 - used  # with the blocks that unwinding freed


def test_the_text_alone_says_that_the_run_itself_fills_the_card(clinic: Clinic) -> None:
    verdicts = clinic.told(shared_trace("h200/oomkv.txt"))
    assert verdicts.found == {"headroom-thin"}
    assert {"fragmentation", "foreign-gpu-process"} <= verdicts.ruled_out.keys()
