"""Work on a case, two pieces at a time: what comes out is what one after the other would give.

A task waits for each earlier one that makes something it reads or makes, or that reads something it makes. DuckDB and
numpy leave the interpreter free for the other task, so two of them fill two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import duckdb

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

SIDE_BY_SIDE = 2
"""Tasks at a time: more would hold more memory, and each may use several cores itself."""


@dataclass(frozen=True)
class Task:
    """One piece of work on a case.

    Attributes:
        reads: names of tables and of anything else that has to be there.
        makes: names of what it creates or changes.
        work: does it, on a cursor that no other task uses at the time.
    """

    reads: frozenset[str]
    makes: frozenset[str]
    work: Callable[[duckdb.DuckDBPyConnection], None]

    def waits_for(self, earlier: Task) -> bool:
        """Tell whether `earlier` has to be done first."""
        return bool(earlier.makes & (self.reads | self.makes)) or bool(earlier.reads & self.makes)


def run(connection: duckdb.DuckDBPyConnection, tasks: Sequence[Task]) -> None:
    """Run all tasks; of those that may begin the earliest goes first. What one raises is raised, the others stop."""
    needs = [
        {place for place, earlier in enumerate(tasks[:own]) if task.waits_for(earlier)}
        for own, task in enumerate(tasks)
    ]
    waiting, done = list(range(len(tasks))), set[int]()
    free = [connection.cursor() for _ in range(SIDE_BY_SIDE)]
    running: dict[Future[None], tuple[int, duckdb.DuckDBPyConnection]] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE, "doctor-derives") as pool:
        try:
            while waiting or running:
                for own in [own for own in waiting if needs[own] <= done][: len(free)]:
                    cursor = free.pop()
                    running[pool.submit(tasks[own].work, cursor)] = own, cursor
                    waiting.remove(own)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    own, cursor = running.pop(future)
                    free.append(cursor)
                    future.result()
                    done.add(own)
        except BaseException:
            for _, cursor in running.values():
                cursor.interrupt()
            raise


def each(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """What a function gives for each item, in their order."""
    with ThreadPoolExecutor(SIDE_BY_SIDE, "doctor-works") as pool:
        return list(pool.map(function, items))
