"""Perplexity and memory of every weight format and of the FP8 cache, on the real small model.

`python -m tests.benchmarks.quantised_perplexity [DEVICE]` prints one JSON object. The text is Python's own manual, as
it lies in `pydoc_data.topics` of the standard library: English with code, the same wherever this Python version is.
The model came from four-bit numbers in groups of 32, so that INT4 with the same groups loses next to nothing on it:
read that row as a check of the code, not as what four bits cost a model that was trained in sixteen.
"""

import json
import math
import platform
import sys
import time
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer

from engine.attention.backend import KvCache
from engine.attention.registry import create_backend
from engine.model.decoder import Decoder
from engine.model.kv.paged import FP8, KvGeometry, PagedKv
from engine.model.memory import weight_bytes
from engine.model.weight_format import WeightFormat
from engine.model.weights import LoadOptions, load_decoder
from tests.support.packed_batch import BlockTables, positions
from tests.support.real_small_model import small_model_folder

NUM_CHUNKS, CHUNK = 8, 512
BLOCK = 16


def main(device_name: str) -> None:
    """Measure all variants and print them."""
    device = torch.device(device_name)
    tokenizer = AutoTokenizer.from_pretrained(small_model_folder(), local_files_only=True)
    text = "\n".join(topics[name] for name in sorted(topics, key=lambda name: -len(topics[name])))
    tokens = torch.tensor(tokenizer(text).input_ids[: NUM_CHUNKS * CHUNK]).view(NUM_CHUNKS, CHUNK)
    variants = [("none", torch.float32, False), ("none", torch.bfloat16, False), ("none", torch.bfloat16, True)]
    variants += [(name, torch.bfloat16, False) for name in ("fp8", "int8", "int4")]
    rows = [measure(tokens, device, *variant) for variant in variants]
    print(
        json.dumps(
            {
                "schema": "engine.quantised_perplexity/1",
                "model": "SmolLM2-135M-Instruct",
                "tokens": tokens.numel(),
                "chunk": CHUNK,
                "device": device_name,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "rows": rows,
            },
            indent=1,
        )
    )


def measure(tokens: Tensor, device: torch.device, name: str, dtype: torch.dtype, has_fp8_kv: bool) -> dict[str, Any]:
    """Load one variant and score every chunk on its own."""
    options = LoadOptions(device, dtype, max_positions=CHUNK, weight_format=WeightFormat(name))
    decoder = load_decoder(small_model_folder(), options)
    stored = FP8 if has_fp8_kv else dtype
    geometry = KvGeometry(decoder.layer_range, decoder.num_kv_heads, decoder.geometry.head_dim, dtype)
    kv = PagedKv(geometry, -(-CHUNK // BLOCK), BLOCK, stored, device)
    begin = time.perf_counter()
    loss = sum(negative_log_likelihood(decoder, kv, chunk.to(device)) for chunk in tokens)
    return {
        "weights": name,
        "dtype": str(dtype).removeprefix("torch."),
        "kv": str(stored).removeprefix("torch."),
        "perplexity": round(math.exp(loss / (tokens.numel() - len(tokens))), 4),
        "weight_bytes": decoder.weight_bytes,
        "layer_weight_bytes": layer_bytes(decoder),
        "kv_bytes": kv.num_bytes,
        "seconds": round(time.perf_counter() - begin, 2),
    }


def layer_bytes(decoder: Decoder) -> int:
    """Bytes of the layers alone, without embedding, head and rotary table."""
    return weight_bytes(decoder.layers)


@torch.inference_mode()
def negative_log_likelihood(decoder: Decoder, kv: KvCache, chunk: Tensor) -> float:
    """Sum over the chunk of -log p(token | tokens before it)."""
    spans = [(0, len(chunk))]
    meta = BlockTables(1, -(-CHUNK // BLOCK), BLOCK).meta(spans, chunk.device)
    attend = create_backend("torch_ref", decoder.attention_spec).bind(kv, meta)
    logits = decoder.logits(decoder(chunk, positions(spans).to(chunk.device), attend))
    return float(cross_entropy(logits[:-1].float(), chunk[1:], reduction="sum"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
