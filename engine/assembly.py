"""Builds an engine from its configuration: the one place that knows every part."""

from __future__ import annotations

import atexit
import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoTokenizer, GenerationConfig

from engine.attention.registry import create_backend
from engine.core import EngineCore, Footprint, Vocabulary
from engine.errors import ConfigError
from engine.execution.counters import Counters
from engine.execution.cuda_graphs import DecodeGraphs, GraphSizes
from engine.execution.draft_model import DraftModelProposer
from engine.execution.forward import EagerPass, ForwardPass, ModelOnDevice
from engine.execution.graph_recorder import CudaGraphRecorder
from engine.execution.host_blocks import HostBlocks
from engine.execution.kv_sizing import num_kv_blocks
from engine.execution.loop import EngineLoop, LoopOptions
from engine.execution.mixed_graphs import MixedGraphs, MixedSizes
from engine.execution.part_counts import PartCounts
from engine.execution.proposals import NgramProposer, Proposer
from engine.execution.runner import Runner, RunnerOptions, give_back_cached_memory
from engine.execution.staging import HostStaging, PageableStaging, PinnedStaging, Staging
from engine.execution.token_choice import TokenChoice
from engine.execution.warm_up import warm_up
from engine.model.checkpoint import read_config
from engine.model.kv.concat import ConcatKv
from engine.model.kv.paged import FP8, KvGeometry, PagedKv
from engine.model.moe import LoopedExperts, MixtureOfExperts
from engine.model.operators import REFERENCE, OneTokenOperators, Operators
from engine.model.weight_format import WeightFormat
from engine.model.weights import LoadOptions, load_decoder
from engine.scheduling.admission import AdmissionRule, FullLength, PresentlyFree, ProjectedPeak
from engine.scheduling.batching import BatchingPolicy, ContinuousBatch, DynamicWindow, SingleRequest, StaticBatch
from engine.scheduling.deadline_queue import DeadlineQueue
from engine.scheduling.length_history import LengthHistory
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.scheduler_config import Preemption, SchedulerConfig
from engine.scheduling.waiting_queue import ArrivalQueue, WaitingQueue

if TYPE_CHECKING:
    from torch import Tensor

    from engine.config import EngineConfig
    from engine.model.decoder import Decoder

Kv = PagedKv | ConcatKv
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# At the end of the process the last search for garbage has to see everything, or libraries report leaks.
atexit.register(gc.unfreeze)


def build_core(config: EngineConfig) -> EngineCore:
    """Load the model, reserve the KV cache and put the parts together.

    Raises:
        ConfigError: options do not fit the model or the machine.
        CheckpointError: the checkpoint cannot be used.
    """
    # An engine that was dropped may be held by a cycle: its memory has to be free before the next one looks for some.
    gc.unfreeze()
    gc.collect()
    core = _Assembly(config).core()
    # What was built stays: a step makes many small objects, and no search for garbage has to look at the rest again.
    gc.collect()
    gc.freeze()
    return core


class _Assembly:
    """One build: what several parts need is made once."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._folder = Path(config.model)
        self._device = _device(config.device)
        self._counters = Counters()
        self._parts = PartCounts(self._counters)
        self._draft_bytes = 0
        self._graph_bytes = 0
        self._is_cuda = self._device.type == "cuda"
        self._staging = self._make_staging()
        self._decoder = self._load(self._folder)
        self._max_len = self._max_model_len()
        self._last_tokens = self._make_last_tokens()

    def core(self) -> EngineCore:
        """Put the parts together; the KV cache comes last, since it takes what memory is left."""
        config = self._config
        proposer = self._proposer()
        kv = self._make_kv()
        self._watch_parts(kv)
        model = self._model(self._decoder, kv)
        choice = TokenChoice(config.max_num_seqs, model.vocab_size, self._device, self._staging)
        num_drafts = 0 if proposer is None else config.num_draft_tokens
        forward = self._forward(model, self._last_tokens, tuple({1, 1 + num_drafts}), self._max_len)
        options, host_blocks = self._runner_options(), self._host_blocks(kv)
        runner = Runner(forward, choice, self._last_tokens, host_blocks, options, self._counters)
        loop = EngineLoop(self._scheduler(kv), runner, proposer, self._loop_options(), self._counters)
        vocabulary = read_vocabulary(self._folder, model.vocab_size)
        return EngineCore(loop, vocabulary, self._footprint(kv), config.seed)

    def _footprint(self, kv: Kv) -> Footprint:
        reserved = kv.num_bytes if isinstance(kv, PagedKv) else 0
        weight_bytes = self._decoder.weight_bytes
        return Footprint(
            weight_bytes=weight_bytes,
            draft_bytes=self._draft_bytes,
            graph_bytes=self._graph_bytes,
            kv_reserved_bytes=reserved,
            kv_bytes_per_token=kv.geometry.bytes_per_token(kv.dtype),
            kv_block_size=kv.block_size,
        )

    def _watch_parts(self, kv: Kv) -> None:
        """Carry the counts of the parts that have some over into the counters."""
        if isinstance(kv, ConcatKv):
            self._parts.watch("kv_bytes_copied", lambda: kv.bytes_copied)
        stream = self._decoder.weight_stream
        if stream is not None:
            self._parts.watch("pinned_copies" if stream.is_pinned else "pageable_copies", lambda: stream.num_copies)
        modules = list(self._decoder.modules())
        loops = [module for module in modules if isinstance(module, LoopedExperts)]
        gates = [module for module in modules if isinstance(module, MixtureOfExperts)]
        if loops:
            self._parts.watch("expert_visits", lambda: sum(loop.num_visits for loop in loops))
        if gates:
            self._parts.watch("gating_rounds", lambda: sum(gate.num_gate_rounds for gate in gates))

    @property
    def _overlaps(self) -> bool:
        """By default a GPU works while the host schedules; a CPU has nobody to work beside it."""
        if self._config.speculate is not None:
            return False
        return self._is_cuda if self._config.overlap is None else self._config.overlap

    def _load(self, folder: Path, extra_positions: int = 0) -> Decoder:
        positions = None if self._config.max_model_len is None else self._config.max_model_len + extra_positions
        config = self._config
        options = LoadOptions(
            device=self._device,
            dtype=_DTYPES.get(config.dtype),
            max_positions=positions,
            operators=_fused_operators() if self._attention == "triton_paged" else REFERENCE,
            weight_format=WeightFormat(config.quantization),
            offloaded_share=config.weight_offload,
            is_prefetching=config.weight_copies == "prefetch",
            has_grouped_experts=config.moe_routing == "grouped",
            has_fused_gate=config.moe_gating == "fused",
        )
        return load_decoder(folder, options)

    @property
    def _attention(self) -> str:
        if self._config.attention != "auto":
            return self._config.attention
        return "triton_paged" if self._is_cuda and self._config.kv != "concat" else "torch_ref"

    def _max_model_len(self) -> int:
        limit = self._decoder.geometry.max_position
        wanted = self._config.max_model_len or limit
        if wanted > limit:
            raise ConfigError(f"max_model_len {wanted} is beyond the {limit} positions of the model")
        return wanted

    def _make_staging(self) -> Staging:
        if not self._is_cuda:
            return HostStaging()
        kind = PinnedStaging if self._config.staging == "pinned" else PageableStaging
        return kind(self._device, self._counters)

    def _make_last_tokens(self) -> Tensor:
        return torch.zeros(self._config.max_num_seqs + 1, dtype=torch.int64, device=self._device)

    def _model(self, decoder: Decoder, kv: Kv) -> ModelOnDevice:
        backend = create_backend(self._attention, decoder.attention_spec)
        return ModelOnDevice(decoder, backend, kv, self._device, decoder.geometry.vocab_size)

    def _kv_geometry(self, decoder: Decoder) -> KvGeometry:
        return KvGeometry(decoder.layer_range, decoder.num_kv_heads, decoder.geometry.head_dim, decoder.dtype)

    def _make_kv(self) -> Kv:
        geometry = self._kv_geometry(self._decoder)
        if self._config.kv == "concat":
            return ConcatKv(geometry, self._config.max_num_seqs, self._max_len)
        dtype = FP8 if self._config.kv_dtype == "fp8" else geometry.dtype
        block_size = self._config.block_size if self._config.kv == "paged" else self._max_len
        block_bytes = block_size * geometry.bytes_per_token(dtype)
        num_blocks = num_kv_blocks(self._config, self._max_len, block_size, block_bytes, self._device)
        kv = PagedKv(geometry, num_blocks, block_size, dtype, self._device)
        if dtype == FP8:
            for layer, (k_scale, v_scale) in self._decoder.kv_scales.items():
                kv.set_scales(layer, k_scale, v_scale)
        return kv

    def _forward(
        self, model: ModelOnDevice, last_tokens: Tensor, tokens_per_request: tuple[int, ...], max_len: int
    ) -> ForwardPass:
        eager = EagerPass(model, last_tokens, self._staging)
        if self._config.layer_boundary == "synchronize":
            eager.synchronize_layers(self._counters)
        if not self._is_cuda:
            return eager
        capacity = model.kv.num_blocks * model.kv.block_size
        warm_up(eager, model.kv.block_size, min(self._config.max_num_batched_tokens, max_len, capacity))
        if not self._records_graphs or not isinstance(self._staging, PinnedStaging):
            return eager
        sizes = GraphSizes(self._config.max_num_seqs, max_len, model.kv.block_size, tokens_per_request)
        free_bytes = self._free_bytes()
        graphs = self._record(eager, self._staging, sizes)
        self._graph_bytes += max(0, free_bytes - self._free_bytes())
        return graphs

    def _free_bytes(self) -> int:
        """Memory that nobody on the device has; what torch keeps for reuse is given back first."""
        give_back_cached_memory()
        return torch.cuda.mem_get_info(self._device)[0]

    def _record(self, eager: EagerPass, staging: PinnedStaging, sizes: GraphSizes) -> ForwardPass:
        """Graphs of steps with prompts, where they are wanted, and of decode; the large ones first."""
        recorder = CudaGraphRecorder(self._device)
        others: ForwardPass = eager
        if self._config.mixed_graph_tokens > 0:
            num_tokens, num_rows = self._config.mixed_graph_tokens, max(sizes.tokens_per_request)
            mixed_sizes = MixedSizes(num_tokens, sizes.max_requests, sizes.max_len, sizes.block_size, num_rows)
            others = mixed = MixedGraphs(eager, staging, mixed_sizes, self._counters)
            mixed.record(recorder)
        decode = DecodeGraphs(eager, others, staging, sizes, self._counters)
        decode.record(recorder)
        return decode

    @property
    def _records_graphs(self) -> bool:
        wanted = self._config.cuda_graphs
        return self._is_cuda and self._config.can_record_graphs and (wanted is None or wanted)

    def _host_blocks(self, kv: Kv) -> HostBlocks | None:
        if self._config.host_blocks == 0 or not isinstance(kv, PagedKv):
            return None
        return HostBlocks(kv, self._config.host_blocks, self._config.kv_copies == "pinned", self._counters)

    def _runner_options(self) -> RunnerOptions:
        return RunnerOptions(
            micro_batch_size=self._config.micro_batch_size,
            keeps_last_tokens=self._overlaps,
            waits_for_device=self._config.step_wait == "device",
            after_step=self._after_step,
        )

    def _after_step(self) -> None:
        self._parts.collect()
        if self._config.after_step == "empty-cache":
            self._counters.cache_flushes += 1
            give_back_cached_memory()

    def _loop_options(self) -> LoopOptions:
        return LoopOptions(
            overlaps=self._overlaps,
            audits=self._config.bookkeeping == "audit",
            num_draft_tokens=self._config.num_draft_tokens,
            clock=time.monotonic,
        )

    def _scheduler(self, kv: Kv) -> Scheduler:
        config = self._config
        sizes = SchedulerConfig(
            num_blocks=kv.num_blocks,
            block_size=kv.block_size,
            max_len=self._max_len,
            max_running=config.max_num_seqs,
            max_step_tokens=config.max_num_batched_tokens,
            num_host_blocks=config.host_blocks,
            max_cold_copies=config.cold_copies,
            preemption=Preemption(config.preemption),
            prefix_caching=config.prefix_caching and config.kv == "paged",
            prefix_namespace=str(kv.dtype),
            max_draft_tokens=0 if config.speculate is None else config.num_draft_tokens,
            max_failures=config.step_retries + 1,
        )
        return Scheduler(sizes, self._batching(), self._admission(), self._queue())

    def _batching(self) -> BatchingPolicy:
        config = self._config
        if config.batching == "single":
            return SingleRequest()
        if config.batching == "static":
            return StaticBatch(config.max_num_seqs)
        if config.batching == "dynamic":
            return DynamicWindow(config.max_num_seqs, config.batch_window_s)
        return ContinuousBatch(config.max_num_batched_tokens)

    def _admission(self) -> AdmissionRule:
        if self._config.admission == "free-blocks":
            return PresentlyFree()
        if self._config.admission == "full-length":
            return FullLength()
        return ProjectedPeak(lengths=LengthHistory())

    def _queue(self) -> WaitingQueue:
        return DeadlineQueue() if self._config.policy == "deadline" else ArrivalQueue()

    def _proposer(self) -> Proposer | None:
        speculate = self._config.speculate
        if speculate is None:
            return None
        if speculate == "ngram":
            return NgramProposer(self._config.ngram_min)
        return self._draft_model(Path(speculate.removeprefix("draft:")))

    def _draft_model(self, folder: Path) -> Proposer:
        """A small model with one block a slot, long enough for the drafts behind the longest request."""
        decoder = self._load(folder, self._config.num_draft_tokens)
        if decoder.geometry.vocab_size != self._decoder.geometry.vocab_size:
            sizes = f"{decoder.geometry.vocab_size} and {self._decoder.geometry.vocab_size}"
            raise ConfigError(f"draft and target must have the same vocabulary; they have {sizes} tokens")
        geometry = self._kv_geometry(decoder)
        length = self._max_len + self._config.num_draft_tokens
        kv = PagedKv(geometry, self._config.max_num_seqs, length, geometry.dtype, self._device)
        self._draft_bytes = decoder.weight_bytes + kv.num_bytes
        last_tokens = self._make_last_tokens()
        forward = self._forward(self._model(decoder, kv), last_tokens, (1,), length)
        return DraftModelProposer(
            forward, last_tokens, self._staging, self._counters, self._config.max_num_batched_tokens
        )


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Tokens that end a text, and the tokenizer of a checkpoint if it has one."""
    try:
        eos = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    except OSError:
        eos = getattr(read_config(folder), "eos_token_id", None)
    eos_ids = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
    has_tokenizer = any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json"))
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True) if has_tokenizer else None
    return Vocabulary(size, eos_ids, tokenizer)


def _fused_operators() -> Operators:
    """Elementwise steps by Triton kernels."""
    from engine.kernels.rms_norm import add_rms_norm, rms_norm  # noqa: PLC0415  Triton need not be installed
    from engine.kernels.rotary import rotate  # noqa: PLC0415
    from engine.kernels.silu_mul import silu_mul  # noqa: PLC0415
    from engine.kernels.vector_linear import vector_gate_up, vector_linear  # noqa: PLC0415

    one_token = OneTokenOperators(linear=vector_linear, gate_up=vector_gate_up)
    return Operators(rms_norm, add_rms_norm, silu_mul, rotate, one_token=one_token)


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda is wanted, but torch sees no GPU here")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
