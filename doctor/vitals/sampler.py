"""Samples beside a running command: one JSON object a line, which `doctor diagnose` reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TextIO

from doctor.errors import DeviceError
from doctor.version import __version__
from doctor.vitals import proc
from doctor.vitals.look import look
from doctor.vitals.nvml import Nvml
from doctor.vitals.reading import Reading, as_json

TOOL = f"doctor {__version__}"
LEAST_INTERVAL_S = 0.02
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Sampled:
    """What a sampler left behind.

    Attributes:
        count: samples written.
        note: one line on what was not sampled or ended early; empty where all went well.
        has_devices: devices were asked, and not the machine alone.
    """

    count: int
    note: str = ""
    has_devices: bool = False


class VitalsSampler:
    """Writes samples to a file from a thread of its own until it is stopped; a context manager.

    Where no device can be asked the machine is sampled all the same, and `outcome.note` says why.

    Args:
        target: file to write; replaced.
        interval_s: seconds between samples.
        recorded_pid: gives the id of the recorded command once it runs, None before.
        most_bytes: the file grows no larger.
    """

    def __init__(
        self,
        target: Path,
        interval_s: float = 0.1,
        recorded_pid: Callable[[], int | None] = lambda: None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._target = target
        self._interval_s = max(interval_s, LEAST_INTERVAL_S)
        self._recorded_pid = recorded_pid
        self._most_bytes = most_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="doctor-vitals", daemon=True)
        self._usage: dict[int, tuple[int, float]] = {}
        self.outcome = Sampled(0)

    def __enter__(self) -> VitalsSampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> Sampled:
        """Write the sample under way, then end; gives the outcome. May be called twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        return self.outcome

    def _run(self) -> None:
        try:
            with self._target.open("w", encoding="utf-8") as file:
                try:
                    with Nvml() as nvml:
                        self._sample_into(file, nvml, "")
                except DeviceError as error:
                    self._sample_into(file, None, error.message)
        except OSError as error:
            self.outcome = replace(self.outcome, note=f"vitals could not be written: {error.strerror or error}")

    def _sample_into(self, file: TextIO, nvml: Nvml | None, note: str) -> None:
        count, written = 0, 0
        while True:
            reading = self._with_load(look(nvml, self._recorded_pid(), is_first=count == 0))
            line = as_json(reading, TOOL) + "\n"
            if written + len(line) > self._most_bytes:
                note = f"vitals were sampled until their file had {self._most_bytes} bytes"
                break
            written += file.write(line)
            file.flush()
            count += 1
            self.outcome = Sampled(count, note, nvml is not None)
            if self._stop.wait(self._interval_s):
                break
        self.outcome = Sampled(count, note, nvml is not None)

    def _with_load(self, reading: Reading) -> Reading:
        """CPU time of each process since the sample before, as a share of the time between."""
        loaded = []
        for one in reading.host_processes:
            used = proc.cpu_seconds(one.pid)
            before = self._usage.get(one.pid)
            if used is not None:
                self._usage[one.pid] = (reading.time_ns, used)
            share = None
            if used is not None and before is not None and reading.time_ns > before[0]:
                share = round(max(used - before[1], 0.0) / ((reading.time_ns - before[0]) / 1e9), 4)
            loaded.append(replace(one, cpu_share=share))
        return replace(reading, host_processes=tuple(loaded))
