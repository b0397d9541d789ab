"""Every name that the engine writes into a trace."""

from enum import StrEnum


class Range(StrEnum):
    """Names of the ranges, as they stand in NVTX (domain `engine`) and in a torch profiler trace."""

    REQUEST = "request"
    STEP = "step"
    PREFILL = "prefill"
    DECODE = "decode"
    LAYER = "layer"
    ATTENTION = "attention"
    MLP = "mlp"
    MOE_ROUTING = "moe_routing"
    COLLECTIVE = "collective"
    SAMPLING = "sampling"
    SCHEDULING = "scheduling"
    DRAFT = "draft"
    VERIFY = "verify"
    GRAPH_REPLAY = "graph_replay"


DOMAIN = "engine"
