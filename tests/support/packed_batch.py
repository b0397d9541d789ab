"""Packed batches for tests: requests as (start, new tokens), blocks dealt out in a shuffled order."""

from dataclasses import dataclass, field

import torch

from engine.attention.meta import AttentionMeta

CPU = torch.device("cpu")


@dataclass
class BlockTables:
    """Gives every request blocks of its own from a pool of `num_blocks`, in an order drawn from `seed`."""

    num_requests: int
    blocks_per_request: int
    block_size: int
    seed: int = 0
    table: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        order = torch.randperm(self.num_blocks, generator=torch.Generator().manual_seed(self.seed))
        self.table = order.view(self.num_requests, self.blocks_per_request).int()

    @property
    def num_blocks(self) -> int:
        return self.num_requests * self.blocks_per_request

    def meta(self, spans: list[tuple[int, int]], device: torch.device = CPU) -> AttentionMeta:
        """Describe a pass in which request b feeds `spans[b]` = (first position, number of new tokens)."""
        new = [count for _, count in spans]
        lengths = [start + count for start, count in spans]
        slots = [self.slots(row, start, count) for row, (start, count) in enumerate(spans)]
        return AttentionMeta(
            cu_q_B1=torch.tensor([0, *new]).cumsum(0).int().to(device),
            seq_lens_B=torch.tensor(lengths).int().to(device),
            block_table_BM=self.table[: len(spans)].to(device),
            slot_mapping_T=torch.cat(slots).to(device),
            max_q=max(new),
            max_k=max(lengths),
        )

    def slots(self, row: int, start: int, count: int) -> torch.Tensor:
        position = torch.arange(start, start + count)
        return self.table[row].long()[position // self.block_size] * self.block_size + position % self.block_size


def positions(spans: list[tuple[int, int]]) -> torch.Tensor:
    """Positions of the new tokens, packed."""
    return torch.cat([torch.arange(start, start + count) for start, count in spans])
