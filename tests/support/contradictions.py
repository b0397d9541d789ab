"""What cannot be true in a diagnosis whatever was recorded: parts larger than their whole, figures that disagree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.diagnosis.outcome import Diagnosis, Gain, RankedFinding
from doctor.reports import wording
from doctor.rule import Severity

HOST_RULES = frozenset({"host-dispatch-bound", "sync-in-step", "alloc-in-hot-loop", "lazy-module-load"})
"""Rules whose cures leave the device's work as it is: Amdahl's limit is the time in which it does not work."""
ROUNDING = 1.005
MOST_BEFORE_THE_WINDOW = 1.06
"""A step begins on the host: its mark may lie a twentieth of the window before the first launch."""
_NS_OF = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_PAUSES = re.compile(r"fell silent [\d,]+ times?, for ([\d.]+) ms(?: in all, ([\d.]+) ms of it)?")
_COPIES = re.compile(r"([\d.]+) GiB came up .*in [\d,]+ copies, ([\d.]+) GiB in each of ([\d,]+) steps")


def contradictions(diagnosis: Diagnosis) -> list[str]:
    """Every contradiction as a line; empty where all figures agree."""
    found = [*_of_vitals(diagnosis), *_of_order(diagnosis)]
    for finding in diagnosis.findings:
        found += [f"{finding.rule}: {line}" for line in _of_finding(finding, diagnosis)]
    for entry in diagnosis.ruled_out:
        found += [f"{entry.rule}: {line}" for line in _of_percentages(entry.because)]
    return found


def _of_vitals(diagnosis: Diagnosis) -> Iterator[str]:
    known = {name: value for name, value in diagnosis.vitals.items() if value is not None}
    for name in ("gpu_busy", "exposed_communication", "exposed_copy"):
        if not 0 <= known.get(name, 0.0) <= ROUNDING:
            yield f"{name} is {known[name]:.3f}"
    exposed = known.get("exposed_communication", 0.0) + known.get("exposed_copy", 0.0)
    if exposed > ROUNDING * known.get("gpu_busy", 1.0) + 1e-6:
        yield f"{exposed:.3f} of the window is exposed, {known['gpu_busy']:.3f} busy"
    if sum(row.share_of_busy for row in diagnosis.display.kernels) > ROUNDING:
        yield "the kernels take more than the device's time"
    window = diagnosis.window
    if window is not None and known.get("step_seconds", 0.0) > MOST_BEFORE_THE_WINDOW * window.seconds:
        yield f"a step of {known['step_seconds']:.4f} s in a window of {window.seconds:.4f} s"


def _of_order(diagnosis: Diagnosis) -> Iterator[str]:
    """Nothing low above what is worse; among wins that were replayed, nothing graver below what is less grave."""
    own = wording.own_findings(diagnosis)
    for place, upper in enumerate(own):
        for lower in own[place + 1 :]:
            is_slight = upper.severity <= Severity.LOW and lower.severity >= Severity.MEDIUM
            both_replayed = _is_promised(upper.gain) and _is_promised(lower.gain)
            if is_slight or (both_replayed and upper.severity < lower.severity):
                yield f"{upper.rule} ({upper.severity.label}) above {lower.rule} ({lower.severity.label})"


def _is_promised(gain: Gain | None) -> bool:
    return gain is not None and gain.speedup_low is not None


def _of_finding(finding: RankedFinding, diagnosis: Diagnosis) -> Iterator[str]:
    yield from _of_percentages(f"{finding.title} {finding.summary}")
    yield from _of_evidence(finding, diagnosis)
    yield from _of_products(finding, diagnosis)
    if finding.gain is not None:
        yield from _of_gain(finding.gain, finding, diagnosis)


def _of_percentages(words: str) -> Iterator[str]:
    for number in _PERCENT.findall(words):
        if float(number) > 100:
            yield f"{number} % in {words!r}"


def _of_evidence(finding: RankedFinding, diagnosis: Diagnosis) -> Iterator[str]:
    values = {(entry.name, entry.unit): entry.value for entry in finding.evidence if not isinstance(entry.value, str)}
    window_ns = None if diagnosis.window is None else diagnosis.window.seconds * 1e9
    for (name, unit), value in values.items():
        head = unit.partition(" ")[0]
        if head == "share" and not -1e-9 <= value <= ROUNDING:
            yield f"{name}: {value:.3f} {unit}"
        if name.startswith("longest") and head in _NS_OF and window_ns and value * _NS_OF[head] > ROUNDING * window_ns:
            yield f"{name}: {value:.3f} {unit} in a window of {window_ns / 1e6:.3f} ms"
        for (whole, whole_unit), most in values.items():
            if unit == whole_unit and name.startswith(f"{whole} that ") and value > most * ROUNDING + 1e-9:
                yield f"{name} {value:.3f} above {whole} {most:.3f}"


def _of_products(finding: RankedFinding, diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.window is None:
        return
    if told := _PAUSES.search(finding.summary):
        all_ms, named_ms = float(told[1]), float(told[2] or 0.0)
        if all_ms > ROUNDING * 1e3 * diagnosis.window.seconds * _launchers(diagnosis) + 0.1:
            yield f"pauses of {all_ms} ms in {1e3 * diagnosis.window.seconds:.1f} ms"
        if named_ms > all_ms + 0.1:
            yield f"{named_ms} ms of {all_ms} ms"
    if told := _COPIES.search(finding.summary):
        total, each, steps = float(told[1]), float(told[2]), int(told[3].replace(",", ""))
        if abs(each * steps - total) > 0.05 + 0.005 * steps:
            yield f"{each} GiB in each of {steps} steps, {total} GiB in all"


def _launchers(diagnosis: Diagnosis) -> int:
    """Recordings of several ranks have a launching thread each."""
    return max(sum(file.is_read and file.run == 1 for file in diagnosis.evidence), 1) * 8


def _of_gain(gain: Gain, finding: RankedFinding, diagnosis: Diagnosis) -> Iterator[str]:
    known = [
        one
        for one in (gain.speedup_low, gain.speedup_expected, gain.speedup_high, gain.speedup_bound)
        if one is not None
    ]
    if known != sorted(known) or any(one < 1 for one in known):
        yield f"promises {known}"
    window_s = 0.0 if diagnosis.window is None else diagnosis.window.seconds
    if (gain.seconds or 0.0) > ROUNDING * window_s:
        yield f"{gain.seconds:.4f} s of a window of {window_s:.4f} s"
    works = (diagnosis.vitals.get("gpu_busy") or 0.0) - (diagnosis.vitals.get("exposed_communication") or 0.0)
    is_merged = "in each other's way" in finding.title  # one thread's kernels in place of several threads'
    if finding.rule in HOST_RULES and not is_merged and (gain.speedup_bound or 0.0) * works > ROUNDING:
        yield f"at most {gain.speedup_bound:.2f} where the device works {works:.0%} of the time"
    promised = gain.speedup_expected if _is_promised(gain) else None
    if promised is not None and Severity.of_share(1 - 1 / promised + 1e-9) < finding.severity:
        yield f"{finding.severity.label} for {promised:.3f}x"
