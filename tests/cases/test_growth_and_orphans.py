"""Growth that ends in a failure, and workers that outlive their run, in the forms in which people paste them.

Evidence is reconstructed from the figures of C14 ndif-team/nnsight#169, S01 xorbitsai/inference#1212
and C12 jundot/omlx#1522.
"""

from __future__ import annotations

import pytest

from tests.support import oom_texts
from tests.support.verdicts import Clinic

FULL = oom_texts.of_today(
    tried="112.00 MiB",
    total="23.64 GiB",
    free="58.00 MiB",
    own="23.58 GiB",
    allocated="23.05 GiB",
    unallocated="71.00 MiB",
)


def levels(form: str, start: float, step: float, count: int = 12) -> str:
    return "".join(form.format(place=place, size=start + step * place) for place in range(count))


# growth ---------------------------------------------------------------------------------------------------------------
HEADED = "Memory after each request (torch.cuda.memory_allocated):\n" + levels(
    "request {place:3d}: {size:.2f} GiB\n", 15.2, 0.7
)
NAMED = levels("iter {place}  allocated {size:.2f} GiB  reserved 23.00 GiB  seq_len 512\n", 15.2, 0.7)
TRACE = oom_texts.traceback(
    ("/site-packages/transformers/models/llama/modeling_llama.py", "forward", "attn_output = self.o_proj(attn_output)")
)


@pytest.mark.parametrize("text", [HEADED, NAMED], ids=["headed", "named"])
def test_growth_that_ends_in_a_failure_is_the_one_cause_of_it(text: str, clinic: Clinic) -> None:
    verdicts = clinic.told(text + TRACE + FULL)
    finding = verdicts.finding("memory-leak-growth")
    assert verdicts.found == {"memory-leak-growth"}
    assert finding["severity"] == "critical"
    assert "then an allocation failed" in finding["summary"]


def test_bare_levels_under_a_heading_are_a_series_without_a_failure_too(clinic: Clinic) -> None:
    assert clinic.told(HEADED).finding("memory-leak-growth")["severity"] == "high"


def test_levels_of_a_step_told_among_other_figures_are_a_series(clinic: Clinic) -> None:
    told = levels("prompt {place} | gpu mem {size:.1f} GB | 4.1 s\n", 31.2, 1.8)
    assert clinic.told(told).first == "memory-leak-growth"


LOOK_ALIKES = {
    "level": levels("iter {place}  allocated 15.20 GiB  reserved {size:.2f} GiB\n", 16.0, 0.6),
    "reserved": "torch.cuda.memory_reserved() after each prompt:\n" + levels("{place}: {size:.2f} GiB\n", 15.2, 0.6),
    "of one sequence": "".join(
        f"step {place} seq_len {500 * place} allocated {15.2 + 0.5 * place:.2f} GiB\n" for place in range(1, 13)
    ),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_caching_and_a_growing_sequence_are_no_leak(name: str, clinic: Clinic) -> None:
    verdicts = clinic.told(LOOK_ALIKES[name] + FULL)
    assert verdicts.first == "headroom-thin"
    assert "memory-leak-growth" not in verdicts.found


# workers that are left ------------------------------------------------------------------------------------------------
REFUSED = (
    "ValueError: Free memory on device cuda:0 (3.11/79.15 GiB) on startup is less than desired GPU memory utilization"
    " (0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n"
)
HOLDERS = "pid, process_name, used_gpu_memory [MiB]\n19233, VLLM::Worker_TP0, 74910 MiB\n"
PS = "  PID  PPID STAT CMD\n19233     {} Sl   VLLM::Worker_TP0\n"
SERVED = "  PID  PPID STAT CMD\n    1     0 Ssl  python3 -m vllm.entrypoints\n19233     1 Sl   VLLM::Worker_TP0\n"
NAMED_IN_TEXT = oom_texts.of_today(
    tried="2.00 GiB",
    total="79.15 GiB",
    free="1.10 GiB",
    own="4.90 GiB",
    allocated="4.20 GiB",
    unallocated="88.00 MiB",
    others={19233: "73.15 GiB"},
)


def test_s01_a_worker_without_a_parent_is_left_over_whatever_table_names_it(clinic: Clinic) -> None:
    verdicts = clinic.told(REFUSED + HOLDERS + PS.format(1))
    assert verdicts.first == "orphan-or-zombie-memory"
    assert "foreign-gpu-process" not in verdicts.found
    assert "lost its parent" in verdicts.finding("orphan-or-zombie-memory")["summary"]


def test_s01_a_worker_with_a_parent_is_somebody_elses(clinic: Clinic) -> None:
    verdicts = clinic.told(REFUSED + HOLDERS + PS.format(18000))
    assert verdicts.first == "foreign-gpu-process"
    assert "orphan-or-zombie-memory" not in verdicts.found


def test_s01_an_oom_text_that_names_a_worker_without_a_parent(clinic: Clinic) -> None:
    assert clinic.told(NAMED_IN_TEXT + PS.format(1)).first == "orphan-or-zombie-memory"
    assert clinic.told(NAMED_IN_TEXT + SERVED).first == "foreign-gpu-process"
