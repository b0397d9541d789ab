"""Batches on their way into a case: collected into groups of rows, whatever they look like."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.load import GROUP_ROWS, CaseLoader
from doctor.case.store import create_case

FACTS = SourceFacts(kind="kineto", tool=None, is_complete=True)


def batch(first: int, count: int, **more: list[str]) -> TableBatch:
    return TableBatch("api_call", pa.record_batch({"start_ns": pa.array(range(first, first + count)), **more}))


def test_small_batches_keep_their_order_and_their_names() -> None:
    with closing(create_case()) as case:
        parts = [batch(3 * at, 3, name=[f"call {at}", "same", "same"]) for at in range(50)]
        CaseLoader(case).load("trace", [*parts, FACTS])
        rows = case.execute(
            "SELECT start_ns, text FROM api_call JOIN text ON text_id = name_id ORDER BY start_ns"
        ).fetchall()
    assert rows == [(3 * at + i, f"call {at}" if i == 0 else "same") for at in range(50) for i in range(3)]


def test_batches_with_other_columns_are_stored_too() -> None:
    with closing(create_case()) as case:
        CaseLoader(case).load("trace", [batch(0, 2), batch(2, 1, name=["named"]), batch(3, 1), FACTS])
        rows = case.execute("SELECT start_ns, name_id IS NOT NULL FROM api_call ORDER BY start_ns").fetchall()
    assert rows == [(0, False), (1, False), (2, True), (3, False)]


def test_a_full_group_and_what_is_left_over_are_all_there() -> None:
    with closing(create_case()) as case:
        CaseLoader(case).load("trace", [batch(0, GROUP_ROWS - 1), batch(GROUP_ROWS - 1, 5), FACTS])
        assert case.execute("SELECT count(*), max(start_ns) FROM api_call").fetchall() == [
            (GROUP_ROWS + 4, GROUP_ROWS + 3)
        ]


def test_rows_keep_their_order_where_batches_are_larger_than_a_group_and_no_multiple_of_it() -> None:
    sizes = (GROUP_ROWS + 7, 2 * GROUP_ROWS + 1, 3, GROUP_ROWS - 11)
    with closing(create_case()) as case:
        firsts = [sum(sizes[:at]) for at in range(len(sizes))]
        parts = [batch(first, size, name=[f"call {first}"] * size) for first, size in zip(firsts, sizes, strict=True)]
        CaseLoader(case).load("trace", [*parts, FACTS])
        rows = case.execute(
            "SELECT text, min(start_ns), count(*), bool_and(start_ns = call.rowid)"
            " FROM api_call AS call JOIN text ON text_id = name_id GROUP BY text ORDER BY 2"
        ).fetchall()
    assert rows == [(f"call {first}", first, size, True) for first, size in zip(firsts, sizes, strict=True)]
