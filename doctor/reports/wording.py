"""How a diagnosis is worded; every output that people read shares these sentences.

Names come from evidence that strangers recorded, so control characters are taken out here, once.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeGuard

from doctor.diagnosis.outcome import (
    Diagnosis,
    EvidenceFile,
    Gain,
    KernelRow,
    Program,
    RankedFinding,
    ReplayQuality,
    Window,
)
from doctor.rule import Evidence, Fix, ProgramKind, Severity, Where
from doctor.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_rate,
    format_share,
    format_speedup,
)

_FRAMEWORKS = {
    "pytorch": "PyTorch",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
    "tgi": "TGI",
    "transformers": "Transformers",
    "engine": "Engine",
    "system": "System",
}
_PROGRAMS = {
    ProgramKind.TRAINING: "training",
    ProgramKind.GENERATION: "text generation",
    ProgramKind.ENCODER: "passes of an encoder",
    ProgramKind.VISION: "passes of a convolutional network",
}
KERNEL_COLUMNS = ("share", "count", "median", "family", "kernel")
_CORRECTIONS = {"phi": "the usual cost of a recorder", "unprofiled seconds": "the time without the recorder"}
_MAYBE_LAYERS = "maybe layers"
_NOISE = "within the noise of a run: "
_LEAST_SHARE_WORDED = 0.001
_PLAIN_WORD = re.compile(r"[a-z]+[\s,;:.']")
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z])")
_MOST_OF_A_NAME = 40
_LEAST_COUNTED_WHOLE = 100
_BUSY_ENOUGH = 0.6
"""Share of the window; what is fine and busy for less than that deserves a word."""
_NS_PER_UNIT = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "seconds": 1e9}


def clean(text: str) -> str:
    """The text on one line, without characters that steer a terminal or break a document."""
    visible = (" " if character.isspace() else character for character in text)
    return "".join(
        "?" if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co"} else character for character in visible
    )


def sentence(text: str) -> str:
    """The text as a sentence: a capital first, unless it starts with a name such as `cudaMalloc`, and a full stop."""
    line = clean(text).strip()
    if not line:
        return ""
    first = line[0].upper() if _PLAIN_WORD.match(line) else line[0]
    return f"{first}{line[1:]}{'' if line.endswith(('.', '!', '?')) else '.'}"


def framework(target: str) -> str:
    """A fix's target as its makers write it."""
    return _FRAMEWORKS.get(target, clean(target))


def evidence_value(evidence: Evidence) -> str:
    """The number with its unit, as people write it: `81.0 % of window`, `2.10 us`, `1,180 launches`."""
    if not isinstance(evidence.value, str) and not math.isfinite(evidence.value):
        return "unknown"
    if isinstance(evidence.value, str):
        return clean(f"{evidence.value} {evidence.unit}".strip())
    head, _, rest = clean(evidence.unit).partition(" ")
    amount = _amount(evidence.value, head)
    return f"{amount} {rest}".strip()


def _amount(value: float, unit: str) -> str:
    if unit == "share":
        return format_share(value)
    if unit in _NS_PER_UNIT:
        return format_ns(value * _NS_PER_UNIT[unit])
    if unit in {"bytes", "B"}:
        return format_bytes(value)
    if unit in {"bytes/s", "B/s"}:
        return format_rate(value)
    if unit == "x":
        return format_speedup(value)
    whole = round(value) if abs(value) >= _LEAST_COUNTED_WHOLE else value
    return f"{format_count(whole)} {_one(unit) if whole == 1 else unit}".strip()


def _one(unit: str) -> str:
    """What is counted, where it is one of them: `1 launch`, `1 copy`, `1 failure`."""
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("ss", "ss"), ("s", "")):
        if unit.isalpha() and unit.islower() and unit.endswith(plural):
            return unit.removesuffix(plural) + singular
    return unit


def place(where: Where | None, window: Window | None) -> str:
    """Where a number was measured: `decode_step, GPU 0, stream 7, 1.20 s into the window`."""
    if where is None:
        return ""
    parts = [
        _clipped(clean(where.range)) if where.range else None,
        f"GPU {where.device_id}" if where.device_id is not None else None,
        f"stream {where.stream_id}" if where.stream_id is not None else None,
        f"pid {where.pid}" if where.pid is not None else None,
        f"thread {where.tid}" if where.tid is not None else None,
        _moment(where.start_ns, window) if where.start_ns is not None else None,
    ]
    return ", ".join(part for part in parts if part)


def _moment(time_ns: int, window: Window | None) -> str:
    """Recorders count from anywhere, some from 1970: people are told the time since the window began."""
    if window is None:
        return f"at {format_ns(time_ns)}"
    since_ns = time_ns - window.start_ns
    return f"{format_ns(abs(since_ns))} {'into' if since_ns >= 0 else 'before'} the window"


def _clipped(name: str) -> str:
    return name if len(name) <= _MOST_OF_A_NAME else f"{name[: _MOST_OF_A_NAME - 3]}..."


def gain_sentence(gain: Gain | None) -> str:
    """The win with its range and bound: `about 3.9x (2.9-5.0), at most 5.0x`; below 5 % it is within the noise."""
    if gain is None:
        return ""
    parts = []
    if _is_known(gain.speedup_expected):
        measurable = "" if gain.is_measurable else _NOISE
        parts.append(f"{measurable}about {format_speedup(gain.speedup_expected)}{_range(gain)}")
    if _is_known(gain.speedup_bound):
        is_alone = not _is_known(gain.speedup_expected)
        measurable = _NOISE if is_alone and not gain.is_measurable else ""
        promise = ", not promised" if is_alone and gain.is_measurable else ""
        parts.append(f"{measurable}at most {_bound(gain.speedup_bound, gain.speedup_high)}{promise}")
    if gain.bytes is not None:
        parts.append(f"{format_bytes(gain.bytes)} of memory")
    return ", ".join(parts) or "not promised: this recording does not allow it, see below"


def _bound(bound: float, high: float | None) -> str:
    """Rounded as any factor, or to the second digit where it would seem to lie within the range."""
    is_close = high is not None and high <= bound < 1.05 * high
    return f"{bound:.2f}x" if is_close and bound < 20 else format_speedup(bound)


def _range(gain: Gain) -> str:
    if gain.speedup_low is None or gain.speedup_high is None or gain.speedup_expected is None:
        return ""
    digits = 0 if gain.speedup_expected >= 10 else 1 if gain.speedup_expected >= 2 else 2
    return f" ({gain.speedup_low:.{digits}f}-{gain.speedup_high:.{digits}f})"


def verdict(diagnosis: Diagnosis) -> str:
    """One sentence: what is wrong, or that nothing is, or that nothing could be looked at."""
    first = principal(diagnosis)
    if first is None:
        return _verdict_without_guilt(diagnosis)
    win = gain_sentence(first.gain)
    return f"{clean(first.title)}. To win: {win}" if win else clean(first.title)


def principal(diagnosis: Diagnosis) -> RankedFinding | None:
    """The first finding that is worth curing: notes are not, nor is a win that drowns in noise; None without one."""
    return next((finding for finding in own_findings(diagnosis) if _is_worth_curing(finding)), None)


def _is_worth_curing(finding: RankedFinding) -> bool:
    return finding.severity > Severity.INFO and (finding.gain is None or finding.gain.is_measurable)


def change_sentence(finding: RankedFinding) -> str:
    """The setting to change first, and where; empty where the finding has none."""
    return next((f"{framework(fix.target)}: {clean(fix.setting)}" for fix in finding.fixes[:1]), "")


def first_check(finding: RankedFinding) -> str:
    """The first way to see that the fix worked, as a sentence; empty where there is none."""
    return sentence(_SENTENCE_END.split(finding.verify, maxsplit=1)[0])


def _verdict_without_guilt(diagnosis: Diagnosis) -> str:
    unchecked = len(diagnosis.not_run)
    if diagnosis.window is None and unchecked and not diagnosis.checked_count:
        return "Nothing could be diagnosed: this evidence holds none of what the rules need"
    notes = f"; {format_counted(len(diagnosis.findings), 'note')} below" if diagnosis.findings else ""
    tail = f"; {format_counted(unchecked, 'rule')} could not be checked" if unchecked else ""
    idle = idle_words(diagnosis)
    return f"No rule found anything worth curing{notes}{tail}{f'. {idle}' if idle else ''}"


def idle_words(diagnosis: Diagnosis) -> str:
    """Why a device that idles is no fault here, or what would tell; empty where it works most of the time."""
    busy, window = diagnosis.vitals.get("gpu_busy"), diagnosis.window
    if window is None or busy is None or busy >= _BUSY_ENOUGH:
        return ""
    told = f"The GPU is busy for {format_share(busy)} of the window only"
    in_steps = (window.steps or 0) * (diagnosis.vitals.get("step_seconds") or 0.0) / window.seconds
    if 0 < in_steps < 0.5:
        steps = format_counted(window.steps or 0, "step")
        return (
            f"{told}, but its {steps} fill {format_share(in_steps)} of it: the rest came once (a prompt, a warm-up, a"
            " capture). Record more steps, or give their range with --range"
        )
    if any(not file.is_complete for file in diagnosis.evidence if file.run == 1):
        return f"{told}, and what it waits for may stand in what could not be read: copy or export the file again"
    return (
        f"{told}, and nothing here tells what it waits for: record five steps or more under load, with"
        " nsys --trace=cuda,nvtx,osrt or torch.profiler with_stack=True"
    )


def own_findings(diagnosis: Diagnosis) -> tuple[RankedFinding, ...]:
    """Findings with a win of their own, in order."""
    return tuple(finding for finding in diagnosis.findings if finding.same_cause_as is None)


def followers(diagnosis: Diagnosis, principal: RankedFinding) -> tuple[RankedFinding, ...]:
    """Findings that the cure of `principal` cures too."""
    return tuple(finding for finding in diagnosis.findings if finding.same_cause_as == principal.rule)


def program_words(program: Program | None) -> str:
    """What the advice is chosen for and what tells it; empty where nothing does."""
    if program is None or program.kind not in _PROGRAMS:
        return ""
    return f"looks like {_PROGRAMS[program.kind]} ({clean(program.because)})"


def window_sentence(window: Window | None) -> str:
    """What part of the recording is spoken of."""
    if window is None:
        return "no time-line in this evidence"
    steps = f", {format_counted(window.steps, 'step')}" if window.steps is not None else ""
    return f"window of {format_ns(window.end_ns - window.start_ns)}{steps}, chosen by {clean(window.chosen_by)}"


def kinds_read(diagnosis: Diagnosis) -> set[str]:
    """The kinds of evidence that something could be read of."""
    return {file.kind for file in diagnosis.evidence if file.is_read and file.run == 1}


def evidence_sentence(file: EvidenceFile) -> str:
    """One file: base name, recorder, completeness."""
    name = clean(PurePath(file.path).name or file.path)
    if not file.is_read:
        return f"{name} (not read)"
    if file.run > 1:
        return f"{name} (of another run)"
    tool = clean(file.tool) if file.tool else clean(file.kind)
    return f"{name} ({tool})" if file.is_complete else f"{name} ({tool}, incomplete)"


def vitals_parts(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The known figures, most telling first, then what was recorded; figures that say nothing are left out."""
    vitals = diagnosis.vitals
    worded = (
        _vital(vitals.get("gpu_busy"), lambda value: f"GPU busy {format_share(value)}"),
        _vital(
            vitals.get("exposed_communication") or None, lambda value: f"exposed communication {format_share(value)}"
        ),
        _vital(_worth_a_word(vitals.get("exposed_copy")), lambda value: f"exposed copies {format_share(value)}"),
        _usual_step(vitals, "step" if not _may_be_layers(diagnosis.window) else "step, maybe a layer,"),
        _vital(vitals.get("kernel_median_us"), lambda value: f"median kernel {format_ns(value * 1e3)}"),
        program_words(diagnosis.program),
    )
    return tuple(part for part in worded if part)


def _may_be_layers(window: Window | None) -> bool:
    return window is not None and _MAYBE_LAYERS in window.chosen_by


def _usual_step(vitals: Mapping[str, float | None], word: str) -> str:
    """The means of the usual steps: `step 34.5 ms, 1,053 launches, 1 sync`."""
    figures = (
        _vital(vitals.get("step_seconds"), lambda value: format_ns(value * 1e9)),
        _vital(vitals.get("launches_per_step"), lambda value: format_counted(round(value), "launch", "launches")),
        _vital(vitals.get("syncs_per_step"), lambda value: format_counted(round(value, 1), "sync")),
    )
    told = ", ".join(figure for figure in figures if figure)
    return f"{word} {told}" if told else ""


def shown_fixes(finding: RankedFinding) -> tuple[Fix, ...]:
    """The settings to show: of this project's engine the first alone; the others are for `doctor tune` to try."""
    own = [fix for fix in finding.fixes if fix.target == "engine"]
    return tuple(fix for fix in finding.fixes if fix not in own[1:])


def named_fixes(finding: RankedFinding, frameworks: Sequence[str]) -> tuple[Fix, ...]:
    """Of the settings to show those for what the evidence names, and for the machine; all where it names nothing."""
    shown = shown_fixes(finding)
    named = tuple(fix for fix in shown if fix.target in {*frameworks, "system"})
    return named or shown


def kernel_cells(row: KernelRow) -> tuple[str, ...]:
    """One line of the table of kernels, in the order of `KERNEL_COLUMNS`."""
    share, count, median = format_share(row.share_of_busy), format_count(row.count), format_ns(row.median_ns)
    return share, count, median, clean(row.family), clean(row.name)


def recording_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What was read, what part of it is spoken of, and how far the replay can be trusted."""
    lines: list[str] = []
    for file in diagnosis.evidence:
        lines.append(evidence_sentence(file))
        lines.extend(clean(note) for note in file.notes)
    lines.append(window_sentence(diagnosis.window))
    if diagnosis.frameworks and diagnosis.findings:
        names = ", ".join(map(framework, diagnosis.frameworks))
        lines.append(f"settings come first for {names}, as the evidence or --framework names them")
    if diagnosis.replay is not None:
        lines.append(replay_sentence(diagnosis.replay))
        lines.extend(clean(note) for note in diagnosis.replay.notes)
    return tuple(lines)


def replay_sentence(replay: ReplayQuality) -> str:
    """How far the promised wins can be trusted."""
    trust = "Wins are replayed" if replay.is_trusted else "No win is promised"
    parts = [f"class-median replay error {format_share(replay.class_median_error)}"]
    if replay.profiler_share is not None:
        parts.append(f"profiler {format_share(replay.profiler_share)} of the window")
    if replay.host_speed_factor is not None:
        parts.append(f"host {format_speedup(replay.host_speed_factor)} slower than a quiet one")
    if replay.correction:
        parts.append(f"corrected by {_CORRECTIONS.get(replay.correction, clean(replay.correction))}")
    return f"{trust} ({', '.join(parts)})"


def level_of(severity: Severity) -> str:
    """The three levels that code hosts know: error, warning, note."""
    if severity >= Severity.HIGH:
        return "error"
    return "warning" if severity == Severity.MEDIUM else "note"


def message(finding: RankedFinding, same_cause: Sequence[RankedFinding] = ()) -> str:
    """A finding and what has the same cause in one paragraph of plain text, for outputs with room for no more."""
    win = gain_sentence(finding.gain)
    fixes = "; ".join(f"{framework(fix.target)}: {clean(fix.setting)}" for fix in shown_fixes(finding))
    same = ", ".join(clean(follower.title) for follower in same_cause)
    parts = (
        sentence(finding.summary),
        f"Win: {win}." if win else "",
        f"Change: {fixes}." if fixes else "",
        f"Same cause: {same}." if same else "",
    )
    return " ".join(part for part in parts if part)


def _vital(value: float | None, word: Callable[[float], str]) -> str:
    return word(value) if _is_known(value) else ""


def _worth_a_word(share: float | None) -> float | None:
    return share if share is not None and share >= _LEAST_SHARE_WORDED else None


def _is_known(value: float | None) -> TypeGuard[float]:
    """False for None and for the results of a division by nothing, which are no figures to show."""
    return value is not None and math.isfinite(value)


def incomplete_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """One line for each file that could be read in part only: its name and the first note on what was lost."""
    return tuple(
        f"{PurePath(clean(file.path)).name}: {clean(file.notes[0]) if file.notes else 'part of it could not be read'}"
        for file in diagnosis.evidence
        if not file.is_complete and file.run == 1
    )
