"""What the recorded program is, as the view `program` tells it."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb


@dataclass(frozen=True)
class ProgramRow:
    """The view's one row.

    Attributes:
        kind: training, generation, encoder, vision or unknown.
        backward_share: backward passes and optimizer, of the device's time in kernels.
        convolution_share: convolutions, likewise.
        attention_count: attention kernels, or softmax kernels where there are none.
        cache_count: tensors that are joined or copied into a place, as a KV cache takes them.
        training_name: operator, frame or range that names a backward pass or an optimizer.
        generation_name: range, frame or kernel that names a decode step or the engine that runs it.
    """

    kind: str
    backward_share: float
    convolution_share: float
    attention_count: int
    cache_count: int
    training_name: str | None
    generation_name: str | None


def program(connection: duckdb.DuckDBPyConnection) -> ProgramRow | None:
    """The row of a derived case; None where there is no time-line."""
    rows = connection.execute(_PROGRAM).fetchall()
    return ProgramRow(*rows[0]) if rows else None


_PROGRAM = """
SELECT kind, backward_share, convolution_share, attention_count, cache_count, training_name, generation_name
FROM program
"""
