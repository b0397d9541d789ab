"""Reading ahead: the next batches are decoded in a thread of their own while the last ones are being stored.

Storing happens inside DuckDB and decoding mostly inside numpy; both leave the interpreter free for the other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_MOST_WAITING_SECONDS = 0.1


@dataclass(frozen=True)
class _Made(Generic[_Item]):
    item: _Item


@dataclass(frozen=True)
class _Ended:
    error: BaseException | None


def read_ahead(items: Iterator[_Item], depth: int = 4) -> Generator[_Item, None, None]:
    """Yield what `items` yields, in its order, made up to `depth` items ahead in another thread.

    What `items` raises is raised here. When the consumer stops early the thread ends with the item that it is making.
    """
    made: queue.Queue[_Made[_Item] | _Ended] = queue.Queue(maxsize=depth)
    is_wanted = threading.Event()
    is_wanted.set()
    thread = threading.Thread(target=_make, args=(items, made, is_wanted), name="doctor-reads-ahead", daemon=True)
    thread.start()
    try:
        while isinstance(got := made.get(), _Made):
            yield got.item
        if got.error is not None:
            raise got.error
    finally:
        is_wanted.clear()
        thread.join()


def _make(items: Iterator[_Item], made: queue.Queue[_Made[_Item] | _Ended], is_wanted: threading.Event) -> None:
    try:
        for item in items:
            if not _put(_Made(item), made, is_wanted):
                return
    except BaseException as error:  # noqa: BLE001 - it belongs to the consumer, whatever it is
        _put(_Ended(error), made, is_wanted)
    else:
        _put(_Ended(None), made, is_wanted)


def _put(entry: _Made[_Item] | _Ended, made: queue.Queue[_Made[_Item] | _Ended], is_wanted: threading.Event) -> bool:
    while is_wanted.is_set():
        try:
            made.put(entry, timeout=_MOST_WAITING_SECONDS)
        except queue.Full:
            continue
        return True
    return False
