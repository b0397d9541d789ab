"""Every option shows in a counter, an allocation or a type: none is dropped in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, SamplingParams  # noqa: E402
from engine.benchmark import Measurement  # noqa: E402
from tests.support.engine_requests import MixedRequests, measured, mixed_requests  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

BASE: dict[str, Any] = {"max_model_len": 80, "block_size": 4, "prefix_caching": False}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama")
    return save_model(model, tmp_path_factory.mktemp("llama")), mixed_requests(model, 12)


@pytest.fixture(scope="module")
def base(llama: tuple[Path, MixedRequests]) -> Measurement:
    return measured(*llama, **BASE)


def counters(llama: tuple[Path, MixedRequests], **options: Any) -> dict[str, int]:
    return measured(*llama, **{**BASE, **options}).counters


def test_micro_batches_cut_steps_into_pieces_and_change_nothing_else(
    llama: tuple[Path, MixedRequests], base: Measurement
) -> None:
    cut = counters(llama, micro_batch_size=1)
    assert base.counters["pieces"] == base.counters["steps"]
    assert cut["pieces"] == cut["decode_tokens"] + len(llama[1].prompts)
    assert cut["steps"] == base.counters["steps"]
    assert cut["syncs"] == base.counters["syncs"]


def test_static_batching_needs_more_steps(llama: tuple[Path, MixedRequests]) -> None:
    static = counters(llama, batching="static", max_num_seqs=4)
    assert static["steps"] > counters(llama, max_num_seqs=4)["steps"]


def test_single_requests_never_share_a_step(llama: tuple[Path, MixedRequests]) -> None:
    single = counters(llama, batching="single")
    assert single["steps"] == single["sampled_tokens"]


def test_dynamic_batching_waits_for_its_window(llama: tuple[Path, MixedRequests]) -> None:
    at_once = measured(*llama, **BASE, batching="dynamic", max_num_seqs=20, batch_window_s=0.0)
    later = measured(*llama, **BASE, batching="dynamic", max_num_seqs=20, batch_window_s=0.1)
    first = [answer.ttft_s for answer in later.answers if answer.ttft_s is not None]
    assert min(first) >= 0.1
    assert at_once.counters["steps"] == later.counters["steps"]


def test_chunks_bound_the_tokens_of_a_step(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    assert counters(llama, max_num_batched_tokens=12)["steps"] > base.counters["steps"]


def test_prefixes_are_found_only_where_they_are_kept(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    kept = counters(llama, prefix_caching=True, max_num_seqs=2)
    assert base.counters["prefix_hit_tokens"] == 0
    assert kept["prefix_hit_tokens"] > 0
    assert kept["prefill_tokens"] + kept["prefix_hit_tokens"] == base.counters["prefill_tokens"]


def test_larger_blocks_leave_more_slots_empty(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    wide = counters(llama, block_size=16)
    assert wide["kv_slots_allocated_sum"] > base.counters["kv_slots_allocated_sum"]
    assert wide["kv_slots_filled_sum"] == base.counters["kv_slots_filled_sum"]


def test_contiguous_kv_reserves_the_full_length(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    contiguous = measured(*llama, **{**BASE, "kv": "contiguous"})
    assert contiguous.counters["kv_slots_allocated_sum"] > 2 * base.counters["kv_slots_allocated_sum"]
    assert contiguous.kv_peak_bytes > 2 * base.kv_peak_bytes


def test_concatenated_kv_copies_itself_and_reserves_nothing(
    llama: tuple[Path, MixedRequests], base: Measurement
) -> None:
    concat = measured(*llama, **{**BASE, "kv": "concat"})
    assert concat.counters["kv_bytes_copied"] > 0 == base.counters["kv_bytes_copied"]
    assert concat.kv_reserved_bytes == 0 < base.kv_reserved_bytes


def test_fp8_kv_takes_a_quarter_of_fp32(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    assert measured(*llama, **{**BASE, "kv_dtype": "fp8"}).kv_peak_bytes * 4 == base.kv_peak_bytes


def test_the_dtype_halves_the_weights(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    half = measured(*llama, **{**BASE, "dtype": "bfloat16"})
    assert half.weight_bytes * 2 == pytest.approx(base.weight_bytes, rel=0.02)


def test_the_number_of_blocks_and_admission_decide_about_preemptions(llama: tuple[Path, MixedRequests]) -> None:
    scarce = {"num_blocks": 20}
    assert counters(llama, admission="free-blocks", **scarce)["preemptions"] > 0
    assert counters(llama, admission="projected-peak", **scarce)["preemptions"] == 0
    full = counters(llama, admission="full-length", **scarce)
    assert full["preemptions"] == 0
    assert full["kv_blocks_peak"] <= 20


def test_swapped_requests_compute_nothing_twice(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    scarce: dict[str, Any] = {"num_blocks": 20, "admission": "free-blocks"}
    recomputed = counters(llama, preemption="recompute", **scarce)
    swapped = counters(llama, preemption="swap", host_blocks=60, **scarce)
    assert swapped["swapped_out_blocks"] > 0 == recomputed["swapped_out_blocks"]
    wanted = base.counters["prefill_tokens"] + base.counters["decode_tokens"]
    assert swapped["prefill_tokens"] + swapped["decode_tokens"] == wanted
    assert recomputed["prefill_tokens"] + recomputed["decode_tokens"] > wanted


def test_overlap_schedules_while_a_step_is_in_flight(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    overlapped = counters(llama, overlap=True)
    assert base.counters["steps_overlapped"] == 0
    assert overlapped["steps_overlapped"] >= overlapped["steps"] - 2


def test_a_layer_boundary_that_waits_is_counted(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    waiting = counters(llama, layer_boundary="synchronize")
    assert base.counters["layer_syncs"] == 0
    assert waiting["layer_syncs"] == 2 * waiting["pieces"]


def test_an_audit_runs_in_every_turn(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    assert base.counters["audits"] == 0
    audited = counters(llama, bookkeeping="audit")
    assert audited["audits"] >= audited["steps"]


def test_cached_memory_is_given_back_after_every_step(llama: tuple[Path, MixedRequests], base: Measurement) -> None:
    flushed = counters(llama, after_step="empty-cache")
    assert flushed["cache_flushes"] == flushed["steps"]
    assert base.counters["cache_flushes"] == 0


@pytest.mark.parametrize(("option", "value"), [("num_draft_tokens", 1), ("ngram_min", 3)])
def test_fewer_drafts_are_proposed(llama: tuple[Path, MixedRequests], option: str, value: int) -> None:
    base: dict[str, Any] = {"speculate": "ngram", "num_draft_tokens": 6, "ngram_min": 1}
    assert counters(llama, **base)["drafted"] > counters(llama, **{**base, option: value})["drafted"]


def test_weights_on_the_host_leave_the_device_and_are_copied(
    llama: tuple[Path, MixedRequests], base: Measurement
) -> None:
    offloaded = measured(*llama, **BASE, weight_offload=1.0)
    assert offloaded.counters["pageable_copies"] > 0 == base.counters["pageable_copies"]


@pytest.mark.parametrize("quantization", ["int8", "fp8"])
def test_quantised_weights_are_smaller(llama: tuple[Path, MixedRequests], base: Measurement, quantization: str) -> None:
    if quantization == "int8":
        pytest.importorskip("torchao", reason="needs the package torchao")
    assert measured(*llama, **BASE, quantization=quantization).weight_bytes < 0.6 * base.weight_bytes


def test_experts_in_a_loop_are_counted(tmp_path: Path) -> None:
    model = make_model("mixtral")
    folder, requests = save_model(model, tmp_path), mixed_requests(model, 4)
    loop = measured(folder, requests, **BASE, moe_routing="loop").counters
    grouped = measured(folder, requests, **BASE, moe_routing="grouped").counters
    assert loop["expert_visits"] > 0 == grouped["expert_visits"]


def test_rounds_of_gating_are_counted(tmp_path: Path) -> None:
    model = make_model("mixtral")
    folder, requests = save_model(model, tmp_path), mixed_requests(model, 4)
    rounds = measured(folder, requests, **BASE, moe_gating="rounds").counters
    assert rounds["gating_rounds"] == 2 * 2 * rounds["pieces"]
    assert measured(folder, requests, **BASE, moe_gating="fused").counters["gating_rounds"] == 0


def test_cold_prefixes_are_found_on_the_host(llama: tuple[Path, MixedRequests]) -> None:
    """Prompts of 40 tokens come back after the device pool has given their blocks away."""
    folder, _ = llama
    prompts = [[3 + (7 * index + place * (index + 2)) % 150 for place in range(40)] for index in range(6)]
    params = SamplingParams(temperature=0, max_new_tokens=4, ignore_eos=True)

    def run(**options: Any) -> tuple[list[tuple[int, ...]], dict[str, int]]:
        settings: dict[str, Any] = {**BASE, "prefix_caching": True, "num_blocks": 24, "host_blocks": 100, **options}
        llm = LLM(str(folder), device="cpu", dtype="float32", **settings)
        answers = [llm.generate([prompt], params)[0].token_ids for prompt in prompts + prompts]
        llm.core.loop.scheduler.check_invariants()
        return answers, llm.core.counters.as_dict()

    answers, without = run()
    again, kept = run(cold_copies=8)
    assert answers == again
    assert kept["swapped_out_blocks"] > 0 == without["swapped_out_blocks"]
    assert kept["swapped_in_blocks"] > 0
    assert kept["prefix_hit_tokens"] > without["prefix_hit_tokens"]


def test_the_attention_backend_is_the_one_asked_for(llama: tuple[Path, MixedRequests]) -> None:
    def names(attention: str) -> set[str]:
        llm = LLM(str(llama[0]), device="cpu", dtype="float32", attention=attention, **BASE)
        with torch.profiler.profile() as profile:
            llm.generate(llama[1].prompts[:2], llama[1].params[:2])
        return {event.key for event in profile.key_averages()}

    assert any("scaled_dot_product" in name for name in names("torch_ref"))
    assert not any("scaled_dot_product" in name for name in names("eager"))


def test_deadlines_change_the_order(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama

    def order(policy: str) -> list[int]:
        llm = LLM(str(folder), device="cpu", dtype="float32", policy=policy, batching="single", **BASE)
        ids = [
            llm.core.submit(prompt, params, deadline_s=1e12 - index)
            for index, (prompt, params) in enumerate(zip(requests.prompts[:4], requests.params[:4], strict=True))
        ]
        ended = []
        while not llm.core.is_idle:
            ended += [ids.index(update.request_id) for update in llm.core.step() if update.finish_reason is not None]
        return ended

    assert order("fcfs") == [0, 1, 2, 3]
    assert order("deadline") == [3, 2, 1, 0]
