"""Every exception that doctor raises on purpose.

DoctorError                  shown to the user as one line; `exit_code` is the process's
├── UsageError               the arguments are unusable
├── EvidenceError            a file cannot be used as evidence
│   ├── UnknownEvidenceError   nothing here reads it; the message says what it is and what to do
│   ├── DamagedEvidenceError   a known format, broken before anything could be read
│   ├── EvidenceTooLargeError  over the bound that protects the machine
│   └── NoEvidenceLeftError    several files, and none of them can be used
├── CaseError                a case file cannot be opened, is of another version, or refuses a query
├── CatalogueError           a rule file is wrong, or the package `rules` is somebody else's
├── HistoryError             a history cannot be opened, is of another layout, or refuses
├── DeviceError              no device can be asked: no driver, no device, no permission
└── ToolMissingError         a program that the user asked for is not installed
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self


def one_line(text: str) -> str:
    """The text without ends of lines, and with an escape for each byte of a file's name that is no UTF-8."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().splitlines())


class DoctorError(Exception):
    """Root of the tree: `message` says in one line what is wrong and what to do about it."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        self.message = one_line(message)  # it may quote a file, and a file may hold anything
        super().__init__(self.message)

    @property
    def lines(self) -> tuple[str, ...]:
        """What to show: the message, or one line for each of several faults."""
        return (self.message,)


class UsageError(DoctorError):
    """The arguments are unusable."""


class EvidenceError(DoctorError):
    """A file cannot be used as evidence."""

    def with_name(self, path: object, shown: object) -> Self:
        """The same error with the name that the user knows in place of that of a temporary file."""
        return type(self)(self.message.replace(one_line(str(path)), str(shown)))

    def about(self, path: object) -> str:
        """The message without the file's name at its beginning, for a place that names the file already."""
        return self.message.removeprefix(one_line(str(path))).removeprefix(":").strip()


class UnknownEvidenceError(EvidenceError):
    """Nothing here reads the file; the message says what it is and what to do."""


class DamagedEvidenceError(EvidenceError):
    """A known format that is broken before anything could be read from it."""


class EvidenceTooLargeError(EvidenceError):
    """The file is over the bound that protects the machine it is read on."""


class NoEvidenceLeftError(EvidenceError):
    """Several files were to be read and none can be used; `reasons` holds one line for each."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each file."""
        return self.reasons

    def with_name(self, path: object, shown: object) -> Self:
        """The same error with another name for the file in each reason."""
        return type(self)(reason.replace(str(path), str(shown)) for reason in self.reasons)


class CaseError(DoctorError):
    """A case file cannot be opened, is of another version, or refuses a query."""


class CatalogueError(DoctorError):
    """A rule file is wrong, or the importable package `rules` is somebody else's."""


class DeviceError(DoctorError):
    """No device can be asked: no driver, no device or no permission; the message says which."""


class HistoryError(DoctorError):
    """A history cannot be opened, is something else or of another layout, or its database refuses."""


class ToolMissingError(DoctorError):
    """A program that the user asked for is not installed."""
