"""Data goes to standard output or a file, talk goes to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from doctor.errors import UsageError

if TYPE_CHECKING:
    from doctor.case.diagnosis_queries import UnreadFile


def is_terminal(stream: TextIO | None) -> bool:
    """Tell whether a person is there; a stream that was closed before the program began is None."""
    return stream is not None and stream.isatty()


def say(text: str) -> None:
    """One line on standard error, whatever the text holds; nothing where that is closed."""
    if sys.stderr is None:
        return
    line = "".join(character if character.isprintable() else " " for character in text)
    with contextlib.suppress(OSError):
        sys.stderr.write(f"doctor: {line}\n")
        sys.stderr.flush()


def say_what_was_left_out(files: Iterable[UnreadFile]) -> None:
    """One line for each file of which nothing could be read."""
    for file in files:
        say(f"left out {file.path}: {file.reason}")


def check_writable(path: Path) -> None:
    """Refuse a target before the work that fills it.

    Raises:
        UsageError: its folder is missing or may not be entered, or it is a folder itself.
    """
    if os.path.isdir(path.parent) and not os.access(path.parent, os.X_OK):  # noqa: PTH112 - a Path raises there
        raise UsageError(f"cannot write {path}: the folder {path.parent} may not be entered")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder, name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}, make it first")


def refuse_to_replace(evidence: Iterable[Path], target: Path | None) -> None:
    """Refuse a target that is one of the files that are read: the report would take its place.

    Raises:
        UsageError: it is.
    """
    if target is None or not target.exists():
        return
    for path in evidence:
        if path.exists() and target.samefile(path):
            raise UsageError(f"cannot write {target}: it is the evidence itself, name another file")


def write(text: str, target: Path | None) -> None:
    """Write a whole document to a file, or to standard output where `target` is None.

    Raises:
        UsageError: the file cannot be written; what stood there before is untouched.
    """
    if target is None:
        _write_standard_output(text)
        return
    try:
        _replace(target, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error


def _write_standard_output(text: str) -> None:
    if sys.stdout is None:
        raise UsageError("cannot write standard output: it is closed")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        _close_standard_output()
    except OSError as error:
        _close_standard_output()
        raise UsageError(f"cannot write standard output: {error.strerror or error}") from error


def _close_standard_output() -> None:
    """Send what is still buffered nowhere: Python's own flush at exit would complain once more."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace(target: Path, content: bytes) -> None:
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
        target.write_bytes(content)
        return
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        partial.chmod(_mode_of(target))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _mode_of(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
