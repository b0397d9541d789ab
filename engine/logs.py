r"""The log of the engine: one format, made to be read by programs as well.

A line is `TIME LEVEL LOGGER event=NAME key=value ...`: TIME in UTC with milliseconds, values without spaces or in
double quotes. Once a second while requests run there is a line `event=status` with

    running, waiting          requests
    kv_usage                  share of the KV blocks that are in use, 0 to 1
    prefix_hit_rate           share of prompt tokens found in the prefix cache since the last line, 0 to 1
    prompt_tokens_per_s       prompt tokens computed, and
    output_tokens_per_s       tokens generated, since the last line
    preemptions               requests that lost their blocks since the last line
    graph_share               share of the forward passes that replayed a CUDA graph since the last line, 0 to 1
    drafted, accepted         tokens of speculation since the last line
"""

from __future__ import annotations

import logging
import time


def log_to_stderr(level: int = logging.INFO) -> None:
    """Write the log of the engine to standard error, in its format."""
    handler = logging.StreamHandler()
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("engine")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
