"""A real server of the engine: a process of its own on a port of the loopback interface."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_CHECKOUT = Path(__file__).parents[2]
_START_SECONDS = 120.0


@dataclass(frozen=True)
class RunningServer:
    """Where it listens, its process, and the file its log goes to."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def metric(self, name: str) -> float:
        """One value of `/metrics`, added up over its labels."""
        text = httpx.get(f"{self.url}/metrics").text
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert found, f"{name} is not among the metrics"
        return sum(float(value) for value in found)


@contextmanager
def start_server(checkpoint: Path, folder: Path, *options: str) -> Iterator[RunningServer]:
    """Serve a checkpoint on a free port until the block ends."""
    log = folder / "server.log"
    command = [sys.executable, "-m", "engine", "serve", "--model", str(checkpoint), "--device", "cpu"]
    command += ["--dtype", "float32", "--port", "0", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(_CHECKOUT)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output, stdout=output, env=environment)
    try:
        yield RunningServer(_address(process, log), process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        found = re.search(r"running on (http://\S+)", log.read_text(errors="replace"))
        if found:
            return found[1]
        assert process.poll() is None, f"the server did not start: {log.read_text(errors='replace')[-800:]}"
        time.sleep(0.05)
    raise AssertionError("the server did not say where it listens")
