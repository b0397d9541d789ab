"""Templates: events that are equal to one that is known, but for a few numbers that differ from event to event.

A recording repeats itself: the same kernels with the same grids, the same calls, at other times with other correlation
ids. A template is the bytes of one event with the low seven bits of the numbers that vary left open. An event that has
the same bytes elsewhere is read in the same way, so its row is that of the template with those numbers put in.

Nothing is assumed that is not checked for every event: every bit outside those numbers, and the size. Events that fit
no template are read field by field (`table_rows`), and those that came often become templates.

Events lie in a matrix of words, a row an event. Two keys find a template: bytes that continue a number (which tell how
long the varying numbers are, and so where they lie) give the layout, all bytes without the varying numbers give the
template. Keys are only hints; what they find is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doctor.formats.nsys_report.levels import Bools, Bytes, Ints

MOST_WORDS = 64
"""Longer events are mostly texts, which do not repeat."""
BYTES_BEHIND = 8 * MOST_WORDS
"""How many bytes have to follow the last event in a buffer."""
MOST_TEMPLATES = 1 << 12
"""Of one number of words: what takes more than that does not repeat."""
LEAST_REPEATS = 4
"""To learn a template takes as long as to read many events field by field at once, or a few alone."""

Words = NDArray[np.uint64]
Numbers = NDArray[np.int16]

_CONTINUES = np.uint64(0x8080_8080_8080_8080)
_CONTINUES_OR_HEAD = np.uint64(0x8080_8080_FFFF_FFFF)
"""The first four bytes hold the type of the event and the tag of its payload."""
_KEY_BITS = 18
"""Two templates under one key leave all events of one of them without one; more bits miss the caches."""
_SIZE_BITS = 16
_TAIL = np.array([(1 << 64) - 1, *((1 << 8 * count) - 1 for count in range(1, 8))], dtype=np.uint64)
_FACTORS = np.random.default_rng(79).integers(1, 1 << 63, MOST_WORDS + 1, dtype=np.uint64) | np.uint64(1)


@dataclass(frozen=True)
class Events:
    """Events in one buffer.

    Attributes:
        buffer: bytes, with `BYTES_BEHIND` more behind the last event.
        start: first byte of each event.
        end: byte after it.
    """

    buffer: Bytes
    start: Ints
    end: Ints

    def copies(self, chosen: Ints) -> list[bytes]:
        """The bytes of some events."""
        whole = self.buffer.data
        return [
            bytes(whole[start:end])
            for start, end in zip(self.start[chosen].tolist(), self.end[chosen].tolist(), strict=True)
        ]

    def by_words(self, chosen: Ints | None = None) -> list[tuple[int, Ints]]:
        """Numbers of words, and which of the (chosen) events have so many; none and too many are left out."""
        size = self.end - self.start if chosen is None else self.end[chosen] - self.start[chosen]
        num_words = np.minimum((size + 7) >> 3, MOST_WORDS + 1).astype(np.uint8)
        order = np.argsort(num_words, kind="stable")
        events = order if chosen is None else chosen[order]
        ends = np.cumsum(np.bincount(num_words, minlength=MOST_WORDS + 1))
        return [
            (count, events[ends[count - 1] : ends[count]])
            for count in range(1, MOST_WORDS + 1)
            if ends[count - 1] < ends[count]
        ]

    def rows(self, num_words: int, chosen: Ints) -> Rows:
        """Events as rows of a matrix."""
        num_bytes = 8 * num_words
        everywhere: NDArray[np.void] = np.ndarray(
            shape=(self.buffer.size - num_bytes + 1,), dtype=f"V{num_bytes}", buffer=self.buffer.data, strides=(1,)
        )
        start = self.start[chosen]
        size = self.end[chosen] - start
        words = everywhere[start].view("<u8").reshape(start.size, num_words)
        words[:, -1] &= _TAIL[size & 7]
        return Rows(chosen, size, words)


@dataclass(frozen=True)
class Rows:
    """Events of one number of words.

    Attributes:
        events: their indices.
        size: bytes of each.
        words: their bytes, one row an event, zero behind its end.
    """

    events: Ints
    size: Ints
    words: Words

    def only(self, chosen: Ints) -> Rows:
        """Some of them."""
        return Rows(self.events[chosen], self.size[chosen], self.words[chosen])


def fixed_bits(size: int, numbers: list[tuple[int, int]]) -> Words:
    """The bits of an event that a template fixes: all but the low seven of each byte of the given numbers.

    Args:
        size: bytes of the event.
        numbers: first byte and number of bytes of each number that varies.
    """
    mask = np.zeros((size + 7) // 8 * 8, dtype=np.uint8)
    mask[:size] = 0xFF
    for first, count in numbers:
        mask[first : first + count] = 0x80
    return mask.view("<u8")


class Templates:
    """Templates for events of one number of words.

    Layouts and templates are numbered in the order they came; number 0 is none.
    """

    def __init__(self, num_words: int) -> None:
        self._factors = _FACTORS[:num_words]
        self._masks: Words = np.zeros((1, num_words), dtype=np.uint64)
        self._fixed: Words = np.zeros((1, num_words), dtype=np.uint64)
        self._kind: Ints = np.full(1, -1, dtype=np.int64)
        self._number: Ints = np.zeros(1, dtype=np.int64)
        self._seen: dict[int, int] = {}
        self._layout_at: Numbers = np.zeros(1 << _KEY_BITS, dtype=np.int16)
        self._template_at: Numbers = np.zeros(1 << _KEY_BITS, dtype=np.int16)

    def match(self, rows: Rows) -> Ints:
        """The number that was given to the template that each event fits, 0 where it fits none."""
        layout = self._layout_at.take(_slots(self._layout_keys(rows)))
        fixed = rows.words & self._masks.take(layout, axis=0)
        template = self._template_at.take(_slots(fixed @ self._factors))
        fits: Bools = self._kind.take(template) == _kind(layout, rows.size)
        is_equal = fixed == self._fixed.take(template, axis=0)
        if not is_equal.all():
            fits &= is_equal.all(axis=1)
        return self._number.take(template) * fits

    def frequent_layouts(self, rows: Rows) -> Ints:
        """Indices of rows, one for each layout that is not known and that came often by now."""
        keys = self._layout_keys(rows)
        return self._frequent(keys, np.flatnonzero(self._layout_at.take(_slots(keys)) == 0))

    def frequent_contents(self, rows: Rows) -> Ints:
        """Indices of rows, one for each content of a known layout that no template has and that came often by now."""
        layout = self._layout_at.take(_slots(self._layout_keys(rows)))
        keys = (rows.words & self._masks.take(layout, axis=0)) @ self._factors
        return self._frequent(keys, np.flatnonzero((layout > 0) & (self._template_at.take(_slots(keys)) == 0)))

    def add_layouts(self, rows: Rows, masks: list[Words]) -> None:
        """Remember which bits are fixed in events that look like these."""
        slots = _slots(self._layout_keys(rows))
        chosen = _placed(self._layout_at, slots, len(self._masks))
        self._masks = np.vstack([self._masks, *(masks[index] for index in chosen)])

    def add(self, rows: Rows, masks: list[Words], first_number: int) -> list[int]:
        """Make events templates, numbered from `first_number` on.

        Returns:
            which of them became templates: not those whose layout has other fixed bits, or for which no place is left.
        """
        layout = self._layout_at.take(_slots(self._layout_keys(rows)))
        fixed = rows.words & self._masks.take(layout, axis=0)
        fits = np.flatnonzero([np.array_equal(self._masks[at], mask) for at, mask in zip(layout, masks, strict=True)])
        chosen = fits[_placed(self._template_at, _slots(fixed[fits] @ self._factors), len(self._fixed))]
        self._fixed = np.vstack([self._fixed, fixed[chosen]])
        self._kind = np.append(self._kind, _kind(layout[chosen], rows.size[chosen]))
        self._number = np.append(self._number, first_number + np.arange(chosen.size))
        return [int(index) for index in chosen]

    def _layout_keys(self, rows: Rows) -> Words:
        shown = rows.words & _CONTINUES
        shown[:, 0] = rows.words[:, 0] & _CONTINUES_OR_HEAD
        keys: Words = shown @ self._factors
        keys += rows.size.view(np.uint64) * _FACTORS[MOST_WORDS]
        return keys

    def _frequent(self, keys: Words, rows: Ints) -> Ints:
        """The first of the rows for each key that came often by now."""
        found, first, counts = np.unique(keys[rows], return_index=True, return_counts=True)
        for index, key in enumerate(found.tolist()):
            counts[index] += self._seen.get(key, 0)
            if key in self._seen or len(self._seen) < MOST_TEMPLATES:
                self._seen[key] = int(counts[index])
        return rows[first[counts >= LEAST_REPEATS]]


def _placed(places: Numbers, slots: Ints, first_number: int) -> list[int]:
    """Number things at free places, from `first_number` on; which of them got one."""
    chosen: list[int] = []
    for index, slot in enumerate(slots.tolist()):
        if not places[slot] and first_number + len(chosen) < MOST_TEMPLATES:
            places[slot] = first_number + len(chosen)
            chosen.append(index)
    return chosen


def _kind(layout: Numbers, size: Ints) -> Ints:
    """Layout and size of an event as one number, to compare them at once."""
    return (layout.astype(np.int64) << _SIZE_BITS) | size


def _slots(keys: Words) -> Ints:
    return (keys >> np.uint64(64 - _KEY_BITS)).view(np.int64)
