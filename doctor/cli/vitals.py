"""`doctor vitals`: what the devices say now."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from doctor.cli.options import Seconds
from doctor.cli.output import write

if TYPE_CHECKING:
    from doctor.vitals.nvml import Nvml


@click.command("vitals", short_help="Show what the devices say now: memory holders, clocks, links, errors.")
@click.option("--watch", is_flag=True, help="Look again and again until interrupted.")
@click.option("--interval", type=Seconds(), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--format", "output_format", type=click.Choice(("terminal", "json")), default="terminal", help="Kind.")
def command(watch: bool, interval: float, output_format: str) -> None:
    """Show what the devices say now: who holds memory, clocks and what holds them back, links, errors.

    JSON is one object a look, one a line; `doctor diagnose` reads it.
    """
    from doctor.vitals.nvml import Nvml

    with Nvml() as nvml:
        if not watch:
            write(_page(nvml, output_format, is_first=True), None)
        elif output_format == "json":
            _watch_lines(nvml, interval)
        else:
            _watch_screen(nvml, interval)


def _page(nvml: Nvml, output_format: str, *, is_first: bool) -> str:
    from doctor.vitals.look import look

    reading = look(nvml, is_first=is_first)
    if output_format == "json":
        from doctor.vitals.reading import as_json
        from doctor.vitals.sampler import TOOL

        return as_json(reading, TOOL) + "\n"
    from doctor.cli.screen import presentation_for
    from doctor.reports.vitals_page import vitals_page

    return vitals_page(reading, presentation_for(None, None))


def _watch_lines(nvml: Nvml, interval: float) -> None:
    is_first = True
    while True:
        try:
            sys.stdout.write(_page(nvml, "json", is_first=is_first))
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough; Python's own flush at exit shall not complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        is_first = False
        time.sleep(interval)


def _watch_screen(nvml: Nvml, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from doctor.reports.vitals_page import vitals_view
    from doctor.vitals.look import look

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(vitals_view(look(nvml)), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(interval)
            live.update(vitals_view(look(nvml, is_first=False)), refresh=True)
