"""The loading process: `python -m doctor.tui.loading.child`, a pickled request in, pickled events out.

A thread would share the interpreter with the screen, which would stutter while a large recording is decoded, and could
not be stopped. `multiprocessing` cannot start a child where a terminal application has taken over standard error.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

from doctor.api import load_evidence
from doctor.case.connection import connect
from doctor.case.derive import WindowChoice, derive, is_derived
from doctor.case.store import is_case_file, open_case
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.runner import diagnose_case
from doctor.discovery import EvidencePath, discovered
from doctor.errors import DoctorError
from doctor.tui.loading.events import CaseReady, Diagnosed, LoadEvent, LoadFailed, LoadRequest, Reading, Stage

_SECONDS_BETWEEN_REPORTS = 0.1


def main() -> None:
    """Do what the request on standard input asks; ends when whoever asked goes away."""
    warnings.simplefilter("ignore")  # a library's warning is no event
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not stand among the events
    request: LoadRequest = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    tempfile.tempdir = str(request.folder)  # it goes when the application does, even where this process is killed
    threading.Thread(target=_end_with_parent, daemon=True).start()
    reporter = _Reporter(events)
    try:
        _load(request, reporter)
    except DoctorError as error:
        reporter.tell(LoadFailed(error.message))
    except Exception as error:  # noqa: BLE001 - the screen must be told of whatever it is
        first = (str(error).splitlines() or ["no message"])[0]
        reporter.tell(LoadFailed(f"unexpected {type(error).__name__}: {first}. This is a bug in doctor"))


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):  # a buffered read would hold a lock that the interpreter's end waits for
        pass
    os._exit(1)


class _Reporter:
    """Writes events; progress of files no more often than a screen shows it."""

    def __init__(self, events: BinaryIO) -> None:
        self._events = events
        self._told = 0.0

    def tell(self, event: LoadEvent) -> None:
        pickle.dump(event, self._events)
        self._events.flush()

    def progress(self, name: str, done_bytes: int, total_bytes: int) -> None:
        now = time.monotonic()
        if now - self._told >= _SECONDS_BETWEEN_REPORTS:
            self._told = now
            self.tell(Reading(name, done_bytes, total_bytes))


def _load(request: LoadRequest, reporter: _Reporter) -> None:
    rules = load_catalogue(request.rules)
    with discovered(request.paths) as found:
        path = _derived_case(request, found.evidence, reporter)
        reporter.tell(CaseReady(path, found.skipped))
    reporter.tell(Stage("diagnosing"))
    with closing(open_case(path)) as case:
        reporter.tell(Diagnosed(diagnose_case(case, rules, request.options)))


def _derived_case(request: LoadRequest, evidence: tuple[EvidencePath, ...], reporter: _Reporter) -> Path:
    """A closed case file with its derived tables: the saved one that was named, or a new one in the folder."""
    window = WindowChoice(request.options.window, request.options.range_name)
    if _is_ready(evidence, window):
        return evidence[0].path
    path = request.folder / "case.duckdb"
    if any(is_case_file(entry.path) for entry in evidence):
        load_evidence(evidence).close()  # refuses what cannot be used
        shutil.copyfile(evidence[0].path, path)
        case = connect(path)
    else:
        case = load_evidence(evidence, path, request.reader, lambda name: partial(reporter.progress, name))
    with closing(case):
        reporter.tell(Stage("putting it in order"))
        derive(case, window)
    return path


def _is_ready(evidence: tuple[EvidencePath, ...], window: WindowChoice) -> bool:
    if len(evidence) != 1 or not is_case_file(evidence[0].path):
        return False
    with closing(open_case(evidence[0].path)) as case:
        return is_derived(case, window)


if __name__ == "__main__":
    main()
