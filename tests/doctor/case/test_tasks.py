from __future__ import annotations

import threading
from collections.abc import Callable

import duckdb
import pytest

from doctor.case.connection import connect
from doctor.case.tasks import Task, each, run


def sql(statement: str, reads: set[str], makes: set[str]) -> Task:
    def work(cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.execute(statement)

    return Task(frozenset(reads), frozenset(makes), work)


def doing(work: Callable[[], object], *makes: str) -> Task:
    def task(cursor: duckdb.DuckDBPyConnection) -> None:
        work()

    return Task(frozenset(), frozenset(makes), task)


def test_tasks_that_change_one_table_do_so_in_their_order() -> None:
    case = connect()
    tasks = [sql("CREATE TABLE log (place INTEGER)", set(), {"log"})]
    tasks += [sql(f"INSERT INTO log VALUES ({place})", set(), {"log"}) for place in range(40)]
    run(case, tasks)
    assert case.execute("SELECT place FROM log").fetchall() == [(place,) for place in range(40)]


def test_a_table_is_changed_only_when_those_before_have_read_it() -> None:
    case = connect()
    case.execute("CREATE TABLE known AS SELECT range AS number FROM range(200000)")
    tasks = [
        sql(f"CREATE TABLE seen_{at} AS SELECT sum(number) FROM known", {"known"}, {f"seen_{at}"}) for at in (1, 2)
    ]
    run(case, [*tasks, sql("DELETE FROM known", set(), {"known"})])
    assert case.execute("SELECT * FROM seen_1 UNION ALL SELECT * FROM seen_2").fetchall() == [(19999900000,)] * 2


def test_tasks_that_have_nothing_in_common_run_at_the_same_time() -> None:
    both = threading.Barrier(2)
    run(connect(), [doing(lambda: both.wait(60), "one"), doing(lambda: both.wait(60), "other")])
    assert not both.broken


def test_what_a_task_raises_is_raised_and_what_waits_for_it_does_not_run() -> None:
    case = connect()
    tasks = [sql("SELECT * FROM nowhere", set(), {"it"}), sql("CREATE TABLE behind AS SELECT 1", {"it"}, {"behind"})]
    with pytest.raises(duckdb.CatalogException, match="nowhere"):
        run(case, tasks)
    assert case.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []


def test_each_gives_results_in_the_order_of_the_items() -> None:
    assert each(lambda number: number * number, range(50)) == [number * number for number in range(50)]
