"""A real decoder through our kernels: the same tokens as through PyTorch's attention, and under a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("transformers", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

import torch
from torch import Tensor

from engine.attention.meta import AttentionMeta
from engine.attention.registry import create_backend
from engine.kernels.rms_norm import add_rms_norm, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import silu_mul
from engine.kernels.vector_linear import vector_gate_up, vector_linear
from engine.model.kv.paged import KvGeometry, PagedKv
from engine.model.operators import REFERENCE, OneTokenOperators, Operators
from engine.model.weights import LoadOptions, load_decoder
from tests.support.packed_batch import BlockTables, positions
from tests.support.paged_batch import DEVICE
from tests.support.tiny_models import make_model, save_model

if TYPE_CHECKING:
    from pathlib import Path

    from engine.model.decoder import Decoder

OPERATORS = Operators(rms_norm=rms_norm, add_rms_norm=add_rms_norm, silu_mul=silu_mul, rotate=rotate)
THREE_PROMPTS = (7, 21, 40)
BLOCK_SIZE = 16
NEW_TOKENS = 6


def load(folder: Path, operators: Operators, dtype: torch.dtype = torch.float32) -> Decoder:
    """A decoder on the device under test, in fp32 where nothing is said, so that tokens can be compared."""
    return load_decoder(folder, LoadOptions(device=DEVICE, dtype=dtype, operators=operators))


@dataclass
class Session:
    """Prompts on their way through a decoder."""

    decoder: Decoder
    backend: str
    prompt_lengths: tuple[int, ...] = THREE_PROMPTS

    def __post_init__(self) -> None:
        decoder = self.decoder
        self.tables = BlockTables(len(self.prompt_lengths), 5, BLOCK_SIZE, seed=3)
        geometry = KvGeometry(decoder.layer_range, decoder.num_kv_heads, decoder.geometry.head_dim, decoder.dtype)
        self.kv = PagedKv(geometry, self.tables.num_blocks, BLOCK_SIZE, decoder.dtype, DEVICE)
        self.attention = create_backend(self.backend, decoder.attention_spec)
        self.lengths = [0] * len(self.prompt_lengths)

    def meta(self, counts: list[int]) -> tuple[Tensor, AttentionMeta]:
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

    def prefill(self) -> Tensor:
        """Feed the prompts; returns the first new token of each."""
        generator = torch.Generator().manual_seed(5)
        prompts = [torch.randint(3, 160, (length,), generator=generator) for length in self.prompt_lengths]
        place, meta = self.meta(list(self.prompt_lengths))
        hidden = self.decoder(torch.cat(prompts).to(DEVICE), place, self.attention.bind(self.kv, meta))
        return self.decoder.logits(hidden[meta.cu_q_B1[1:].long() - 1]).argmax(-1)

    def decode(self, tokens: Tensor) -> Tensor:
        """Feed one token per request; returns the next ones."""
        place, meta = self.meta([1] * len(self.prompt_lengths))
        hidden = self.decoder(tokens, place, self.attention.bind(self.kv, meta))
        return self.decoder.logits(hidden).argmax(-1)

    def generate(self) -> Tensor:
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


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mixtral"])
def test_one_request_gives_the_same_tokens_through_the_kernels_of_one_token(family: str, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    calls: list[str] = []

    def linear(x: Tensor, weight: Tensor, norm: tuple[Tensor, float] | None, residual: Tensor | None) -> Tensor:
        calls.append("linear")
        return vector_linear(x, weight, norm, residual)

    def gate_up(x: Tensor, weight: Tensor, norm: tuple[Tensor, float] | None) -> Tensor:
        calls.append("gate_up")
        return vector_gate_up(x, weight, norm)

    # On the CPU fp32 matrices are packed for oneDNN, fp16 ones are not.
    dtype = torch.float32 if DEVICE.type == "cuda" else torch.float16
    fused = replace(OPERATORS, one_token=OneTokenOperators(linear, gate_up))
    with torch.inference_mode():
        expected = Session(load(folder, REFERENCE, dtype), "torch_ref", (9,)).generate()
        assert torch.equal(Session(load(folder, fused, dtype), "triton_paged", (9,)).generate(), expected)
    layers = 0 if family == "mixtral" else 2
    assert calls.count("linear") == 3 * layers * NEW_TOKENS
    assert calls.count("gate_up") == layers * NEW_TOKENS


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_captured_decode_step_is_replayed_for_every_token(family: str, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    with torch.inference_mode():
        expected = Session(load(folder, REFERENCE), "torch_ref").generate()
        session = Session(load(folder, OPERATORS), "triton_paged")
        tokens = [session.prefill()]
        place, meta = session.meta([1] * len(THREE_PROMPTS))
        static = replace(meta, max_k=5 * BLOCK_SIZE)
        fed = tokens[0].clone()

        def step() -> Tensor:
            hidden = session.decoder(fed, place, session.attention.bind(session.kv, static))
            return session.decoder.logits(hidden).argmax(-1)

        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            following = step()
        for index in range(NEW_TOKENS):
            if index:
                new_place, new_meta = session.meta([1] * len(THREE_PROMPTS))
                place.copy_(new_place)
                static.seq_lens_B.copy_(new_meta.seq_lens_B)
                static.slot_mapping_T.copy_(new_meta.slot_mapping_T)
            fed.copy_(tokens[-1])
            graph.replay()
            tokens.append(following.clone())
    assert torch.equal(torch.stack(tokens), expected)
