"""The kinds of column that every table is made of, and the one `MetaData` that knows all tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, MetaData, SmallInteger, Text

Columns = Mapping[str, frozenset[str]]
"""Some columns of some tables, by name."""
_Value = TypeVar("_Value")

INTERNED = {"interned": True}

metadata = MetaData()


def flag(name: str, comment: str) -> Column[bool]:
    """True, false or unknown (NULL)."""
    return Column(name, Boolean, nullable=True, comment=comment)


def whole(name: str, comment: str, *, nullable: bool = True) -> Column[int]:
    """A 64-bit whole number."""
    return Column(name, BigInteger, nullable=nullable, autoincrement=False, comment=comment)


def small(name: str, comment: str) -> Column[int]:
    """A 32-bit whole number."""
    return Column(name, Integer, nullable=True, autoincrement=False, comment=comment)


def text_column(name: str, comment: str) -> Column[str]:
    """Text stored in the row itself."""
    return Column(name, Text, nullable=True, comment=comment)


def interned(name: str, comment: str) -> Column[int]:
    """Text stored once in the table `text`; rows hold its id in `<name>_id`."""
    return Column(f"{name}_id", Integer, nullable=True, autoincrement=False, comment=comment, info=INTERNED)


def query_only(column: Column[_Value]) -> Column[_Value]:
    """A column for those who ask a case themselves: no view, rule or screen reads it."""
    column.info["query_only"] = True
    return column


def real(name: str, comment: str) -> Column[float]:
    """A floating-point number."""
    return Column(name, Double, nullable=True, comment=comment)


def of_source() -> Column[int]:
    """The file a row was read from: the first column of every table."""
    return Column(
        "source_id",
        SmallInteger,
        nullable=False,
        autoincrement=False,
        comment="the evidence file this row was read from",
    )


def interval() -> tuple[Column[Any], Column[Any]]:
    """Start and end in ns."""
    return (
        whole("start_ns", "start on the source's clock"),
        whole("end_ns", "end on the source's clock; NULL where the recording stopped first"),
    )


def on_thread() -> tuple[Column[Any], Column[Any]]:
    """Process and thread."""
    return whole("pid", "process id"), whole("tid", "thread id")


def on_stream() -> tuple[Column[Any], ...]:
    """Where on a device work ran, and the call that launched it."""
    return (
        whole("pid", "process that launched the work"),
        small("device_id", "CUDA/HIP ordinal within the process, as recorded"),
        query_only(small("context_id", "context")),
        whole("stream_id", "stream"),
        whole("correlation_id", "joins the work to its API call, within one process"),
        whole("graph_node_id", "node of the CUDA graph that ran the work"),
    )
