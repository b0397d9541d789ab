from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from doctor.formats.memory_snapshot.plain_pickle import PickleBounds, PickleRefusedError, load

PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65536, -(2**31), 2**40, 2**63 - 1, 1.5, -0.0],
    "words": ["", "a", "é", "x" * 300, None, True, False],
    "nested": {"tuple": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), 7: {}, None: [], 1.5: "float key"},
}


class Runs:
    """What it is made of would run when it is unpickled."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_builds_what_the_pickle_describes(protocol: int) -> None:
    shared = [PLAIN, PLAIN]
    assert load(pickle.dumps(shared, protocol)) == shared


def test_a_value_used_twice_is_one_value() -> None:
    first, second = load(pickle.dumps([PLAIN, PLAIN]))
    assert first is second


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_runs_nothing(protocol: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PickleRefusedError, match="more than plain values"):
        load(pickle.dumps({"segments": [Runs(print, "run")]}, protocol))
    assert capsys.readouterr().out == ""


HOSTILE = {
    "an object of a class": pickle.dumps(PickleBounds()),
    "a set": pickle.dumps({1, 2}),
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x02U\x01aQ.",
    "a buffer from outside": b"\x80\x05\x97.",
    "nothing on the stack": b"\x80\x02a.",
    "no mark": b"\x80\x02]e.",
    "a memo that is not there": b"\x80\x02h\x05.",
    "an append to a dict": b"\x80\x02}K\x01a.",
    "a mark as a value": b"\x80\x02](e(.",
    "a key that is a tuple": b"\x80\x02})K\x01s.",
    "a mapping of numbers that all hash to the same": b"\x80\x04}("
    + b"".join(b"\x8a\x10" + ((2**61 - 1) * number).to_bytes(16, "little") + b"N" for number in range(1, 3000)) + b"u.",
    "more in the memo than a file of that size holds": b"\x80\x04N" + b"\x94" * 300_000 + b".",
    "a text longer than the file": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "a number of two thousand digits": b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
    "values left over": b"\x80\x02K\x01K\x02.",
    "an end without a value": b"\x80\x02.",
    "no end": pickle.dumps(PLAIN)[:-1],
    "a well of tuples": b"\x80\x02)" + b"\x85" * 200_000 + b".",
    "a well of lists": b"\x80\x02]" + b"]a" * 3 + b"".join(b"]q\x00h\x00a" for _ in range(3)) + b"(" * 9 + b".",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_plain_pickle_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(PickleRefusedError) as refusal:
        load(HOSTILE[name])
    assert len(str(refusal.value).splitlines()) == 1


def test_a_list_in_itself_is_not_walked_into() -> None:
    value = load(b"\x80\x02]q\x00h\x00a.")
    assert value[0] is value


@pytest.mark.parametrize(
    ("bounds", "content"),
    [
        (PickleBounds(most_values=1000), pickle.dumps([float(number) for number in range(2000)])),
        (PickleBounds(most_steps=70_000), b"\x80\x02K\x01" + b"2" * 200_000 + b"."),
        (PickleBounds(most_values=1000), b"\x80\x02K\x01" + b"2" * 200_000 + b"."),
        (PickleBounds(most_values=1000), b"\x80\x04K\x01" + b"\x94" * 200_000 + b"."),
        (PickleBounds(most_text_bytes=100), pickle.dumps("x" * 101)),
        (PickleBounds(most_depth=3), pickle.dumps([[[[1]]]])),
    ],
    ids=["values", "steps", "stack", "memo", "text", "depth"],
)
def test_bounds_hold(bounds: PickleBounds, content: bytes) -> None:
    with pytest.raises(PickleRefusedError):
        load(content, bounds)
