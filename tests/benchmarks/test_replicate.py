from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.replicate import replicate_kineto
from tests.support.trace_builder import Program, decode_step


def test_a_trace_is_repeated_whole_though_lists_follow_its_events(tmp_path: Path) -> None:
    program = Program()
    decode_step(program)
    document = program.document() | {"INFO": ["Traces Recorded:", "PyTorch Profiler: 1 iterations ]"]}
    source, target = tmp_path / "once.json", tmp_path / "often.json"
    source.write_text(json.dumps(document, indent=1), encoding="utf-8")
    replicate_kineto(source, target, 3 * len(program.events))
    repeated = json.loads(target.read_text(encoding="utf-8"))
    kernels = [event for event in repeated["traceEvents"] if event["cat"] == "kernel"]
    assert len(repeated["traceEvents"]) == 3 * len(program.events)
    assert len({event["ts"] for event in kernels}) == len(kernels)
    assert len({event["args"]["correlation"] for event in kernels}) == len(kernels)
    assert repeated["INFO"] == document["INFO"]
