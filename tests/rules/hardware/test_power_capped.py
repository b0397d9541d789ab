from __future__ import annotations

from tests.support.device_texts import busy, query_gpu, smi_table
from tests.support.verdicts import Clinic

RULE = "power-capped"
CAPPED = {
    "power__draw": "349.10 W",
    "power__limit": "350.00 W",
    "clocks__current__sm": "1200 MHz",
    "clocks_event_reasons__sw_power_cap": "Active",
}


def test_fires_on_a_limit_below_the_default(clinic: Clinic) -> None:
    verdicts = clinic.told(query_gpu(busy(**CAPPED)))
    assert verdicts.first == RULE
    assert "350 W (default 700 W)" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "medium"


def test_is_cleared_at_the_default_limit(clinic: Clinic) -> None:
    verdicts = clinic.told(query_gpu(busy(**(CAPPED | {"power__draw": "698.00 W", "power__limit": "700.00 W"}))))
    assert RULE not in verdicts.found
    assert "it is working" in verdicts.ruled_out[RULE]


def test_a_power_brake_is_high_at_any_limit(clinic: Clinic) -> None:
    rows = busy(clocks_event_reasons__hw_power_brake_slowdown="Active", clocks__current__sm="990 MHz")
    finding = clinic.told(query_gpu(rows)).finding(RULE)
    assert finding["severity"] == "high"
    assert all("-pl" not in fix["setting"] for fix in finding["fixes"])


def test_a_cap_far_under_the_limit_is_set_by_somebody_else(clinic: Clinic) -> None:
    rows = busy(**(CAPPED | {"power__draw": "240.00 W", "power__limit": "700.00 W"}))
    finding = clinic.told(query_gpu(rows)).finding(RULE)
    assert "another limit holds" in finding["summary"]
    assert finding["confidence"] == 0.5


def test_a_hot_card_whose_reasons_nobody_asked_for_is_not_called_capped(clinic: Clinic) -> None:
    table = smi_table(
        [{"name": "NVIDIA RTX A4000", "temp": 93, "power": 99, "limit": 100, "busy": 100, "total": 16376}]
    )
    verdicts = clinic.told(table)
    assert RULE not in verdicts.found
    assert "heat may be the reason" in verdicts.ruled_out[RULE]


def limited(name: str, watts: int) -> str:
    """`nvidia-smi` of a card that draws all of a limit; the table does not tell its default."""
    return smi_table([{"name": name, "temp": 60, "power": watts - 1, "limit": watts, "busy": 100, "total": 46068}])


def test_a_limit_held_against_a_figure_that_no_vendor_states_says_so(clinic: Clinic) -> None:
    summary = clinic.told(limited("NVIDIA L20", 200)).finding(RULE)["summary"]
    assert "(the product's is 275 W, unconfirmed: its vendor publishes no data sheet)" in summary
    assert "(the product's is 300 W)" in clinic.told(limited("NVIDIA L40", 200)).finding(RULE)["summary"]


def test_so_does_what_clears_it(clinic: Clinic) -> None:
    cleared = clinic.told(limited("NVIDIA L20", 275)).ruled_out[RULE]
    assert "what its product is sold with, unconfirmed" in cleared
    assert "unconfirmed" not in clinic.told(limited("NVIDIA L40", 300)).ruled_out[RULE]
