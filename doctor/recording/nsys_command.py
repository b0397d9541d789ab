"""The command line of nsys, with the settings that the rules need."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from doctor.errors import ToolMissingError
from doctor.recording.plan import Plan

REPORT = "trace"
"""Name of the report without its ending."""

_MOST_SECONDS = 20
_ATTACH = re.compile(r"--(attach-pid|attach|pid)\b")


def nsys_command(program: Path, plan: Plan, folder: Path, command: Sequence[str]) -> list[str]:
    """`nsys profile` for a command.

    CPU samples and context switches are left out: no rule needs them, and they cost time and size. Memory use and
    operating-system calls are kept. The command goes on when the window ends.

    Args:
        program: nsys.
        plan: window and detail.
        folder: where the report goes.
        command: what to run.
    """
    return [str(program), "profile", *_detail(plan), *_window(plan), *_output(folder), *command]


def attach_command(program: Path, plan: Plan, folder: Path, pid: int) -> list[str]:
    """`nsys profile` for a process that runs already.

    Raises:
        ToolMissingError: this nsys has no such switch; the message says what to do.
    """
    switch = _ATTACH.search(_help_of(program))
    if switch is None:
        raise ToolMissingError(
            f"{program} cannot attach to a process that runs already: start the command under `doctor record -- "
            "COMMAND`, with --delay to let it warm up"
        )
    return [str(program), "profile", *_detail(plan), *_window(plan), *_output(folder), f"{switch.group()}={pid}"]


def _detail(plan: Plan) -> Iterator[str]:
    yield "--trace=cuda,nvtx,osrt"
    yield "--sample=none"
    yield "--cpuctxsw=none"
    yield "--cuda-memory-usage=true"
    yield f"--cuda-graph-trace={'node' if plan.has_graph_nodes else 'graph'}"


def _window(plan: Plan) -> Iterator[str]:
    window = plan.window
    if window.is_chosen_by_program:
        yield "--capture-range=cudaProfilerApi"
        yield "--capture-range-end=stop"
        return
    if window.delay_seconds:
        yield f"--delay={window.delay_seconds:g}"
    yield f"--duration={window.seconds:g}"
    yield "--kill=none"


def _output(folder: Path) -> Iterator[str]:
    yield f"--output={folder / REPORT}"
    yield "--force-overwrite=true"
    yield "--export=none"
    yield "--stats=false"
    yield "--show-output=true"


def _help_of(program: Path) -> str:
    try:
        done = subprocess.run(
            [str(program), "profile", "--help"], capture_output=True, text=True, timeout=_MOST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissingError(f"{program} does not run: {error}") from error
    return done.stdout + done.stderr
