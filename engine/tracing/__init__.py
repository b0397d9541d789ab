"""What the engine tells a profiler: one enum of names, and ranges that are free while nobody listens."""

from engine.tracing.nvtx import OpenRanges, is_listening, span
from engine.tracing.ranges import DOMAIN, Range

__all__ = ["DOMAIN", "OpenRanges", "Range", "is_listening", "span"]
