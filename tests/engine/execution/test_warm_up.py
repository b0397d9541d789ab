from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine.attention.registry import create_backend  # noqa: E402
from engine.execution.forward import EagerPass, ModelOnDevice, PassOutput  # noqa: E402
from engine.execution.staging import HostStaging  # noqa: E402
from engine.execution.warm_up import warm_up  # noqa: E402
from engine.model.kv.paged import KvGeometry, PagedKv  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from engine.scheduling.plan import ScheduledRequest  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402


class NotedPass(EagerPass):
    """A forward pass that notes what it runs."""

    batches: list[list[ScheduledRequest]]

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        self.batches.append(list(scheduled))
        return super().run(scheduled, slots)


@pytest.fixture(scope="module")
def make_pass(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], NotedPass]:
    folder: Path = save_model(make_model("llama", max_position_embeddings=2048), tmp_path_factory.mktemp("llama"))
    decoder = load_decoder(folder, LoadOptions())
    cpu = torch.device("cpu")

    def with_cache(num_blocks: int, block_size: int) -> NotedPass:
        geometry = KvGeometry(decoder.layer_range, decoder.num_kv_heads, decoder.geometry.head_dim, decoder.dtype)
        kv = PagedKv(geometry, num_blocks, block_size, decoder.dtype, cpu)
        model = ModelOnDevice(decoder, create_backend("torch_ref", decoder.attention_spec), kv, cpu, 160)
        noted = NotedPass(model, torch.zeros(65, dtype=torch.int64), HostStaging())
        noted.batches = []
        return noted

    return with_cache


@pytest.mark.parametrize(("longest", "block_size"), [(1, 16), (20, 4), (80, 4), (512, 16)])
def test_warming_up_stays_within_the_cache_and_the_step(
    make_pass: Callable[[int, int], NotedPass], longest: int, block_size: int
) -> None:
    num_blocks = -(-longest // block_size)
    forward = make_pass(num_blocks, block_size)
    warm_up(forward, block_size, longest)
    assert forward.batches
    for batch in forward.batches:
        assert sum(item.num_tokens for item in batch) <= longest + 1
        assert max(block for item in batch for block in item.block_ids) < num_blocks


def test_large_steps_are_warmed_up_alone_beside_a_decode_and_with_many_requests(
    make_pass: Callable[[int, int], NotedPass],
) -> None:
    forward = make_pass(128, 16)
    warm_up(forward, 16, 2048)
    shapes = {(len(batch), max(item.num_tokens for item in batch)) for batch in forward.batches}
    assert {(1, 2048), (2, 1024), (16, 18), (64, 18)} <= shapes
