from __future__ import annotations

from tests.support.device_texts import smi_table
from tests.support.verdicts import Clinic

RULE = "orphan-or-zombie-memory"


def seen(busy: int = 0, used: int = 9000) -> str:
    """Device 0 is in use by nobody who is listed, device 1 by a process."""
    return smi_table([{"used": used, "busy": busy}, {"used": 700}], [(1, 77, "python3", 690)])


def test_fires_where_the_table_names_processes_and_none_on_this_device(clinic: Clinic) -> None:
    verdicts = clinic.told(seen())
    assert verdicts.first == RULE
    assert "GPU 0" in verdicts.finding(RULE)["summary"]


def test_is_silent_where_somebody_computes_or_little_is_held(clinic: Clinic) -> None:
    assert RULE not in clinic.told(seen(busy=90)).found
    assert RULE not in clinic.told(seen(used=600)).found
