from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "extra-context-on-gpu0"


def failed(others: dict[int, str]) -> str:
    """A failure of rank 0 of eight on GPU 0."""
    return oom_texts.of_today(
        tried="1.00 GiB",
        total="39.39 GiB",
        free="300.00 MiB",
        others=others,
        own="35.40 GiB",
        allocated="34.50 GiB",
        unallocated="100.00 MiB",
    )


def test_contexts_of_other_ranks_take_what_was_missing(clinic: Clinic) -> None:
    verdicts = clinic.told(failed(dict.fromkeys(range(101, 108), "526.00 MiB")))
    assert verdicts.first == RULE
    assert "foreign-gpu-process" not in verdicts.found


def test_one_process_with_much_memory_is_another_matter(clinic: Clinic) -> None:
    verdicts = clinic.told(failed({101: "3.60 GiB"}))
    assert verdicts.first == "foreign-gpu-process"
    assert RULE not in verdicts.found
