"""The string table of an export: ids in, texts out."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from doctor.formats.nsys_export.tables import STRINGS, ExportTables


class StringTable:
    """Texts by their id."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._texts = texts

    def get(self, text_id: int | None) -> str | None:
        """The text of one id, None where the table lacks it."""
        return None if text_id is None else self._texts.get(text_id)

    def look_up(self, text_ids: pa.Array) -> pa.DictionaryArray:
        """Texts of a column of ids, dictionary-encoded; an id that the table lacks is NULL."""
        encoded = text_ids.dictionary_encode()
        words = pa.array([self._texts.get(text_id) for text_id in encoded.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(encoded.indices, words)


def read_strings(tables: ExportTables) -> StringTable:
    """Read the whole string table: every name of a kernel, call or range lies there once."""
    texts: dict[int, str] = {}
    for batch in tables.batches(STRINGS):
        texts.update(zip(batch.column("id").to_pylist(), batch.column("value").to_pylist(), strict=True))
    return StringTable(texts)


def translate(codes: pa.Array, words: Mapping[int, str]) -> pa.Array:
    """Words of a column of codes as plain strings; a code without a word is NULL."""
    encoded = codes.dictionary_encode()
    known = pa.array([words.get(code) for code in encoded.dictionary.to_pylist()], pa.string())
    return pc.take(known, encoded.indices)
