"""Which replica of the engine gets a request: the one that then has the least left to compute.

Tokens still to be computed are added up per replica. A prompt whose start a replica has seen before costs it less by
the tokens it can reuse, so requests with a common prefix stay together; but a prefix is worth no more than the tokens
it saves, so a popular one spreads to other replicas as soon as its home is further behind than that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduling.prefix_cache import block_digest
from engine.scheduling.request import Request


@dataclass(slots=True)
class Replica:
    """What the balancer believes about one replica: its work, and the prefixes it was sent, latest last."""

    num_outstanding: int = 0
    digests: OrderedDict[bytes, None] = field(default_factory=OrderedDict)


class Balancer:
    """Assigns requests to `num_replicas` replicas with prefix blocks of `block_size` tokens.

    `max_outstanding` guards against overload: a replica is given nothing that would bring its tokens above it.
    `max_blocks` is how many prefix blocks a replica is believed to keep.
    """

    def __init__(self, num_replicas: int, block_size: int, max_outstanding: int, max_blocks: int) -> None:
        self.replicas = [Replica() for _ in range(num_replicas)]
        self._block_size = block_size
        self._max_outstanding = max_outstanding
        self._max_blocks = max_blocks
        self._assigned: dict[int, tuple[Replica, int]] = {}

    def assign(self, request: Request) -> int | None:
        """Index of the replica for a request; None where all are loaded to the limit and the request has to wait."""
        digests = self._digests(request.prompt_token_ids)
        costs = [self._cost(replica, request, digests) for replica in self.replicas]
        loads = [replica.num_outstanding + cost for replica, cost in zip(self.replicas, costs, strict=True)]
        index = min(range(len(loads)), key=loads.__getitem__)
        if loads[index] > self._max_outstanding and self.replicas[index].num_outstanding > 0:
            return None
        self._give(self.replicas[index], request.request_id, costs[index], digests)
        return index

    def advance(self, request_id: int, num_tokens: int) -> None:
        """Count tokens of a request as computed."""
        replica, left = self._assigned[request_id]
        done = min(num_tokens, left)
        replica.num_outstanding -= done
        self._assigned[request_id] = (replica, left - done)

    def finish(self, request_id: int) -> None:
        """Count nothing more for a request, however it ended."""
        replica, left = self._assigned.pop(request_id)
        replica.num_outstanding -= left

    def _digests(self, token_ids: Sequence[int]) -> list[bytes]:
        digests: list[bytes] = []
        parent = b""
        for end in range(self._block_size, len(token_ids), self._block_size):
            parent = block_digest(parent, token_ids[end - self._block_size : end])
            digests.append(parent)
        return digests

    def _cost(self, replica: Replica, request: Request, digests: Sequence[bytes]) -> int:
        num_known = 0
        while num_known < len(digests) and digests[num_known] in replica.digests:
            num_known += 1
        return len(request.prompt_token_ids) - num_known * self._block_size + request.num_left

    def _give(self, replica: Replica, request_id: int, cost: int, digests: Sequence[bytes]) -> None:
        replica.num_outstanding += cost
        self._assigned[request_id] = (replica, cost)
        for digest in reversed(digests):
            replica.digests[digest] = None
            replica.digests.move_to_end(digest)
        while len(replica.digests) > self._max_blocks:
            replica.digests.popitem(last=False)
