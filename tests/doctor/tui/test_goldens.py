"""Whole screens as text at two sizes, against what was looked at and found good.

`DOCTOR_WRITE_GOLDENS=1 pytest tests/doctor/tui/test_goldens.py` writes them anew; look at the difference before it is
committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doctor.diagnosis.options import DiagnosisOptions
from tests.support.terminal_app import LARGE, SMALL, Terminal, at_a_terminal, terminal

GOLDENS = Path(__file__).parent / "goldens"
THREE_RULES = DiagnosisOptions(select=("host-dispatch-bound", "cudagraph-off", "tiny-kernels"))


def check(person: Terminal, name: str) -> list[str]:
    """The name of the screen where it differs from its golden text."""
    width, height = person.app.size
    golden = GOLDENS / f"{name}-{width}x{height}.txt"
    if os.environ.get("DOCTOR_WRITE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(f"{person.text}\n", encoding="utf-8")
    return [] if golden.is_file() and golden.read_text("utf-8") == f"{person.text}\n" else [f"{name}:\n{person.text}"]


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "160x50"])
def test_the_screens_look_as_they_were_found_good(launch_bound: Path, size: tuple[int, int]) -> None:
    differing: list[str] = []

    async def scene() -> None:
        async with terminal(launch_bound, size=size, options=THREE_RULES) as person:
            await person.sees("idle with an empty queue")
            differing.extend(check(person, "diagnosis"))
            await person.press("enter")
            await person.sees("Nothing runs here")
            differing.extend(check(person, "timeline-place"))
            await person.press("n", "n")
            await person.sees("attention")
            await person.press("enter")
            await person.settled()
            differing.extend(check(person, "timeline-item"))
            await person.press("0")
            await person.settled()
            differing.extend(check(person, "timeline-whole"))
            for key, pattern, name in (
                ("3", "34 of 34", "kernels"),
                ("4", "step 7 +decode", "steps"),
                ("5", "pageable !", "memory"),
            ):
                await person.press(key)
                await person.sees(pattern)
                differing.extend(check(person, name))

    at_a_terminal(scene)
    assert not differing, "\n".join(differing)
