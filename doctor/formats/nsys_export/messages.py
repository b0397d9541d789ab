"""The recorder's own messages, in the words of the case file."""

from __future__ import annotations

import pyarrow as pa

from doctor.formats.nsys_export.codes import SEVERITIES
from doctor.formats.nsys_export.names import translate
from doctor.formats.recorder_words import recorder_message


def diagnostics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `diagnostic` out of DIAGNOSTIC_EVENT, in words that recorders are known to use."""
    messages = [None if text is None else recorder_message(text) for text in batch.column("text").to_pylist()]
    return pa.RecordBatch.from_pydict(
        {
            "time_ns": batch.column("timestamp"),
            "severity": translate(batch.column("severity"), SEVERITIES),
            "message": pa.array(messages, pa.string()),
        }
    )
