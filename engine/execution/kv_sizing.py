"""How many KV blocks fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.config import EngineConfig

_GIB = 1 << 30
_CPU_BYTES = 2 * _GIB
_ACTIVATION_BYTES_PER_TOKEN_AND_COLUMN = 24


def num_kv_blocks(config: EngineConfig, max_len: int, block_size: int, block_bytes: int, device: torch.device) -> int:
    """Blocks in the pool: as configured, or as many as are useful and fit.

    Useful is room for `max_num_seqs` requests of full length, twice over where prefixes are kept. On a GPU what fits is
    `memory_share` of its memory, less what is in use now, the weights above all; on the CPU 2 GiB.

    Raises:
        ConfigError: not even one request of full length fits.
    """
    blocks_per_request = -(-max_len // block_size)
    if config.num_blocks is not None:
        return config.num_blocks
    useful = config.max_num_seqs * blocks_per_request
    fitting = _free_bytes(config, device) // block_bytes
    if fitting < blocks_per_request:
        raise ConfigError(
            f"the KV cache of one request of {max_len} tokens takes {blocks_per_request * block_bytes / _GIB:.2f} GiB, "
            f"but {max(0, fitting) * block_bytes / _GIB:.2f} GiB are left: lower max_model_len or raise memory_share"
        )
    return min(fitting, 2 * useful if config.prefix_caching and config.kv == "paged" else useful)


def _free_bytes(config: EngineConfig, device: torch.device) -> int:
    if device.type != "cuda":
        return _CPU_BYTES
    free, total = torch.cuda.mem_get_info(device)
    # The graphs of mixed steps share one pool of memory of their own, as large as the largest of them needs.
    num_tokens = config.max_num_batched_tokens + config.mixed_graph_tokens
    reserve = _GIB + num_tokens * (1 << 16) * _ACTIVATION_BYTES_PER_TOKEN_AND_COLUMN // 8
    return free - int((1 - config.memory_share) * total) - reserve
