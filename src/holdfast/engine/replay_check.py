"""Whether the code that is here still does what a journal says: the program is run again on it, and nothing is written.

It is the replay by which an engine rebuilds a program, from the first record to the last recorded outcome of the
program. What the program would do next is not known, and not tried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry, Program, StartedRecord
from holdfast.engine.program_kinds import ProgramKinds
from holdfast.engine.rebuild import last_outcome, rebuild
from holdfast.programs.contract import Fold, Instance
from holdfast.programs.errors import DivergenceError
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replay of one session came to."""

    session_id: str
    state: Literal["ok", "diverges", "unchecked"]
    """`unchecked`: it could not be replayed here, and `why` says why."""
    program: Program | None = None
    records: int = 0
    """The records up to the last one that was compared."""
    divergence: DivergenceError | None = None
    """Where it diverges, with both sides."""
    why: str = ""

    def __str__(self) -> str:
        match self.state:
            case "ok":
                return f"session '{self.session_id}' replays as recorded ({self.records} records)"
            case "diverges":
                return str(self.divergence)
            case _:
                return f"session '{self.session_id}' cannot be checked: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON."""
        shown: dict[str, Any] = {"session_id": self.session_id, "state": self.state, "records": self.records}
        if self.program is not None:
            shown |= {"program": self.program.name, "kind": self.program.kind}
        if self.divergence is not None:
            sides = self.divergence
            shown |= {"position": sides.position, "recorded": sides.recorded, "asked": sides.asked}
            shown |= {"where": sides.where, "began_with": sides.began_with, "here": sides.here, "file": sides.file}
        return {**shown, **({"why": self.why} if self.why else {})}


async def check_stored_replay(programs: ProgramKinds, store: Store, session_id: str) -> ReplayOutcome:
    """Run the program of a session in a store again on its journal. `SessionNotFoundError` if there is none."""
    try:
        entries = await store.entries(session_id)
    except CorruptSessionError as error:
        return ReplayOutcome(session_id=session_id, state="unchecked", why=str(error))
    return await check_replay(programs, session_id, entries)


async def check_replay(programs: ProgramKinds, session_id: str, entries: Sequence[Entry]) -> ReplayOutcome:
    """Run the program of a session again on its journal."""
    first = entries[0].record if entries else None
    program = first.program if isinstance(first, StartedRecord) else None
    instances: list[Instance] = []

    def create(fold: Fold) -> Instance:
        instances.append(programs.create(fold))
        return instances[-1]

    try:
        await rebuild(session_id, entries, create)
    except DivergenceError as error:
        return ReplayOutcome(
            session_id=session_id, state="diverges", program=program, records=error.position, divergence=error
        )
    except (HoldfastError, ValueError) as error:
        return ReplayOutcome(session_id=session_id, state="unchecked", program=program, why=str(error))
    finally:
        for instance in instances:
            with contextlib.suppress(Exception):
                instance.close()
    return ReplayOutcome(session_id=session_id, state="ok", program=program, records=last_outcome(entries))
