"""How the big matrices of the layers are kept on the device."""

from enum import StrEnum


class WeightFormat(StrEnum):
    """Embedding, head, norms, routers and experts stay in model dtype in every format."""

    NATIVE = "none"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
