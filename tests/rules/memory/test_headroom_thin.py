from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "headroom-thin"
RETRY = (
    "[rank0]:[W922 05:15:28] memory allocation failed with OOM on device 0 while trying to allocate 268435456 bytes"
    " (free: 42336256, total: 101973950464).\n"
)
LOOKS = (
    "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n"
    "0, NVIDIA L4, 23034 MiB, {used} MiB, {busy} %\n"
)


def test_an_allocation_that_was_tried_again_is_told_as_no_failure(clinic: Clinic) -> None:
    verdicts = clinic.told(RETRY)
    assert verdicts.found == {RULE}
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert clinic.told(RETRY * 12).finding(RULE)["severity"] == "high"


def test_fires_on_a_device_that_works_with_nothing_to_spare(clinic: Clinic) -> None:
    assert clinic.told(LOOKS.format(used=22900, busy=96)).first == RULE


def test_is_silent_where_a_tenth_is_left_or_nobody_works(clinic: Clinic) -> None:
    verdicts = clinic.told(LOOKS.format(used=20700, busy=96))
    assert RULE in verdicts.ruled_out
    assert RULE not in clinic.told(LOOKS.format(used=22900, busy=0)).found


def test_words_without_figures_leave_it_open_who_holds_the_memory(clinic: Clinic) -> None:
    verdicts = clinic.told("RuntimeError: CUDA error: out of memory\n")
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["confidence"] < 0.5


def test_windows_refuses_with_room_left(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="900.00 MiB", total="12.00 GiB", free="6.50 GiB", allocated="4.00 GiB", unallocated="80.00 MiB"
    )
    finding = clinic.told(text).finding(RULE)
    assert finding["confidence"] < 0.5
    assert any("page file" in fix["setting"] for fix in finding["fixes"])


def test_a_report_that_failed_too_is_a_failure_without_figures(clinic: Clinic) -> None:
    text = 'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "c10/cuda/CUDACachingAllocator.cpp":963\n'
    assert clinic.told(text).first == RULE
    assert clinic.told("device: NVIDIA H100 80GB HBM3 MIG 1g.10gb\n" + text).first == "mig-memory-misread"


def test_a_full_device_of_float32_weights_stands_behind_their_type(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="500.00 MiB",
        total="21.70 GiB",
        free="8.00 MiB",
        own="21.60 GiB",
        allocated="21.20 GiB",
        unallocated="2.00 MiB",
    )
    assert clinic.told("vllm serve org/model-7b --dtype float32\n" + text).first == "wrong-dtype-fp32"
