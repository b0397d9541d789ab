from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

import numpy as np  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from engine import LLM, EngineConfig  # noqa: E402
from engine.conditions import CONDITIONS  # noqa: E402
from engine.execution.batch import batch_numbers  # noqa: E402
from engine.execution.forward import EagerPass  # noqa: E402
from engine.execution.mixed_graphs import MixedInputs, MixedSizes  # noqa: E402
from engine.execution.staging import layout_views  # noqa: E402
from engine.model.kv.paged import PagedKv  # noqa: E402
from engine.scheduling.plan import ScheduledRequest  # noqa: E402
from engine.tracing import Range  # noqa: E402
from tests.support.engine_requests import greedy_params  # noqa: E402
from tests.support.replayed_graphs import replay_graphs  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

BLOCK = 4
PROMPT = ScheduledRequest(1, 0, 18, (7, 3, 1, 2, 4), tuple(range(11, 29)), (), samples=True)
CHUNK = ScheduledRequest(2, 4, 3, (10, 5), (21, 22, 23), (), samples=False)
DECODE = ScheduledRequest(3, 8, 1, (9, 8, 6), (31,), (), samples=True)
IN_FLIGHT = ScheduledRequest(4, 4, 1, (12, 14), (), (), samples=True)
VERIFY = ScheduledRequest(5, 6, 3, (11, 0, 13), (41, 42, 43), (42, 43), samples=True)
MIXED = (PROMPT, CHUNK, DECODE, IN_FLIGHT)
FEW = (DECODE, CHUNK)
SIZES = MixedSizes(max_tokens=32, max_requests=6, max_len=64, block_size=BLOCK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(make_model("llama"), tmp_path_factory.mktemp("llama"))


def build(folder: Path, **options: Any) -> tuple[LLM, EagerPass]:
    config = EngineConfig(
        str(folder),
        **{
            "device": "cpu",
            "dtype": "float32",
            "max_model_len": 64,
            "max_num_seqs": 6,
            "block_size": BLOCK,
            "num_blocks": 20,
            "max_cudagraph_capture_size": 32,
            **options,
        },
    )
    llm = LLM.from_config(config)
    return llm, replay_graphs(llm, config)


def test_sizes_are_dense_where_padding_costs_time_and_end_with_the_largest_step() -> None:
    buckets = MixedSizes(2048, 64, 1024, 16).buckets()
    assert buckets[:6] == (16, 32, 64, 128, 192, 256)
    assert buckets[-3:] == (1792, 1920, 2048)
    assert len(buckets) == 26
    assert all(larger - smaller <= max(64, smaller / 8) for smaller, larger in pairwise(buckets))
    assert MixedSizes(100, 64, 1024, 16).buckets() == (16, 32, 64, 100)
    assert MixedSizes(5, 64, 1024, 16).buckets() == (5,)


def test_the_inputs_of_a_graph_equal_the_packed_batch_and_are_padded_behind_it() -> None:
    inputs = MixedInputs(32, SIZES)
    inputs.fill(MIXED, [5, 4, 3, 2])
    inputs.fill(FEW, [1, 0])
    packed, numbers = batch_numbers(FEW, [1, 0], BLOCK), inputs.numbers
    for name in ("token_ids_T", "positions_T", "from_last_T", "slots_T", "slot_mapping_T"):
        assert getattr(numbers, name)[:4].tolist() == getattr(packed, name).tolist(), name
    assert numbers.block_table_BM[0, :3].tolist() == [9, 8, 6]
    assert numbers.block_table_BM[1, :2].tolist() == [10, 5]
    assert numbers.cu_q_B1.tolist() == [0, 1, 4, 4, 4, 4, 4, 32]
    assert numbers.seq_lens_B.tolist() == [9, 7, 0, 0, 0, 0, 0]
    assert numbers.slot_mapping_T[4:].tolist() == [-1] * 28
    assert numbers.slots_T[4:].tolist() == [6] * 28
    assert numbers.logit_rows_R.tolist() == [0] * 6
    assert numbers.row_slots_R.tolist() == [1, 6, 6, 6, 6, 6]
    assert numbers.from_last_T[4:].tolist() == [0] * 28


def test_drafts_take_rows_of_logits_of_their_own() -> None:
    inputs = MixedInputs(16, MixedSizes(16, 4, 64, BLOCK, rows_per_request=3))
    inputs.fill((VERIFY, CHUNK), [0, 1])
    assert inputs.numbers.logit_rows_R.tolist() == [0, 1, 2] + [0] * 9
    assert inputs.fits(16, 4, 12)
    assert not inputs.fits(17, 4, 12)
    assert not inputs.fits(16, 5, 12)
    assert not inputs.fits(16, 4, 13)


def test_a_small_graph_has_rows_for_no_more_requests_than_it_has_tokens() -> None:
    inputs = MixedInputs(16, MixedSizes(2048, 64, 1024, 16))
    assert inputs.numbers.block_table_BM.shape == (17, 64)
    assert len(inputs.numbers.logit_rows_R) == 15


@pytest.mark.parametrize("scheduled", [MIXED, FEW, (VERIFY, CHUNK)], ids=["prompts", "few", "drafts"])
def test_a_replayed_step_computes_what_an_eager_one_does_and_writes_no_other_slot(
    folder: Path, scheduled: Sequence[ScheduledRequest]
) -> None:
    slots = list(range(len(scheduled)))
    results = []
    for is_graphed in (True, False):
        llm, eager = build(folder, speculate="ngram", num_draft_tokens=2)
        kv = eager._model.kv
        assert isinstance(kv, PagedKv)
        torch.manual_seed(0)
        kv.slots.normal_()
        before = kv.slots.clone()
        with torch.inference_mode():
            output = (llm.core.loop._runner._forward if is_graphed else eager).run(scheduled, slots)
        counted = llm.core.counters.mixed_graph_replays
        assert counted == is_graphed
        results.append((output.logits_RV.clone(), output.row_slots_R.tolist(), kv.slots[:, :, :-1].clone()))
        written = (results[-1][2] != before[:, :, :-1]).any(-1).any(-1).any(0).any(0)
        assert written.sum() == sum(item.num_tokens for item in scheduled)
    (graphed, rows, cache), (expected, expected_rows, expected_cache) = results
    torch.testing.assert_close(graphed, expected)
    torch.testing.assert_close(cache, expected_cache)
    assert rows == expected_rows


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what a pass launches: operators with shapes, and Triton kernels with grids and numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        shapes = [tuple(one.shape) for one in (*args, out) if isinstance(one, torch.Tensor)]
        self.seen.append((str(func), *shapes))
        return out


def launches_of(monkeypatch: pytest.MonkeyPatch, run: Any) -> list[tuple[Any, ...]]:
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="needs the package triton")
    mode = Launches()

    def note(executor: Any, *args: Any, **kwargs: Any) -> None:
        numbers = [one for one in args if not isinstance(one, torch.Tensor)]
        mode.seen.append((executor.fn.__name__, executor.grid, tuple(numbers), tuple(sorted(kwargs.items()))))

    with monkeypatch.context() as patch, torch.inference_mode(), mode:
        patch.setattr(interpreter.GridExecutor, "__call__", note)
        run()
    return mode.seen


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the kernels are compiled: see test_gpu.py")
def test_what_a_graph_launches_depends_on_its_size_and_on_nothing_in_the_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a graph that was recorded over padding would not be the graph of a step."""
    _, eager = build(folder)
    from engine.attention.registry import create_backend

    pytest.importorskip("triton", reason="needs the package triton")
    object.__setattr__(eager._model, "backend", create_backend("triton_paged", eager._model.decoder.attention_spec))
    inputs = MixedInputs(32, SIZES)
    recorded = []
    for scheduled in ((), (), MIXED, FEW):
        if scheduled:
            inputs.fill(scheduled, list(range(len(scheduled))))
        arrays = inputs.numbers.arrays()
        batch = inputs.numbers.on_device(layout_views(arrays, torch.from_numpy(inputs.packed.copy())))
        recorded.append(launches_of(monkeypatch, lambda batch=batch: eager.output(batch)))
    _, over_padding, over_many, over_few = recorded  # the first sets up what stays, as before a recording
    assert over_many == over_padding == over_few
    names = [name for name, *_ in over_padding]
    assert names.count("_paged_attention_prefill_kernel") == names.count("_paged_attention_decode_kernel") == 2
    assert not [name for name in names if "local_scalar" in name or "nonzero" in name]


def test_replays_are_ranges_with_their_padded_tokens_and_are_counted(folder: Path) -> None:
    llm, _ = build(folder, max_num_batched_tokens=20)
    with torch.profiler.profile() as profile:
        llm.generate([[5, 6, 7] * 8, [8, 9]], [greedy_params(4)] * 2)
    counters = llm.core.counters
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts[Range.GRAPH_REPLAY] == counters.graph_replays == counters.pieces
    assert counters.mixed_graph_replays == counts["prefill"] == 2
    assert counters.graph_padding_tokens == (20 - 20) + (16 - 6)


def test_steps_above_the_largest_size_launch_their_kernels_one_by_one(folder: Path) -> None:
    llm, _ = build(folder, max_cudagraph_capture_size=16)
    llm.generate([[5, 6, 7] * 8], [greedy_params(4)])
    assert llm.core.counters.mixed_graph_replays == 0
    assert llm.core.counters.pieces - llm.core.counters.graph_replays == 1


def test_no_graph_is_wanted_where_a_condition_or_an_option_switches_graphs_off() -> None:
    config = EngineConfig("folder", max_cudagraph_capture_size=2048)
    assert config.mixed_graph_tokens == 2048
    assert config.with_options(max_num_batched_tokens=256).mixed_graph_tokens == 256
    assert config.with_options(kv="concat").mixed_graph_tokens == 0
    without = [one for one in CONDITIONS.values() if one.sick.get("cuda_graphs") is False]
    assert len(without) >= 5
    assert [one.apply(config, is_cured=False).mixed_graph_tokens for one in without] == [0] * len(without)


def test_padding_is_the_same_whatever_ran_before() -> None:
    fresh, used = MixedInputs(32, SIZES), MixedInputs(32, SIZES)
    used.fill(MIXED, [5, 4, 3, 2])
    for inputs in (fresh, used):
        inputs.fill(FEW, [1, 0])
    tables = [inputs.numbers.block_table_BM.copy() for inputs in (fresh, used)]
    for inputs in (fresh, used):
        inputs.numbers.block_table_BM[:] = 0  # of rows and columns that no length reaches nothing is asked
    assert np.array_equal(fresh.packed, used.packed)
    assert np.array_equal(tables[0][:2, :2], tables[1][:2, :2])
