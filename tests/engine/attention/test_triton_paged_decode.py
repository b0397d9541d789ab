"""A real decoder through our kernels: the same tokens as through PyTorch's attention, and under a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("transformers", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

import torch

from engine.attention.meta import AttentionMeta
from engine.attention.registry import create_backend
from engine.kernels.rms_norm import add_rms_norm, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import silu_mul
from engine.model.kv.paged import KvGeometry, PagedKv
from engine.model.operators import REFERENCE, Operators
from engine.model.weights import LoadOptions, load_decoder
from tests.support.packed_batch import BlockTables, positions
from tests.support.paged_batch import DEVICE
from tests.support.tiny_models import make_model, save_model

if TYPE_CHECKING:
    from pathlib import Path

    from engine.model.decoder import Decoder

OPERATORS = Operators(rms_norm=rms_norm, add_rms_norm=add_rms_norm, silu_mul=silu_mul, rotate=rotate)
PROMPT_LENGTHS = (7, 21, 40)
BLOCK_SIZE = 16
NEW_TOKENS = 6


def load(folder: Path, operators: Operators) -> Decoder:
    """A decoder on the device under test, in fp32 so that tokens can be compared."""
    return load_decoder(folder, LoadOptions(device=DEVICE, dtype=torch.float32, operators=operators))


@dataclass
class Session:
    """Three prompts on their way through a decoder."""

    decoder: Decoder
    backend: str

    def __post_init__(self) -> None:
        decoder = self.decoder
        self.tables = BlockTables(len(PROMPT_LENGTHS), 5, BLOCK_SIZE, seed=3)
        geometry = KvGeometry(decoder.layer_range, decoder.num_kv_heads, decoder.geometry.head_dim, torch.float32)
        self.kv = PagedKv(geometry, self.tables.num_blocks, BLOCK_SIZE, torch.float32, DEVICE)
        self.attention = create_backend(self.backend, decoder.attention_spec)
        self.lengths = [0] * len(PROMPT_LENGTHS)

    def meta(self, counts: list[int]) -> tuple[torch.Tensor, AttentionMeta]:
        """Positions and description of a pass that feeds `counts` tokens."""
        spans = list(zip(self.lengths, counts, strict=True))
        self.lengths = [length + count for length, count in spans]
        meta = self.tables.meta(spans)
        moved = AttentionMeta(
            meta.cu_q_B1.to(DEVICE),
            meta.seq_lens_B.to(DEVICE),
            meta.block_table_BM.to(DEVICE),
            meta.slot_mapping_T.to(DEVICE),
            meta.max_q,
            meta.max_k,
        )
        return positions(spans).to(DEVICE), moved

    def prefill(self) -> torch.Tensor:
        """Feed the prompts; returns the first new token of each."""
        generator = torch.Generator().manual_seed(5)
        prompts = [torch.randint(3, 160, (length,), generator=generator) for length in PROMPT_LENGTHS]
        place, meta = self.meta(list(PROMPT_LENGTHS))
        hidden = self.decoder(torch.cat(prompts).to(DEVICE), place, self.attention.bind(self.kv, meta))
        return self.decoder.logits(hidden[meta.cu_q_B1[1:].long() - 1]).argmax(-1)

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feed one token per request; returns the next ones."""
        place, meta = self.meta([1] * len(PROMPT_LENGTHS))
        hidden = self.decoder(tokens, place, self.attention.bind(self.kv, meta))
        return self.decoder.logits(hidden).argmax(-1)

    def generate(self) -> torch.Tensor:
        """Prefill and `NEW_TOKENS` steps."""
        tokens = [self.prefill()]
        for _ in range(NEW_TOKENS):
            tokens.append(self.decode(tokens[-1]))
        return torch.stack(tokens)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
def test_a_decoder_gives_the_same_tokens_through_our_kernels(family: str, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    with torch.inference_mode():
        expected = Session(load(folder, REFERENCE), "torch_ref").generate()
        assert torch.equal(Session(load(folder, OPERATORS), "triton_paged").generate(), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_captured_decode_step_is_replayed_for_every_token(family: str, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    with torch.inference_mode():
        expected = Session(load(folder, REFERENCE), "torch_ref").generate()
        session = Session(load(folder, OPERATORS), "triton_paged")
        tokens = [session.prefill()]
        place, meta = session.meta([1] * len(PROMPT_LENGTHS))
        static = replace(meta, max_k=5 * BLOCK_SIZE)
        fed = tokens[0].clone()

        def step() -> torch.Tensor:
            hidden = session.decoder(fed, place, session.attention.bind(session.kv, static))
            return session.decoder.logits(hidden).argmax(-1)

        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            following = step()
        for index in range(NEW_TOKENS):
            if index:
                new_place, new_meta = session.meta([1] * len(PROMPT_LENGTHS))
                place.copy_(new_place)
                static.seq_lens_B.copy_(new_meta.seq_lens_B)
                static.slot_mapping_T.copy_(new_meta.slot_mapping_T)
            fed.copy_(tokens[-1])
            graph.replay()
            tokens.append(following.clone())
    assert torch.equal(torch.stack(tokens), expected)
