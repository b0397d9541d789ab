"""How long a key press on the time-line takes until its picture is on the screen, and how soon the first screen stands.

    python tests/benchmarks/tui_keypress.py CASE.duckdb [--size 160x50] [--rounds 3]

A key press is timed from the moment it is sent to the repaint with the answer of its query: cells of all lanes in
sight, the item under the cursor, and what launched it. The first paint is that of a fresh process, from its start. CPU
time of all threads stands beside, since a busy machine stretches the other.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click

from doctor.tui.app import DoctorApp
from doctor.tui.case_desk import CaseDesk
from doctor.tui.snapshot import Phase, Snapshot
from doctor.tui.widgets.timeline.canvas import TimelineCanvas

WALK = (
    *["plus"] * 14,
    *["d", "a", "right", "left", "n", "p", "down", "up"] * 2,
    *["minus"] * 14,
    *["plus"] * 6,
    *["d", "d", "right", "n", "a"],
    "0",
)
"""From the whole recording down to single kernels, along, and back."""


def is_drawn(canvas: TimelineCanvas) -> bool:
    """True once the time-line shows a recording, and what was asked for last."""
    return canvas.view.length_ns > 1 and canvas.is_current


async def walk(case: Path, size: tuple[int, int], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each key press, on the clock and of CPU, by key."""
    app = DoctorApp()
    took: dict[str, list[tuple[float, float]]] = {}
    async with app.run_test(size=size) as pilot:
        began = time.perf_counter()
        desk = CaseDesk(case)
        app.snapshot = Snapshot(Phase.DIAGNOSING, (str(case),), "diagnosing", case=desk)
        await desk.prepare()
        click.echo(f"level of detail ready after {time.perf_counter() - began:.2f} s")
        await app.action_go("timeline")
        canvas = app.screen.query_one(TimelineCanvas)
        while not is_drawn(canvas):
            await pilot.pause(0.01)
        for key in WALK * rounds:
            began, cpu = time.perf_counter(), time.process_time()
            before = canvas.answered
            app.simulate_key(key)  # the pilot's own press sleeps until the process is idle
            while canvas.answered == before or not is_drawn(canvas):
                await asyncio.sleep(0.001)
            painted = asyncio.Event()
            app.call_after_refresh(painted.set)
            await painted.wait()
            took.setdefault(key, []).append((time.perf_counter() - began, time.process_time() - cpu))
    return took


def first_paint() -> float:
    """Seconds from the start of a process to the first screen of the application."""
    program = (
        "import asyncio, time, sys\n"
        "from doctor.tui.app import DoctorApp\n"
        "async def main():\n"
        "    async with DoctorApp().run_test(size=(160, 50)) as pilot:\n"
        "        await pilot.pause()\n"
        "        assert pilot.app.screen.size.width == 160\n"
        "        print(time.time())\n"
        "asyncio.run(main())\n"
    )
    began = time.time()
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return float(done.stdout) - began


@click.command()
@click.argument("case", type=click.Path(exists=True, path_type=Path))
@click.option("--size", default="160x50")
@click.option("--rounds", default=3)
def main(case: Path, size: str, rounds: int) -> None:
    """Print medians by key and of all."""
    width, height = (int(part) for part in size.split("x"))
    click.echo(f"first paint {statistics.median(first_paint() for _ in range(3)):.2f} s")
    took = asyncio.run(walk(case, (width, height), rounds))
    for key, times in sorted(took.items()):
        click.echo(f"{key:>6}  {figures(times)}")
    click.echo(f"   all  {figures([entry for times in took.values() for entry in times])}")


def figures(times: list[tuple[float, float]]) -> str:
    """Medians of wall and CPU time, and the slowest tenth, in milliseconds."""
    walls = sorted(wall for wall, _ in times)
    cpu = statistics.median(cpu for _, cpu in times)
    median, tenth = statistics.median(walls), walls[min(int(len(walls) * 0.9), len(walls) - 1)]
    worst = f"90th percentile {tenth * 1e3:.1f} ms, {len(walls)} presses"
    return f"median {median * 1e3:6.1f} ms ({cpu * 1e3:.1f} ms of CPU), {worst}"


if __name__ == "__main__":
    main()
