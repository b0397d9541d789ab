"""When and with what was recorded. Nothing private is read: no environment, no command line, no host, no user."""

from __future__ import annotations

import re
from dataclasses import dataclass

from doctor.formats.nsys_report.clocks import StartTimes, read_start_times
from doctor.formats.nsys_report.wire import Message, WireError

_VERSION = re.compile(r"(\d{4})[.@](\d+)(?:[.@](\d+))?")
_GRAPH_LEVELS = {0: "graph", 1: "node"}


@dataclass(frozen=True)
class Session:
    """What is known of the recording.

    Attributes:
        version: of the recorder, such as (2025, 3, 1); None where the report does not say.
        version_text: the same as the report writes it.
        start_ns: start of the capture window on the session's clock; times of events count from it.
        stop_ns: its end on the same clock.
        start_times: the start on other clocks.
        vm_id: serialised id of the machine.
        graph_trace_level: how CUDA graphs were recorded, `graph` or `node`; None where the report does not say.
        is_whole: false where the header is damaged.
    """

    version: tuple[int, int, int] | None
    version_text: str | None
    start_ns: int | None
    stop_ns: int | None
    start_times: StartTimes
    vm_id: int | None
    graph_trace_level: str | None
    is_whole: bool = True


def read_session(header: bytes, build_id: str, ui_data: bytes | None, time_conversion: bytes | None) -> Session:
    """Read the parts of the header that say when and with what was recorded."""
    version_text = _version_text(build_id, ui_data)
    try:
        message = Message(header)
        machines = message.messages(1)
        graph_trace_level = _graph_trace_level(message)
    except WireError:
        return Session(parse_version(version_text), version_text, None, None, StartTimes(), None, None, is_whole=False)
    return Session(
        version=parse_version(version_text),
        version_text=version_text,
        start_ns=message.integer(17),
        stop_ns=message.integer(18),
        start_times=read_start_times(message, time_conversion),
        vm_id=machines[0].integer(3) if machines else None,
        graph_trace_level=graph_trace_level,
    )


def parse_version(text: str | None) -> tuple[int, int, int] | None:
    """First three numbers of a version such as `2025.3.1.0` or `2025@3@1@0-...`; None where there is none."""
    match = _VERSION.match(text or "")
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def _version_text(build_id: str, ui_data: bytes | None) -> str | None:
    if parse_version(build_id) is not None:
        return build_id.partition("-")[0].replace("@", ".")
    try:
        text = None if ui_data is None else Message(ui_data).text(6)
    except WireError:
        return None
    return None if parse_version(text) is None or text is None else text.partition("-")[0]


def _graph_trace_level(header: Message) -> str | None:
    """The option as it is kept for each recorded program; newer recorders keep it elsewhere."""
    modes: set[int | None] = set()
    for options in header.messages(2):
        for program in options.messages(26):
            modes.update(option.integer(1) for option in program.messages(49))
    mode = modes.pop() if len(modes) == 1 else None
    return None if mode is None else _GRAPH_LEVELS.get(mode)
