"""A writer of its own process: `python -m tests.doctor.history.add_entries ADDRESS COUNT`."""

from __future__ import annotations

import sys
import uuid

from doctor.history.entries import entry_of
from doctor.history.store import History
from tests.support import diagnoses

if __name__ == "__main__":
    history = History(sys.argv[1])
    for moment in range(int(sys.argv[2])):
        history.add(entry_of(diagnoses.launch_bound(), uuid.uuid4().hex, moment, "test"))
