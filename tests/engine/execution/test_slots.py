from __future__ import annotations

import pytest

from engine.execution.slots import SlotTable


def test_a_request_keeps_its_slot_and_only_new_ones_arrive() -> None:
    table = SlotTable(3)
    first, arrived = table.assign([10, 11])
    assert arrived == [10, 11]
    again, arrived = table.assign([11, 10, 12])
    assert again[:2] == first[::-1]
    assert arrived == [12]
    assert len(set(again)) == 3


def test_a_request_that_sits_out_loses_its_slot_before_one_that_runs() -> None:
    table = SlotTable(2)
    (slot_10, slot_11), _ = table.assign([10, 11])
    slots, arrived = table.assign([11, 12])
    assert slots == [slot_11, slot_10]
    assert arrived == [12]
    assert table.assign([10, 12])[1] == [10]


def test_released_slots_are_lent_again() -> None:
    table = SlotTable(1)
    table.assign([10])
    table.release(10)
    table.release(10)
    assert table.assign([11]) == ([0], [11])


def test_more_requests_than_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="more requests than there are slots"):
        SlotTable(1).assign([1, 2])
