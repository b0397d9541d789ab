"""Triton as this engine uses it: where it is imported, how kernels are declared, and how launches overlap.

Without a GPU the kernels run in Triton's interpreter: slow, but the same source and the same results.

Programmatic dependent launch: a kernel may start while the one before it still runs, load what does not depend on it
(weights) and then wait. Every kernel here follows three rules, so that a chain of them is right: wait before the first
read of anything that a kernel of the same step writes; wait before the first write; let the next kernel start only
after the own wait, so that a kernel never runs beside one that is two launches away. Programs without work need not
wait, but one of them has to (`leave_idle`): a kernel that ended without any wait would let the next one pass its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

if not torch.cuda.is_available():
    # Triton decides between compiler and interpreter when it is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

__all__ = [
    "OVERLAPS",
    "dot",
    "jit",
    "jit_once_for",
    "launch_options",
    "leave_idle",
    "start_next_kernel",
    "tl",
    "triton",
    "wait_for_previous_kernel",
]

OVERLAPS = torch.cuda.is_available() and torch.version.cuda is not None and torch.cuda.get_device_capability() >= (9, 0)
"""Whether the device can start a kernel before the previous one has ended (Hopper and later)."""


if not torch.cuda.is_available() and not triton.knobs.runtime.interpret:
    raise ImportError("without a GPU Triton kernels need TRITON_INTERPRET=1 before anything imports triton")

_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def jit(function: Callable[..., Any]) -> Any:
    """`triton.jit` with a type: the result is launched as `kernel[grid](...)`, or called from another kernel."""
    return triton.jit(function)


def jit_once_for(*arguments: str) -> Callable[[Callable[..., Any]], Any]:
    """`jit`, compiled once whatever the values of these arguments are.

    Triton compiles a kernel apart for numbers that are 1 or that 16 divides, and for addresses on 16 bytes. What
    changes from batch to batch must not do that: a compilation takes a second, in the middle of serving.
    """

    def declare(function: Callable[..., Any]) -> Any:
        return triton.jit(function, do_not_specialize=arguments)

    return declare


def launch_options(num_warps: int, num_stages: int = 1) -> dict[str, int | bool]:
    """Keyword arguments of a launch: warps of 32 threads per program, depth of its load pipeline, overlap."""
    options: dict[str, int | bool] = {"num_warps": num_warps, "num_stages": num_stages}
    if OVERLAPS:
        options["launch_pdl"] = True
    return options


@jit
def wait_for_previous_kernel(OVERLAP: tl.constexpr) -> None:
    """Wait until the previous kernel of the stream has ended and its writes are visible."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()


@jit
def start_next_kernel(OVERLAP: tl.constexpr) -> None:
    """Allow the next kernel of the stream to start; it does so when every program has come here or ended."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()


@jit
def leave_idle(program: tl.tensor, OVERLAP: tl.constexpr) -> None:
    """To be called before an early return; `program` is 0 in one program of the kernel, which waits for all of them."""
    if program == 0:
        wait_for_previous_kernel(OVERLAP)


@jit
def dot(a: tl.tensor, b: tl.tensor, acc: tl.tensor) -> tl.tensor:
    """Matrix product of tiles plus `acc`, in fp32; fp32 operands are not rounded to TF32."""
    if _INTERPRETED:
        # Triton 3.9's interpreter multiplies the bit patterns of bf16. Widening is exact, so results do not change.
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")
