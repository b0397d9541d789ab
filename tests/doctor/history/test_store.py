"""The same history in a DuckDB file and on a real PostgreSQL server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from doctor.diagnosis.outcome import EvidenceFile
from doctor.errors import DoctorError, HistoryError, UsageError
from doctor.history import tables
from doctor.history.address import parse_address, shown
from doctor.history.entries import MOST_LETTERS, HistoryEntry, entry_of
from doctor.history.store import History
from tests.support import diagnoses
from tests.support.postgresql import postgresql_database

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["duckdb", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "duckdb":
        yield str(tmp_path / "history.duckdb")
    else:
        with postgresql_database() as url:
            yield url


def entry(name: str = "one", recorded_ms: int = 1) -> HistoryEntry:
    return entry_of(diagnoses.launch_bound(), name, recorded_ms, "1.2.3")


def engine(address: str) -> Engine:
    """Of the tests' own: a connection ends with its context."""
    return create_engine(parse_address(address), poolclass=NullPool)


def all_text(address: str) -> str:
    """Everything that the history's tables hold, comments aside."""
    with engine(address).connect() as connection:
        return "\n".join(
            repr(row)
            for table in tables.metadata.sorted_tables
            for row in connection.execute(text(f"TABLE {table.name}"))
        )


def test_what_is_kept_comes_back_as_it_was(address: str) -> None:
    history = History(address)
    kept = [
        entry(),
        entry_of(diagnoses.foreign_process(), "two", 2, "1.2.3"),
        entry_of(diagnoses.healthy(), "three", 3, "x"),
    ]
    for one in kept:
        history.add(one)
    assert list(history.entries(10)) == kept


def test_the_newest_come_oldest_first_and_one_file_may_be_asked_for(address: str) -> None:
    history = History(address)
    for moment in (3, 1, 2):
        history.add(entry(str(moment), moment))
    history.add(entry_of(diagnoses.healthy(), "other", 4, "1"))
    assert [one.diagnosis_id for one in history.entries(2)] == ["3", "other"]
    assert [one.diagnosis_id for one in history.entries(2, "launch-sick.nsys-rep")] == ["2", "3"]
    assert history.entries(5, "' OR 1=1 --") == ()


def test_two_writers_at_once_lose_nothing(address: str) -> None:
    program = [sys.executable, "-m", "tests.doctor.history.add_entries", address, "4"]
    writers = [subprocess.Popen(program, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for writer in writers:
        _, said = writer.communicate(timeout=60)
        assert writer.returncode == 0, said
    kept = History(address).entries(100)
    assert len({one.diagnosis_id for one in kept}) == 8
    assert all(len(one.findings) == 3 for one in kept)


def test_a_diagnosis_is_kept_whole_or_not_at_all(address: str) -> None:
    history = History(address)
    history.add(entry("one"))
    with pytest.raises(HistoryError):
        history.add(replace(entry("one"), recorded_ms=5))
    doubled = entry("two")
    broken = replace(doubled, findings=(replace(doubled.findings[0], rule=None),))  # type: ignore[arg-type] # refused
    with pytest.raises(HistoryError):
        history.add(broken)
    assert [one.diagnosis_id for one in history.entries(10)] == ["one"]


def test_nothing_private_is_stored(address: str) -> None:
    known = diagnoses.launch_bound()
    private = EvidenceFile("/home/alice/customers/acme/run.nsys-rep", "nsys-report", "nsys", True, ("note of alice",))
    History(address).add(entry_of(replace(known, evidence=(private,)), "one", 1, "1"))
    stored = all_text(address)
    assert "run.nsys-rep" in stored
    assert "alice" not in stored
    assert "acme" not in stored


def test_names_are_bounded_and_may_hold_anything(address: str) -> None:
    known = diagnoses.launch_bound()
    odd = EvidenceFile("\x00'\udcff;--" + "x" * 10_000, "kineto", None, True, ())
    history = History(address)
    history.add(entry_of(replace(known, evidence=(odd,)), "one", 1, "1"))
    [file] = history.entries(1)[0].files
    assert len(file.name) == MOST_LETTERS


def test_every_table_and_column_says_what_it_is(address: str) -> None:
    History(address).add(entry())
    for table in tables.metadata.sorted_tables:
        assert table.comment
        assert all(column.comment for column in table.columns)
    sources = {"duckdb": "SELECT comment FROM duckdb_columns() WHERE table_name = 'doctor_finding'"}
    postgresql = (
        "SELECT col_description('doctor_finding'::regclass, attnum) FROM pg_attribute"
        " WHERE attrelid = 'doctor_finding'::regclass AND attnum > 0"
    )
    with engine(address).connect() as connection:
        stored = set(connection.execute(text(sources.get(connection.dialect.name, postgresql))).scalars())
    assert {column.comment for column in tables.finding.columns} == stored


def test_another_layout_is_refused_before_anything_is_written(address: str) -> None:
    history = History(address)
    history.add(entry("one"))
    with engine(address).begin() as connection:
        connection.execute(text("UPDATE doctor_layout SET version = 99"))
    with pytest.raises(HistoryError, match="layout 99, this doctor writes 1"):
        history.add(entry("two"))
    with pytest.raises(HistoryError, match="layout 99"):
        history.entries(1)


def test_a_history_that_nobody_began_is_told_and_stays_empty(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "empty.duckdb")).close()
    with postgresql_database() as url:
        for address in (str(tmp_path / "empty.duckdb"), url):
            with pytest.raises(HistoryError, match=r"there is no history .* yet"):
                History(address).entries(1)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "case.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE kernel (start_ns BIGINT)")
    with pytest.raises(HistoryError, match="is a DuckDB file of something else"):
        History(str(path)).add(entry())
    (tmp_path / "text.duckdb").write_text("hello")
    with pytest.raises(HistoryError, match="cannot be used"):
        History(str(tmp_path / "text.duckdb")).add(entry())
    with pytest.raises(HistoryError, match="there is no history"):
        History(str(tmp_path / "missing.duckdb")).entries(1)
    assert not (tmp_path / "missing.duckdb").exists()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://doctor:s3cret@127.0.0.1:1/none",
        "postgresql://doctor:s3cret@127.0.0.1:notaport/none",
        "nosuchdatabase://doctor:s3cret@host/none",
        "://s3cret",
        "postgresql://doctor@127.0.0.1:1/none?password=s3cret",
    ],
)
def test_a_password_is_never_told(address: str) -> None:
    with pytest.raises(DoctorError) as refused:
        History(address).add(entry())
    assert "s3cret" not in refused.value.message
    assert len(refused.value.message.splitlines()) == 1


def test_an_address_is_shown_without_user_password_and_options() -> None:
    assert shown(parse_address("postgres://u:p@host:5/base?password=x")) == "postgresql://host/base"
    assert shown(parse_address("some/file.duckdb")) == "some/file.duckdb"
    with pytest.raises(UsageError):
        parse_address("postgresql://" + "x" * 3000)
