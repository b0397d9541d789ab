from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "non-torch-memory-high"


def failed(allocated: str, tried: str = "60.00 MiB") -> str:
    """A failure of a process that the driver counts 79.14 GiB for."""
    return oom_texts.of_today(
        tried=tried,
        total="79.19 GiB",
        free="39.06 MiB",
        own="79.14 GiB",
        allocated=allocated,
        pools="436.00 MiB",
        unallocated="71.59 MiB",
    )


def test_fires_when_several_gib_lie_outside_pytorch(clinic: Clinic) -> None:
    verdicts = clinic.told(failed("72.36 GiB"))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "high"
    assert verdicts.evidence(RULE, "memory outside PyTorch") / 2**30 > 6.6


def test_is_silent_when_a_context_and_libraries_lie_there(clinic: Clinic) -> None:
    assert RULE not in clinic.told(failed("77.80 GiB")).found


def test_stands_behind_what_the_frames_name(clinic: Clinic) -> None:
    frames = oom_texts.traceback(("/usr/lib/vllm/v1/sample/sampler.py", "compute_logprobs", "logits.log_softmax(-1)"))
    verdicts = clinic.told(frames + failed("72.36 GiB"))
    assert verdicts.first == "logits-logprob-peak"
    assert verdicts.finding(RULE)["severity"] == "medium"
