"""Builds real trace files from a small program, so that a test shows all that its finding depends on.

A program is written as what a launching thread does: fall silent, call the API, launch kernels, copy, wait. The clock
follows CUDA: a kernel starts 2 us after its launch returned or when its stream is free, whichever is later; a wait
returns when the device is done; a copy to pageable memory holds the host until it is over. Times are microseconds, as
in a Kineto trace; the file holds a device with 132 multiprocessors of compute capability 9.0 unless told otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAUNCH_TO_START_US = 2.0
PID = 4242
BASE_US = 1_000_000.0
"""Where the recording begins: real traces never begin at zero."""


@dataclass
class Program:
    """One process on one device; streams are made as they are used.

    Attributes:
        rank: written as distributed information where given, with `world_size`.
        device: ordinal of the device.
    """

    rank: int | None = None
    world_size: int | None = None
    device: int = 0
    compute_capability: tuple[int, int] = (9, 0)
    sm_count: int = 132
    now_us: float = BASE_US
    events: list[dict[str, Any]] = field(default_factory=list)
    _free_us: dict[int, float] = field(default_factory=dict)
    _correlation: int = 100
    _thread: int = PID

    def silence(self, duration_us: float) -> None:
        """The thread does something else."""
        self.now_us += duration_us

    def call(self, name: str, duration_us: float = 2.0) -> None:
        """An API call that launches nothing and waits for nothing."""
        self._host(name, duration_us)

    def launch(
        self,
        kernel: str,
        kernel_us: float,
        *,
        host_us: float = 4.0,
        stream: int = 7,
        grid: tuple[int, int, int] = (264, 1, 1),
    ) -> None:
        """Launch one kernel."""
        correlation = self._host("cudaLaunchKernel", host_us)
        args = {"grid": list(grid), "block": [128, 1, 1], "registers per thread": 32}
        self._device("kernel", kernel, kernel_us, stream, correlation, args)

    def launch_and_wait(self, kernel: str, kernel_us: float) -> None:
        """Launch one kernel as under CUDA_LAUNCH_BLOCKING=1: the call returns when the kernel has ended."""
        self.launch(kernel, kernel_us)
        self._stretch_last_call(max(self._free_us.values()) + 3.0)

    def graph(self, kernels: list[tuple[str, float]], *, host_us: float = 10.0, stream: int = 7) -> None:
        """Launch a CUDA graph: one call, many kernels with the same correlation."""
        correlation = self._host("cudaGraphLaunch", host_us)
        for kernel, kernel_us in kernels:
            args = {"grid": [264, 1, 1], "block": [128, 1, 1], "graph node id": 1}
            self._device("kernel", kernel, kernel_us, stream, correlation, args)

    def copy(
        self, kind: str, size_bytes: int, *, gigabytes_per_s: float = 25.0, host_us: float = 4.0, stream: int = 7
    ) -> None:
        """Copy, as `HtoD pageable`, `HtoD pinned`, `DtoH pageable`, `DtoH pinned` or `DtoD device`."""
        direction, memory = kind.split()
        source, target = {
            "HtoD": (memory.title(), "Device"),
            "DtoH": ("Device", memory.title()),
            "DtoD": ("Device", "Device"),
        }[direction]
        correlation = self._host("cudaMemcpyAsync", host_us)
        copy_us = 1.5 + size_bytes / (gigabytes_per_s * 1e3)
        args = {"bytes": size_bytes}
        end_us = self._device(
            "gpu_memcpy", f"Memcpy {direction} ({source} -> {target})", copy_us, stream, correlation, args
        )
        holds_host = memory == "pageable" and (direction == "DtoH" or size_bytes > 65_536)
        if holds_host:
            self._stretch_last_call(end_us)

    def wait(self, name: str = "cudaStreamSynchronize", own_us: float = 3.0) -> None:
        """Wait until the device has done everything launched so far."""
        self._host(name, own_us)
        self._stretch_last_call(max(self._free_us.values(), default=0.0) + own_us)

    @contextmanager
    def annotation(self, name: str, category: str = "user_annotation") -> Iterator[None]:
        """A range around everything the thread does inside; `cpu_op` makes it an operator."""
        start_us = self.now_us
        yield
        self._add(category, name, start_us, self.now_us - start_us, self._thread, {"External id": len(self.events)})

    @contextmanager
    def thread(self, tid: int) -> Iterator[None]:
        """Let another thread of the process act meanwhile."""
        outer, self._thread = self._thread, tid
        yield
        self._thread = outer

    def document(self) -> dict[str, Any]:
        """The trace as a Kineto document."""
        major, minor = self.compute_capability
        document: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": self.device,
                    "name": "NVIDIA H100 80GB HBM3",
                    "totalGlobalMem": 84_929_347_584,
                    "computeMajor": major,
                    "computeMinor": minor,
                    "numSms": self.sm_count,
                }
            ],
            "traceEvents": self.events,
        }
        if self.rank is not None:
            document["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
        return document

    def write(self, path: Path) -> Path:
        """Write the trace and return its path."""
        path.write_text(json.dumps(self.document()), encoding="utf-8")
        return path

    def _host(self, name: str, duration_us: float) -> int:
        self._correlation += 1
        category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        self._add(category, name, self.now_us, duration_us, self._thread, {"correlation": self._correlation})
        self.now_us += duration_us
        return self._correlation

    def _stretch_last_call(self, until_us: float) -> None:
        call = next(event for event in reversed(self.events) if event["cat"].startswith("cuda_"))
        call["dur"] = max(call["dur"], until_us - call["ts"])
        self.now_us = max(self.now_us, until_us)

    def _device(
        self, category: str, name: str, duration_us: float, stream: int, correlation: int, args: dict[str, Any]
    ) -> float:
        start_us = max(self.now_us + LAUNCH_TO_START_US, self._free_us.get(stream, 0.0))
        shared = {"device": self.device, "stream": stream, "correlation": correlation}
        self._add(category, name, start_us, duration_us, stream, shared | args)
        self._free_us[stream] = start_us + duration_us
        return start_us + duration_us

    def _add(
        self, category: str, name: str, start_us: float, duration_us: float, tid: int, args: dict[str, Any]
    ) -> None:
        # a Kineto trace files device work under the device's ordinal in place of the process
        pid = self.device if category in {"kernel", "gpu_memcpy", "gpu_memset"} else PID
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args}
        self.events.append(event | {"ts": round(start_us, 3), "dur": round(duration_us, 3)})


GEMM = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"
HEAD_GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
FLASH = "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>"
SOFTMAX = "void at::native::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>"
NONZERO = "void at_cuda_detail::cub::DeviceSelectSweepKernel<bool, long>"
TOP_K = "void at::native::sbtopk::gatherTopK<c10::BFloat16, unsigned int, 2, false>"
SGEMM = "ampere_sgemm_128x128_tn"
LAYER = (ADD, GEMM, ADD, ADD, FLASH, GEMM, ADD, ADD)


def decode_step(program: Program, *, kernel_us: float = 3.0, silence_us: float = 12.0, layers: int = 8) -> None:
    """One eager decode step: positions go up, the forward pass, the token comes down, one wait."""
    program.silence(silence_us)
    program.copy("HtoD pinned", 64)
    forward_pass(program, kernel_us=kernel_us, silence_us=silence_us, layers=layers)
    program.copy("DtoH pinned", 64)
    program.wait()


def forward_pass(program: Program, *, kernel_us: float = 3.0, silence_us: float = 12.0, layers: int = 8) -> None:
    """Layers of products, fused attention and element-wise kernels, then the language-model head."""
    for _ in range(layers):
        for kernel in LAYER:
            program.silence(silence_us)
            program.launch(kernel, kernel_us)
    program.silence(silence_us)
    program.launch(HEAD_GEMM, 2 * kernel_us)
