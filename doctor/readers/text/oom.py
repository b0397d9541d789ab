"""Out-of-memory messages in a text, with the traceback before them, and engines that refuse for want of memory.

Messages of every generation of PyTorch and of the engines on top of it, broken over several lines or not. What the
process was doing is told by the frames of the traceback, else by the last line of the engine about loading, capturing
or serving.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text import ended_processes, memory_refusals, oom_message
from doctor.readers.text.frames_below import FramesBelow
from doctor.readers.text.python_frames import FRAME_CLUE, NOTEBOOK_CLUES, TRACEBACK_CLUE, FrameTrail
from doctor.readers.text.scanner import batch_of

KIND = "oom-text"
MOST_MESSAGE_LINES = 14
MOST_MESSAGE_CHARS = 8192
MOST_JSON_PARTS = 400
MOST_ENDED = 100

_LOADING = (
    "Starting to load model",
    "Loading safetensors checkpoint",
    "Load weight begin",
    "Loading checkpoint shards",
)
_CAPTURING = (
    "Capturing CUDA graph",
    "Capturing cudagraph",
    "Capturing the model for CUDA graph",
    "Capture cuda graph begin",
    "Capturing batches",
)
_DONE = (
    "Model loading took",
    "Loading weights took",
    "Loading model weights took",
    "Load weight end",
    "Graph capturing finished",
    "Capture cuda graph end",
)
_SERVING = ("Application startup complete", "fired up and ready to roll", "Uvicorn running on")
_PHASE_MARKS = (("load", _LOADING), ("capture", _CAPTURING), ("", _DONE), ("serving", _SERVING))
_WITHIN_JSON = ("out of memory", oom_message.ASYNC, TRACEBACK_CLUE)
_BEGINNING = re.compile(
    r"(?:[\w.]{1,60}Error: )?(?:CUDA out of|HIP out of|Allocation on device|Free memory on device|Tried to allocate"
    r"|The model's max seq len|To serve at least one|Error in memory profiling|The memory capacity is unbalanced)"
)
_DIGIT = re.compile(r"\d")
_WARM_UP = re.compile(r"out of memory occurred when warming up (sampler|pooler)")
_PID = re.compile(r"\(([A-Za-z_][\w.-]{0,40}) pid=(\d{1,9})")
_RANK = re.compile(r"(?:\[rank|[_ ]TP)(\d{1,4})(?=[\]_ ):])")
_CAPTURE_FAILED = re.compile(
    r"Capture cuda graph failed|when capturing CUDA graph|cuda graph capture failed", re.IGNORECASE
)
_WARMING = re.compile(r"Unable to warmup model|Method Warmup encountered|warmup\{")
"""The server of text-generation-inference computes its largest batch before it serves."""
_ENGINES = (
    ("vllm", re.compile(r"\bvllm\b|\(EngineCore|\(VllmWorker|VLLM_|cumem_allocator\.cpp", re.IGNORECASE)),
    ("sglang", re.compile(r"\bsglang\b|mem-fraction-static|mem_fraction_static", re.IGNORECASE)),
    ("tensorrt-llm", re.compile(r"TensorRT-LLM|\[TRT-LLM\]|tensorrt_llm")),
    ("lmdeploy", re.compile(r"\blmdeploy\b|turbomind|\[TM\]")),
    ("tgi", re.compile(r"\btext[_-]generation[_-](?:launcher|server|router|inference)\b")),
)


_LAUNCHERS = ("_launcher: Args", "_launcher: Shard", "_launcher: Waiting", "_launcher: Starting", "_launcher: Method")
"""Lines of text-generation-inference that say whose text it is; all of its lines would be too many."""
_WINDOWS = re.compile(
    r'File "[A-Za-z]:[\\/]|\bWindows-1\d-|\bOS: Microsoft Windows|[A-Za-z]:\\(?:Users|Program Files)\\'
)


@dataclass
class _Open:
    """A message that may go on in the next lines."""

    number: int
    lines: list[str]
    continued: re.Pattern[str]
    complete: re.Pattern[str] | None

    @property
    def text(self) -> str:
        return " ".join(line.strip() for line in self._bare())[:MOST_MESSAGE_CHARS]

    @property
    def cut_text(self) -> str:
        """As a terminal cuts it, in the middle of words."""
        return "".join(self._bare())[:MOST_MESSAGE_CHARS]

    def _bare(self) -> list[str]:
        """The lines, the later ones without what a log has put before each: a time, a process, a mark of quotation."""
        start = _BEGINNING.search(self.lines[0])
        prefix = self.lines[0][: start.start()] if start is not None else ""
        form = _DIGIT.sub("0", prefix)
        return [self.lines[0]] + [
            line[len(prefix) :] if _DIGIT.sub("0", line[: len(prefix)]) == form else line for line in self.lines[1:]
        ]

    def takes(self, text: str) -> bool:
        if len(self.lines) >= MOST_MESSAGE_LINES or FRAME_CLUE in text or TRACEBACK_CLUE in text:
            return False
        if not text.strip():
            return any(words in self.lines[0] for words in memory_refusals.GAPPED)
        if self.complete is not None and self.complete.search(self.text):
            return False
        is_new = any(
            word in text for word in ("out of memory", *memory_refusals.WRAPPED, oom_message.RETRIED, oom_message.ASYNC)
        )
        return not is_new and self.continued.search(text) is not None


@dataclass
class _Found:
    """Rows that were not given away yet."""

    events: list[dict[str, Any]] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    retries: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)


class OomScanner:
    """Failures to allocate, and refusals for want of memory."""

    kind = KIND
    clues = (
        "out of memory",
        "Out of memory",
        "cudaErrorMemoryAllocation",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "Requested amount of GPU memory",
        "ried to allocate",
        oom_message.ASYNC,
        oom_message.RETRIED,
        FRAME_CLUE,
        *NOTEBOOK_CLUES,
        "TensorRT-LLM version",
        "Loaded engine size",
        TRACEBACK_CLUE,
        memory_refusals.SLICE_CLUE,
        *memory_refusals.CLUES,
        *ended_processes.CLUES,
        *_LAUNCHERS,
        *(mark for _, marks in _PHASE_MARKS for mark in marks),
    )

    def __init__(self) -> None:
        self._trail = FrameTrail()
        self._below: FramesBelow | None = None
        self._open: _Open | None = None
        self._found = _Found()
        self._phase: str | None = None
        self._is_serving = False
        self._engine: str | None = None
        self._event_count = 0
        self._slice_line: int | None = None
        self._has_any = False
        self._is_windows = False
        self._has_ended = False

    @property
    def is_open(self) -> bool:
        """True while a message may go on, frames may follow it, or a frame's source line is due."""
        return self._open is not None or self._below is not None or self._trail.is_open

    def line(self, number: int, text: str) -> None:
        """Look at one line; a log of JSON lines has a whole traceback in one."""
        if "\\n" in text and any(word in text for word in _WITHIN_JSON):
            for part in text.replace('\\"', '"').split("\\n")[:MOST_JSON_PARTS]:
                self._line(number, part)
        else:
            self._line(number, text)

    def _line(self, number: int, text: str) -> None:
        if self._open is not None:
            if self._open.takes(text):
                self._open.lines.append(text)
                return
            self._close()
        self._look_below(number, text)
        self._note_engine(text)
        self._note_end(number, text)
        self._is_windows = self._is_windows or _WINDOWS.search(text) is not None
        if self._slice_line is None and memory_refusals.names_slice(text):
            self._slice_line = number
        if self._trail.take(number, text) and not _is_message(text):
            return
        self._note_phase(text)
        is_refusal = any(clue in text for clue in memory_refusals.CLUES)
        if not is_refusal and not _is_message(text):
            self._trail.end(text)
        if _is_message(text):
            self._open = _Open(number, [text], oom_message.CONTINUED, oom_message.COMPLETE)
        elif is_refusal:
            is_long = any(clue in text for clue in memory_refusals.WRAPPED)
            self._open = _Open(number, [text], memory_refusals.CONTINUED, None if is_long else re.compile(""))

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far; the last failure is kept back, since the next lines may say more of it."""
        last = self._found.events.pop() if self._found.events and not self._has_ended else None
        tables = (
            ("oom_event", self._found.events),
            ("oom_process", self._found.processes),
            ("memory_refusal", self._found.refusals),
            ("allocation_retry", self._found.retries),
        )
        for table, rows in tables:
            if rows:
                yield batch_of(table, rows, KIND)
        if self._has_ended and self._has_any:  # lines on processes are told beside a failure only
            windows = [{"operating_system": "windows"}] if self._is_windows else []
            beside = (
                ("host_process", self._found.ended),
                ("engine_event", self._found.restarts),
                ("host_sample", windows),
            )
            for table, rows in beside:
                if rows:
                    yield batch_of(table, rows, KIND)
        self._found = _Found([] if last is None else [last], ended=self._found.ended, restarts=self._found.restarts)

    def facts(self) -> SourceFacts | None:
        """Facts of the source, once the text has ended; None where nothing failed."""
        if self._open is not None:
            self._close()
        self._place_below()
        if self._has_any and self._slice_line is not None and not self._has_ended:
            self._found.refusals.append({"line_id": self._slice_line, "refusal": "mig_named"})
        self._has_ended = True
        return SourceFacts(kind=KIND, tool=self._engine, is_complete=True) if self._has_any else None

    def _note_end(self, number: int, text: str) -> None:
        """Processes of the run that went down, and starts again: of a crash loop the first hundred tell all."""
        if not any(clue in text for clue in ended_processes.CLUES):
            return
        pid = ended_processes.ended_pid(text)
        if pid is not None and len(self._found.ended) < MOST_ENDED:
            self._found.ended.append({"pid": pid, "process_state": "X"})
        if not self._found.restarts and not self._has_any and ended_processes.is_restart(text):
            self._found.restarts.append({"line_id": number, "event": "restarted"})

    def _note_phase(self, text: str) -> None:
        for phase, marks in _PHASE_MARKS:
            if any(mark in text for mark in marks):
                self._is_serving = phase == "serving" or (self._is_serving and phase == "")
                self._phase = phase if phase in {"load", "capture"} else None
                return

    def _note_engine(self, text: str) -> None:
        if self._engine is None:
            self._engine = next((name for name, pattern in _ENGINES if pattern.search(text[:2000])), None)

    def _close(self) -> None:
        message, self._open = self._open, None
        if message is None:
            return
        text = message.text
        said = {"line_id": message.number, **_speaker(text)}
        if (figures := oom_message.retry(text)) is not None:
            self._found.retries.append({**said, "framework": self._engine, **figures})
            self._has_any = True
        elif (refusal := memory_refusals.parse(text) or memory_refusals.parse(message.cut_text)) is not None:
            place = self._trail.place(message.number)
            framework = place.framework or self._engine
            self._found.refusals.append({**said, "framework": framework, **refusal})
            self._has_any = True
        elif (warm_up := _WARM_UP.search(text)) is not None:
            self._add_warm_up(said, warm_up[1])
        elif (parsed := _fuller(oom_message.parse(text), message)) is not None:
            self._add_event(said, text, parsed)

    def _look_below(self, number: int, text: str) -> None:
        """Frames below a message are its own, unless the next message ends them."""
        if self._below is None:
            return
        if _is_message(text):
            self._below = None
            return
        self._below.take(number, text)
        if not self._below.is_open:
            self._place_below()

    def _place_below(self) -> None:
        place = self._below.place() if self._below is not None else None
        self._below = None
        if place is not None and place.stack is not None and self._found.events:
            told = {
                "framework": place.framework,
                "phase": place.phase,
                "hot_spot": place.hot_spot,
                "stack": place.stack,
            }
            self._found.events[-1].update({name: value for name, value in told.items() if value is not None})

    def _add_event(self, said: dict[str, Any], text: str, parsed: oom_message.OomMessage) -> None:
        place = self._trail.place(said["line_id"])
        phase = place.phase or _phase_of(text) or self._phase
        self._found.events.append(
            {
                **said,
                "oom_event_id": self._event_count,
                "framework": place.framework or self._engine,
                "device_id": parsed.device_id,
                "text_form": parsed.text_form,
                "phase": phase,
                "hot_spot": place.hot_spot,
                "is_serving": self._is_serving,
                "stack": place.stack,
                **parsed.figures,
            }
        )
        self._found.processes += [
            {"oom_event_id": self._event_count, "pid": pid, "memory_bytes": size} for pid, size in parsed.processes
        ]
        self._event_count += 1
        self._has_any = True
        self._below = FramesBelow() if place.stack is None else None

    def _add_warm_up(self, said: dict[str, Any], what: str) -> None:
        """The engine wraps the allocator's own message, which came before, in one that says what was tried."""
        if not self._found.events:
            self._add_event(said, "", oom_message.OomMessage("driver", None, {}, ()))
        self._found.events[-1]["phase"] = "sampler"
        if what == "sampler":
            self._found.events[-1]["hot_spot"] = "logits"


def _fuller(parsed: oom_message.OomMessage | None, message: _Open) -> oom_message.OomMessage | None:
    """The reading that has more figures: lines put together at spaces, or within words."""
    if parsed is None or len(message.lines) == 1:
        return parsed
    other = oom_message.parse(message.cut_text)
    return other if other is not None and len(other.figures) > len(parsed.figures) else parsed


def _phase_of(text: str) -> str | None:
    """What the message itself says of the moment."""
    if _CAPTURE_FAILED.search(text):
        return "capture"
    return "profile" if _WARMING.search(text) else None


def _is_message(text: str) -> bool:
    """Words of a failure; `out of memory` of the kernel log is a process killed, not a device."""
    if "Out of memory: Kill" in text or "oom-kill" in text:
        return False
    is_failure = "out of memory" in text or "Out of memory" in text or "ried to allocate" in text
    is_wrapped = "out of memory. Try to lower your batch size" in text
    is_driver = any(word in text for word in OomScanner.clues[2:5])
    return (is_failure and not is_wrapped) or is_driver or oom_message.ASYNC in text or oom_message.RETRIED in text


def _speaker(text: str) -> dict[str, int]:
    head = text[:200]
    pid, rank = _PID.search(head), _RANK.search(head)
    said: dict[str, int] = {}
    if pid is not None:
        said["pid"] = int(pid[2])
    if rank is not None:
        said["rank"] = int(rank[1])
    return said
