from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

import numpy as np  # noqa: E402

from engine.execution.batch import batch_numbers, block_table, pack  # noqa: E402
from engine.execution.cuda_graphs import DecodeInputs, GraphSizes  # noqa: E402
from engine.execution.runner import pieces  # noqa: E402
from engine.execution.staging import HostStaging, layout_size, layout_views  # noqa: E402
from engine.scheduling.plan import ScheduledRequest  # noqa: E402

BLOCK = 4
PREFILL = ScheduledRequest(1, 2, 5, (7, 3), (11, 12, 13, 14, 15), (), samples=True)
CHUNK = ScheduledRequest(2, 0, 3, (5,), (21, 22, 23), (), samples=False)
DECODE = ScheduledRequest(3, 8, 1, (9, 8, 6), (31,), (), samples=True)
IN_FLIGHT = ScheduledRequest(4, 4, 1, (2, 4), (), (), samples=True)
VERIFY = ScheduledRequest(5, 6, 3, (1, 0, 12), (41, 42, 43), (42, 43), samples=True)


def test_a_mixed_step_is_packed_in_the_order_of_its_requests() -> None:
    batch = pack([PREFILL, CHUNK, DECODE, IN_FLIGHT, VERIFY], [4, 3, 2, 1, 0], BLOCK, HostStaging())
    assert batch.token_ids_T.tolist() == [11, 12, 13, 14, 15, 21, 22, 23, 31, 0, 41, 42, 43]
    assert batch.positions_T.tolist() == [2, 3, 4, 5, 6, 0, 1, 2, 8, 4, 6, 7, 8]
    assert batch.from_last_T.tolist() == [0] * 9 + [1] + [0] * 3
    assert batch.slots_T.tolist() == [4] * 5 + [3] * 3 + [2, 1, 0, 0, 0]
    assert batch.meta.cu_q_B1.tolist() == [0, 5, 8, 9, 10, 13]
    assert batch.meta.seq_lens_B.tolist() == [7, 3, 9, 5, 9]
    assert (batch.meta.max_q, batch.meta.max_k) == (5, 9)
    assert batch.takes_last


def test_each_token_is_written_to_its_place_in_the_block_table() -> None:
    batch = pack([PREFILL, VERIFY], [0, 1], BLOCK, HostStaging())
    expected = [7 * 4 + 2, 7 * 4 + 3, 3 * 4, 3 * 4 + 1, 3 * 4 + 2, 0 * 4 + 2, 0 * 4 + 3, 12 * 4]
    assert batch.meta.slot_mapping_T.tolist() == expected


def test_logits_are_taken_of_the_last_token_and_of_each_draft() -> None:
    batch = pack([PREFILL, CHUNK, VERIFY], [4, 3, 2], BLOCK, HostStaging())
    assert batch.logit_rows_R.tolist() == [4, 8, 9, 10]
    assert batch.row_slots_R.tolist() == [4, 2, 2, 2]


def test_block_tables_are_padded_to_a_width_that_does_not_change_with_every_step() -> None:
    table = block_table([(1, 2, 3), tuple(range(20))])
    assert table.shape == (2, 32)
    assert table[0, :4].tolist() == [1, 2, 3, 0]
    assert block_table([(1,)]).shape == (1, 16)


def test_decode_inputs_of_a_graph_equal_the_packed_batch_and_are_padded_behind_it() -> None:
    sizes = GraphSizes(max_requests=8, max_len=64, block_size=BLOCK)
    inputs = DecodeInputs(num_requests=8, num_tokens=1, sizes=sizes)
    inputs.fill([DECODE] * 5, [5, 4, 3, 2, 1])
    inputs.fill([DECODE, IN_FLIGHT], [6, 7])
    packed = batch_numbers([DECODE, IN_FLIGHT], [6, 7], BLOCK)
    numbers = inputs.numbers
    for name in ("token_ids_T", "positions_T", "from_last_T", "slots_T", "slot_mapping_T", "row_slots_R", "seq_lens_B"):
        assert getattr(numbers, name)[:2].tolist() == getattr(packed, name).tolist(), name
    for row, item in enumerate((DECODE, IN_FLIGHT)):
        assert numbers.block_table_BM[row, : len(item.block_ids)].tolist() == list(item.block_ids)
    assert numbers.slot_mapping_T[2:].tolist() == [-1] * 6
    assert numbers.seq_lens_B[2:].tolist() == [0] * 6
    assert numbers.slots_T[2:].tolist() == numbers.row_slots_R[2:].tolist() == [8] * 6
    assert numbers.from_last_T[2:].tolist() == [0] * 6


def test_verification_inputs_of_a_graph_equal_the_packed_batch() -> None:
    inputs = DecodeInputs(2, 3, GraphSizes(4, 64, BLOCK, (1, 3)))
    inputs.fill([VERIFY], [2])
    packed = batch_numbers([VERIFY], [2], BLOCK)
    assert inputs.numbers.token_ids_T[:3].tolist() == packed.token_ids_T.tolist()
    assert inputs.numbers.slot_mapping_T[:3].tolist() == packed.slot_mapping_T.tolist()
    assert inputs.numbers.cu_q_B1.tolist() == [0, 3, 6]
    assert inputs.numbers.logit_rows_R[:3].tolist() == packed.logit_rows_R.tolist()


def test_graph_sizes_grow_to_the_largest_batch() -> None:
    assert GraphSizes(20, 64, 4).buckets() == (1, 2, 4, 8, 16, 20)
    assert GraphSizes(1, 64, 4).buckets() == (1,)
    assert GraphSizes(64, 64, 4).buckets()[-2:] == (56, 64)


def test_packed_arrays_are_found_again_in_one_buffer() -> None:
    arrays = batch_numbers([PREFILL, DECODE], [0, 1], BLOCK).arrays()
    buffer = torch.zeros(layout_size(arrays), dtype=torch.uint8)
    for view, array in zip(layout_views(arrays, buffer), arrays, strict=True):
        view.copy_(torch.from_numpy(array))
    for view, array in zip(layout_views(arrays, buffer), arrays, strict=True):
        assert np.array_equal(view.numpy(), array)


@pytest.mark.parametrize(("size", "expected"), [(None, [5]), (5, [5]), (2, [2, 2, 1]), (1, [1] * 5)])
def test_a_step_of_b_sequences_runs_as_ceil_b_over_n_pieces(size: int | None, expected: list[int]) -> None:
    assert [len(piece) for piece in pieces([DECODE] * 5, size)] == expected


def test_a_step_without_requests_has_no_pieces() -> None:
    assert pieces([], 3) == []
