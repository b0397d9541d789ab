"""What pytest calls. Suites that use nothing of doctor pay for this file alone."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from doctor.pytest_plugin import hookspecs, marks

if TYPE_CHECKING:
    from doctor.checks.check import Demand
    from doctor.pytest_plugin.fixture import Diagnoses
    from doctor.pytest_plugin.items import ChecksFile

CHECKS_FILE = "doctor.toml"
_DEMAND: pytest.StashKey[Demand] = pytest.StashKey()
_MISUSE: pytest.StashKey[str] = pytest.StashKey()
_KNOWN: pytest.StashKey[dict[object, Any]] = pytest.StashKey()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Let a conftest say how marked tests are recorded."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", marks.HELP)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ChecksFile | None:
    """Files named `doctor.toml` that speak of checks."""
    if file_path.name != CHECKS_FILE:
        return None
    from doctor.checks.settings import holds_checks  # noqa: PLC0415 - only suites with such a file pay for it
    from doctor.pytest_plugin.items import ChecksFile  # noqa: PLC0415

    return ChecksFile.from_parent(parent, path=file_path) if holds_checks(file_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Read every marker now, so that a mistake in one is told before anything runs.

    Raises:
        pytest.UsageError: a marker is unusable; in a worker of pytest-xdist the test itself fails instead.
    """
    for item in items:
        if item.get_closest_marker(marks.NAME) is not None:
            _read_mark(item, is_worker=hasattr(config, "workerinput"))


def _read_mark(item: pytest.Item, *, is_worker: bool) -> None:
    from doctor.errors import DoctorError  # noqa: PLC0415 - only marked tests pay for it

    try:
        demand = marks.demand_on(item)
    except DoctorError as error:
        words = f"{item.nodeid}: {error.message}"
        if not is_worker:
            raise pytest.UsageError(words) from error
        item.stash[_MISUSE] = words
        return
    if demand is not None:
        item.stash[_DEMAND] = demand
        if isinstance(item, pytest.Function) and "tmp_path_factory" not in item.fixturenames:
            item.fixturenames.append("tmp_path_factory")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker is unusable."""
    if _MISUSE in item.stash:
        pytest.fail(item.stash[_MISUSE], pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Record the body of a marked test and judge it; a body that fails by itself is not judged."""
    if _DEMAND not in pyfuncitem.stash:
        return (yield)
    from doctor.pytest_plugin import capture  # noqa: PLC0415 - only marked tests pay for it

    factory: Any = pyfuncitem.funcargs["tmp_path_factory"]
    folder: Path = factory.mktemp("doctor")
    recording: AbstractContextManager[None] | None = pyfuncitem.ihook.pytest_doctor_record(
        item=pyfuncitem, folder=folder
    )
    if recording is None and (reason := capture.why_not()) is not None:
        yield
        pytest.skip(f"the body ran, its health was not looked at: {reason}")
    with recording or capture.recorded(folder):
        outcome = yield
    _judge(pyfuncitem, folder)
    return outcome


def _judge(item: pytest.Function, folder: Path) -> None:
    from doctor import api  # noqa: PLC0415 - only marked tests pay for it
    from doctor.checks.judging import breaches  # noqa: PLC0415
    from doctor.errors import DoctorError  # noqa: PLC0415
    from doctor.pytest_plugin import telling  # noqa: PLC0415

    try:
        diagnosis = api.diagnose(folder)
    except DoctorError as error:
        pytest.fail(f"the recording of {item.name} is unusable: {error.message}", pytrace=False)
    item.user_properties += telling.properties(diagnosis)
    found = breaches(diagnosis, item.stash[_DEMAND])
    if found:
        item.user_properties.append((telling.BREACHES, ",".join(breach.subject for breach in found)))
        words = telling.failure(found, diagnosis, item.name)
        pytest.fail(f"{words}\n  recording kept in {folder}", pytrace=False)


@pytest.fixture
def diagnosis(request: pytest.FixtureRequest, record_property: Any) -> Diagnoses:
    """Diagnose evidence: `diagnosis.of("trace.sqlite").assert_healthy(at_most="low", allow=[...])`."""
    from doctor.pytest_plugin.fixture import Diagnoses  # noqa: PLC0415 - only tests that use it pay for it

    known = request.config.stash.setdefault(_KNOWN, {})
    return Diagnoses(request.path.parent, record_property, known)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each test that looked at evidence."""
    from doctor.pytest_plugin.telling import VERDICT, summary  # noqa: PLC0415 - a module without imports of its own

    lines = [
        f"{report.outcome.upper():<7} {report.nodeid}: {summary(dict(report.user_properties))}"
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(outcome)
        if getattr(report, "when", None) == "call" and VERDICT in dict(report.user_properties)
    ]
    if lines:
        terminalreporter.section("doctor")
        for line in lines:
            terminalreporter.write_line(line)
