"""How a trace begins that is a bare array of events: some recorders leave the object around it out."""

from __future__ import annotations

import re

_FIRST_EVENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}\[\]]*"ph"\s*:')


def is_array_of_events(head: bytes) -> bool:
    """Tell whether a file begins with an event of a trace: a phase stands among its first plain values.

    Other tools write arrays of events too, with values in values first; nothing else of those is known here.

    Args:
        head: first bytes of the file, plain.
    """
    return _FIRST_EVENT.match(head) is not None
