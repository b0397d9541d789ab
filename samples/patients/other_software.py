"""Programs of other people: transformers' `generate` and `generate_batch`, compiled models, an encoder."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import transformers

from samples.patients.engine_runs import LAUNCH_GROUP, checkpoint
from samples.patients.patient import Build, Job, Patient, Recorder, Workshop


class CallableJob:
    """A function that does the work, and a shorter one for recordings."""

    def __init__(self, work: Callable[[], object], recorded: Callable[[], object] | None = None) -> None:
        self._work, self._recorded = work, recorded or work
        for _ in range(2):
            self.run()

    def run(self) -> None:
        """Work, and wait."""
        self._work()
        torch.cuda.synchronize() if torch.cuda.is_available() else None

    def record(self, recorder: Recorder) -> None:
        """Record all of it."""
        self._recorded()
        with recorder.around():
            self._recorded()
            torch.cuda.synchronize() if torch.cuda.is_available() else None

    def facts(self) -> dict[str, object]:
        """Nothing is counted."""
        return {}


class WatchedJob(CallableJob):
    """Work that a profiler watches whenever it is run."""

    def __init__(self, work: Callable[[], object], recorded: Callable[[], object], options: Mapping[str, bool]) -> None:
        self._options = options
        self._watched_s: list[float] = []
        super().__init__(work, recorded)

    def run(self) -> None:
        """Work under the profiler, and wait; what it recorded is dropped."""
        with torch.profiler.profile(**self._options):
            started_s = time.perf_counter()
            super().run()
            self._watched_s.append(time.perf_counter() - started_s)

    def facts(self) -> dict[str, object]:
        """What the work took, without starting and stopping the profiler."""
        return {"watched_s": statistics.median(self._watched_s)}


def _causal(workshop: Workshop, **options: Any) -> Any:
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint(workshop, "dense"), dtype=torch.bfloat16, **options
    )
    return model.to(workshop.device).eval()


def _ids(workshop: Workshop, batch: int, length: int) -> Any:
    torch.manual_seed(0)
    return torch.randint(3, 400, (batch, length), device=workshop.device)


def _generate(model: Any, ids: Any, tokens: int, **options: Any) -> object:
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, eos_token_id=None,
        pad_token_id=0, **options,
    )  # fmt: skip


def transformers_generate(batch: int, **options: Any) -> Build:
    """`generate` with its default, growing cache."""

    def build(workshop: Workshop) -> Job:
        model, ids = _causal(workshop), _ids(workshop, batch, 128)
        return CallableJob(lambda: _generate(model, ids, 32, **options), lambda: _generate(model, ids, 8, **options))

    return build


def transformers_generate_batch() -> Build:
    """Continuous batching of transformers."""

    def build(workshop: Workshop) -> Job:
        model = _causal(workshop, attn_implementation="sdpa")
        prompts = _ids(workshop, 16, 64).tolist()

        def work(tokens: int) -> object:
            config = transformers.GenerationConfig(
                max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            )
            return model.generate_batch(prompts, generation_config=config, progress_bar=False)

        return CallableJob(lambda: work(24), lambda: work(6))

    return build


def _encoder(workshop: Workshop, **sizes: Any) -> Any:
    small: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 2,
        "intermediate_size": 256,
    }
    config = transformers.BertConfig(**(small if workshop.is_small else sizes))
    return transformers.BertModel(config).to(workshop.device, torch.bfloat16).eval()


def watched_encoder(options: Mapping[str, bool]) -> Build:
    """An encoder of BERT's size on batches that keep the device busy, watched by the PyTorch profiler."""

    def build(workshop: Workshop) -> Job:
        model, ids = _encoder(workshop), _ids(workshop, 320, 128)

        def work(rounds: int) -> None:
            for _ in range(rounds):
                model(ids)

        whole, recorded = functools.partial(work, 8), functools.partial(work, 3)
        return WatchedJob(whole, recorded, options) if options else CallableJob(whole, recorded)

    return build


class Block(torch.nn.Module):
    """One layer of an encoder, as wide as BERT's, whose attention has no mask and is fused."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x_BTD: Any) -> Any:
        """Attention and the two products behind it; shape (B, T, D) in and out."""
        batch, length, width = x_BTD.shape
        qkv = self.qkv(self.norms[0](x_BTD)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x_BTD.shape)
        x_BTD = x_BTD + self.out(mixed)
        return x_BTD + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x_BTD))))


def encoder(batch: int, requests: int) -> Build:
    """An encoder of BERT's size over `requests` texts of 128 tokens, `batch` at a time."""

    def build(workshop: Workshop) -> Job:
        model, ids = _encoder(workshop), _ids(workshop, batch, 128)

        def work(rounds: int) -> None:
            for _ in range(rounds):
                model(ids)

        return CallableJob(lambda: work(requests // batch), lambda: work(min(12, requests // batch)))

    return build


def encoder_in_threads(threads: int, requests: int) -> Build:
    """An encoder of BERT's size, three texts at a time: from three threads of one process, or as a batch from one."""

    def build(workshop: Workshop) -> Job:
        model, ids = _encoder(workshop), _ids(workshop, 3 // threads, 128)
        pool = ThreadPoolExecutor(threads)

        def asked(rounds: int) -> None:
            with torch.inference_mode():  # each thread has a mode of its own
                for _ in range(rounds):
                    model(ids).pooler_output.cpu()

        def work(rounds: int) -> None:
            for asking in [pool.submit(asked, rounds) for _ in range(threads)]:
                asking.result()

        return CallableJob(lambda: work(requests // 3), lambda: work(6))

    return build


def compiled(changes_shape: bool) -> Build:
    """Norm and feed-forward of a layer; where shapes change it is compiled anew for each, unless `dynamic=True`."""

    def build(workshop: Workshop) -> Job:
        torch.compiler.reset()
        torch._dynamo.config.recompile_limit = 64  # beyond it, torch would run the model uncompiled
        width = 128 if workshop.is_small else 1024
        layer = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        ).to(workshop.device, torch.bfloat16)
        model = torch.compile(layer.eval(), dynamic=not changes_shape)
        lengths = iter(range(32, 512, 4))

        def work(shapes: int) -> None:
            for _ in range(shapes):
                model(torch.randn(8, next(lengths), width, device=workshop.device, dtype=torch.bfloat16))

        return CallableJob(lambda: work(1), lambda: work(5))

    return build


def compiled_bert() -> Build:
    """BERT, compiled, on a large batch of one shape."""

    def build(workshop: Workshop) -> Job:
        torch.compiler.reset()
        model, ids = torch.compile(_encoder(workshop)), _ids(workshop, 256, 256)

        def work() -> None:
            for _ in range(6):
                model(ids)

        return CallableJob(work)

    return build


def compiled_blocks() -> Build:
    """Twelve compiled `Block`s on a large batch of one shape."""

    def build(workshop: Workshop) -> Job:
        torch.compiler.reset()
        width, heads, layers = (128, 2, 2) if workshop.is_small else (768, 12, 12)
        blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        model = torch.compile(blocks.to(workshop.device, torch.bfloat16).eval())
        texts = torch.randn(256, 256, width, device=workshop.device, dtype=torch.bfloat16)

        def work() -> None:
            for _ in range(6):
                model(texts)

        return CallableJob(work)

    return build


EVERYTHING = {"with_stack": True, "record_shapes": True, "profile_memory": True}

PATIENTS = (
    Patient(
        "transformers-generate",
        "`generate` of transformers, 8 sequences, its default cache",
        sick=transformers_generate(8),
        cured=None,
        first="host-dispatch-bound",
        allowed=(*LAUNCH_GROUP, "lazy-module-load", "sync-in-step", "kv-unpaged-contiguous", "step-gap-scheduler"),
    ),
    Patient(
        "transformers-generate-batch",
        "`generate_batch` of transformers, 16 requests",
        sick=transformers_generate_batch(),
        cured=None,
        first="lazy-module-load",  # cuDNN plans attention anew in each step: corrected after the first diagnosis
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "sync-in-step", "step-gap-scheduler", "kv-unpaged-contiguous"),
    ),
    Patient(
        "encoder-one-text-at-a-time",
        "an encoder over single texts; the cure takes 64 at once",
        sick=encoder(1, 192),
        cured=encoder(64, 192),
        first="host-dispatch-bound",
        allowed=LAUNCH_GROUP,
    ),
    Patient(
        "encoder-in-three-threads",
        "three threads of one process ask an encoder, each with one text at a time; the cure is one thread with three",
        sick=encoder_in_threads(3, 144),
        cured=encoder_in_threads(1, 144),
        first="host-dispatch-bound",
        allowed=(*LAUNCH_GROUP, "sync-in-step"),
    ),
    Patient(
        "compiled-for-every-shape",
        "a compiled layer that meets a new shape in every call",
        sick=compiled(changes_shape=True),
        cured=compiled(changes_shape=False),
        first="recompile-storm",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "lazy-module-load", "step-gap-scheduler"),
    ),
    Patient(
        "compiled-bert",
        "BERT, compiled: its attention has a mask, and is computed unfused and in fp32, in a model of bf16",
        sick=compiled_bert(),
        cured=None,
        first="attention-not-fused",
        allowed=("wrong-dtype-fp32", "tf32-off"),
    ),
    Patient(
        "healthy-compiled-encoder",
        "a compiled encoder on batches of 256 texts",
        sick=compiled_blocks(),
        cured=None,
        first=None,
    ),
    Patient(
        "encoder-recorded-with-stacks",
        "a busy encoder under a profiler that keeps Python stacks, shapes and memory: only the recording is slow",
        sick=watched_encoder(EVERYTHING),
        cured=watched_encoder({}),
        first="profiler-distorted",
        compound=True,  # a cure of the recording, not of the run
        torch_profiler=EVERYTHING,
    ),
)
