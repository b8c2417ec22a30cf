"""`ctx`: everything a native strategy may ask, know, say and keep."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.budget import Remaining
from holdfast.core.records import LoggedRecord, ProgressedRecord
from holdfast.core.values import Json, checked, own_copy, repaired
from holdfast.programs import model_text as reading
from holdfast.programs.native.ctx_queries import Asking
from holdfast.programs.native.ctx_storage import STATE_TOOL, CardBook, StateArea, Stats

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance

__all__ = ["STATE_TOOL", "Context"]


class Context(Asking):
    """What a strategy is given. Questions are futures: `await` one, or pass several to `asyncio.gather`."""

    def __init__(self, run: NativeInstance) -> None:
        super().__init__(run)
        started = run.session.started
        self.data: Json = own_copy(started.ctx) if started else None
        """What the session was started with."""
        self.random = random.Random(started.seed if started else 0)
        """A generator that gives the same numbers in every replay."""
        self.stats = Stats(run)
        self.state = StateArea(run, started.program.name if started else "default")
        self.card = CardBook(run)

    @property
    def session_id(self) -> str:
        """The id the session was started under. A fork has the id of the session it comes from, or it would diverge."""
        started = self._run.session.started
        return started.forked_from.origin if started and started.forked_from else self._run.session.id

    @property
    def task(self) -> str:
        """`data["task"]`, the usual input of a strategy; empty if there is none."""
        task = self.get("task", "")
        return task if isinstance(task, str) else str(task)

    def get(self, key: str, default: Json = None) -> Json:
        """A field of what the session was started with."""
        return self.data.get(key, default) if isinstance(self.data, dict) else default

    def __getitem__(self, key: str) -> Json:
        return self.data[key]

    # --- what it may know --------------------------------------------------------------------------

    def now(self) -> float:
        """The time in unix seconds, as recorded: it stands still between two pauses, and replays the same."""
        return self._run.loop.time()

    def uuid(self) -> uuid.UUID:
        """A new UUID, the same in every replay."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def budget_remaining(self) -> Remaining | None:
        """What is left of the session's budget; None if it has none."""
        return self._run.remaining

    def budget_check(self) -> bool:
        """Whether there is something left of every limit that is set; True without a budget."""
        left = self._run.remaining
        return left is None or all(limit is None or limit > 0 for limit in msgspec.structs.astuple(left))

    # --- what it may say ---------------------------------------------------------------------------

    def log(self, message: object, level: str = "info") -> None:
        """Write a line to the session's log."""
        self._run.notes.append(checked(LoggedRecord(message=repaired(str(message)), level=level), "log line"))

    def progress(self, step: int, total: int, message: str | None = None) -> None:
        """Say how far the strategy is."""
        progress = ProgressedRecord(step=step, total=total, message=message and repaired(message))
        self._run.notes.append(checked(progress, "progress"))

    # --- reading what models write -----------------------------------------------------------------

    json_extract = staticmethod(reading.json_extract)
    list_items = staticmethod(reading.list_items)
    match_enum = staticmethod(reading.match_enum)
    match_bool = staticmethod(reading.match_bool)
    parse_score = staticmethod(reading.parse_score)
    parse_number = staticmethod(reading.parse_number)
    vote = staticmethod(reading.vote)
    chunk = staticmethod(reading.chunk)
    fingerprint = staticmethod(reading.fingerprint)
    tuning = staticmethod(reading.tuning)
