"""Records a window of steps with the profiler of torch, inside a program that knows nothing of it.

Stands alone: the recorded command may run in a Python in which doctor is not installed. Nothing happens until the
program imports torch by itself. A step is a call of the outermost module that comes back, or a replay of a CUDA graph
outside such a call. Graphs win, and counting starts over after each capture: what came before was warm-up.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER, WINDOW = "DOCTOR_RECORD_FOLDER", "DOCTOR_RECORD_WINDOW"
"""Where traces go, and `{"skip_steps": n, "steps": n, "seconds": s}`; doctor sets them for the command."""


def watch_for_torch() -> None:
    """Wait until the program imports torch; do nothing where doctor did not ask."""
    folder, window = os.environ.get(FOLDER), os.environ.get(WINDOW)
    if folder and window and "torch" not in sys.modules:
        sys.meta_path.insert(0, _TorchFinder(Recorder(folder, **json.loads(window))))


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Lets the import of torch pass, and tells the recorder when it is done."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """The usual spec of torch, with a loader that tells."""
        if fullname != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _ToldLoader(spec.loader, self._recorder)
        return spec


class _ToldLoader(importlib.abc.Loader):
    """The loader of torch, which tells when the module is complete."""

    def __init__(self, loader: Any, recorder: Recorder) -> None:
        self._loader = loader
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        """As the usual loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """As the usual loader does; then tell."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._recorder.install(module)


class Recorder:
    """Counts steps, opens and closes the window, writes one trace a process."""

    def __init__(self, folder: str, skip_steps: int, steps: int, seconds: float) -> None:
        self._folder = Path(folder)
        self._skip = skip_steps
        self._length = steps
        self._seconds = seconds
        self._depth = threading.local()
        self._calls: dict[int, tuple[int, Any]] = {}
        self._hooks: list[Any] = []
        self._lock = threading.RLock()
        self._reset()

    def _reset(self) -> None:
        self._num_steps = 0
        self._has_captured = False
        self._source: str | None = None
        self._profile: Any = None
        self._thread: int | None = None
        self._began = 0.0
        self._is_done = False
        self._problem: str | None = None

    def install(self, torch: Any) -> None:
        """Watch module calls and graph replays of torch, which was just imported."""
        self._torch = torch
        modules = torch.nn.modules.module
        self._hooks = [
            modules.register_module_forward_pre_hook(self._module_called),
            modules.register_module_forward_hook(self._module_left, always_call=True),
        ]
        self._watch_graphs(torch.cuda.CUDAGraph)
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._close)
        self._tell(is_final=False)
        if self._skip == 0:
            torch.cuda._lazy_call(self._device_is_used)

    def _device_is_used(self) -> None:
        """The program is about to use a device for the first time: a window without a beginning begins here."""
        with self._lock:
            if self._profile is None and not self._is_done:
                self._begin(has_device=True)

    def _watch_graphs(self, graph_class: Any) -> None:
        replay = graph_class.replay

        def told_replay(graph: Any) -> Any:
            if self._depth_here() == 0:
                self._step("graph")
            return replay(graph)

        graph_class.replay = told_replay

    def _depth_here(self) -> int:
        return int(getattr(self._depth, "value", 0))

    def _module_called(self, module: Any, inputs: Any) -> None:
        depth = self._depth_here()
        self._depth.value = depth + 1
        if depth == 0:
            self._outermost_called(module)

    def _module_left(self, module: Any, inputs: Any, output: Any) -> None:
        self._depth.value = max(0, self._depth_here() - 1)

    def _outermost_called(self, module: Any) -> None:
        """The first outermost module that is called again is the one whose calls are steps: watch it alone."""
        calls, _ = self._calls.get(id(module), (0, None))
        self._calls[id(module)] = (calls + 1, module)  # held, so that its id names no other
        if calls == 0:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = [
            module.register_forward_pre_hook(self._root_called),
            module.register_forward_hook(self._module_left, always_call=True),
        ]
        self._calls.clear()
        self._num_steps = calls
        self._step("module")

    def _root_called(self, module: Any, inputs: Any) -> None:
        depth = self._depth_here()
        self._depth.value = depth + 1
        if depth == 0:
            self._step("module")

    def _step(self, source: str) -> None:
        """A step is about to run."""
        if source == "module" and self._source == "graph":
            return
        # asking whether there is a device would initialise CUDA, and children forked later could not use it
        if self._torch.cuda.is_initialized() and self._torch.cuda.is_current_stream_capturing():
            self._has_captured = True  # nothing may wait for the device now: what follows is done at the next step
            return
        with self._lock:
            if self._has_captured or (source == "graph" and self._source != "graph"):
                self._has_captured = False
                self._start_over()
            self._source = source
            self._count()

    def _start_over(self) -> None:
        """What was seen before a capture or before the first replay was warm-up; its trace gives way to a later one."""
        if self._skip == 0:
            return
        if self._profile is not None:
            self._stop()
        self._is_done = False
        self._num_steps = 0

    def _count(self) -> None:
        if not self._is_done:
            if self._profile is None and self._num_steps >= self._skip:
                self._begin(has_device=self._torch.cuda.is_initialized())
            elif self._profile is not None and self._is_over():
                self._end()
            elif self._profile is not None and self._thread == threading.get_ident():
                self._profile.step()
        self._num_steps += 1

    def _is_over(self) -> bool:
        return self._num_steps >= self._skip + self._length or time.monotonic() - self._began > self._seconds

    def _begin(self, *, has_device: bool) -> None:
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if has_device:
            activities.append(profiler.ProfilerActivity.CUDA)
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                profile = profiler.profile(activities=activities, schedule=lambda step: profiler.ProfilerAction.RECORD)
                profile.start()
        except Exception as error:  # noqa: BLE001 - the program goes on, whatever becomes of the recording
            self._give_up(error)
            return
        self._profile = profile
        self._thread = threading.get_ident()
        self._began = time.monotonic()
        self._close_on_terminate()

    def _stop(self) -> Any:
        profile, self._profile = self._profile, None
        try:
            if self._torch.cuda.is_initialized():
                self._torch.cuda.synchronize()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                profile.stop()
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
            return None
        return profile

    def _end(self) -> None:
        self._is_done = True
        profile = self._stop()
        if profile is None:
            return
        trace = self._folder / f"torch-{os.getpid()}.pt.trace.json"
        partial = trace.with_suffix(".partial")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                profile.export_chrome_trace(str(partial))
            partial.replace(trace)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._is_done = True
        self._problem = f"{type(error).__name__}: {error}".splitlines()[0]

    def _close_on_terminate(self) -> None:
        """Write what there is when the process is told to end, and end then as it would have."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # processes of multiprocessing end without atexit
            util.Finalize(self, self._close, exitpriority=100)

    def _terminated(self, number: int, frame: Any) -> None:
        self._close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _close(self) -> None:
        with self._lock:
            if self._profile is not None:
                self._end()
            self._tell(is_final=True)

    def _tell(self, *, is_final: bool) -> None:
        """Leave a note on what was seen, for doctor to say why there is no trace."""
        note = {"steps": self._num_steps, "problem": self._problem, "is_final": is_final}
        (self._folder / f"torch-{os.getpid()}.note").write_text(json.dumps(note), encoding="utf-8")

    def _forked(self) -> None:
        """A child of a recorded process has no profiler of its own; it begins anew."""
        self._lock = threading.RLock()
        if self._profile is not None or self._is_done:
            self._reset()
            self._is_done = True
