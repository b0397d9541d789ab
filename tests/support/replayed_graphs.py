"""Graphs of steps without a GPU: recorded passes are run again over the same memory instead of being replayed.

Everything around a CUDA graph is real then: its sizes, its inputs and their padding, the model, the cache, and where
results end. What a graph cannot see either, such as a number that only the host knows, is fixed when it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine import LLM
from engine.config import EngineConfig
from engine.execution.cuda_graphs import DecodeGraphs, GraphSizes
from engine.execution.forward import EagerPass, PassOutput
from engine.execution.graph_recorder import RecordedPass
from engine.execution.mixed_graphs import MixedGraphs, MixedSizes


class HostMemory:
    """Inputs of a pass in memory of the host."""

    def copy_packed(self, packed: NDArray[np.uint8], target: Tensor) -> None:
        target.copy_(torch.from_numpy(packed))


@dataclass(frozen=True)
class RunAgain:
    """A pass, and the tensors in which it leaves its results each time."""

    run: Callable[[], PassOutput]
    output: PassOutput

    def replay(self) -> None:
        new = self.run()
        assert new.best_R is not None
        assert self.output.best_R is not None
        self.output.logits_RV.copy_(new.logits_RV)
        self.output.best_R.copy_(new.best_R)


class HostRecorder:
    """Records passes on the CPU."""

    device = torch.device("cpu")

    def record(self, run: Callable[[], PassOutput]) -> RecordedPass:
        output = run()
        return RecordedPass(RunAgain(run, output), output)


def replay_graphs(llm: LLM, config: EngineConfig) -> EagerPass:
    """Let an engine on the CPU replay steps as its configuration would have it on a GPU; before its first request.

    Returns:
        The pass that is recorded.
    """
    runner = llm.core.loop._runner
    eager, counters = runner._forward, llm.core.counters
    assert isinstance(eager, EagerPass)
    scheduler = llm.core.loop.scheduler.config
    rows = 1 + scheduler.max_draft_tokens
    bounds = (scheduler.max_running, scheduler.max_len, scheduler.block_size)
    sizes = MixedSizes(config.mixed_graph_tokens, *bounds, rows)
    mixed = MixedGraphs(eager, HostMemory(), sizes, counters)
    mixed.record(HostRecorder())
    decode = DecodeGraphs(eager, mixed, HostMemory(), GraphSizes(*bounds, tuple({1, rows})), counters)
    decode.record(HostRecorder())
    runner._forward = decode
    counters.reset()
    return eager
