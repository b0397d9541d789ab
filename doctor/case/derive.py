"""Runs the SQL files of `views/`: everything that rules and replay read beyond the raw tables.

The files create tables, not views: each is read many times, by rules and by every replay. They stand in order, but one
that speaks of nothing that another makes does not wait for it. A case may be derived again, with another window. A
saved case keeps its derived tables and says what they were made from, so that it can be diagnosed again without being
written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import resources

import duckdb

from doctor.case.arrays.columns import Coded
from doctor.case.arrays.derivation import Derivation, Feed, Relations
from doctor.case.arrays.freed import give_back
from doctor.case.store import naming_case_trouble
from doctor.case.tasks import Task, run
from doctor.errors import CaseError, UsageError

_VIEWED = re.compile(r"^CREATE VIEW (\w+)", re.MULTILINE)
_CREATED = re.compile(r'^CREATE TABLE (?:IF NOT EXISTS )?"?(\w+)"?', re.MULTILINE)
_MADE = re.compile(r"\b(?:(?:CREATE|ALTER|DROP) (?:TABLE|VIEW|TYPE)(?: IF (?:NOT )?EXISTS)?|UPDATE|INSERT INTO) (\w+)")
_COMMENT = re.compile(r"--.*")


@dataclass(frozen=True)
class WindowChoice:
    """A window that the user asked for in place of the steady one.

    Attributes:
        span_ns: start and end on the recording's clock.
        range_name: annotation; the window is from the first such range to the end of the last.
    """

    span_ns: tuple[int, int] | None = None
    range_name: str | None = None


@naming_case_trouble()
def derive(
    connection: duckdb.DuckDBPyConnection, choice: WindowChoice | None = None, beside: Sequence[Task] = ()
) -> None:
    """Create the derived tables of a case, replacing those of an earlier call.

    A case that was opened read-only is left as it is where `is_derived` holds: nothing can have changed since.

    Args:
        connection: the case.
        choice: the window that the user asked for.
        beside: further work, each piece done as soon as what it reads is there, beside the rest of the derivation.

    Raises:
        UsageError: the window asked for is empty, or no range of that name was recorded.
        CaseError: the case was opened read-only and its derived tables are others, or there is no room for them.
    """
    if _is_read_only(connection) and is_derived(connection, choice):
        run(connection, beside)
        return
    scripts = [script.read_text(encoding="utf-8") for script in _scripts()]
    try:
        _drop(connection, "\n".join(scripts))
    except duckdb.Error as error:
        raise CaseError(f"the case cannot be derived: {str(error).splitlines()[0]}") from error
    connection.execute("CREATE TABLE window_request (start_ns BIGINT, end_ns BIGINT, chosen_by TEXT)")
    if choice is not None:
        _request_window(connection, choice)
    run(connection, _with(beside, list(_tasks(Derivation()))))
    if choice is not None:
        _refuse_empty_window(connection)
    connection.execute(_DERIVATION, _derivation(choice))


def is_derived(connection: duckdb.DuckDBPyConnection, choice: WindowChoice | None = None) -> bool:
    """Tell whether the case holds derived tables made by these very views with this choice of window."""
    if not connection.execute(_HAS_DERIVATION).fetchall():
        return False
    return bool(connection.execute(_SAME_DERIVATION, _derivation(choice)).fetchall())


def _derivation(choice: WindowChoice | None) -> dict[str, object]:
    """What derived tables depend on, besides the evidence."""
    digest = hashlib.sha256()
    for script in (*_scripts(), *_array_modules()):
        digest.update(script.read_bytes())
    start_ns, end_ns = (choice.span_ns if choice is not None else None) or (None, None)
    range_name = None if choice is None or choice.span_ns is not None else choice.range_name
    return {"digest": digest.hexdigest(), "start": start_ns, "end": end_ns, "range": range_name}


def _is_read_only(connection: duckdb.DuckDBPyConnection) -> bool:
    return bool(connection.execute(_READ_ONLY).fetchall())


def _drop(connection: duckdb.DuckDBPyConnection, scripts: str) -> None:
    """Drop what an earlier call created, and a table where there is a view now."""
    made = {*_CREATED.findall(scripts), *_VIEWED.findall(scripts)}
    for kind, name in connection.execute(_RELATIONS).fetchall():
        if name in made:
            connection.execute(f'DROP {kind} "{name}"')


def _tasks(derivation: Derivation) -> Iterator[Task]:
    """The SQL files in order, each behind the arrays that feed it."""
    scripts = {script.name.removesuffix(".sql"): script for script in _scripts()}
    for name in sorted(scripts.keys() | derivation.feeds.keys()):
        feed = derivation.feeds.get(name)
        if feed is not None:
            yield _feeding(feed)
        if name in scripts:
            yield _scripted(scripts[name].read_text(encoding="utf-8"), feed)


def _with(beside: Sequence[Task], tasks: list[Task]) -> list[Task]:
    """The tasks, and each piece of other work right behind the last that makes something it reads."""
    for task in beside:
        makers = [place for place, earlier in enumerate(tasks) if earlier.makes & task.reads]
        tasks.insert(max(makers, default=-1) + 1, task)
    return tasks


def _feeding(feed: Feed) -> Task:
    def work(cursor: duckdb.DuckDBPyConnection) -> None:
        feed.make(cursor)
        give_back()

    return Task(feed.reads, feed.makes, work)


def _scripted(sql: str, feed: Feed | None) -> Task:
    def work(cursor: duckdb.DuckDBPyConnection) -> None:
        with _registered(cursor, {} if feed is None else feed.take()):
            cursor.execute(sql)
        if feed is not None:
            give_back()

    told = _COMMENT.sub("", sql)
    words = frozenset(re.findall(r"\w+", told))
    return Task(words if feed is None else words | {feed.name}, frozenset(_MADE.findall(told)), work)


@contextmanager
def _registered(connection: duckdb.DuckDBPyConnection, relations: Relations) -> Iterator[None]:
    with ExitStack() as registered:
        for name, rows in relations.items():
            placed = f"{name}_coded" if isinstance(rows, Coded) else name
            connection.register(placed, rows.rows if isinstance(rows, Coded) else rows)
            registered.callback(connection.unregister, placed)
            if isinstance(rows, Coded):
                connection.execute(f"CREATE TEMP VIEW {name} AS {rows.spelled(placed)}")
                registered.callback(connection.execute, f"DROP VIEW {name}")
        yield


def derived_tables() -> tuple[str, ...]:
    """Names of the tables that `derive` leaves behind, in order of creation."""
    names: list[str] = []
    for script in _scripts():
        names += _CREATED.findall(script.read_text(encoding="utf-8"))
    return tuple(name for name in names if not name.startswith("_"))


def _scripts() -> list[resources.abc.Traversable]:
    folder = resources.files("doctor.case").joinpath("views")
    return sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)


def _array_modules() -> list[resources.abc.Traversable]:
    """What the SQL files' relations are made by."""
    folder = resources.files("doctor.case.arrays")
    return sorted((entry for entry in folder.iterdir() if entry.name.endswith(".py")), key=lambda entry: entry.name)


def _request_window(connection: duckdb.DuckDBPyConnection, choice: WindowChoice) -> None:
    if choice.span_ns is not None:
        start_ns, end_ns = choice.span_ns
        if end_ns <= start_ns:
            raise UsageError(f"the window {start_ns}:{end_ns} is empty: give START:END in ns on the recording's clock")
        connection.execute("INSERT INTO window_request VALUES (?, ?, '--window')", [start_ns, end_ns])
    elif choice.range_name is not None:
        [(start_ns, end_ns)] = connection.execute(_RANGE_SPAN, {"name": choice.range_name}).fetchall()
        if start_ns is None:
            raise UsageError(f"no range named '{choice.range_name}' was recorded{_names_recorded(connection)}")
        connection.execute(
            "INSERT INTO window_request VALUES (?, ?, ?)", [start_ns, end_ns, f"--range {choice.range_name}"]
        )


def _names_recorded(connection: duckdb.DuckDBPyConnection) -> str:
    names = [name for (name,) in connection.execute(_RANGE_NAMES).fetchall()]
    return f": there are {', '.join(repr(name) for name in names)}, ..." if names else ": there are none"


def _refuse_empty_window(connection: duckdb.DuckDBPyConnection) -> None:
    """A window beside the work would read as health."""
    [(inside, start_ns, end_ns)] = connection.execute(_INSIDE_AND_SPAN).fetchall()
    if inside == 0 and start_ns is not None:
        raise UsageError(
            f"the window asked for holds no device work: the recording's runs from {start_ns} to {end_ns} ns"
        )


_RELATIONS = """
SELECT 'VIEW', view_name FROM duckdb_views() WHERE NOT internal AND database_name = current_database()
UNION ALL
SELECT 'TABLE', table_name FROM duckdb_tables() WHERE database_name = current_database()
"""

_READ_ONLY = "SELECT 1 FROM duckdb_databases() WHERE database_name = current_database() AND readonly"

_DERIVATION = """
CREATE OR REPLACE TABLE derivation AS
SELECT $digest::TEXT AS views_digest, $start::BIGINT AS start_ns, $end::BIGINT AS end_ns, $range::TEXT AS range_name
"""

_HAS_DERIVATION = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'derivation' AND database_name = current_database()"

_SAME_DERIVATION = """
SELECT 1 FROM derivation
WHERE views_digest = $digest AND start_ns IS NOT DISTINCT FROM $start AND end_ns IS NOT DISTINCT FROM $end
    AND range_name IS NOT DISTINCT FROM $range
"""

_RANGE_NAMES = """
SELECT text FROM nvtx_range JOIN text ON text_id = name_id WHERE end_ns IS NOT NULL
GROUP BY text ORDER BY sum(end_ns - start_ns) DESC, text LIMIT 8
"""

_INSIDE_AND_SPAN = """
SELECT count(*) FILTER (start_ns < until_ns AND end_ns > from_ns), min(start_ns), max(end_ns)
FROM device_op, steady_window WHERE EXISTS (SELECT 1 FROM window_request)
"""

_RANGE_SPAN = """
SELECT min(start_ns), max(end_ns)
FROM nvtx_range JOIN text ON text_id = name_id
WHERE text = $name AND end_ns IS NOT NULL
"""
