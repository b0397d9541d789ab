"""Which replica of the engine gets a request: the one that then has the least left to compute.

Tokens still to be computed are added up per replica. A prompt whose start a replica has seen before costs it less by
the tokens it can reuse, so requests with a common prefix stay together; but a prefix is worth no more than the tokens
it saves, so a popular one spreads to other replicas as soon as its home is further behind than that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduling.length_history import LengthHistory
from engine.scheduling.prefix_cache import block_digest
from engine.scheduling.request import Request


@dataclass(slots=True)
class Replica:
    """What the balancer believes about one replica: its work, and the prefixes it was sent, latest last."""

    num_outstanding: int = 0
    digests: OrderedDict[bytes, None] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class Assignment:
    """One request at its replica. `prompt_left` and `output_left` are in units of the replica's outstanding work."""

    replica: Replica
    limit: int
    prompt_left: int
    output_left: int
    num_generated: int = 0


@dataclass(frozen=True, slots=True)
class BalancerConfig:
    """Sizes of the balancer.

    `block_size` and `max_blocks`: prefix blocks, and how many a replica is believed to keep. `output_weight`: how many
    prompt tokens one generated token costs, because a prompt is computed many tokens at a time. `max_outstanding`
    guards against overload: a busy replica gets nothing that would bring its work above it.
    """

    block_size: int
    max_blocks: int
    max_outstanding: int
    output_weight: int = 4


class Balancer:
    """Assigns requests to replicas and follows how far they are."""

    def __init__(self, num_replicas: int, config: BalancerConfig, lengths: LengthHistory | None = None) -> None:
        self.replicas = [Replica() for _ in range(num_replicas)]
        self._config = config
        self._lengths = lengths or LengthHistory()
        self._assigned: dict[int, Assignment] = {}

    def assign(self, request: Request) -> int | None:
        """Index of the replica for a request; None where all are loaded to the limit and the request has to wait."""
        digests = self._digests(request.prompt_token_ids)
        output = self._lengths.num_left(request) * self._config.output_weight
        prompts = [self._num_new(replica, request, digests) for replica in self.replicas]
        loads = [replica.num_outstanding + new for replica, new in zip(self.replicas, prompts, strict=True)]
        index = min(range(len(loads)), key=loads.__getitem__)
        replica = self.replicas[index]
        if replica.num_outstanding > 0 and loads[index] + output > self._config.max_outstanding:
            return None
        replica.num_outstanding += prompts[index] + output
        self._assigned[request.request_id] = Assignment(replica, request.max_new_tokens, prompts[index], output)
        self._remember(replica, digests)
        return index

    def advance(self, request_id: int, num_tokens: int) -> None:
        """Count generated tokens of a request, and with the first of them its prompt, as computed."""
        assignment = self._assigned[request_id]
        done = min(num_tokens * self._config.output_weight, assignment.output_left)
        assignment.replica.num_outstanding -= assignment.prompt_left + done
        assignment.prompt_left = 0
        assignment.output_left -= done
        assignment.num_generated += num_tokens

    def finish(self, request_id: int) -> None:
        """Count nothing more for a request, and learn from its length."""
        assignment = self._assigned[request_id]
        self._lengths.add(assignment.limit, assignment.num_generated)
        self.withdraw(request_id)

    def withdraw(self, request_id: int) -> None:
        """Count nothing more for a request that was aborted or failed."""
        assignment = self._assigned.pop(request_id)
        assignment.replica.num_outstanding -= assignment.prompt_left + assignment.output_left

    def _digests(self, token_ids: Sequence[int]) -> list[bytes]:
        size = self._config.block_size
        digests: list[bytes] = []
        for end in range(size, len(token_ids), size):
            digests.append(block_digest(digests[-1] if digests else b"", token_ids[end - size : end]))
        return digests

    def _num_new(self, replica: Replica, request: Request, digests: Sequence[bytes]) -> int:
        num_known = 0
        while num_known < len(digests) and digests[num_known] in replica.digests:
            num_known += 1
        return len(request.prompt_token_ids) - num_known * self._config.block_size

    def _remember(self, replica: Replica, digests: Sequence[bytes]) -> None:
        for digest in reversed(digests):
            replica.digests[digest] = None
            replica.digests.move_to_end(digest)
        while len(replica.digests) > self._config.max_blocks:
            replica.digests.popitem(last=False)
