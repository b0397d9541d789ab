"""Which cached tokens a new token may see."""

import torch
from torch import Tensor


def visible(lengths_R: Tensor, num_queries: int, max_k: int, window: int | None) -> Tensor:
    """Mark the keys that each of the last Q tokens of R requests sees.

    Args:
        lengths_R: int64, tokens of each request, the Q queries included.
        num_queries: Q, the same for all.
        max_k: K, keys per request after padding.
        window: number of last tokens that a query sees, itself included; None is all.

    Returns:
        bool (R, Q, K), true where the key is seen. Causal: no token sees a later one.
    """
    device = lengths_R.device
    query = (lengths_R[:, None] - num_queries + torch.arange(num_queries, device=device))[:, :, None]
    key = torch.arange(max_k, device=device)
    seen = key <= query
    return seen if window is None else seen & (key > query - window)


def additive_mask(lengths: list[int], num_queries: int, max_k: int, window: int | None, like: Tensor) -> Tensor:
    """`visible` as numbers to add to scores: 0 or minus infinity, (R, Q, K) in dtype and on the device of `like`."""
    seen = visible(torch.tensor(lengths, device=like.device), num_queries, max_k, window)
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, -torch.inf)
