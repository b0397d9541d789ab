from __future__ import annotations

import pytest

from engine.scheduling.arrivals import PeakLoad
from engine.scheduling.peak_load import Deployment, PeakLoadRow, measure_peak_load, percentile, strategies
from engine.scheduling.scheduler_config import SchedulerConfig


def measure(seed: int) -> dict[str, PeakLoadRow]:
    """All strategies on a small deployment, three times overloaded in the peak."""
    config = SchedulerConfig(num_blocks=1900, block_size=16, max_len=8192, max_running=64, max_step_tokens=2048)
    load = PeakLoad(num_requests=180, rate_per_s=1.0, peak_factor=5.0)
    return {row.strategy: row for row in measure_peak_load(seed, load, Deployment(1, config))}


@pytest.mark.parametrize("seed", [1, 2])
def test_at_peak_load_deadlines_and_projected_admission_lower_p99_and_raise_throughput(seed: int) -> None:
    rows = measure(seed)
    adaptive = rows["deadline, projected peak, balanced"]
    for name in ("fcfs, static batches", "fcfs, full length reserved"):
        assert adaptive.interactive_latency_us < rows[name].interactive_latency_us
        assert adaptive.output_tokens_per_s > rows[name].output_tokens_per_s
        assert adaptive.in_time_share > rows[name].in_time_share


def test_every_strategy_is_measured_once_and_the_adaptive_one_last() -> None:
    names = [strategy.name for strategy in strategies(Deployment())]
    assert len(set(names)) == len(names)
    assert names[-1].startswith("deadline")


@pytest.mark.parametrize(("percent", "expected"), [(1, 10), (50, 20), (75, 30), (99, 40), (100, 40)])
def test_a_percentile_is_one_of_the_values(percent: int, expected: int) -> None:
    assert percentile([40, 10, 30, 20], percent) == expected
