"""Histories of an allocator that rises along a line: one pass of a model, a sequence, and loops that keep something."""

from __future__ import annotations

import pytest

from tests.support.allocator_snapshots import GIB, MIB, SnapshotBuilder
from tests.support.verdicts import Clinic

LAYERS = 16
Stack = tuple[tuple[str, str, int], ...]
RUN: Stack = (("run", "/srv/bench.py", 20), ("<module>", "/srv/bench.py", 90))
HF_RUN: Stack = (("generate", "/srv/utils.py", 2100), ("main", "/srv/serve.py", 12))


def in_model(line: int, below: Stack = RUN, *inner: tuple[str, str, int]) -> Stack:
    """A stack through a line of the model's own forward, as PyTorch records it: two frames of plumbing a module."""
    plumbing = (("_call_impl", "/torch/nn/modules/module.py", 1750), ("_wrapped_call_impl", "/torch/module.py", 1739))
    within = tuple(frame for part in inner for frame in (part, *plumbing))
    return (*within, ("forward", "/srv/model.py", line), *plumbing, *below)


class History:
    """A card with a model of 10 GiB on it, and what is made on top of it."""

    def __init__(self) -> None:
        self._builder = SnapshotBuilder()
        self._builder.segment([(10 * GIB, True)])
        self._made = 0

    def make(self, size: int, stack: Stack, *, keeps: bool, frees: bool = True) -> None:
        """One allocation: alive at the end, or freed at once, or by a later `drop`."""
        self._made += 1
        address = self._made << 33
        if keeps:
            address = self._builder.next_address
            self._builder.segment([(size, True)])
            self._builder.segments[-1]["blocks"][0]["frames"] = self._frames(stack)
        self._step("alloc", size, address, stack)
        if frees and not keeps:
            self._step("free_completed", size, address, stack)

    def drop(self, size: int, stack: Stack) -> None:
        """Free something made before; only its size tells in the level of memory."""
        self._step("free_completed", size, 1 << 32, stack)

    def content(self) -> bytes:
        """The snapshot as a file."""
        return self._builder.pickled()

    def _step(self, action: str, size: int, address: int, stack: Stack) -> None:
        self._builder.step(action, size, address)
        self._builder.history[-1]["frames"] = self._frames(stack)

    def _frames(self, stack: Stack) -> list[dict[str, str | int]]:
        return [{"name": name, "filename": file, "line": line} for name, file, line in stack]


def forward(history: History, *, keeps: bool, has_head: bool = True, below: Stack = RUN) -> None:
    """Embedding, layers, last norm and head of one pass."""
    history.make(4 * MIB, in_model(287, below), keeps=keeps)
    for _ in range(LAYERS):
        for line in (54, 79, 117):
            history.make(64 * MIB, in_model(292, below, ("forward", "/srv/model.py", line)), keeps=keeps)
            history.make(32 * MIB, in_model(292, below, ("forward", "/srv/model.py", line + 1)), keeps=False)
    if has_head:
        history.make(4 * MIB, in_model(295, below), keeps=keeps)
        history.make(40 * MIB, in_model(298, below), keeps=keeps)


@pytest.mark.parametrize("has_head", [True, False], ids=["whole", "as far as memory went"])
def test_activations_kept_for_the_backward_pass_are_no_leak(clinic: Clinic, has_head: bool) -> None:
    history = History()
    forward(history, keeps=True, has_head=has_head)
    verdicts = clinic.told(history.content())
    assert "memory-leak-growth" not in verdicts.found
    assert "within one pass of forward (model.py)" in verdicts.ruled_out["memory-leak-growth"]


def test_a_loop_that_keeps_the_graph_of_every_step_is_a_leak_whatever_follows_it(clinic: Clinic) -> None:
    history = History()
    history.make(8 * MIB, (("load", "/srv/bench.py", 3), *RUN[1:]), keeps=True)
    for _ in range(12):
        forward(history, keeps=False)
        history.make(300 * MIB, (("hook", "/srv/probe.py", 4), *in_model(292)), keeps=True)
    history.make(8 * MIB, (("report", "/srv/bench.py", 70), *RUN[1:]), keeps=False)
    finding = clinic.told(history.content()).finding("memory-leak-growth")
    stacks = [one["value"] for one in finding["evidence"] if one["name"].startswith("stack")]
    assert stacks == ["hook (probe.py:4) < forward (model.py:292) < run (bench.py:20) < <module> (bench.py:90)"]


def generated(*, keeps_every_cache: bool) -> bytes:
    """A hundred tokens: each step makes keys and values one token longer, and frees the old ones or not."""
    history, cache = History(), (("update", "/srv/cache_utils.py", 80),)
    for step in range(100):
        history.make(16 * MIB, in_model(287, HF_RUN), keeps=False)
        stack = (*cache, *in_model(292, HF_RUN))
        if keeps_every_cache:
            history.make(48 * MIB, stack, keeps=True)
        else:
            history.make((200 + 40 * step) * MIB, stack, keeps=step == 99, frees=False)
            if step:
                history.drop((160 + 40 * step) * MIB, stack)
        history.make(16 * MIB, in_model(298, HF_RUN), keeps=False)
    return history.content()


def test_keys_and_values_that_grow_with_their_sequence_are_no_leak_and_those_of_ended_ones_are(clinic: Clinic) -> None:
    growing = clinic.told(generated(keeps_every_cache=False))
    assert "a sequence grows" in growing.ruled_out["memory-leak-growth"]
    assert "memory-leak-growth" in clinic.told(generated(keeps_every_cache=True)).found
