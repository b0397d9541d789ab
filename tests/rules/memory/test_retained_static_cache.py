from __future__ import annotations

import pytest

from tests.support.allocator_snapshots import MIB, SnapshotBuilder
from tests.support.verdicts import Clinic

RULE = "retained-static-cache"
CACHE = (
    ("lazy_initialization", "/lib/transformers/cache_utils.py"),
    ("generate", "/lib/transformers/generation/utils.py"),
)
AFTER = (("score", "/srv/evaluate.py"), ("main", "/srv/evaluate.py"))
WITHIN = (("forward", "/lib/transformers/models/llama.py"), ("generate", "/lib/transformers/generation/utils.py"))


def snapshot(later: tuple[tuple[str, str], ...], sizes: tuple[int, ...] = (64 * MIB,)) -> bytes:
    """Caches of 16 layers in a process of 20 GiB, and what was allocated afterwards."""
    builder = SnapshotBuilder()
    builder.segment([(18 * 1024 * MIB, True)])
    for size in sizes:
        for _ in range(32):
            address = builder.next_address
            builder.segment([(size, True)], stack=CACHE)
            builder.step("alloc", size, address, *CACHE)
    for number in range(20):
        builder.step("alloc", MIB, number << 44, *later)
        builder.step("free_completed", MIB, number << 44, *later)
    return builder.pickled()


def test_fires_when_the_call_is_over(clinic: Clinic) -> None:
    verdicts = clinic.told(snapshot(AFTER))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "memory of static caches") == 32 * 64 * MIB


def test_fires_on_two_caches_at_once(clinic: Clinic) -> None:
    assert RULE in clinic.told(snapshot(WITHIN, (64 * MIB, 96 * MIB))).found


@pytest.mark.parametrize(
    "content", [snapshot(WITHIN), snapshot(AFTER, (MIB,))], ids=["the call runs", "next to nothing"]
)
def test_is_silent_otherwise(content: bytes, clinic: Clinic) -> None:
    assert RULE not in clinic.told(content).found
