"""Tracebacks in a log: which frames led to a failure, and what the process was doing there.

Only names are kept (function, file without its folders, line); a source line gives a word at most.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_FRAMES = 64
SHOWN_FRAMES = 10
INNERMOST = 5
_MOST_GAP_LINES = 12
"""Lines between the last frame and the message: the source line, marks below it, a note."""

FRAME_CLUE = 'File "'
NOTEBOOK_CLUES = ("File /", "File ~", "-> ")
TRACEBACK_CLUE = "Traceback (most recent call last)"
_FRAME = re.compile(r'File "([^"]{1,400})", line (\d{1,9}), in (\S{1,120})')
_NOTEBOOK_FRAME = re.compile(r"File ([/~][^\s:]{1,400}):(\d{1,9}), in ([\w.<>]{1,120})")
_NOTEBOOK_CODE = re.compile(r"^\s{0,8}-{1,6}> {1,4}\d{1,9} {1,4}(\S.{0,200})")

ENDS_TRACEBACK = re.compile(
    r"(?:^|[\s\])>|])(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt)\b(?::|\s*$)"
)
"""The line that ends a traceback: the error itself."""
_MOST_CODE_GAP = 4
"""Lines of other processes between a frame and its source line."""
_DIGIT = re.compile(r"\d")

_LOG_PREFIX = re.compile(r"^.{0,120}?\[[\w./]{1,80}\.py:\d{1,6}\]\s")

_OF_TORCH = re.compile(r"(?:^|/)torch/(?!cuda/graphs)|(?:^|/)functools\.py$|(?:^|/)contextlib\.py$")
_PLUMBING = {"_call_impl", "_wrapped_call_impl", "decorate_context", "wrapper", "__torch_function__", "inner", "_fn"}

_FRAMEWORKS = (
    ("vllm", re.compile(r"(?:^|/)vllm(?:_\w+)?/")),
    ("sglang", re.compile(r"(?:^|/)sglang/")),
    ("tensorrt-llm", re.compile(r"(?:^|/)tensorrt_llm/")),
    ("lmdeploy", re.compile(r"(?:^|/)lmdeploy/")),
    ("tgi", re.compile(r"(?:^|/)text_generation_server/")),
    ("transformers", re.compile(r"(?:^|/)(?:transformers|accelerate)/")),
)

_CAPTURING = re.compile(
    r"^(?:_?capture\w*|_warmup_and_capture|_?record_graph|_run_cuda_graph_warmup|_warmup_cuda_graphs?|init_cuda_graphs?)$"
)
_LOADING = re.compile(
    r"^(?:load_model\w*|_?load_weights\w*|from_pretrained|_load_pretrained_model|_load_state_dict\w*|load_state_dict|"
    r"create_weights|process_weights_after_loading|caching_allocator_warmup|initialize_model|_initialize_model|"
    r"weight_loader|load_checkpoint\w*|convert_and_load\w*|init_inference|_create_weight\w*|_?get_model_params|dispatch_model|set_module_tensor_to_device|_materialize\w*)$"
)
_MOVING = re.compile(r"^(?:to|cuda|_apply|convert)$")
_POOLING = re.compile(
    r"^(?:_?allocate_kv_cache\w*|initialize_kv_cache\w*|init_memory_pool\w*|_?create_buffers|allocate_gpu_cache|"
    r"_init_pools|initialize_cache|init_kv_cache\w*|setup_kv_cache\w*|_?alloc_kv\w*|_?create_model_instance)$"
)
_PROFILING = re.compile(
    r"^(?:profile_run|determine_available_memory|determine_num_available_blocks|profile_num_available_blocks|"
    r"_profile_\w+|warmup|warm_up\w*|_warm_up\w*|kernel_warmup|configure_kv_cache_capacity|_autotuner_warmup)$"
)
_TRAINING = re.compile(r"^(?:backward|training_step|_inner_training_loop|optimizer_step|step_adam|adam\w*)$")
_SAMPLING = re.compile(
    r"^(?:compute_logits\w*|_?get_logits\w*|_gather_logits|log_softmax|compute_logprobs|gather_logprobs|_get_logprobs|"
    r"_?get_prompt_logprobs\w*|compute_topk_logprobs|compute_prompt_logprobs\w*|apply_top_k_top_p\w*|_apply_top_k_top_p\w*|"
    r"_dummy_sampler_run|_apply_min_\w+|top_p_renorm\w*|compute_log_?probs\w*|get_log_?probs\w*|selective_log_softmax|process_(?:input|prompt)_logprobs\w*|"
    r"sort|rank_logprobs|batched_count_greater_than)$"
)
_SAMPLING_FILE = re.compile(
    r"(?:^|/)(?:sampler|sampling_batch_info|logits_processor|logits_process|logprobs?|topk_topp_sampler|prompt_logprobs?)\.py$"
)
_SAMPLING_CODE = re.compile(
    r"logits\.float\(|logits\.to\(|log_softmax|log_?probs|lm_head\(|softmax\(logits|logits\.sort|logits\.clone|_sampler_run\(|\bself\.sampler\(|upcast|cross_entropy"
)
_GROWING_CODE = re.compile(r"torch\.cat\(|\.cat\(\[|torch\.concat")
_CACHE_WORD = re.compile(r"cache|past|key|value|\bkv", re.IGNORECASE)
_RESERVING = re.compile(r"^(?:early_initialization|lazy_initialization|_get_cache|_prepare_cache\w*|reset_cache)$")
_RESERVING_FILE = re.compile(r"(?:^|/)(?:cache_utils|kv_cache|cache_engine|memory_pool|cache)\.py$")
_ATTENTION = re.compile(r"attention|attn|sdpa|softmax|mla_|rotary|flash", re.IGNORECASE)
_FEED_FORWARD = re.compile(
    r"(?:^|[/_.])(?:mlp|moe|feed_forward|ffn|experts?|fused_moe\w*|activation|act_fn|silu_and_mul|linear|down_proj|"
    r"gate_up_proj)(?:$|[/_.(])",
    re.IGNORECASE,
)
_RUNNING = re.compile(r"^(?:execute_model|_model_forward|forward_batch_generation|run_batch|_forward_step|generate)$")
_MODEL_FILE = re.compile(
    r"(?:^|/)(?:model_executor/(?:layers|models)|srt/(?:layers|models)|_torch/(?:models|modules|attention_backend))/"
    r"|(?:^|/)(?:computation_graph|modeling_\w+)\.py$"
)
_PREFILL = re.compile(r"prefill|forward_extend|_extend$", re.IGNORECASE)
_DECODE = re.compile(r"forward_decode|decode_one|_decode$|decode_step", re.IGNORECASE)


@dataclass(frozen=True)
class Frame:
    """One frame; `code` is the source line, held only until the failure is judged."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def base(self) -> str:
        """File without its folders."""
        return self.file.replace("\\", "/").rpartition("/")[2]

    @property
    def is_plumbing(self) -> bool:
        """Frames that every call goes through."""
        is_torch = _OF_TORCH.search(self.file.replace("\\", "/")) is not None
        return self.function in _PLUMBING or (is_torch and _SAMPLING.match(self.function) is None)


@dataclass(frozen=True)
class Place:
    """What the frames of a failure say; see the columns of `oom_event`."""

    framework: str | None = None
    phase: str | None = None
    hot_spot: str | None = None
    stack: str | None = None


@dataclass
class FrameTrail:
    """The frames of the traceback that is being printed."""

    frames: deque[Frame] = field(default_factory=lambda: deque(maxlen=MOST_FRAMES))
    last_line: int = -(10**9)
    wants_code: bool = False
    wants_end: bool = False
    _prefix: str = ""

    @property
    def is_open(self) -> bool:
        """True while the source line of a frame or the end of the traceback is due."""
        return self.wants_code or self.wants_end

    def take(self, number: int, text: str) -> bool:
        """Look at one line; true where it was a frame, a head or the source line of a frame."""
        if TRACEBACK_CLUE in text:
            self.frames.clear()
            self.wants_code = self.wants_end = False
            return True
        at = text.find(FRAME_CLUE)
        found = _FRAME.match(text, at) if at >= 0 else _NOTEBOOK_FRAME.search(text)
        if found is not None:
            self.frames.append(Frame(found[1], int(found[2]), found[3].rpartition(".")[2] or found[3]))
            self.last_line, self.wants_code, self._prefix = number, at >= 0, _DIGIT.sub("0", text[: max(at, 0)])
            return True
        if self.frames and (shown := _NOTEBOOK_CODE.match(text)):
            last, self.last_line = self.frames[-1], number
            self.frames[-1] = Frame(last.file, last.line, last.function, shown[1])
            return True
        if not self.wants_code:
            return False
        if number - self.last_line > _MOST_CODE_GAP:
            self.wants_code = False
        elif (
            text[:1].isspace() or _DIGIT.sub("0", text[: len(self._prefix)]) == self._prefix
        ):  # not the line of another process between
            self.wants_code, self.wants_end = False, True
            last = self.frames[-1]
            self.frames[-1] = Frame(
                last.file, last.line, last.function, _LOG_PREFIX.sub("", text, count=1).strip()[:200]
            )
            return True
        return False

    def end(self, text: str) -> None:
        """Look at a line behind the frames that is no failure of memory: another error's frames are nobody's."""
        if self.wants_end and ENDS_TRACEBACK.search(text[:400]):
            self.frames.clear()
        self.wants_end = False

    def place(self, number: int) -> Place:
        """What the frames before a message say; nothing where the last traceback lies further back."""
        if not self.frames or number - self.last_line > _MOST_GAP_LINES:
            return Place()
        return judged(tuple(self.frames))


def judged(frames: tuple[Frame, ...]) -> Place:
    """Say what the process was doing.

    Args:
        frames: outermost first, at least one.
    """
    inner = [frame for frame in reversed(frames) if not frame.is_plumbing][:INNERMOST] or list(frames[-1:])
    hot_spot = _hot_spot(frames, inner)
    shown = [frame for frame in reversed(frames) if not frame.is_plumbing][:SHOWN_FRAMES] or list(frames[-1:])
    stack = " < ".join(f"{frame.function} ({frame.base}:{frame.line})" for frame in shown)
    return Place(framework_of(frame.file for frame in frames), _phase(frames, hot_spot), hot_spot, stack)


def framework_of(paths: Iterable[str]) -> str | None:
    """The engine whose files are among the paths; an engine before the library it is built on."""
    listed = [path.replace("\\", "/") for path in paths]
    return next((name for name, pattern in _FRAMEWORKS if any(map(pattern.search, listed))), None)


def _phase(frames: tuple[Frame, ...], hot_spot: str | None) -> str | None:
    functions = [frame.function for frame in frames]
    is_capture = any(map(_CAPTURING.match, functions))
    checks = (
        ("training", any(map(_TRAINING.match, functions))),
        ("capture", is_capture),
        ("load", any(map(_LOADING.match, functions)) or hot_spot == "weights"),
        ("kv_pool", any(map(_POOLING.match, functions))),
        ("sampler", hot_spot == "logits"),
        ("profile", any(map(_PROFILING.match, functions))),
        ("prefill", any(map(_PREFILL.search, functions))),
        ("decode", any(map(_DECODE.search, functions))),
        ("prefill", hot_spot in {"attention", "feed_forward"} or _is_in_model(frames)),
    )
    return next((phase for phase, is_seen in checks if is_seen), None)


def _is_in_model(frames: tuple[Frame, ...]) -> bool:
    """A step of an engine or of `generate` fails in the model's own code; a decode step makes next to nothing there."""
    inner = next((frame for frame in reversed(frames) if not frame.is_plumbing), frames[-1])
    is_model = _MODEL_FILE.search(inner.file.replace("\\", "/")) is not None
    return is_model and any(_RUNNING.match(frame.function) for frame in frames)


def _hot_spot(frames: tuple[Frame, ...], inner: list[Frame]) -> str | None:
    functions = [frame.function for frame in frames]
    is_reserve = any(map(_POOLING.match, functions)) or any(_is_reserve(frame) for frame in inner)
    is_load = any(map(_LOADING.match, functions)) or any(
        _MOVING.match(frame.function) for frame in (frames[-1], inner[0])
    )
    checks = (
        ("logits", any(_is_logits(frame) for frame in inner)),
        ("cache_growth", any(_is_growth(frame) for frame in inner)),
        ("cache_reserve", is_reserve),
        ("weights", is_load),
        ("attention", any(_names(frame, _ATTENTION) for frame in inner[:3])),
        ("feed_forward", any(_names(frame, _FEED_FORWARD) for frame in inner[:3])),
        ("graph", any(_CAPTURING.match(frame.function) for frame in inner)),
    )
    return next((spot for spot, is_seen in checks if is_seen), None)


def _is_logits(frame: Frame) -> bool:
    if frame.base == "utils.py" and frame.function in {"_sample", "sample", "generate"}:  # the loop around every step
        return False
    is_named = _SAMPLING.match(frame.function) or _SAMPLING_FILE.search(frame.file.replace("\\", "/"))
    return bool(is_named or _SAMPLING_CODE.search(frame.code))


def _is_growth(frame: Frame) -> bool:
    if _GROWING_CODE.search(frame.code) is None:
        return False
    return frame.base == "cache_utils.py" or _CACHE_WORD.search(frame.code) is not None


def _is_reserve(frame: Frame) -> bool:
    is_made = re.search(r"torch\.(?:zeros|empty|full)", frame.code) is not None
    is_cache = _RESERVING_FILE.search(frame.file.replace("\\", "/")) or _CACHE_WORD.search(frame.code)
    return _RESERVING.match(frame.function) is not None or bool(is_made and is_cache)


def _names(frame: Frame, word: re.Pattern[str]) -> bool:
    path = "/".join(frame.file.replace("\\", "/").split("/")[-2:])
    return bool(word.search(frame.function) or word.search(path) or word.search(frame.code))
