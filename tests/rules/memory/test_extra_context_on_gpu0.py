from __future__ import annotations

from tests.support import oom_texts
from tests.support.device_texts import smi_table
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


def test_ranks_that_begin_at_another_device_count_too(clinic: Clinic) -> None:
    mains = [(4, 500, "python3", 9000), (5, 501, "python3", 9000), (6, 502, "python3", 9000)]
    table = smi_table([{"used": 9000}] * 7, [*mains, (4, 501, "python3", 1400), (4, 502, "python3", 1400)])
    finding = clinic.told(table).finding(RULE)
    assert "2 processes" in finding["summary"]
    assert "GPU 4" in finding["summary"]


def test_one_process_over_several_devices_is_a_spread_model(clinic: Clinic) -> None:
    table = smi_table([{"used": 9000}] * 3, [(1, 500, "python3", 1500), (2, 500, "python3", 9000)])
    assert RULE not in clinic.told(table).found
