"""Builds the plain values of a pickle without running it: no class, no function, no import, whatever the file says.

The instructions of the protocols 0 to 5 that make dicts, lists, tuples, strings, bytes, numbers, booleans and None are
known; any other ends the reading. Values, memo, size and nesting are bounded, so that a hostile file costs little.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from typing import Any

_STEPS_A_CHECK = 1 << 16
_BYTES_A_MEMO = 6
"""The least that a value in the memo takes of a file; each costs a hundred bytes of memory."""
_SHORT_GETS = re.compile(rb"(?:h.){1,1000}", re.DOTALL)
"""BINGET, several in a row: lists of frames are made of them."""
_GETS = (0x68, 0x6A)
_LONG_GETS = re.compile(rb"(?:j.{4}){1,1000}", re.DOTALL)
"""LONG_BINGET, likewise."""


class PickleRefusedError(Exception):
    """The pickle is damaged, asks for more than plain values, or is over a bound; the message is one clause."""


@dataclass(frozen=True)
class PickleBounds:
    """What a pickle may ask for.

    Attributes:
        most_steps: instructions.
        most_values: values made, each counted once however often it is used; also the size of memo and stack.
        most_depth: dicts, lists and tuples within each other.
        most_text_bytes: of one string.
        most_number_bytes: of one whole number.
    """

    most_steps: int = 250_000_000
    most_values: int = 40_000_000
    most_depth: int = 40
    most_text_bytes: int = 1 << 20
    most_number_bytes: int = 16


def load(data: bytes | mmap, bounds: PickleBounds = PickleBounds()) -> Any:
    """The value that a pickle describes, made of plain types only.

    Args:
        data: the whole file.
        bounds: what it may ask for.

    Raises:
        PickleRefusedError: see there.
    """
    try:
        return _Machine(data, bounds).run()
    except (IndexError, struct.error, KeyError, TypeError, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise PickleRefusedError(f"its pickle is damaged or cut ({type(error).__name__})") from error


class _Machine:
    """The stack, the memo and the position; an instruction is a method."""

    def __init__(self, data: bytes | mmap, bounds: PickleBounds) -> None:
        self._data = data
        self._bounds = bounds
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._depth: dict[int, int] = {}
        self._values = 0
        self._num_odd_keys = 0
        self._most_memo = min(bounds.most_values, len(data) // _BYTES_A_MEMO + _STEPS_A_CHECK)
        self._result: Any = None
        self._does: dict[int, Callable[[], None]] = {
            code[0]: getattr(self, name) for code, name in _INSTRUCTIONS.items()
        }

    def run(self) -> Any:
        data, stack, memo, does = self._data, self._stack, self._memo, self._does
        at, size, steps, most_steps, next_check = 0, len(data), 0, self._bounds.most_steps, _STEPS_A_CHECK
        while at < size:
            code = data[at]
            if code == 0x68 and (gets := _SHORT_GETS.match(data, at)):  # nine in ten instructions: a run in one go
                stack.extend(map(memo.__getitem__, gets[0][1::2]))
                at, steps = gets.end(), steps + len(gets[0]) // 2
            elif code == 0x6A and (gets := _LONG_GETS.match(data, at)):
                stack.extend([memo[number] for (number,) in struct.iter_unpack("<xI", gets[0])])
                at, steps = gets.end(), steps + len(gets[0]) // 5
            elif code == 0x2E:
                return self._end()
            elif code in _GETS:
                break
            else:
                do = does.get(code)
                if do is None:
                    raise PickleRefusedError(f"its pickle asks for more than plain values (instruction 0x{code:02x})")
                self._at = at + 1
                do()
                at = self._at
            steps += 1
            if steps >= next_check:
                self._check_size(steps, most_steps)
                next_check = steps + _STEPS_A_CHECK
        raise PickleRefusedError("its pickle is cut")

    def _check_size(self, steps: int, most_steps: int) -> None:
        is_large = max(len(self._stack), len(self._marks)) > self._bounds.most_values
        if steps > most_steps or is_large or len(self._memo) > self._most_memo:
            raise PickleRefusedError("its pickle is longer than any snapshot of use: record fewer entries")

    def _end(self) -> Any:
        if len(self._stack) != 1 or self._marks:
            raise PickleRefusedError("its pickle is damaged (values are left over)")
        return self._stack[0]

    def _take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise PickleRefusedError("its pickle is cut")
        self._at += count
        return piece

    def _whole(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at, self._at + self._bounds.most_text_bytes)
        if end < 0:
            raise PickleRefusedError("its pickle is cut")
        return self._take(end + 1 - self._at)[:-1]

    def _push(self, value: Any) -> None:
        self._values += 1
        if self._values > self._bounds.most_values:
            raise PickleRefusedError("its pickle holds more values than any snapshot of use: record fewer entries")
        self._stack.append(value)

    def _since_mark(self) -> list[Any]:
        if not self._marks or self._marks[-1] > len(self._stack):
            raise PickleRefusedError("its pickle is damaged (no mark)")
        at = self._marks.pop()
        items = self._stack[at:]
        del self._stack[at:]
        return items

    def _nest(self, outer: Any, items: list[Any]) -> None:
        """Count how deep values lie within each other, so that nobody walks into a well; a scalar counts as one."""
        known = self._depth
        deep = known.keys() & set(map(id, items)) if known else ()
        depth = 1 + max((known[item] for item in deep), default=1)
        if depth > self._bounds.most_depth:
            raise PickleRefusedError("its pickle is nested deeper than a snapshot is")
        if depth > self._depth.get(id(outer), 1):
            self._depth[id(outer)] = depth

    def _text(self, raw: bytes) -> None:
        self._push(raw.decode("utf-8", "replace"))

    def _sized_text(self, count: int) -> None:
        size = self._whole(count)
        if size > self._bounds.most_text_bytes:
            raise PickleRefusedError("its pickle holds a text of over a megabyte")
        self._text(self._take(size))

    # Protocol and frames -----------------------------------------------------------------------------------------
    def proto(self) -> None:
        if self._whole(1) > 5:
            raise PickleRefusedError("its pickle is of a later protocol than 5")

    def frame(self) -> None:
        self._take(8)

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def pop_mark(self) -> None:
        self._since_mark()

    def dup(self) -> None:
        self._stack.append(self._stack[-1])

    # Numbers, texts ----------------------------------------------------------------------------------------------
    def none(self) -> None:
        self._push(None)

    def true(self) -> None:
        self._push(True)

    def false(self) -> None:
        self._push(False)

    def int_line(self) -> None:
        raw = self._line()[:40]
        self._push({b"00": False, b"01": True}[raw] if raw in {b"00", b"01"} else int(raw))

    def long_line(self) -> None:
        self._push(int(self._line()[:40].rstrip(b"L")))

    def int4(self) -> None:
        self._push(int.from_bytes(self._take(4), "little", signed=True))

    def int1(self) -> None:
        self._push(self._whole(1))

    def int2(self) -> None:
        self._push(self._whole(2))

    def long1(self) -> None:
        size = self._whole(1)
        if size > self._bounds.most_number_bytes:
            raise PickleRefusedError("its pickle holds a number that no snapshot has")
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def float_line(self) -> None:
        self._push(float(self._line()[:60]))

    def float8(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0])

    def text1(self) -> None:
        self._sized_text(1)

    def text4(self) -> None:
        self._sized_text(4)

    def text8(self) -> None:
        self._sized_text(8)

    def text_line(self) -> None:
        self._push(self._line().decode("raw-unicode-escape", "replace"))

    # Containers --------------------------------------------------------------------------------------------------
    def empty_dict(self) -> None:
        self._push({})

    def empty_list(self) -> None:
        self._push([])

    def empty_tuple(self) -> None:
        self._push(())

    def tuple_from_mark(self) -> None:
        self._tuple(self._since_mark())

    def tuple1(self) -> None:
        self._tuple_of(1)

    def tuple2(self) -> None:
        self._tuple_of(2)

    def tuple3(self) -> None:
        self._tuple_of(3)

    def _tuple_of(self, count: int) -> None:
        items = self._stack[-count:]
        if len(items) != count:
            raise PickleRefusedError("its pickle is damaged (too few values)")
        del self._stack[-count:]
        self._tuple(items)

    def _tuple(self, items: list[Any]) -> None:
        made = tuple(items)
        self._push(made)
        self._nest(made, items)

    def list_from_mark(self) -> None:
        items = self._since_mark()
        self._push(items)
        self._nest(items, items)

    def dict_from_mark(self) -> None:
        items = self._since_mark()
        self._push({})
        self._fill(self._stack[-1], items)

    def append(self) -> None:
        item = self._stack.pop()
        self._extend([item])

    def appends(self) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise PickleRefusedError("its pickle is damaged (appends to no list)")
        self._nest(target, items)
        target.extend(items)

    def setitem(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._fill(self._stack[-1], [key, value])

    def setitems(self) -> None:
        items = self._since_mark()
        self._fill(self._stack[-1], items)

    def _fill(self, target: Any, items: list[Any]) -> None:
        keys = items[::2]
        if type(target) is not dict or len(items) % 2 or not all(type(key) in _KEYS for key in keys):
            raise PickleRefusedError("its pickle is damaged (a mapping with keys of no plain kind)")
        self._num_odd_keys += sum(1 for key in keys if type(key) is not str)
        if self._num_odd_keys > _MOST_ODD_KEYS:
            raise PickleRefusedError("its pickle holds mappings that no snapshot has")
        self._nest(target, items)
        target.update(zip(keys, items[1::2], strict=True))

    # Memo --------------------------------------------------------------------------------------------------------
    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def put1(self) -> None:
        self._memo[self._whole(1)] = self._stack[-1]

    def put4(self) -> None:
        self._memo[self._whole(4)] = self._stack[-1]

    def put_line(self) -> None:
        self._memo[int(self._line()[:20])] = self._stack[-1]

    def get_line(self) -> None:
        self._stack.append(self._memo[int(self._line()[:20])])


_KEYS = (str, int, bool, float, type(None))
"""No tuple: one that holds itself many times over would take for ever to hash."""
_MOST_ODD_KEYS = 1000
"""Not texts: numbers can be chosen so that a mapping of many of them takes for ever to fill."""

_INSTRUCTIONS = {
    b"\x80": "proto",
    b"\x95": "frame",
    b"(": "mark",
    b"0": "pop",
    b"1": "pop_mark",
    b"2": "dup",
    b"N": "none",
    b"\x88": "true",
    b"\x89": "false",
    b"I": "int_line",
    b"L": "long_line",
    b"J": "int4",
    b"K": "int1",
    b"M": "int2",
    b"\x8a": "long1",
    b"F": "float_line",
    b"G": "float8",
    b"\x8c": "text1",
    b"X": "text4",
    b"\x8d": "text8",
    b"V": "text_line",
    b"}": "empty_dict",
    b"]": "empty_list",
    b")": "empty_tuple",
    b"t": "tuple_from_mark",
    b"\x85": "tuple1",
    b"\x86": "tuple2",
    b"\x87": "tuple3",
    b"l": "list_from_mark",
    b"d": "dict_from_mark",
    b"a": "append",
    b"e": "appends",
    b"s": "setitem",
    b"u": "setitems",
    b"\x94": "memoize",
    b"q": "put1",
    b"r": "put4",
    b"p": "put_line",
    b"g": "get_line",
}
