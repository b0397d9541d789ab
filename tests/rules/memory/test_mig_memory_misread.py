from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "mig-memory-misread"


def failed(free: str, allowed: str = "") -> str:
    """A failure of a process that holds next to nothing of a card of 23.52 GiB."""
    text = oom_texts.of_today(
        tried="654.00 MiB",
        total="23.52 GiB",
        free=free,
        allocated="5.51 MiB",
        pools="5.51 MiB",
        unallocated="16.00 MiB",
    )
    return text.replace("is free.", f"is free.{allowed}")


def test_a_failure_with_the_card_free_is_a_limit(clinic: Clinic) -> None:
    verdicts = clinic.told(failed("22.96 GiB"))
    assert verdicts.first == RULE
    assert "foreign-gpu-process" not in verdicts.found | verdicts.ruled_out.keys()


def test_a_limit_that_the_message_names_is_told(clinic: Clinic) -> None:
    assert "a limit of 500 MiB" in clinic.told(failed("600.00 MiB", " 500.00 MiB allowed;")).finding(RULE)["summary"]


def test_is_silent_on_a_full_card(clinic: Clinic) -> None:
    assert RULE not in clinic.told(failed("300.00 MiB")).found
