"""Compile every kernel for an H200 without one: launches go to Triton's compiler and no further.

The interpreter accepts programs that the compiler refuses, such as a loop variable that changes its shape; so both are
tested. This is a program of its own, because Triton decides between the two when it is imported. It prints JSON: bytes
of shared memory of the largest variant of each kernel.
"""

# ruff: noqa: E402 - the environment comes before the first import of Triton

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

COMPILE_AND_LAUNCH = JITFunction.run
SHARED_BYTES: dict[str, int] = {}


class AbsentGpu:
    """As much of a driver as the compiler asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    """Take the place of a launch."""
    kernel = COMPILE_AND_LAUNCH(self, *args, grid=grid, warmup=True, **options)
    name = self.fn.__name__
    SHARED_BYTES[name] = max(SHARED_BYTES.get(name, 0), kernel.metadata.shared)
    return kernel


def pretend_hopper() -> None:
    """Let the kernels be declared for an H200; they ask once, when they are imported."""
    driver.set_active(AbsentGpu())
    JITFunction.run = compile_only
    is_available, capability = torch.cuda.is_available, torch.cuda.get_device_capability
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.version.cuda = "13.0"
    import engine.kernels.jit  # noqa: F401

    torch.cuda.is_available, torch.cuda.get_device_capability = is_available, capability


pretend_hopper()

from engine.attention.backend import AttentionSpec
from engine.attention.triton_paged import TritonPagedAttention
from engine.kernels.argmax import argmax_rows
from engine.kernels.rms_norm import add_rms_norm, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import silu_mul
from engine.kernels.vector_linear import vector_gate_up, vector_linear
from tests.support.paged_batch import Shape, angles, make_batch

BF16 = torch.bfloat16
LAYERS = ((96, 64), (2048, 2048), (4096, 4096))


def compile_attention(shape: Shape, window: int | None = None, *, rotates: bool = True) -> None:
    batch = make_batch(shape, seed=0)
    bound = TritonPagedAttention(AttentionSpec(0.1, (window,))).bind(batch.kv, batch.meta)
    new = (batch.q_THD, batch.k_TND, batch.v_TND)
    if rotates:
        bound.attend_unrotated(new, angles(sum(shape.q_lens), shape.head_dim, seed=0, dtype=shape.dtype), 0)
    else:
        bound(*new, 0)


def compile_attentions() -> None:
    llama = Shape((150, 130), (1, 1), heads=32, kv_heads=8, head_dim=128, dtype=BF16)
    for q_lens in ((1, 1), (60, 1)):
        compile_attention(replace(llama, q_lens=q_lens))
        compile_attention(replace(llama, q_lens=q_lens, stored=torch.float8_e4m3fn, page=256), rotates=False)
        compile_attention(replace(llama, q_lens=q_lens, heads=8, kv_heads=2, head_dim=256), window=50)
    compile_attention(replace(llama, q_lens=(4, 1), heads=9, kv_heads=3, head_dim=64, dtype=torch.float16))
    compile_attention(replace(llama, dtype=torch.float32))


def compile_rows() -> None:
    for dtype in (BF16, torch.float32):
        x, weight = torch.empty(2, 640, dtype=dtype), torch.empty(640, dtype=dtype)
        rms_norm(x, weight, 1e-5)
        add_rms_norm(x, x, weight, 1e-5)
        silu_mul(x)
        argmax_rows(x)
        rotate(x.view(2, 5, 128), *angles(2, 128, seed=0, dtype=dtype))


def compile_products() -> None:
    for num_out, num_in in LAYERS:
        x, weight = torch.empty(1, num_in, dtype=BF16), torch.empty(2 * num_out, num_in, dtype=BF16)
        norm = (torch.empty(num_in, dtype=BF16), 1e-5)
        vector_gate_up(x, weight, norm)
        vector_linear(x, weight, norm)
        vector_linear(x, weight, None, torch.empty(1, 2 * num_out, dtype=BF16))


compile_attentions()
compile_rows()
compile_products()
json.dump(SHARED_BYTES, sys.stdout)
