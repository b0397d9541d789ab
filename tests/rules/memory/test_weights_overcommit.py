from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "weights-overcommit"
LOADING = oom_texts.traceback(
    ("/usr/lib/vllm/v1/worker/gpu_worker.py", "load_model", "self.model_runner.load_model()"),
    ("/usr/lib/vllm/model_executor/layers/linear.py", "create_weights", "weight = Parameter(torch.empty(n, m))"),
)
FAILED = oom_texts.of_today(
    tried="448.00 MiB",
    total="22.05 GiB",
    free="210.00 MiB",
    own="21.80 GiB",
    allocated="21.40 GiB",
    unallocated="30.00 MiB",
)


def started(weights: str, left: str) -> str:
    """What vLLM logs of a start on a card of 24 GiB, of which it may take nine tenths."""
    return (
        "INFO 11-20 20:00:00 [worker.py:267] the current vLLM instance can use total_gpu_memory (24.00GiB) x"
        " gpu_memory_utilization (0.90) = 21.60GiB\n"
        f"INFO 11-20 20:00:10 [gpu_model_runner.py:1850] Model loading took {weights} GiB and 8.1 seconds\n"
        f"INFO 11-20 20:00:40 [gpu_worker.py:276] Available KV cache memory: {left} GiB\n"
    )


def test_fires_when_memory_runs_out_while_weights_are_loaded(clinic: Clinic) -> None:
    verdicts = clinic.told(LOADING + FAILED)
    assert verdicts.found == {RULE}
    assert verdicts.finding(RULE)["severity"] == "critical"


def test_fires_when_weights_leave_nothing_for_the_cache(clinic: Clinic) -> None:
    assert clinic.told(started("20.90", "-0.62")).first == RULE
    assert RULE not in clinic.told(started("14.00", "5.10")).found


def test_is_silent_when_the_same_failure_comes_while_serving(clinic: Clinic) -> None:
    assert RULE not in clinic.told("INFO: Application startup complete.\n" + FAILED).found
