"""When and with what was recorded. Nothing private is read: no environment, no command line, no host, no user.

Times of events count from the start of the capture window. The report's header lists clocks and the offsets between
them: `a = b + offset` for each pair (a, b). Clock 7 is that of the events, 1 the session's, 3 the system's, 9 UTC, 10
local time. Checked against the start times of 17 exports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from doctor.formats.nsys_report.wire import Message, WireError

_EVENT_CLOCK, _SESSION_CLOCK, _SYSTEM_CLOCK, _UTC, _LOCAL = 7, 1, 3, 9, 10
_VERSION = re.compile(r"(\d{4})[.@](\d+)(?:[.@](\d+))?")
_INT64 = 1 << 64


@dataclass(frozen=True)
class Session:
    """What is known of the recording.

    Attributes:
        version: of the recorder, such as (2025, 3, 1); None where the report does not say.
        version_text: the same as the report writes it.
        start_ns: start of the capture window on the session's clock; events count from it.
        stop_ns: its end on the same clock.
        utc_start_ns: start of the window since the epoch.
        local_offset_ns: what local time is ahead of UTC.
        system_start_ns: start of the window on the machine's monotonic clock.
        vm_id: serialised id of the machine.
    """

    version: tuple[int, int, int] | None
    version_text: str | None
    start_ns: int | None
    stop_ns: int | None
    utc_start_ns: int | None = None
    local_offset_ns: int | None = None
    system_start_ns: int | None = None
    vm_id: int | None = None


def read_session(header: bytes, build_id: str, ui_data: bytes | None) -> Session:
    """Read the parts of the header that say when and with what was recorded.

    Raises:
        WireError: the header is damaged.
    """
    message = Message(header)
    version_text = _version_text(build_id, ui_data)
    machines = message.messages(1)
    return Session(
        version=parse_version(version_text),
        version_text=version_text,
        start_ns=message.integer(17),
        stop_ns=message.integer(18),
        vm_id=machines[0].integer(3) if machines else None,
        **_clocks(message),
    )


def parse_version(text: str | None) -> tuple[int, int, int] | None:
    """First three numbers of a version such as `2025.3.1.0` or `2025@3@1@0-...`; None where there is none."""
    match = _VERSION.match(text or "")
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def _version_text(build_id: str, ui_data: bytes | None) -> str | None:
    if parse_version(build_id) is not None:
        return build_id.split("-", maxsplit=1)[0].replace("@", ".")
    try:
        text = None if ui_data is None else Message(ui_data).text(6)
    except WireError:
        return None
    return None if parse_version(text) is None or text is None else text.split("-")[0]


def _clocks(header: Message) -> dict[str, int | None]:
    offsets: dict[tuple[int | None, int | None], int] = {}
    for group in header.messages(16):
        for pair in group.messages(1):
            text = pair.text(5) or ""
            if pair.text(6) == "Offset" and re.fullmatch(r"-?\d{1,20}", text):
                offsets[pair.integer(1), pair.integer(2)] = _signed(int(text))
    steps = [offsets.get(pair) for pair in ((_EVENT_CLOCK, _SESSION_CLOCK), (_SESSION_CLOCK, _SYSTEM_CLOCK))]
    to_utc, to_local = offsets.get((_SYSTEM_CLOCK, _UTC)), offsets.get((_UTC, _LOCAL))
    if steps[0] is None or steps[1] is None:
        return {}
    system = -steps[0] - steps[1]
    return {
        "system_start_ns": system,
        "utc_start_ns": None if to_utc is None else system - to_utc,
        "local_offset_ns": None if to_local is None else -to_local,
    }


def _signed(value: int) -> int:
    return value - _INT64 if value >= _INT64 >> 1 else value
