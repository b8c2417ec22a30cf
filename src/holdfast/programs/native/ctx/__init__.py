"""`ctx`: what a native strategy is given.

What it asks (`llm`, `llm_batch`, `ask`, `tool`, `fork`, `pipe`, …) is in `queries`; `ctx.state`, `ctx.stats` and
`ctx.card` have modules of their names; `vote`, `json_extract` and others that read answers are in
`holdfast.programs.model_text`.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.budget import RemainingBudget
from holdfast.core.ids import check_id
from holdfast.core.records import LoggedRecord, ProgressedRecord
from holdfast.core.values import Json, checked, own_copy, repaired
from holdfast.programs import model_text
from holdfast.programs.native.ctx.card import CardContext
from holdfast.programs.native.ctx.queries import ContextQueries
from holdfast.programs.native.ctx.state import ContextState
from holdfast.programs.native.ctx.stats import StatsContext

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance


class Context(ContextQueries):
    """What a strategy is given. Questions are futures: `await` one, or pass several to `asyncio.gather`."""

    def __init__(self, run: NativeInstance) -> None:
        super().__init__(run)
        session = run.fold.session
        started = session.started
        self.session_id = started.forked_from.origin if started and started.forked_from else session.id
        """The id the session was started under. A fork has the id of the session it comes from, or it would diverge."""
        self.data: Json = own_copy(started.ctx) if started else None
        """What the session was started with."""
        self.random = random.Random(started.seed if started else 0)
        """A generator that gives the same numbers in every replay."""
        self.stats = StatsContext(run)
        self.state = ContextState(run, started.program.name if started else "default")
        self.card = CardContext(run)

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

    def budget_remaining(self) -> RemainingBudget | None:
        """What is left of the session's budget; None if it has none."""
        return self._run.remaining

    def budget_check(self) -> bool:
        """Whether there is something left of every limit that is set; True without a budget."""
        left = self._run.remaining
        return left is None or all(limit is None or limit > 0 for limit in msgspec.structs.astuple(left))

    def patched(self, name: str) -> bool:
        """Whether to take the new way of a change to this strategy: `if ctx.patched("two-drafts"): … else: …`.

        True where a session gets here for the first time, which is then recorded. False where it got here before the
        change, and so took the old way: it keeps to that. The answer of a name never changes within a session.
        """
        return self._run.patched(check_id(name, "name of a change"))

    # --- what it may say ---------------------------------------------------------------------------

    def log(self, message: object, level: str = "info") -> None:
        """Write a line to the session's log."""
        self._run.notes.append(checked(LoggedRecord(message=repaired(str(message)), level=level), "log line"))

    def progress(self, step: int, total: int, message: str | None = None) -> None:
        """Say how far the strategy is."""
        progress = ProgressedRecord(step=step, total=total, message=message and repaired(message))
        self._run.notes.append(checked(progress, "progress"))

    # --- reading what models write -----------------------------------------------------------------

    json_extract = staticmethod(model_text.json_extract)
    list_items = staticmethod(model_text.list_items)
    match_enum = staticmethod(model_text.match_enum)
    match_bool = staticmethod(model_text.match_bool)
    parse_score = staticmethod(model_text.parse_score)
    parse_number = staticmethod(model_text.parse_number)
    vote = staticmethod(model_text.vote)
    chunk = staticmethod(model_text.chunk)
    fingerprint = staticmethod(model_text.fingerprint)
    tuning = staticmethod(model_text.tuning)
