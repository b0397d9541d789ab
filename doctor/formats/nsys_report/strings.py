"""The string table: one block at the end of the event stream; an index in it is a name id everywhere else.

Besides names it holds what the recorded processes printed (their standard output and error, each as one text) and,
under a second field, which ids those are. Those texts are private and never leave the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.wire import Field, Message, WireError

_STRING, _PROCESS_OUTPUT = 1, 2


@dataclass(frozen=True)
class StringTable:
    """Texts by id, and the other fields of the table as they were.

    Attributes:
        strings: raw bytes, mostly UTF-8.
        others: fields that are no texts.
    """

    strings: list[bytes]
    others: tuple[Field, ...] = ()

    def output_ids(self) -> frozenset[int]:
        """Ids of the names and contents of the recorded processes' output."""
        found: set[int] = set()
        for field in self.others:
            if field.number == _PROCESS_OUTPUT and isinstance(field.value, bytes):
                try:
                    message = Message(field.value)
                except WireError:
                    continue
                found.update(value for value in map(message.integer, (2, 3)) if value is not None)
        return frozenset(found)


def read_strings(raw: bytes) -> StringTable:
    """Read an unpacked string table.

    Raises:
        WireError: the bytes are no string table.
    """
    size, start = wire.read_varint(raw, 0, len(raw))
    if start + size != len(raw):
        raise WireError("the table and its length disagree")
    strings: list[bytes] = []
    others: list[Field] = []
    for field in wire.read_fields(raw, start):
        if field.number == _STRING and isinstance(field.value, bytes):
            strings.append(field.value)
        else:
            others.append(field)
    return StringTable(strings, tuple(others))


def write_strings(table: StringTable) -> bytes:
    """The unpacked string table, as `read_strings` takes it."""
    texts = b"".join(wire.write_field(Field(_STRING, wire.BYTES, text)) for text in table.strings)
    return wire.write_sized(texts + wire.write_fields(list(table.others)))
