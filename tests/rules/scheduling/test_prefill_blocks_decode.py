from __future__ import annotations

import pytest

from tests.support import engine_texts as texts
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


def state(second: float, running: int, prompt: float, output: float) -> str:
    return texts.vllm_status(second, running, prompt=prompt, output=output)


def test_state_lines_show_that_those_who_ran_before_get_next_to_nothing(clinic: Clinic) -> None:
    before = [state(10.0 * place, 1, 0.0, 31.0) for place in range(2)]
    meanwhile = [state(20.0 + 10.0 * place, 3, 2200.0, 0.4) for place in range(4)]
    verdicts = clinic.told(texts.lines(before, meanwhile, state(60.0, 3, 0.0, 70.0)))
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert "get 0.4 tokens a second in place of 31.0" in verdicts.finding(RULE)["summary"]


def test_prompts_that_leave_the_others_their_share_are_no_fault(clinic: Clinic) -> None:
    before = [state(10.0 * place, 4, 0.0, 120.0) for place in range(2)]
    meanwhile = [state(20.0 + 10.0 * place, 6, 2200.0, 80.0) for place in range(4)]
    assert RULE not in clinic.told(texts.lines(before, meanwhile)).found


def test_one_request_after_another_has_nobody_who_waits(clinic: Clinic) -> None:
    turns = [state(10.0 * place, 1, 2200.0 if place % 4 else 0.0, 0.4 if place % 4 else 31.0) for place in range(12)]
    assert RULE not in clinic.told(texts.lines(turns)).found


def test_a_printed_result_tells_the_prompts_by_their_sum(clinic: Clinic) -> None:
    def printed(prompt_tokens: int) -> str:
        return (
            "============ Serving Benchmark Result ============\nSuccessful requests:                     1000\n"
            f"Total input tokens:                      {prompt_tokens}\n"
            "Total generated tokens:                  256000\n"
            "Request throughput (req/s):              2.43\nMedian ITL (ms):                         14.10\n"
            "P99 ITL (ms):                            890.50\n==================================================\n"
        )

    assert "at prompts of 15,900 tokens" in clinic.told(printed(15_900_000)).finding(RULE)["summary"]
    assert RULE not in clinic.told(printed(900_000)).found
