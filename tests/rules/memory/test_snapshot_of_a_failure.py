"""A snapshot alone, dumped once the failure had unwound the program: what filled memory then is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.allocator_snapshots import GIB, MIB, SnapshotBuilder
from tests.support.verdicts import Clinic

SAMPLES = Path(__file__).parents[3] / "samples"
LOAD = (("load_weights", "/srv/serve.py"), ("main", "/srv/serve.py"))
STEP = (("step", "/srv/serve.py"), ("main", "/srv/serve.py"))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("oom-full-length-kv", "kv-unpaged-contiguous"),
        ("oom-fragmentation", "fragmentation"),
        ("oom-logits-peak", "logits-logprob-peak"),
    ],
)
def test_is_right_without_the_text_and_speaks_to_pytorch_first(name: str, rule: str, clinic: Clinic) -> None:
    verdicts = clinic.told(SAMPLES / name / "snapshot.pickle")
    assert verdicts.found == {rule}
    assert verdicts.finding(rule)["fixes"][0]["target"] == "pytorch"


def full_device(*, is_freed_afterwards: bool) -> bytes:
    """20 GiB of weights and 30 GiB of a step's own tensors, on a device with nothing left."""
    builder = SnapshotBuilder()
    builder.segment([(20 * GIB, True)], stack=LOAD)
    blocks = [(3 * GIB, not is_freed_afterwards)] * 10
    start = builder.next_address
    builder.segment(blocks, stack=STEP)
    for place in range(10):
        builder.step("alloc", 3 * GIB, start + place * 3 * GIB, *STEP)
    builder.step("oom", 512 * MIB, 0, *STEP, device_free=100 * MIB)
    for place in range(10 if is_freed_afterwards else 0):
        builder.step("free_completed", 3 * GIB, start + place * 3 * GIB)
    return builder.pickled()


@pytest.mark.parametrize("is_freed_afterwards", [True, False], ids=["unwound", "dumped at once"])
def test_names_what_held_memory_when_it_ran_out(is_freed_afterwards: bool, clinic: Clinic) -> None:
    verdicts = clinic.told(full_device(is_freed_afterwards=is_freed_afterwards))
    finding = verdicts.finding("headroom-thin")
    held = {one["name"]: one["value"] for one in finding["evidence"]}
    assert str(held["stack that holds most"]).startswith("step (serve.py")
    assert held["held by it"] == 30 * GIB
    assert finding["fixes"][0]["target"] == "pytorch"


def test_says_nothing_of_other_processes_where_the_size_of_the_device_is_not_told(clinic: Clinic) -> None:
    snapshot = full_device(is_freed_afterwards=True)
    alone = clinic.told(snapshot)
    assert "foreign-gpu-process" not in alone.ruled_out
    looked = "index, name, memory.total [MiB], memory.used [MiB]\n0, NVIDIA H100 80GB HBM3, 81559 MiB, 81400 MiB\n"
    assert clinic.told(snapshot, looked).first == "foreign-gpu-process"


def test_the_text_beside_it_counts_once(clinic: Clinic) -> None:
    folder = SAMPLES / "oom-full-length-kv"
    document = clinic.told(folder / "error.txt", folder / "snapshot.pickle").document
    assert [one["rule"] for one in document["findings"]] == ["kv-unpaged-contiguous"]
    [snapshot] = [one for one in document["evidence"] if one["kind"] == "memory-snapshot"]
    assert "put back" in snapshot["notes"][0]
