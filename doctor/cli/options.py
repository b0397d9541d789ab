"""Types of options: what people type, checked where it is typed."""

from __future__ import annotations

import math

import click

from doctor.diagnosis.fix_order import FRAMEWORKS
from doctor.rule import Severity
from doctor.units import parse_ns


class SeverityName(click.ParamType[Severity]):
    """`info`, `low`, `medium`, `high` or `critical`."""

    name = "severity"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Every word that is allowed."""
        return f"[{'|'.join(severity.label for severity in Severity)}]"

    def convert(self, value: str | Severity, param: click.Parameter | None, ctx: click.Context | None) -> Severity:
        """Raises `click.BadParameter`, through `fail`, for any other word."""
        if isinstance(value, Severity):
            return value
        for severity in Severity:
            if severity.label == value.lower():
                return severity
        return self.fail(f"'{value}' is none of {', '.join(severity.label for severity in Severity)}", param, ctx)


class FrameworkName(click.Choice[str]):
    """A framework that rules have settings for."""

    def __init__(self) -> None:
        super().__init__(FRAMEWORKS, case_sensitive=False)


class Seconds(click.ParamType[float]):
    """A time over zero."""

    name = "seconds"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises `click.BadParameter`, through `fail`, for anything that no clock shows."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"'{value}' is not a time in seconds over zero", param, ctx)
        return seconds


class TimeWindow(click.ParamType[tuple[int, int]]):
    """`A:B`, two times on the recording's clock: plain nanoseconds, or with a unit."""

    name = "window"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Raises `click.BadParameter`, through `fail`, unless both ends are times in order."""
        if isinstance(value, tuple):
            return value
        try:
            start, end = (parse_ns(part) for part in value.split(":"))
        except ValueError:
            self.fail(f"'{value}' is not A:B, two times such as 1.2s:1.5s or plain nanoseconds", param, ctx)
        if start >= end:
            self.fail(f"'{value}' ends before it starts", param, ctx)
        return start, end


class Percentage(click.ParamType[float]):
    """A share as people write it: `5%`, `5 %` or `0.05`; given back as a share of one."""

    name = "percentage"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises `click.BadParameter`, through `fail`, for anything but a share from 0 to under 100 times."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = math.nan
        if not 0 <= share < 100:
            self.fail(f"'{value}' is not a percentage such as 5%", param, ctx)
        return share
