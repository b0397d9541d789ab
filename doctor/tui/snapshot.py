"""What the application knows at one moment: replaced as a whole, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

from doctor.diagnosis.outcome import Diagnosis
from doctor.tui.case_desk import CaseDesk


class Phase(Enum):
    """How far the evidence has come."""

    EMPTY = "nothing is open"
    LOADING = "loading"
    DIAGNOSING = "diagnosing"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Snapshot:
    """The state that every screen shows.

    Attributes:
        phase: how far the evidence has come.
        names: the evidence, as typed.
        stage: what is being done, in words.
        done_share: of the stage, None where nobody can tell.
        case: asks the case; None until it is ready.
        diagnosis: None until it is there.
        error: one line, where loading failed.
    """

    phase: Phase = Phase.EMPTY
    names: tuple[str, ...] = ()
    stage: str = ""
    done_share: float | None = None
    case: CaseDesk | None = None
    diagnosis: Diagnosis | None = None
    error: str = ""

    @property
    def title(self) -> str:
        """The evidence by its base names."""
        shown = ", ".join(PurePath(name).name for name in self.names[:2])
        more = len(self.names) - 2
        return f"{shown} and {more} more" if more > 0 else shown
