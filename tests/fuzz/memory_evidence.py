"""Damages memory evidence in many ways and reads it: `python -m tests.fuzz.memory_evidence [COUNT] [SEED]`.

Half of the inputs are memory snapshots (pickles cut, flipped, with instructions put in), half are texts (out-of-memory
messages, refusals and tracebacks, cut, shuffled, glued together and repeated). Allowed are rows, and an `EvidenceError`
of one line. Anything else (another exception, more than a few seconds, more rows than there can be) is printed with the
seed that makes it again, and the exit code is 1.
"""

from __future__ import annotations

import pickle
import random
import sys
import tempfile
from pathlib import Path

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import EvidenceError
from doctor.readers.memory_snapshot import MemorySnapshotReader
from doctor.readers.protocol import Reader
from doctor.readers.text.document import TextDocumentReader
from tests.fuzz.watch import DIAGNOSED_ONE_IN, Watch, diagnosed_to_the_end
from tests.support import oom_texts
from tests.support.allocator_snapshots import MIB, SnapshotBuilder

MOST_ROWS = 100_000

_STACK = (("decode", "/srv/engine/loop.py"), ("main", "/srv/run.py"))
_PIECES = (
    oom_texts.of_2018(tried="5.00 MiB", total="10.92 GiB", allocated="9.85 GiB", free="20.69 MiB", cached="302.00 KiB"),
    oom_texts.of_2020(tried="2.00 MiB", total="31.75 GiB", allocated="5.22 GiB", free="0 bytes", reserved="5.24 GiB"),
    oom_texts.of_today(
        tried="1.71 GiB", total="22.03 GiB", free="0 bytes", others={11: "248.00 MiB", 13: "20.28 GiB"}, own="1.00 GiB",
        allocated="19.55 GiB", pools="1.00 MiB", unallocated="1.00 MiB",
    ),
    oom_texts.traceback(("/usr/lib/vllm/worker.py", "capture_model", "x"), ("/usr/torch/nn.py", "_call_impl", "y")),
    "[rank0]: memory allocation failed with OOM on device 0 while\ntrying to allocate 363017 bytes (free: 2028)\n",
    "(EngineCore pid=2) ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired\n"
    " GPU memory utilization (0.92, 21.67 GiB).\n",
    "ValueError: max seq len (40960), (10.00 GiB KV cache is needed, larger than the KV cache memory (1.25 GiB)\n",
    "AssertionError: Error in memory profiling. Initial free memory 58.23 GiB,\n current free memory 59.34 GiB.\n",
    "RuntimeError: The memory capacity is unbalanced. min_per_gpu_memory=16.28, local_gpu_memory=46.81\n",
    "|   PyTorch CUDA memory summary, device ID 1   |\n|---|\n|  CUDA OOMs: 2   |  cudaMalloc retries: 14  |\n"
    "| Allocated memory      |  10240 MiB |\n",
    "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\nThe following component could not be"
    " created: KV cache\nTotal GPU memory (GiB): 140.06\n"
    "Free GPU memory before component creation attempt (GiB): 108.86\n",
    "WARNING Process 13 is down, create model again.\n", "Worker (pid:11) was sent SIGKILL!\nrestarting worker\n",
    "RuntimeError: CUDA error: out of memory\n", "Capture cuda graph begin.\n", "\n", "\x1b[31m", "é\ufffd", "9" * 18,
)  # fmt: skip
_INSTRUCTIONS = (
    b"(.0123NIJKMLFGS\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x93\x94\x95)}]ltdaesuhjgqrpcRbPQoi"
)


def healthy() -> bytes:
    """A small snapshot with a history."""
    builder = SnapshotBuilder()
    for number in range(6):
        builder.segment([(MIB, True), (2 * MIB, False)], stack=_STACK)
        builder.step("alloc", MIB, number << 20, *_STACK)
        builder.step("free_completed", MIB, number << 20)
    builder.step("oom", 64 * MIB, 0, device_free=MIB)
    return builder.pickled()


def damaged_snapshot(raw: bytes, dice: random.Random) -> bytes:
    """Bytes cut, flipped, swapped or put in; instructions put in; or values of the wrong kind."""
    out = bytearray(raw)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(out)) if out else 0
        kind = dice.randrange(6)
        if kind == 0:
            del out[at:]
        elif kind == 1 and out:
            out[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            out[at:at] = bytes(dice.choices(_INSTRUCTIONS, k=dice.choice((1, 3, 50, 2000))))
        elif kind == 3:
            out[at:at] = dice.randbytes(dice.choice((1, 9, 200)))
        elif kind == 4:
            del out[at : at + dice.choice((1, 4, 60))]
        else:
            return pickle.dumps(wrong_kinds(dice), dice.randrange(2, 6))
    return b"\x80\x04" + b"segments" + bytes(out) if dice.random() < 0.05 else bytes(out)


def wrong_kinds(dice: random.Random) -> object:
    """A snapshot whose fields hold whatever."""
    odd: tuple[object, ...] = (None, True, -1, 2**70, 1.5, "x", [], {}, (), [None], {"size": []}, float("inf"))
    block = {name: dice.choice(odd) for name in ("address", "size", "requested_size", "state", "frames", "history")}
    segment = {
        name: dice.choice(odd) for name in ("device", "address", "stream", "segment_type", "segment_pool_id", "frames")
    }
    step = {name: dice.choice(odd) for name in ("addr", "size", "time_us", "frames", "device_free")}
    segment |= {"total_size": dice.choice((1, None, 2**62)), "blocks": dice.choice(([block], *odd))}
    traces = dice.choice(([[{"action": dice.choice(("alloc", "oom", "free", 3)), **step}]], *odd))
    return {"segments": dice.choice(([segment], [segment], *odd)), "device_traces": traces}


def damaged_text(dice: random.Random) -> bytes:
    """Pieces in any order, cut, broken, repeated."""
    pieces = dice.choices(_PIECES, k=dice.choice((1, 2, 5, 30)))
    for place, piece in enumerate(pieces):
        kind = dice.randrange(6)
        at = dice.randrange(len(piece) + 1)
        if kind == 0:
            pieces[place] = piece[:at]
        elif kind == 1:
            pieces[place] = piece[:at] + "\n" + piece[at:]
        elif kind == 2:
            pieces[place] = piece[:at] + piece[at : at + 3] * dice.choice((2, 500, 9000)) + piece[at:]
        elif kind == 3:
            pieces[place] = piece[:at] + chr(dice.choice((0, 9, 13, 40, 49, 46, 0x202E, 0x1F600))) * 3 + piece[at:]
        elif kind == 4:
            pieces[place] = "".join(dice.sample(piece.split(" "), k=len(piece.split(" "))))
    return "".join(pieces).encode("utf-8", "surrogatepass")


def outcome(reader: Reader, path: Path) -> str:
    """What the reader made of it.

    Raises:
        AssertionError: it gave more rows than there can be, no facts, or an error of several lines.
    """
    rows, has_facts = 0, False
    try:
        for part in reader.read(path, lambda done, total: None):
            if isinstance(part, TableBatch):
                rows += part.rows.num_rows
                assert rows <= MOST_ROWS
            else:
                assert isinstance(part, SourceFacts)
                has_facts = True
    except EvidenceError as error:
        words = error.message
    else:
        assert has_facts
        return "read"
    assert len(words.splitlines()) == 1
    return "refused"


def main(arguments: list[str]) -> int:
    """Read COUNT damaged inputs; return 1 where one of them was not survived."""
    count, seed = (int(word) for word in [*arguments, *("10000", "0")[len(arguments) :]])
    original = healthy()
    watch = Watch("memory evidence")
    with tempfile.TemporaryDirectory(prefix="doctor-fuzz-") as folder:
        path = Path(folder) / "damaged"
        for number in range(seed, seed + count):
            dice = random.Random(number)
            is_snapshot = number % 2 == 0
            path.write_bytes(damaged_snapshot(original, dice) if is_snapshot else damaged_text(dice) or b"x")
            reader: Reader = MemorySnapshotReader() if is_snapshot else TextDocumentReader()
            with watch.over(number):
                watch.outcomes[f"{reader.kind if is_snapshot else 'text'} {outcome(reader, path)}"] += 1
                if number % DIAGNOSED_ONE_IN < 2:  # an even one is a snapshot, an odd one a text
                    watch.outcomes[diagnosed_to_the_end(path)] += 1
    sys.stdout.write(watch.report())
    return int(watch.num_failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
