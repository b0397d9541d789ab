"""The recorder's own messages, in the words of the case file."""

from __future__ import annotations

import re

import pyarrow as pa

from doctor.formats.nsys_export.codes import SEVERITIES
from doctor.formats.nsys_export.names import translate

_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\"\\/:,;()]+[\\/])+|[A-Za-z]:\\(?:[^'\"\\:,;()\n]+\\)+")


def diagnostics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `diagnostic` out of DIAGNOSTIC_EVENT; paths are cut to their last part: folders name people and hosts."""
    messages = [None if text is None else without_folders(text) for text in batch.column("text").to_pylist()]
    return pa.RecordBatch.from_pydict(
        {
            "time_ns": batch.column("timestamp"),
            "severity": translate(batch.column("severity"), SEVERITIES),
            "message": pa.array(messages, pa.string()),
        }
    )


def without_folders(text: str) -> str:
    """The text with every absolute path cut to its last part."""
    return _PATH.sub("", text)
