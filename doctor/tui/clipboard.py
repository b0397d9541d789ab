"""The clipboard of whoever sits at the terminal, also through ssh and tmux."""

from __future__ import annotations

import os
import shutil
import subprocess

from textual.app import App

_SECONDS = 2


def copy(app: App[None], text: str) -> None:
    """Ask the terminal to take the text (OSC 52), which works through ssh; inside tmux ask tmux too.

    tmux ignores the request of a program unless `set-clipboard on` is set; its own command passes it on.
    """
    app.copy_to_clipboard(text)
    tmux = shutil.which("tmux") if os.environ.get("TMUX") else None
    if tmux is None:
        return
    try:
        subprocess.run(
            [tmux, "load-buffer", "-w", "-"], input=text.encode(), timeout=_SECONDS, check=False, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired):
        app.log("tmux does not answer; the terminal has been asked")
