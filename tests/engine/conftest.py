"""Triton decides between compiler and interpreter when it is first imported, by whichever test that may be."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
