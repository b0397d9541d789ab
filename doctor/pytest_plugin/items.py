"""`doctor.toml` as tests: an item a check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from doctor.pytest_plugin.telling import BREACHES, failure, properties

if TYPE_CHECKING:
    from _pytest._code.code import ExceptionInfo, TerminalRepr

    from doctor.checks.check import Check


class CheckFailedError(Exception):
    """A check found its evidence ill, or unusable; the message is all there is to show."""


class ChecksFile(pytest.File):
    """One file with checks."""

    def collect(self) -> Iterator[CheckItem]:
        """An item a check; a file that is unusable is an error of collection."""
        from doctor.checks.running import refuse_unknown_rules  # noqa: PLC0415 - only suites with checks pay for it
        from doctor.checks.settings import read_checks  # noqa: PLC0415
        from doctor.errors import DoctorError  # noqa: PLC0415

        try:
            checks = read_checks(self.path)
            refuse_unknown_rules(checks)
        except DoctorError as error:
            raise self.CollectError(f"doctor: {error.message}") from error
        for check in checks:
            yield CheckItem.from_parent(self, name=check.name, check=check)


class CheckItem(pytest.Item):
    """One check."""

    def __init__(self, *, check: Check, **names: object) -> None:
        super().__init__(**names)  # type: ignore[arg-type]  # pytest passes name and parent through
        self.check = check

    def runtest(self) -> None:
        """Read the evidence, diagnose and judge it.

        Raises:
            CheckFailedError: the evidence is ill or unusable.
        """
        from doctor.checks.running import run_check  # noqa: PLC0415 - only suites with checks pay for it

        result = run_check(self.check)
        if result.diagnosis is None:
            raise CheckFailedError(f"the evidence is unusable: {result.error}")
        self.user_properties += properties(result.diagnosis)
        if result.breaches:
            self.user_properties.append((BREACHES, ",".join(breach.subject for breach in result.breaches)))
            raise CheckFailedError(failure(result.breaches, result.diagnosis, self.check.name))

    def repr_failure(self, excinfo: ExceptionInfo[BaseException], style: Any = None) -> str | TerminalRepr:
        """The message alone: a traceback through doctor tells nothing about the evidence."""
        if isinstance(excinfo.value, CheckFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        """Where the check is written."""
        return str(self.path), None, f"check {self.name}"
