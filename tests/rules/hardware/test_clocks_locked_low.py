from __future__ import annotations

from tests.support.device_texts import busy, query_gpu
from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "clocks-locked-low"
LOW = {"clocks__current__sm": "1200 MHz", "power__draw": "290.00 W"}
NAMED = {"clocks_event_reasons__applications_clocks_setting": "Active"}


def test_fires_where_the_driver_names_the_setting(clinic: Clinic) -> None:
    verdicts = clinic.told(query_gpu(busy(**LOW, **NAMED)))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_bound"] == 1980 / 1200


def test_fires_on_a_clock_that_stands_still_and_nothing_holds(clinic: Clinic) -> None:
    assert clinic.told(query_gpu(busy(**LOW))).finding(RULE)["confidence"] < 0.7


def test_is_silent_where_heat_or_power_is_the_reason(clinic: Clinic) -> None:
    heat = busy(**LOW, **NAMED, clocks_event_reasons__sw_thermal_slowdown="Active")
    assert RULE not in clinic.told(query_gpu(heat)).found
    power = busy(**LOW, **NAMED, clocks_event_reasons__sw_power_cap="Active", power__limit="300.00 W")
    assert clinic.told(query_gpu(power)).first == "power-capped"


def test_is_silent_just_above_the_threshold(clinic: Clinic) -> None:
    assert RULE not in clinic.told(query_gpu(busy(clocks__current__sm="1584 MHz", **NAMED))).found


def test_a_run_bound_by_its_host_hardly_notices_the_clock(clinic: Clinic) -> None:
    """Reconstructed from sgl-project/sglang-omni#907: the clock at 0.455 costs a host-bound run 10 %."""
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=3, silence_us=30)
    trace = program.write(clinic.folder / "trace.json")
    verdicts = clinic.told(trace, query_gpu(busy(clocks__current__sm="900 MHz", **NAMED)))
    assert verdicts.first == "host-dispatch-bound"
    assert verdicts.finding(RULE)["severity"] in {"low", "medium"}
    assert verdicts.finding(RULE)["gain"]["speedup_bound"] < 1.12
