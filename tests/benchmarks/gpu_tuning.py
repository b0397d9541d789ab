"""Settings of kernels, measured where they run: tiles of one-token products in a decode step, and of attention.

Needs a GPU. Usage: python -m tests.benchmarks.gpu_tuning --out FILE [--only splits prefill step]
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.kernels import paged_decode, paged_prefill
from engine.kernels.paged_prefill import PrefillTile
from engine.kernels.vector_linear import VectorTile
from tests.benchmarks.gpu_decode_step import MODELS, Llama, Model, capture, set_overlap
from tests.benchmarks.gpu_kernels import measure_decode_attention, measure_prefill_attention
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
SPLITS = (
    (128, 16, 64, 4, 5),
    (128, 16, 128, 4, 3),
    (128, 16, 64, 4, 3),
    (128, 16, 64, 4, 7),
    (256, 16, 64, 4, 5),
    (128, 16, 32, 4, 7),
    (128, 16, 64, 8, 5),
)
"""Least keys per split, most splits, keys per step, warps, stages."""

PREFILL_TILES = (
    PrefillTile(128, 64, 8, 5),
    PrefillTile(128, 64, 8, 3),
    PrefillTile(128, 64, 8, 7),
    PrefillTile(128, 32, 8, 5),
    PrefillTile(64, 64, 4, 3),
    PrefillTile(64, 64, 4, 5),
    PrefillTile(128, 128, 8, 3),
)
PREFILL_CASES = ((4, 2048, 2048, (16, 4)), (4, 2048, 2048, (32, 8)))
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
    default = SPLITS[0]
    for split in SPLITS:
        set_split(*split)
        setting = "split {}, {} splits, step {}, {} warps, {} stages".format(*split)
        measured = measure_decode_attention(DECODE_CASES, has_peer=False)
        rows += [{"setting": setting, **row} for row in measured]
    set_split(*default)
    return rows


def set_split(min_split: int, max_splits: int, block: int, num_warps: int, num_stages: int) -> None:
    """Change the settings of decode attention."""
    paged_decode.MIN_SPLIT, paged_decode.MAX_SPLITS, paged_decode.BLOCK_N = min_split, max_splits, block
    paged_decode.NUM_WARPS, paged_decode.NUM_STAGES = num_warps, num_stages


def tune_prefill() -> list[Row]:
    """Prefill attention for several tiles."""
    rows: list[Row] = []
    default = paged_prefill.TILE
    for tile in PREFILL_TILES:
        paged_prefill.TILE = tile
        measured = measure_prefill_attention(PREFILL_CASES, has_peers=False)
        rows += [{"setting": str(tile), **row} for row in measured]
    paged_prefill.TILE = default
    return rows


def tune_steps() -> list[Row]:
    """Both models."""
    return [row for shape in MODELS for row in tune_step(shape)]


SECTIONS = {"splits": tune_splits, "prefill": tune_prefill, "step": tune_steps}


def main() -> None:
    """Run the sections, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    options = parser.parse_args()
    torch.manual_seed(0)
    rows: list[Row] = []
    with torch.inference_mode():
        for name in options.only:
            rows += SECTIONS[name]()
            write_results(options.out, "gpu_tuning", rows)
    for row in rows:
        print({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()})


if __name__ == "__main__":
    main()
