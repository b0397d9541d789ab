"""What the receiver of the output can show."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from doctor.cli.output import is_terminal
from doctor.reports.presentation import Presentation
from doctor.rule import Severity

_LEAST_WIDTH = 40
_PLAIN_WIDTH = 80


def presentation_for(target: Path | None, bar: Severity | None) -> Presentation:
    """How to present a diagnosis that goes to `target`, or to standard output where it is None."""
    is_screen = target is None and is_terminal(sys.stdout)
    encoding = "utf-8" if target is not None else (getattr(sys.stdout, "encoding", None) or "utf-8")
    return Presentation(
        width=_width(is_screen=is_screen),
        is_coloured=is_screen and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb",
        is_unicode=encoding.lower().replace("-", "").startswith("utf"),
        bar=bar if bar is not None else Severity.LOW,
    )


def _width(*, is_screen: bool) -> int:
    columns = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns if is_screen else _columns_of_environment()
    return max(_LEAST_WIDTH, columns)


def _columns_of_environment() -> int:
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else _PLAIN_WIDTH
