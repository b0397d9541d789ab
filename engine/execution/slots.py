"""Rows of the runner's buffers, lent to requests while they run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class SlotTable:
    """Gives each request of a step a slot of its own.

    A request keeps its slot from step to step. There are as many slots as a step has requests at most, so a request
    that sits out a step (it was preempted, or is over the budget) may lose its slot to another one: what the buffers
    held for it is rebuilt from its known tokens when it comes back.
    """

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: OrderedDict[int, int] = OrderedDict()

    def assign(self, request_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Slots of the requests of a step, in order, and which of the requests hold their slot only from now on.

        Raises:
            ValueError: the step has more requests than there are slots.
        """
        for request_id in request_ids:
            if request_id in self._slots:
                self._slots.move_to_end(request_id)
        arrived = [request_id for request_id in request_ids if request_id not in self._slots]
        for request_id in arrived:
            self._slots[request_id] = self._take(request_ids)
        return [self._slots[request_id] for request_id in request_ids], arrived

    def release(self, request_id: int) -> None:
        """Take the slot back, if the request has one."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)

    def _take(self, running: Sequence[int]) -> int:
        if self._free:
            return self._free.pop()
        oldest = next(iter(self._slots))
        if oldest in running:
            raise ValueError(f"a step of {len(running)} requests has more requests than there are slots")
        return self._slots.pop(oldest)
