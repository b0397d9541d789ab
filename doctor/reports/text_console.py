"""Rich renderables as text, the same on every machine."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def as_text(page: RenderableType, width: int, *, is_coloured: bool) -> str:
    """The page at `width` columns, lines without trailing blanks; ANSI colours only where the receiver has them."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=is_coloured,
        color_system="standard" if is_coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(page)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())
