"""What the adaptive scheduler is worth at peak load, against first come, first served.

The founding article reports, for a scheduler with a deadline queue, admission by memory, a load balancer and rollback:
P99 latency from 3.2 s to 1.4 s and 2.8 times the throughput during the peak. It does not say what was replaced. So
every strategy from static batches on is simulated on the same arrivals, each adding one thing to the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from engine.errors import ConfigError
from engine.scheduling.admission import AdmissionRule, FullLength, PresentlyFree, ProjectedPeak
from engine.scheduling.arrivals import INTERACTIVE, Arrival, PeakLoad
from engine.scheduling.balancer import Balancer, BalancerConfig
from engine.scheduling.batching import BatchingPolicy, ContinuousBatch, StaticBatch
from engine.scheduling.deadline_queue import DeadlineQueue
from engine.scheduling.length_history import LengthHistory
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.scheduler_config import SchedulerConfig
from engine.scheduling.simulation import CostModel, Served, SimulationResult, simulate
from engine.scheduling.waiting_queue import ArrivalQueue, WaitingQueue


@dataclass(frozen=True, slots=True)
class Deployment:
    """Replicas of one engine. The defaults are about Llama 2 13 B on A100s of 80 GB: 60,000 tokens of KV each."""

    num_replicas: int = 2
    config: SchedulerConfig = field(
        default=SchedulerConfig(num_blocks=3800, block_size=16, max_len=8192, max_running=128, max_step_tokens=2048)
    )
    cost: CostModel = field(default=CostModel())
    static_batch_size: int = 32

    def balancer(self) -> Balancer:
        """A balancer without a limit, so that all strategies serve the same requests."""
        no_limit = 1 << 62
        return Balancer(self.num_replicas, BalancerConfig(self.config.block_size, self.config.num_blocks, no_limit))


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to schedule, as factories: each replica gets its own queue and forecast."""

    name: str
    admission: Callable[[], AdmissionRule]
    queue: Callable[[], WaitingQueue] = ArrivalQueue
    batching: BatchingPolicy | None = None
    is_balanced: bool = False

    def run(self, arrivals: Sequence[Arrival], deployment: Deployment) -> SimulationResult:
        """Serve the arrivals to the end."""
        batching = self.batching or ContinuousBatch(deployment.config.max_step_tokens)

        def make_scheduler() -> Scheduler:
            return Scheduler(deployment.config, batching, self.admission(), self.queue())

        balancer = deployment.balancer() if self.is_balanced else None
        return simulate(arrivals, make_scheduler, deployment.cost, deployment.num_replicas, balancer)


@dataclass(frozen=True, slots=True)
class PeakLoadRow:
    """One strategy at the peak. Latencies are P99 over the requests that arrived in the peak, in microseconds.

    `in_time_share` is the share of those requests that met their deadline. `output_tokens_per_s` counts the output of
    the peak's duration, `overall_tokens_per_s` that of the whole trace up to its last answer.
    """

    strategy: str
    output_tokens_per_s: float
    overall_tokens_per_s: float
    latency_us: int
    interactive_latency_us: int
    interactive_ttft_us: int
    in_time_share: float
    preemptions: int
    prefix_hit_tokens: int


def strategies(deployment: Deployment) -> tuple[Strategy, ...]:
    """From the plainest to the adaptive scheduler of the article."""

    def forecast() -> ProjectedPeak:
        return ProjectedPeak(lengths=LengthHistory())

    return (
        Strategy("fcfs, static batches", FullLength, batching=StaticBatch(deployment.static_batch_size)),
        Strategy("fcfs, full length reserved", FullLength),
        Strategy("fcfs, blocks free now", PresentlyFree),
        Strategy("fcfs, projected peak", forecast),
        Strategy("deadline, projected peak", forecast, DeadlineQueue),
        Strategy("deadline, projected peak, balanced", forecast, DeadlineQueue, is_balanced=True),
    )


def measure_peak_load(
    seed: int, load: PeakLoad | None = None, deployment: Deployment | None = None
) -> tuple[PeakLoadRow, ...]:
    """Simulate all strategies on the arrivals of one seed; the last row is the adaptive scheduler."""
    load = load or PeakLoad()
    deployment = deployment or Deployment()
    arrivals = load.draw(seed)
    peak_us = load.peak_us(arrivals)
    return tuple(summarise(s.name, s.run(arrivals, deployment), peak_us) for s in strategies(deployment))


def measure_arrivals(arrivals: Sequence[Arrival], deployment: Deployment | None = None) -> tuple[PeakLoadRow, ...]:
    """Simulate all strategies on a trace; the figures are of all of its requests.

    Raises:
        ConfigError: a request is too long for the deployment.
    """
    deployment = deployment or Deployment()
    longest = max(arrival.prompt_tokens + arrival.max_new_tokens for arrival in arrivals)
    most = min(deployment.config.max_len, deployment.config.num_blocks * deployment.config.block_size)
    if longest > most:
        raise ConfigError(f"a request of {longest} tokens does not fit: a replica serves at most {most}")
    whole_us = (arrivals[0].at_us, arrivals[-1].at_us)
    rows = (summarise(s.name, s.run(arrivals, deployment), whole_us) for s in strategies(deployment))
    return tuple(replace(row, output_tokens_per_s=row.overall_tokens_per_s) for row in rows)


def percentile(values: Iterable[int], percent: int) -> int:
    """The smallest of the values that at least `percent` percent of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def summarise(name: str, result: SimulationResult, peak_us: tuple[int, int]) -> PeakLoadRow:
    """The row of one strategy, from what came of the arrivals."""
    peak = [served for served in result.served if peak_us[0] <= served.arrival.at_us <= peak_us[1]]
    interactive = [served for served in peak if served.arrival.kind == INTERACTIVE]
    return PeakLoadRow(
        strategy=name,
        output_tokens_per_s=result.output_tokens_per_s(*peak_us),
        overall_tokens_per_s=result.output_tokens_per_s(result.served[0].arrival.at_us, result.progress[-1][0]),
        latency_us=percentile(map(_latency_us, peak), 99),
        interactive_latency_us=percentile(map(_latency_us, interactive), 99),
        interactive_ttft_us=percentile(map(_ttft_us, interactive), 99),
        in_time_share=sum(map(_is_in_time, peak)) / len(peak),
        preemptions=result.preemptions,
        prefix_hit_tokens=result.prefix_hit_tokens,
    )


def _latency_us(served: Served) -> int:
    assert served.finished_us is not None
    return served.finished_us - served.arrival.at_us


def _ttft_us(served: Served) -> int:
    assert served.first_token_us is not None
    return served.first_token_us - served.arrival.at_us


def _is_in_time(served: Served) -> bool:
    deadline_us = served.arrival.deadline_us
    return deadline_us is None or _latency_us(served) <= deadline_us - served.arrival.at_us
