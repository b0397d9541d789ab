"""A full inference engine that one can read in an afternoon: `LLM` runs requests, `SamplingParams` says how."""

from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from engine.llm import LLM

__all__ = ["LLM", "EngineConfig", "SamplingParams"]


def __getattr__(name: str) -> object:
    """Import `LLM` when it is asked for: it brings torch, which the scheduler and its simulation do without."""
    if name == "LLM":
        from engine.llm import LLM  # noqa: PLC0415  see above

        return LLM
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
