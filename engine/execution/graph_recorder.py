"""Recording a forward pass as a CUDA graph, with the memory that its inputs come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from engine.execution.staging import layout_size, layout_views
from engine.tracing import Range, span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.execution.batch import Batch, BatchNumbers
    from engine.execution.forward import PassOutput
    from engine.scheduling.plan import ScheduledRequest


class Replayable(Protocol):
    """A pass that runs again over the same memory."""

    def replay(self) -> None:
        """Run it; on a GPU one launch."""
        ...


class RecordedPass(NamedTuple):
    """A recorded pass, and the tensors that every replay writes."""

    graph: Replayable
    output: PassOutput


class GraphRecorder(Protocol):
    """Makes recorded passes of one model, which run one after the other."""

    @property
    def device(self) -> torch.device:
        """Where the passes run."""
        ...

    def record(self, run: Callable[[], PassOutput]) -> RecordedPass:
        """Record what `run` launches."""
        ...


class PackedStaging(Protocol):
    """Brings inputs to the memory of a recorded pass."""

    def copy_packed(self, packed: NDArray[np.uint8], target: Tensor) -> None:
        """Copy packed arrays into a buffer on the device, as long as they are."""
        ...


class PaddedInputs(Protocol):
    """Inputs of passes of one size, in host memory that is kept from pass to pass; padding where a pass has none."""

    @property
    def numbers(self) -> BatchNumbers:
        """The inputs as arrays."""
        ...

    @property
    def packed(self) -> NDArray[np.uint8]:
        """The memory of these arrays."""
        ...

    def fill(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> None:
        """Put requests into the first rows, and padding behind them."""
        ...


class PassGraph:
    """A recorded pass of one size, with its inputs on the host and on the device."""

    def __init__(
        self, inputs: PaddedInputs, run: Callable[[Batch], PassOutput], staging: PackedStaging, recorder: GraphRecorder
    ) -> None:
        """Record the pass over nothing but padding.

        Args:
            inputs: host side of its inputs.
            run: the pass.
            staging: brings inputs to the device.
            recorder: records it.

        Raises:
            RuntimeError: the pass waits for the device, or there is no memory left.
        """
        arrays = inputs.numbers.arrays()
        self._inputs = inputs
        self._staging = staging
        self._buffer = torch.zeros(layout_size(arrays), dtype=torch.uint8, device=recorder.device)
        staging.copy_packed(inputs.packed, self._buffer)
        batch = inputs.numbers.on_device(layout_views(arrays, self._buffer))
        self._recorded = recorder.record(lambda: run(batch))

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int], num_rows: int) -> PassOutput:
        """Replay the pass for some requests, which fit it.

        Args:
            scheduled: the requests.
            slots: for each its slot in the runner's buffers.
            num_rows: rows of logits that they have.
        """
        self._inputs.fill(scheduled, slots)
        self._staging.copy_packed(self._inputs.packed, self._buffer)
        with span(Range.GRAPH_REPLAY, len(self._inputs.numbers.token_ids_T)):
            self._recorded.graph.replay()
        return self._recorded.output.first(num_rows)


class CudaGraphRecorder:
    """Records CUDA graphs that share one pool of memory: record the largest first, and the others find room in it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool = torch.cuda.graph_pool_handle()
        # One for all recordings: libraries keep a workspace for every stream that they have seen.
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, run: Callable[[], PassOutput]) -> RecordedPass:
        """Run once beside the current stream, then record.

        Args:
            run: launches a pass over memory that stays where it is; waits for nothing.

        Raises:
            RuntimeError: the pass waits for the device, or there is no memory left.
        """
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            # Libraries set themselves up and kernels are compiled on first use: that must not happen while recording.
            run()
        torch.cuda.current_stream().wait_stream(self._side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = run()
        return RecordedPass(graph, output)
