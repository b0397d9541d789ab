"""Tiles of the one-token kernels, where they run: in the decode step of a model. And splits of decode attention.

Prints one line per choice, the fastest last. Needs a GPU. Usage: python -m tests.benchmarks.gpu_tuning --out FILE
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.kernels import paged_decode
from engine.kernels.vector_linear import VectorTile
from tests.benchmarks.gpu_decode_step import MODELS, Llama, Model, capture, set_overlap
from tests.benchmarks.gpu_kernels import measure_decode_attention
from tests.benchmarks.gpu_timing import time_replays, write_results

TILES = (
    VectorTile(4, 2048, 4),
    VectorTile(4, 1024, 4),
    VectorTile(2, 1024, 2),
    VectorTile(4, 512, 2),
    VectorTile(2, 2048, 4),
    VectorTile(8, 1024, 8),
    VectorTile(1, 4096, 4),
    VectorTile(1, 2048, 2),
)
SPLITS = ((64, 16, 64), (128, 16, 64), (256, 16, 64), (128, 32, 64), (128, 16, 128), (128, 16, 32))
DECODE_CASES = (
    (1, 1, 512, (32, 8), 16),
    (1, 1, 8192, (32, 8), 16),
    (64, 1, 1024, (32, 8), 16),
    (64, 1, 4096, (32, 8), 16),
    (64, 5, 1024, (32, 8), 16),
)
Row = dict[str, Any]


def tune_step(shape: Llama, context: int = 512) -> list[Row]:
    """Vary the tile of one weight at a time, then overlap with the best of all."""
    model = Model(shape, 1, 1, context)
    rows: list[Row] = []
    best: dict[str, VectorTile] = {}
    for weight in ("gate_up", "down", "qkv", "out"):
        timed = [(time_step(model, {**best, weight: tile}), tile) for tile in TILES]
        rows += [{"model": shape.name, "weight": weight, "tile": str(tile), "ms": ms} for ms, tile in timed]
        best[weight] = min(timed, key=lambda pair: pair[0])[1]
    for overlap in (True, False):
        set_overlap(overlap)
        rows.append({"model": shape.name, "overlap": overlap, "tiles": str(best), "ms": time_step(model, best)})
    set_overlap(True)
    return rows


def time_step(model: Model, tiles: dict[str, VectorTile]) -> float:
    """Milliseconds of a step."""
    return time_replays(capture(partial(model.fused_step, tiles))[0], 15) * 1e3


def tune_splits() -> list[Row]:
    """Decode attention for several ways to cut the keys."""
    rows: list[Row] = []
    for min_split, max_splits, block in SPLITS:
        paged_decode.MIN_SPLIT, paged_decode.MAX_SPLITS, paged_decode.BLOCK_N = min_split, max_splits, block
        measured = measure_decode_attention(DECODE_CASES)
        rows += [{"split": (min_split, max_splits, block), **row} for row in measured if row["kernel"] == "triton"]
    return rows


def main() -> None:
    """Run all, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows: list[Row] = []
    with torch.inference_mode():
        rows += tune_splits()
        write_results(options.out, "gpu_tuning", rows)
        for shape in MODELS:
            rows += tune_step(shape)
            write_results(options.out, "gpu_tuning", rows)
    for row in rows:
        print({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()})


if __name__ == "__main__":
    main()
