"""What is done to the texts of an SQLite export, column by column; of a column that is not known nothing stays."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.formats.private_paths import executable_name
from doctor.formats.recorder_words import recorder_message_in_place
from doctor.redact.masking import DEVICE, Hide, hide_all

_NUMBERS = re.compile(rb"[\s\d.,+:TZ\[\]-]*|true|false")
_CODE = re.compile(rb"[A-Z][A-Z0-9]*(?:[_:][A-Z0-9]+)+")
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F.:-]*")
_CHIP = re.compile(rb"[A-Z]{2}\d{2,3}[A-Z]?|")
_ADAPTER = re.compile(rb"[a-z]{2,6}\d?_\d{1,3}")
_SYMBOL = re.compile(rb"[A-Za-z_]\w*")


def _only(pattern: re.Pattern[bytes]) -> Hide:
    return lambda text: text if pattern.fullmatch(text) else hide_all(text)


def _executable(text: bytes) -> bytes:
    return (executable_name(text.decode("utf-8", "replace")) or "").encode()


numbers_only = _only(_NUMBERS)
"""For every column that is not known."""

_COLUMNS: Mapping[tuple[str, str], Hide] = {
    ("CUDA_GPU_MEMORY_USAGE_EVENTS", "name"): _only(_SYMBOL),
    ("DIAGNOSTIC_EVENT", "text"): recorder_message_in_place,
    ("PROCESSES", "name"): _executable,
    ("TARGET_INFO_GPU", "name"): _only(DEVICE),
    ("TARGET_INFO_CUDA_GPU", "name"): _only(DEVICE),
    ("TARGET_INFO_GPU", "chipName"): _only(_CHIP),
    ("TARGET_INFO_GPU", "busLocation"): _only(_HEXADECIMAL),
    ("TARGET_INFO_CUDA_GPU", "pciBusId"): _only(_HEXADECIMAL),
    ("TARGET_INFO_GPU", "uuid"): _only(_HEXADECIMAL),
    ("TARGET_INFO_CUDA_DEVICE", "uuid"): _only(_HEXADECIMAL),
    ("TARGET_INFO_CUDA_CONTEXT_INFO", "tpcMask"): _only(_HEXADECIMAL),
    ("TARGET_INFO_NIC_INFO", "name"): _only(_ADAPTER),
}
_SPOKEN = frozenset({("NVTX_EVENTS", "text")})
_WORDS_OF_RECORDERS = re.compile(
    r"(?:ENUM_|NVTX_PAYLOAD_|META_DATA_|EXPORT_META_DATA$|TARGET_INFO_SYSTEM_ENV$|TARGET_INFO_NIC_INFO$)"
)


def treatment(table: str, column: str) -> Hide | None:
    """What is done to a text in a column; None where it stays as it is."""
    if (table, column) in _SPOKEN:
        return None
    known = _COLUMNS.get((table, column))
    if known is not None:
        return known
    if not _WORDS_OF_RECORDERS.match(table):
        return numbers_only
    return _name_of_recorders if column == "name" else recorder_message_in_place


def _name_of_recorders(text: bytes) -> bytes:
    return text if _CODE.fullmatch(text) else recorder_message_in_place(text)
