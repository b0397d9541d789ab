from __future__ import annotations

import pytest

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "prefill-blocks-decode"


def serving(kinds: str, prefill_us: float = 200.0, pause_us: float = 0.0) -> Program:
    """`d` is a decode step of 66 kernels of 10 us on a busy device, `p` has longer kernels or a pause before it."""
    program = Program()
    for kind in kinds:
        if kind == "p":
            program.silence(pause_us)
        decode_step(program, kernel_us=prefill_us if kind == "p" else 10.0, silence_us=1.0)
    return program


def test_fires_on_prefills_between_decode_steps(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(serving("dddddpdddddpdddddppddddd"))
    finding = verdicts.finding(RULE)
    assert finding["severity"] == "medium"
    assert verdicts.evidence(RULE, "runs of long steps") == 3
    assert verdicts.evidence(RULE, "longest step against the median") == pytest.approx(20, rel=0.1)
    assert 0.7 < verdicts.evidence(RULE, "time in long steps") < 0.9


def test_is_silent_when_one_prefill_opens_the_recording(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(serving("p" + "d" * 20)).found


def test_is_silent_when_prefill_runs_in_pieces(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(serving("dddddpdddddpdddddppddddd", prefill_us=30)).found


def test_is_silent_on_pauses_of_the_host(clinic: Clinic) -> None:
    kinds = "dddddpdddddpdddddppddddd"
    assert RULE not in clinic.verdicts(serving(kinds, prefill_us=10, pause_us=20_000)).found
