from __future__ import annotations

from tests.support.verdicts import Clinic

RULE = "host-memory-leak"


def killed(held_kib: int) -> str:
    """What the kernel logs when it ends a process for want of memory."""
    return (
        f"[4711.123456] Out of memory: Killed process 900 (python3) total-vm:{2 * held_kib}kB, anon-rss:{held_kib}kB,"
        " file-rss:10kB, shmem-rss:0kB, UID:1000 pgtables:900kB oom_score_adj:0\n"
    )


def test_a_process_that_the_kernel_ended_is_told_with_what_it_held(clinic: Clinic) -> None:
    verdicts = clinic.told(killed(60 * 2**20))
    assert verdicts.first == RULE
    assert "process 900 (python3), which held 60.0 GiB" in verdicts.finding(RULE)["summary"]


def test_a_small_process_is_a_bystander(clinic: Clinic) -> None:
    assert RULE not in clinic.told(killed(200 * 2**10)).found
