"""Words of enumerations that come as numbers."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from doctor.case.arrays.columns import Coded, streamed


@pytest.mark.parametrize(
    ("words", "spelled"), [(("up", "down"), ["down", "up", None, None]), ((), [None, None, None, None])]
)
def test_numbers_become_words_and_those_without_one_become_null(
    words: tuple[str, ...], spelled: list[str | None]
) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TYPE direction AS ENUM ('down', 'up')")
    rows = pa.table({"place": [0, 1, 2, 3], "way": np.asarray([1, 0, -1, 7], dtype=np.int8)})
    coded = Coded(streamed(iter([rows])), {"way": ("direction", words)})
    connection.register("rows_coded", coded.rows)
    read = connection.execute(f"SELECT place, way, typeof(way) FROM ({coded.spelled('rows_coded')})").fetchall()
    assert [(place, way) for place, way, _ in read] == list(enumerate(spelled))
    assert {kind for *_, kind in read} == {"ENUM('down', 'up')"}
