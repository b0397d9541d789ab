"""Messages side by side in one buffer, as the vectorised readers take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from doctor.formats.nsys_report.levels import Bytes, Ints, padded


@dataclass(frozen=True)
class Payloads:
    """Many messages.

    Attributes:
        buffer: padded bytes.
        start: first byte of each message.
        end: byte after it.
        number_ends: positions of all bytes below 0x80 in the buffer, ascending.
        first_number: index in `number_ends` of the first number of each message.
        after_number: index after that of its last number.
    """

    buffer: Bytes
    start: Ints
    end: Ints
    number_ends: Ints
    first_number: Ints
    after_number: Ints


def side_by_side(messages: list[bytes]) -> Payloads:
    """Messages out of separate bytes."""
    buffer = padded(messages)
    sizes = np.array([len(message) for message in messages], dtype=np.int64)
    end = np.cumsum(sizes)
    number_ends = np.flatnonzero(buffer < 0x80)
    first, after = np.searchsorted(number_ends, end - sizes), np.searchsorted(number_ends, end)
    return Payloads(buffer, end - sizes, end, number_ends, first, after)
