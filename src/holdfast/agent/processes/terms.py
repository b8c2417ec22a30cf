"""What a process is started with: its work, who may run that again, and whom it belongs to and wakes."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id, child_session_id, query_id
from holdfast.core.values import Json, checked

MAX_OBSERVERS = 100
"""Sessions that may observe one process: more are served better by an event that they subscribe to."""


class ToolWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool", tag_field="kind"):
    """A tool of the runtime, called in the background."""

    tool: str
    arguments: dict[str, Json] = {}

    @property
    def title(self) -> str:
        return self.tool


class StrategyWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="strategy", tag_field="kind"):
    """A strategy of any language. It runs as a child session."""

    program: dict[str, Json]
    """The program as it was found when the process was started, as sessions record it."""
    ctx: Json = None

    @property
    def title(self) -> str:
        return str(self.program.get("name", "strategy"))


class TurnWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="turn", tag_field="kind"):
    """A turn of an agent: of a session that exists, or of a new one that ends with the process."""

    input: str
    session: str | None = None
    """The session whose inbox gets the input; None for a new one."""
    spec: dict[str, Json] = {}
    """How a new session differs from the runtime's policy, as `SessionBuilder.spec` takes it."""

    @property
    def title(self) -> str:
        return f"turn of {self.session}" if self.session else "turn"


class OutsideWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="outside", tag_field="kind"):
    """Something that is done elsewhere: somebody reports what came of it."""

    about: str = ""

    @property
    def title(self) -> str:
        return self.about or "outside job"


class EmitWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="emit", tag_field="kind"):
    """An event that is emitted, once."""

    type: str
    key: str = ""
    payload: Json = None

    @property
    def title(self) -> str:
        return f"emit {self.type}"


class EventWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="event", tag_field="kind"):
    """An event that was emitted: the triggers that it concerns start what they are to start."""

    type: str
    key: str = ""
    payload: Json = None
    triggers: list[str] = []
    """The sessions of the triggers that it concerns, found when it was emitted."""

    @property
    def title(self) -> str:
        return f"event {self.type}"


Work: TypeAlias = ToolWork | StrategyWork | TurnWork | OutsideWork | EmitWork | EventWork

RecoveryContract: TypeAlias = Literal["rerunnable", "owner_bound", "external"]
"""What becomes of the work when the OS process that runs it dies:

- `rerunnable`: another one runs it again, or resumes it; a tool gets the same idempotency key;
- `owner_bound`: nobody does; the process is abandoned, and says so;
- `external`: it is not run here at all, and somebody else reports its outcome.
"""

OwnerEnd: TypeAlias = Literal["cancel", "abandon"]
"""What becomes of a process when the session that it belongs to ends: it is cancelled, or it goes on without it."""


class ProcessTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a process is started with; recorded as the `ctx` of its session."""

    work: Work
    recovery: RecoveryContract
    label: str = ""
    owner: str | None = None
    """The session that it belongs to."""
    owner_end: OwnerEnd = "cancel"
    wake: str | None = None
    """The session that gets an item in its inbox once the work is over."""
    observers: list[str] = []
    """Sessions that list it beside their own, and are not woken."""
    origin: dict[str, Json] = {}
    """What started it, if that was a trigger: the trigger, the occurrence, and the time it was planned for."""

    @property
    def title(self) -> str:
        return self.label or self.work.title

    @property
    def has_own_session(self) -> bool:
        """Whether its work has a session that begins and ends with it."""
        return isinstance(self.work, StrategyWork) or (isinstance(self.work, TurnWork) and self.work.session is None)

    def works_in(self, process: str) -> str | None:
        """The session that does the work of a process; None if that is the process itself, or somebody outside."""
        match self.work:
            case TurnWork(session=session):
                return session or agent_session_id(process)
            case StrategyWork():
                return child_session_id(process, query_id(int(self.recovery == "owner_bound")))  # after the token
            case _:
                return None


def agent_session_id(process: str) -> str:
    """The session of the turn that a process runs, if that is not a session that was there before."""
    return f"{process}-agent"


def check_terms(terms: ProcessTerms) -> ProcessTerms:
    """Give the terms back, as they will be recorded; `InvalidValueError` if they contradict themselves."""
    try:
        found = msgspec.convert(msgspec.to_builtins(checked(terms, "process")), ProcessTerms)
    except msgspec.ValidationError as error:
        raise InvalidValueError("process", str(error)) from None
    is_outside = isinstance(found.work, OutsideWork)
    if is_outside != (found.recovery == "external"):
        why = "work that is done outside is 'external'" if is_outside else "'external' is for work that is done outside"
        raise InvalidValueError("process", f"recovery '{found.recovery}' does not fit: {why}")
    for name, session in (("owner", found.owner), ("wake", found.wake)):
        if session is not None:
            check_id(session, f"{name} of a process")
    for observer in found.observers:
        check_id(observer, "observer of a process")
    if len(found.observers) > MAX_OBSERVERS:
        raise InvalidValueError("process", f"{len(found.observers)} observers; at most {MAX_OBSERVERS} are allowed")
    return found
