"""`Batch`: what was decided about a session, is folded into it already, and is not committed yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.core.records import Entry
from holdfast.store.commits import Checkpoint, StateWrite


class Batch(msgspec.Struct):
    """One commit to be. Whatever becomes of it, the next one begins with a new batch."""

    entries: list[Entry] = []
    bodies: list[bytes | None] = []
    """The JSON of each entry's record, where deciding about it has made that."""
    writes: list[StateWrite] = []
    abandoned: list[str] = []
    """Child queries that nobody waits for any more."""
    snapshot: tuple[int, bytes] | None = None
    """The program as it waits after a position of the batch."""
    checkpoint: Checkpoint | None = None
    """The session as it is after the batch."""


class UndoneOnError:
    """A `with` block after whose failure nothing is kept that was not committed. It can be entered again and again."""

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[BaseException], None]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._undo(error)
