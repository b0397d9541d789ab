"""Columns of names without folders: programs put paths into them, and folders name people and hosts."""

from __future__ import annotations

import pyarrow as pa

from doctor.formats.private_paths import without_folders


def column_without_folders(names: pa.Array) -> pa.DictionaryArray:
    """The names, each absolute path in them cut to its last part; every distinct name is looked at once."""
    words = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    short = [None if word is None else without_folders(word) for word in words.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(words.indices, pa.array(short, pa.string()))
