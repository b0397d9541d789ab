"""Names what was recorded, and says what tells it: advice is chosen by it, so that people must be able to object."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.case.program_queries import ProgramRow
from doctor.diagnosis.fix_order import GENERATORS
from doctor.diagnosis.outcome import Program
from doctor.rule import ProgramKind
from doctor.units import format_counted, format_share

MOST_LETTERS = 48
"""Of a name in a sentence."""
LEAST_SHARE_TOLD = 0.01


def described(row: ProgramRow | None, frameworks: Sequence[str]) -> Program | None:
    """The program and the signs that it was told by; None where there is no time-line.

    Args:
        row: what the work of the recording tells.
        frameworks: those that the evidence names, and the one that the user asked for: an engine writes text.
    """
    if row is None:
        return None
    kind = ProgramKind(row.kind)
    engine = next((name for name in frameworks if name in GENERATORS), None)
    if engine is not None and kind not in {ProgramKind.TRAINING, ProgramKind.GENERATION}:
        return Program(ProgramKind.GENERATION, f"{engine} is named")
    return Program(kind, ", ".join(_SIGNS[kind](row)))


def _of_training(row: ProgramRow) -> list[str]:
    convolutions = _of_convolutions(row)
    if row.backward_share < LEAST_SHARE_TOLD and row.training_name is not None:
        return [_short(row.training_name), *convolutions]
    also = f" and convolutions {format_share(row.convolution_share)}" if convolutions else ""
    share = format_share(row.backward_share)
    return [f"backward and optimizer kernels take {share}{also} of the device's time"]


def _of_generation(row: ProgramRow) -> list[str]:
    if row.generation_name is not None:
        return [_short(row.generation_name)]
    attention = format_counted(row.attention_count, "attention kernel")
    return [f"{attention}, {row.cache_count:,} writes as into a KV cache"]


def _of_encoder(row: ProgramRow) -> list[str]:
    return [f"{format_counted(row.attention_count, 'attention kernel')}, no sign of a KV cache"]


def _of_convolutions(row: ProgramRow) -> list[str]:
    if row.convolution_share < LEAST_SHARE_TOLD:
        return []
    return [f"convolutions take {format_share(row.convolution_share)} of the device's time"]


def _of_nothing(row: ProgramRow) -> list[str]:
    return []


def _short(name: str) -> str:
    return f"`{name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 3] + '...'}`"


_SIGNS = {
    ProgramKind.TRAINING: _of_training,
    ProgramKind.GENERATION: _of_generation,
    ProgramKind.ENCODER: _of_encoder,
    ProgramKind.VISION: _of_convolutions,
    ProgramKind.UNKNOWN: _of_nothing,
}
