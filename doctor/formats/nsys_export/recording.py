"""What an export says about the recording as a whole."""

from __future__ import annotations

import re
from dataclasses import dataclass

from doctor.formats.nsys_export.tables import ANALYSIS, SESSION_START, SETTINGS, ExportTable, ExportTables, Only

_WANTED_SETTINGS = ("EXPORT_PRODUCT_VERSION", "EXPORT_CONFIG_TIME_SHIFT")
_GRAPH_MODE = "CUDA_GRAPH_TRACE_OPTIONS:MODE"
_GRAPH_MODES = (_GRAPH_MODE, *(f"PROCESS_{index}:{_GRAPH_MODE}" for index in range(64)))


@dataclass(frozen=True)
class Recording:
    """The recording as a whole.

    Attributes:
        exporter: version of nsys that wrote the export, which may be newer than the one that recorded.
        capture_start_ns: start of the capture window on the clock of the export's times; None where the export does not
            say.
        capture_end_ns: its end.
        clock_offset_ns: nanoseconds since the epoch of the export's time 0.
        graph_trace_level: `graph` or `node` where the options of the recording are in the export.
        notes: one line on each thing in the rows that is not known here.
    """

    exporter: str | None
    capture_start_ns: int | None
    capture_end_ns: int | None
    clock_offset_ns: int | None
    graph_trace_level: str | None
    notes: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        """The recorder as people know it; the version is the exporter's."""
        return f"nsys {self.exporter} (exporter)" if self.exporter else "nsys"


def read_recording(tables: ExportTables) -> Recording:
    """Read versions, clocks and the graph option; never the environment or command lines that lie beside them."""
    settings = _settings(tables, _WANTED_SETTINGS)
    modes = {mode.lower() for mode in _settings(tables, _GRAPH_MODES).values()}
    shift = _whole(settings.get("EXPORT_CONFIG_TIME_SHIFT"))
    epoch = _first(tables, SESSION_START, "utcEpochNs")
    duration = _capture_duration(tables)
    return Recording(
        exporter=_version(settings.get("EXPORT_PRODUCT_VERSION")),
        capture_start_ns=None if duration is None else shift,
        capture_end_ns=None if duration is None else shift + duration,
        clock_offset_ns=None if epoch is None else epoch - shift,
        graph_trace_level=modes.pop() if len(modes) == 1 and modes <= {"graph", "node"} else None,
    )


def _version(text: str | None) -> str | None:
    """A version that a setting gives as text; None where it gives something else."""
    return text if text is not None and re.fullmatch(r"\d[\d.]{0,40}", str(text)) else None


def _whole(text: str | None) -> int:
    """A whole number that a setting gives as text; 0 where it gives none."""
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", str(text)) else 0


def _capture_duration(tables: ExportTables) -> int | None:
    for batch in tables.batches(ANALYSIS):
        for row in batch.to_pylist():
            if row["duration"] is not None:
                return int(row["duration"])
            if row["startTime"] is not None and row["stopTime"] is not None:
                return int(row["stopTime"] - row["startTime"])
    return None


def _first(tables: ExportTables, table: ExportTable, column: str) -> int | None:
    for batch in tables.batches(table):
        for value in batch.column(column).to_pylist():
            if value is not None:
                return int(value)
    return None


def _settings(tables: ExportTables, names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for table in SETTINGS:
        for batch in tables.batches(ExportTable(table, (), ("name", "value")), Only("name", names)):
            found.update(zip(batch.column("name").to_pylist(), batch.column("value").to_pylist(), strict=True))
    return {name: value for name, value in found.items() if value is not None}
