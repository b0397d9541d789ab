"""Run a decoder on whole prompts through a chosen backend and KV layout."""

from collections.abc import Callable

import torch

from engine.attention.backend import KvCache
from engine.attention.registry import create_backend
from engine.model.decoder import Decoder
from engine.model.kv.paged import KvGeometry, PagedKv
from tests.support.packed_batch import BlockTables, positions

MakeKv = Callable[[KvGeometry, int, int], KvCache]


def paged(geometry: KvGeometry, num_blocks: int, block_size: int) -> KvCache:
    return PagedKv(geometry, num_blocks, block_size, geometry.dtype, torch.device("cpu"))


def paged_on(device: torch.device) -> MakeKv:
    def make(geometry: KvGeometry, num_blocks: int, block_size: int) -> KvCache:
        return PagedKv(geometry, num_blocks, block_size, geometry.dtype, device)

    return make


def geometry_of(decoder: Decoder) -> KvGeometry:
    return KvGeometry(decoder.layer_range, decoder.num_kv_heads, decoder.geometry.head_dim, decoder.dtype)


def logits_of(
    decoder: Decoder,
    prompts: list[torch.Tensor],
    chunks: list[list[int]],
    backend: str = "torch_ref",
    make_kv: MakeKv = paged,
    block_size: int = 8,
) -> list[torch.Tensor]:
    """Logits of every token of every prompt.

    Args:
        decoder: the whole model.
        prompts: token ids, int64, on the CPU.
        chunks: for each pass the number of tokens that each prompt advances; they add up to the prompts' lengths.
        backend: name of the attention backend.
        make_kv: builds the KV layout from geometry, number of blocks and block size.
        block_size: slots per block.
    """
    longest = max(len(prompt) for prompt in prompts)
    tables = BlockTables(len(prompts), -(-longest // block_size), block_size)
    kv = make_kv(geometry_of(decoder), tables.num_blocks, block_size)
    attention = create_backend(backend, decoder.attention_spec)
    device = decoder.rotary.cos_PD.device
    done = [0] * len(prompts)
    parts: list[list[torch.Tensor]] = [[] for _ in prompts]
    with torch.inference_mode():
        for step in chunks:
            spans = list(zip(done, step, strict=True))
            fed = [prompt[start : start + count] for prompt, (start, count) in zip(prompts, spans, strict=True)]
            hidden = decoder(
                torch.cat(fed).to(device), positions(spans).to(device), attention.bind(kv, tables.meta(spans, device))
            )
            for part, piece in zip(parts, torch.split(decoder.logits(hidden), step), strict=True):
                part.append(piece.cpu())
            done = [start + count for start, count in spans]
    return [torch.cat(part) for part in parts]


def draw_prompts(lengths: tuple[int, ...], vocab_size: int, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocab_size, (length,), generator=generator) for length in lengths]
