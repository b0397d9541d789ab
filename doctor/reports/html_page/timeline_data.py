"""The zoomable time-line as JSON for the page's script."""

from __future__ import annotations

import json

from doctor.diagnosis.outcome import Diagnosis, Window
from doctor.diagnosis.tracks import CloseUp, ZoomableTimeline
from doctor.reports import wording
from doctor.reports.html_page.places import places

_ESCAPED = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
"""JSON stays the same, and nothing in it can end the element that holds it."""


def timeline_json(diagnosis: Diagnosis) -> str | None:
    """Rows in whole percent of each bin, close-ups, and marks, in ns since the window began; None without rows."""
    zoom, window = diagnosis.display.zoom, diagnosis.window
    if window is None or not zoom.tracks:
        return None
    names = {name: place for place, name in enumerate(dict.fromkeys(_names(zoom)))}
    document = {
        "length": window.end_ns - window.start_ns,
        "bins": len(zoom.tracks[0].shares[0]),
        "tracks": [
            {
                "label": wording.clean(track.label),
                "kinds": track.kinds,
                "busy": round(track.busy_share, 4),
                "shares": [[round(share * 100) for share in shares] for shares in track.shares],
            }
            for track in zoom.tracks
        ],
        "closeUps": [_close_up(close_up, window, names) for close_up in zoom.close_ups],
        "names": list(names),
        "steps": [(start_ns - window.start_ns, end_ns - start_ns) for start_ns, end_ns in zoom.steps],
        "marks": [
            {"finding": place.finding, "name": place.name, "start": place.start_ns, "end": place.end_ns}
            for place in places(diagnosis)
        ],
    }
    # ASCII alone: U+2028 and its like cannot appear either
    return json.dumps(document, separators=(",", ":"), allow_nan=False).translate(_ESCAPED)


def _names(zoom: ZoomableTimeline) -> list[str]:
    return [wording.clean(span.name) for close_up in zoom.close_ups for span in close_up.spans]


def _close_up(close_up: CloseUp, window: Window, names: dict[str, int]) -> dict[str, object]:
    return {
        "start": close_up.start_ns - window.start_ns,
        "end": close_up.end_ns - window.start_ns,
        "spans": [
            (
                span.track,
                span.kind,
                span.start_ns - window.start_ns,
                span.end_ns - span.start_ns,
                names[wording.clean(span.name)],
            )
            for span in close_up.spans
        ],
    }
