"""What of a file's numbers found no place in the case: counted while it is loaded, told in its notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from doctor.case.batch import SourceFacts
from doctor.case.schema import QUERY_ONLY

_SMALL, _LARGE = 1 << 31, 1 << 62


class Misfits:
    """Counts by source; a file with any is incomplete, but for values that no rule reads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()
        self._unread: Counter[tuple[int, str]] = Counter()

    def count_rows(self, source_id: int, table: str, count: int) -> None:
        """Add rows that were left out for their times."""
        self._counts[source_id, f"{table}: rows with times that no recording can have, left out"] += count

    def count_values(self, source_id: int, counts: Mapping[str, int]) -> None:
        """Add values that became NULL, by `table.column`."""
        for column, count in counts.items():
            table, _, name = column.partition(".")
            counted = self._unread if name in QUERY_ONLY.get(table, ()) else self._counts
            counted[source_id, f"{column}: values beyond what can be, left out"] += count

    def noted(self, source_id: int, facts: SourceFacts) -> SourceFacts:
        """The facts without numbers that their columns have no room for, with a note on whatever did not fit."""
        kept = replace(
            facts,
            rank=_within(facts.rank, _SMALL),
            world_size=_within(facts.world_size, _SMALL),
            capture_start_ns=_within(facts.capture_start_ns, _LARGE),
            capture_end_ns=_within(facts.capture_end_ns, _LARGE),
            clock_offset_ns=_within(facts.clock_offset_ns, _LARGE),
        )
        self.count_values(source_id, {"rank, capture or clock": int(kept != facts)})
        lost, unread = (_lines(counts, source_id) for counts in (self._counts, self._unread))
        return replace(kept, is_complete=kept.is_complete and not lost, notes=(*facts.notes, *lost, *unread))


def _lines(counts: Counter[tuple[int, str]], source_id: int) -> tuple[str, ...]:
    return tuple(f"{what}: {count:,}" for (whose, what), count in counts.items() if whose == source_id and count)


def _within(value: int | None, bound: int) -> int | None:
    return value if value is not None and -bound <= value < bound else None
