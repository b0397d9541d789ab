"""Inference Doctor: what is wrong with a slow or out-of-memory LLM inference run, and the setting that cures it."""

from __future__ import annotations

from doctor.version import __version__

__all__ = ["__version__"]
