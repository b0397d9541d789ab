"""Asks the case: every query runs in a worker thread, with a cursor that no other thread uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from doctor.errors import CaseError

if TYPE_CHECKING:  # DuckDB is imported in the worker: the first screen does not wait for it
    import duckdb

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


class _Line:
    """One worker thread and its cursor; the cursor is made in that thread."""

    def __init__(self, name: str, connect: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._connect = connect
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"case-{name}")

    async def ask(
        self,
        query: Callable[Concatenate[duckdb.DuckDBPyConnection, Parameters], Answer],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        def work() -> Answer:
            import duckdb  # noqa: PLC0415 - not before the first screen is drawn

            try:
                if self._cursor is None:
                    self._cursor = self._connect()
                return query(self._cursor, *arguments, **named)
            except duckdb.Error as error:
                raise CaseError(f"the case does not answer: {str(error).splitlines()[0]}") from error

        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        except RuntimeError as error:  # the executor has been shut down
            raise CaseError("the case has been closed") from error
        return await future

    def interrupt(self) -> None:
        if self._cursor is not None:
            self._cursor.interrupt()

    def close(self) -> None:
        self.interrupt()
        self._executor.shutdown(wait=True, cancel_futures=True)
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None


class CaseDesk:
    """One opened case with two lines: `timeline` answers key presses, `tables` whatever may take longer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._timeline = _Line("timeline", self._open)
        self._tables = _Line("tables", self._second)
        self._is_prepared = asyncio.Event()

    async def prepare(self) -> None:
        """Open the case and build the level of detail of its time-line; both lines wait for it.

        Raises:
            CaseError: the file is no case of this layout.
        """
        from doctor.case.timeline.prepare import prepare  # noqa: PLC0415 - brings DuckDB

        await self._timeline.ask(prepare)
        self._is_prepared.set()

    async def ask_timeline(
        self,
        query: Callable[Concatenate[duckdb.DuckDBPyConnection, Parameters], Answer],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        """The answer of a query that a key press waits for."""
        await self._is_prepared.wait()
        return await self._timeline.ask(query, *arguments, **named)

    async def ask(
        self,
        query: Callable[Concatenate[duckdb.DuckDBPyConnection, Parameters], Answer],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        """The answer of a query that may take its time."""
        await self._is_prepared.wait()
        return await self._tables.ask(query, *arguments, **named)

    def interrupt(self) -> None:
        """Stop the query that `ask` is waiting for."""
        self._tables.interrupt()

    def close(self) -> None:
        """Stop both lines and close the case."""
        self._tables.close()
        self._timeline.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        from doctor.case.timeline.prepare import open_for_viewing  # noqa: PLC0415 - brings DuckDB

        self._connection = open_for_viewing(self._path)
        return self._connection

    def _second(self) -> duckdb.DuckDBPyConnection:
        from doctor.case.timeline.prepare import viewing_cursor  # noqa: PLC0415 - brings DuckDB

        assert self._connection is not None
        return viewing_cursor(self._connection)
