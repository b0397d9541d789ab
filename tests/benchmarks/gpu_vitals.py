"""Samples the vitals of a busy device, for a look at real figures: `python tests/benchmarks/gpu_vitals.py OUT.jsonl`.

Two processes multiply matrices on device 0 for a few seconds, one after the other and together, while the sampler
writes what `doctor diagnose` reads. Prints the outcome and the last sample's figures. Needs torch and a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from doctor.vitals.sampler import VitalsSampler

BUSY = """
import sys, time, torch
held = torch.empty(int(sys.argv[1]) << 28, dtype=torch.float32, device="cuda")
a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
until = time.time() + float(sys.argv[2])
while time.time() < until:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""


def main(target: Path) -> None:
    """Run the load and print what was sampled."""
    with VitalsSampler(target, 0.1, os.getpid) as sampler:
        time.sleep(1)
        first = subprocess.Popen([sys.executable, "-c", BUSY, "8", "8"])
        time.sleep(5)
        second = subprocess.Popen([sys.executable, "-c", BUSY, "2", "6"])
        first.wait()
        second.wait()
        time.sleep(1)
    lines = target.read_text("utf-8").splitlines()
    print(sampler.outcome)
    busy = [gpu for line in lines for gpu in json.loads(line).get("gpus", []) if gpu.get("busy_share", 0) > 0.5]
    print(f"{len(lines)} samples, {len(busy)} of them of a busy device")
    print(json.dumps(busy[len(busy) // 2] if busy else {}, indent=1))
    print(json.dumps([json.loads(line).get("processes") for line in lines[len(lines) // 2 : len(lines) // 2 + 1]]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
