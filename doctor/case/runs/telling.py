"""Files that cannot be of one run, and the runs that follow from that.

What is alike proves nothing: files stay together unless something that one run has only one of differs. Ranks of one
job, an export beside its report, replicas and neighbours on one machine all overlap in time, and stay together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath
from types import MappingProxyType

from doctor.case.runs.meetings import did_meet
from doctor.case.runs.traits import EngineLog, Recording, Traits
from doctor.units import format_ns

MOST_BETWEEN_RANKS_NS = 3600 * 10**9
"""Ranks of one job are recorded together; hosts' clocks differ by seconds, never by an hour."""
MOST_BETWEEN_CLOCKS_NS = 10**9
"""Clocks of hosts that ask for the time agree within that; ranks further apart must show it by their collectives."""
MOST_BETWEEN_LOGS_NS = 60 * 10**9
"""Servers that start together print their first lines within a minute of each other's last."""
MOST_BETWEEN_STARTS_NS = 6 * 3600 * 10**9
"""Starts of one engine within a working day may be tries at one problem."""
LEAST_SIZE_RATIO = 1.25
"""Sizes of one device as tools tell them differ by what the driver keeps back, a tenth at most."""
LEAST_WEIGHT_RATIO = 1.05


@dataclass(frozen=True)
class Run:
    """The files of one run, and why they are not of the first; empty for the first."""

    files: tuple[Traits, ...]
    reason: str = ""


def tell_apart(files: Sequence[Traits]) -> tuple[Run, ...]:
    """The runs behind the files: first the one with most device work, where there is none the first one named.

    Recordings are looked at in order of time, so that the ranks of one job meet before those of the next; other files
    join the first run that nothing in them speaks against. Where there are several, and in folders of their own, what
    lies in such a folder is of a run in it, or of one by itself.
    """
    recorded = sorted((file for file in files if file.recording is not None), key=_start)
    groups = _groups(recorded)
    groups.sort(key=lambda group: -sum(file.recording.op_count for file in group if file.recording is not None))
    folders = _folders(files) if len(groups) > 1 else {}
    groups = _groups((file for file in files if file.recording is None), groups, folders)
    return tuple(Run(tuple(group), _reason(group, groups[0]) if place else "") for place, group in enumerate(groups))


def _start(file: Traits) -> int:
    span = file.recording.span if file.recording is not None else None
    return span.start_ns if span is not None else 0


def _folders(files: Iterable[Traits]) -> dict[str, str]:
    """The folder of each file that tells it from others: the first below what all have in common; empty for none."""
    parents = {file.path: PurePath(file.path).parent.parts for file in files}
    shared = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*parents.values(), strict=False)))
    return {path: "".join(parts[shared : shared + 1]) for path, parts in parents.items()}


def _groups(
    files: Iterable[Traits], known: Sequence[list[Traits]] = (), folders: Mapping[str, str] = MappingProxyType({})
) -> list[list[Traits]]:
    groups = list(known)
    for file in files:
        here = folders.get(file.path, "")
        near = [group for group in groups if not here or any(folders[other.path] in ("", here) for other in group)]
        fitting = next((group for group in near if not any(contradiction(file, other) for other in group)), None)
        if fitting is None:
            groups.append([file])
        else:
            fitting.append(file)
    return groups


def _reason(group: Sequence[Traits], first: Sequence[Traits]) -> str:
    found = next((why for file in group for other in first if (why := contradiction(file, other))), "")
    return found or "in a folder of its own"


def contradiction(file: Traits, other: Traits) -> str:
    """Why two files cannot be of one run, in a few words that follow the file's name; empty where they can."""
    if file.devices and other.devices and not _share_a_device(file, other):
        return f"another device, {min(file.devices).upper()}"
    if _differ(file.device_bytes, other.device_bytes, LEAST_SIZE_RATIO):
        return "a device of another size"
    if file.named_after and other.named_after and file.named_after != other.named_after:
        return f"its name or folder is that of another run, {PurePath(file.named_after).name}"
    if file.recording is not None and other.recording is not None:
        return _of_recordings(file.recording, other.recording)
    if file.log is not None and other.log is not None:
        return _of_logs(file.log, other.log)
    return ""


def _share_a_device(file: Traits, other: Traits) -> bool:
    """Tools cut long names off at the end."""
    return any(one.startswith(two) or two.startswith(one) for one in file.devices for two in other.devices)


def _of_recordings(one: Recording, two: Recording) -> str:
    if one.world_size is not None and two.world_size is not None and one.world_size != two.world_size:
        return f"a job of {one.world_size} ranks"
    gap_ns = one.span.gap_ns(two.span) if one.span is not None and two.span is not None else None
    are_ranks = one.rank is not None and two.rank is not None and one.rank != two.rank and one.kind == two.kind
    if are_ranks:
        return _of_ranks(one, two, gap_ns or 0)
    if one.span is None or two.span is None:
        return ""
    return "" if gap_ns == 0 else "recorded at another time"


def _of_ranks(one: Recording, two: Recording, gap_ns: int) -> str:
    if gap_ns > MOST_BETWEEN_RANKS_NS:
        return "recorded at another time"
    if gap_ns <= MOST_BETWEEN_CLOCKS_NS or did_meet(one.meetings, two.meetings) is not False:
        return ""
    return f"recorded {format_ns(gap_ns)} apart from rank {two.rank}, and none of their collectives meet"


def _of_logs(one: EngineLog, two: EngineLog) -> str:
    gap_ns = one.span.gap_ns(two.span) if one.span is not None and two.span is not None else None
    if gap_ns is not None and gap_ns <= MOST_BETWEEN_LOGS_NS:
        return ""
    if one.engine != two.engine:
        return f"a log of {one.engine}"
    if (
        gap_ns is not None
        and one.is_start
        and two.is_start
        and (_are_whole(one, two) or gap_ns > MOST_BETWEEN_STARTS_NS)
    ):
        return "a log of another start"
    if gap_ns is not None:
        return ""
    return "a log of another model" if _differ(one.weight_bytes, two.weight_bytes, LEAST_WEIGHT_RATIO) else ""


def _are_whole(one: EngineLog, two: EngineLog) -> bool:
    """Both served: starts that failed or were cut off are looked at beside each other."""
    return one.is_serving and two.is_serving


def _differ(one: int | None, two: int | None, least_ratio: float) -> bool:
    return bool(one and two) and max(one or 0, two or 0) >= least_ratio * min(one or 0, two or 0)
