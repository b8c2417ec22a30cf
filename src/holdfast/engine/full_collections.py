"""Full collections of Python's garbage collector are put off while a long journal is in memory.

Records hold no cycles, but each pause has lists that the collector looks at. With a hundred thousand records in memory
a full collection holds the event loop for 50 ms, and finds nothing. Collections of young objects go on as usual.
"""

from __future__ import annotations

import gc
from types import TracebackType

LONG_RECORDS = 5_000
"""Records of a journal from which on it is long: fewer add some milliseconds to a full collection."""

_NEVER = 2**31 - 1
"""Collections of the middle generation before a full one: more than there ever are."""


class FullCollections:
    """Whether this process makes full collections. Several may ask it not to at the same time."""

    def __init__(self) -> None:
        self._asking = 0
        self._usual = gc.get_threshold()

    def __enter__(self) -> None:
        """Make none until the context is left."""
        if not self._asking:
            self._usual = gc.get_threshold()
            gc.set_threshold(*self._usual[:2], _NEVER)
        self._asking += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asking -= 1
        if not self._asking:
            gc.set_threshold(*self._usual)


no_full_collections = FullCollections()
"""The one of this process."""
