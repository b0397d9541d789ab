"""Names without folders and arguments: folders name people and hosts, arguments hold keys and tokens."""

from __future__ import annotations

import re

_FOLDER = r"[^\s'\"\\/,;()<>]+"
_PATH = re.compile(
    rf"""(?<![\w.:/\\-])
        (?: [A-Za-z]:[\\/] (?:{_FOLDER}(?:\ {_FOLDER})*[\\/])*   # with a drive: folders may hold spaces
          | [\\/] (?:{_FOLDER}[\\/])*
        )
        (?={_FOLDER})
    """,
    re.VERBOSE,
)
FRAME_FOLDERS = r"(?:(?<=;)|^)[^;\n]*[\\/](?=[^\\/;()\n]+\.pyx?\(\d+\))"
"""What stands before the file of a Python frame, `/home/a b/c.py(12): f`: there, folders may hold spaces anywhere."""
_ABSOLUTE_FRAME = re.compile(r"(?:(?<=;)|^)(?=[\\/]|[A-Za-z]:[\\/])" + FRAME_FOLDERS.removeprefix("(?:(?<=;)|^)"))


def without_folders(text: str) -> str:
    """The text with every absolute path cut to its last part."""
    return _PATH.sub("", _ABSOLUTE_FRAME.sub("", text) if ".py" in text else text)


def executable_name(text: str | None) -> str | None:
    """Base name of an executable; arguments that a recorder left behind it are dropped.

    `/opt/env/bin/python3` gives `python3`, and so does `python3 serve.py --api-key=x`.
    """
    if not text:
        return None
    windows = re.match(r"[A-Za-z]:\\.*?\.exe\b", text, re.IGNORECASE)
    command = windows[0] if windows else text.split()[0] if text.split() else ""
    return re.split(r"[\\/]", command)[-1] or None
