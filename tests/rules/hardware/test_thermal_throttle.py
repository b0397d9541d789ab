"""Reconstructed from rammsguns/llm-rig#100: a hot 16 GB workstation card at a 100 W cap, 628 MHz sustained."""

from __future__ import annotations

from tests.support.device_texts import busy, query_gpu
from tests.support.verdicts import Clinic

RULE = "thermal-throttle"
HOT = {
    "name": "NVIDIA RTX A4000",
    "temperature__gpu": "93",
    "power__draw": "98.20 W",
    "power__limit": "100.00 W",
    "power__default_limit": "140.00 W",
    "clocks__current__sm": "628 MHz",
    "clocks__max__sm": "2100 MHz",
}
NAMED = {"clocks_event_reasons__sw_thermal_slowdown": "Active", "clocks_event_reasons__sw_power_cap": "Active"}


def test_fires_where_the_driver_names_heat(clinic: Clinic) -> None:
    verdicts = clinic.told(query_gpu(busy(**HOT, **NAMED)))
    assert verdicts.first == RULE
    assert "628 of 2100 MHz" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "high"
    assert "cool it first" in verdicts.ruled_out["power-capped"]


def test_a_hardware_slowdown_is_critical(clinic: Clinic) -> None:
    verdicts = clinic.told(query_gpu(busy(**HOT, clocks_event_reasons__hw_thermal_slowdown="Active")))
    assert verdicts.finding(RULE)["severity"] == "critical"


def test_flips_to_the_power_cap_on_a_cool_card(clinic: Clinic) -> None:
    cool = HOT | {"temperature__gpu": "58", "clocks_event_reasons__sw_power_cap": "Active"}
    verdicts = clinic.told(query_gpu(busy(**cool)))
    assert RULE not in verdicts.found
    assert "heat is named in none" in verdicts.ruled_out[RULE]
    assert verdicts.first == "power-capped"


def test_tells_heat_without_reasons_only_on_a_hot_card(clinic: Clinic) -> None:
    bare = [{k: v for k, v in row.items() if "reasons" not in k and "power" not in k} for row in busy(**HOT)]
    verdicts = clinic.told(query_gpu(bare))
    assert verdicts.finding(RULE)["confidence"] < 0.7
    cool = [row | {"temperature.gpu": "60"} for row in bare]
    assert RULE not in clinic.told(query_gpu(cool)).found


def test_idle_samples_prove_nothing(clinic: Clinic) -> None:
    idle = busy(**(HOT | NAMED | {"utilization__gpu": "0 %", "power__draw": "9.10 W"}))
    verdicts = clinic.told(query_gpu(idle))
    assert RULE not in verdicts.found
    assert RULE in verdicts.not_run


def test_is_silent_on_a_device_at_work(clinic: Clinic) -> None:
    assert clinic.told(query_gpu(busy())).found == set()


def test_a_section_cut_out_with_grep_is_enough(clinic: Clinic) -> None:
    section = """\
$ nvidia-smi -q -d PERFORMANCE | grep -A8 Clocks
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
"""
    assert clinic.told(section).first == RULE
    assert (
        clinic.told(
            section.replace(
                "Idle                              : Not Active", "Idle                              : Active"
            )
        ).first
        is None
    )
