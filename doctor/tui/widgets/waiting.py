"""What stands in place of a screen's body until there is something to show."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import ProgressBar, Static

from doctor.tui.snapshot import Phase, Snapshot

_NOTHING = """Nothing is open.

Press o to open a recording (.nsys-rep, an SQLite or Parquet export, a PyTorch trace), a log or an error text that was
kept in a file, or a saved case."""


class Waiting(Vertical):
    """The stage of loading with a bar, or why there is nothing."""

    DEFAULT_CSS = """
    Waiting { height: 1fr; padding: 2 4; }
    Waiting ProgressBar { margin-top: 1; width: 60; max-width: 100%; }
    Waiting Bar { width: 1fr; }
    Waiting.-still ProgressBar { display: none; }
    Waiting .error { color: $error; }
    """

    def compose(self) -> ComposeResult:
        """A sentence and a bar."""
        yield Static(_NOTHING, id="sentence", markup=False)
        yield ProgressBar(total=None, show_eta=False)

    def show(self, snapshot: Snapshot) -> None:
        """Say what is going on."""
        sentence = self.query_one("#sentence", Static)
        sentence.set_class(snapshot.phase is Phase.FAILED, "error")
        sentence.update(_sentence(snapshot))
        is_moving = snapshot.phase in {Phase.LOADING, Phase.DIAGNOSING}
        self.set_class(not is_moving, "-still")
        bar = self.query_one(ProgressBar)
        if snapshot.done_share is None:
            bar.update(total=None)
        else:
            bar.update(total=100, progress=100 * snapshot.done_share)


def _sentence(snapshot: Snapshot) -> str:
    if snapshot.phase is Phase.FAILED:
        return f"{snapshot.error}\n\nPress o to open something else."
    if snapshot.phase is Phase.EMPTY:
        return _NOTHING
    return f"{snapshot.title}: {snapshot.stage} ..."
