"""Every exception that doctor raises on purpose.

DoctorError                  shown to the user as one line; `exit_code` is the process's
├── UsageError               the arguments are unusable
├── EvidenceError            a file cannot be used as evidence
│   ├── UnknownEvidenceError   nothing here reads it; the message says what it is and what to do
│   ├── DamagedEvidenceError   a known format, broken before anything could be read
│   └── EvidenceTooLargeError  over the bound that protects the machine
├── CaseError                a case file cannot be opened, is of another version, or refuses a query
├── CatalogueError           a rule file is wrong, or the package `rules` is somebody else's
├── HistoryError             a history cannot be opened, is of another layout, or refuses
├── DeviceError              no device can be asked: no driver, no device, no permission
└── ToolMissingError         a program that the user asked for is not installed
"""

from __future__ import annotations


class DoctorError(Exception):
    """Root of the tree: `message` says in one line what is wrong and what to do about it."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        self.message = " ".join(message.splitlines())  # it may quote a file, and a file may hold anything
        super().__init__(self.message)


class UsageError(DoctorError):
    """The arguments are unusable."""


class EvidenceError(DoctorError):
    """A file cannot be used as evidence."""


class UnknownEvidenceError(EvidenceError):
    """Nothing here reads the file; the message says what it is and what to do."""


class DamagedEvidenceError(EvidenceError):
    """A known format that is broken before anything could be read from it."""


class EvidenceTooLargeError(EvidenceError):
    """The file is over the bound that protects the machine it is read on."""


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
