from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "fragmentation"
SUMMARY = """\
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: {ooms}            |        cudaMalloc retries: 2         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   30822 MB |   34816 MB |  204800 MB |  173978 MB |
| GPU reserved memory   |   40960 MB |   40960 MB |   40960 MB |      0 B   |
| Non-releasable memory |    9728 MB |   10138 MB |  153600 MB |  143872 MB |
"""


def failed(tried: str) -> str:
    """2.5 GiB lie unused in the allocator and 1.5 GiB are free."""
    return oom_texts.of_2018(tried=tried, total="15.75 GiB", allocated="10.20 GiB", free="1.50 GiB", cached="2.50 GiB")


def test_pieces_that_only_together_were_enough_are_told_with_less_weight(clinic: Clinic) -> None:
    sure, unsure = clinic.told(failed("2.00 GiB")).finding(RULE), clinic.told(failed("3.00 GiB")).finding(RULE)
    assert (sure["severity"], sure["confidence"]) == ("critical", 0.9)
    assert (unsure["severity"], unsure["confidence"]) == ("high", 0.6)
    assert "1.50 GiB are free outside of it" in unsure["summary"]


def test_a_request_beyond_both_is_another_matter(clinic: Clinic) -> None:
    assert RULE not in clinic.told(failed("5.00 GiB")).found


def test_a_summary_of_the_allocator_needs_a_failure(clinic: Clinic) -> None:
    assert clinic.told(SUMMARY.format(ooms=1)).first == RULE
    assert RULE not in clinic.told(SUMMARY.format(ooms=0)).found
