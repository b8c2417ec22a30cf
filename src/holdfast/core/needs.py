"""Needs and offers: what the next step of a session needs, and what of that a process does not have.

Rules of this file
------------------
- What a session needs follows from its journal, and from nothing else: every process comes to the same list.
- A process takes up by itself only sessions of which it misses nothing (`missing`). What it misses it leaves alone:
  nothing is written, and nothing fails because of it. Somebody else may have it, now or after the next deployment.
- What a person or a host is asked needs no process. So a session that waits for them alone needs only what it takes to
  go on after the answer: its service, and its program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import LlmQuery, Query

if TYPE_CHECKING:
    from holdfast.core.state import Session

HOST = "host"
"""Who answers `llm` queries: whoever started the session or found it, through `feed`, and no process by itself."""

ANY = "any"
"""Who answers `llm` queries: any process of the session's service that has a model."""


def check_llm(text: object) -> None:
    """Raise unless this can say who answers `llm` queries."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValueError("llm", f"say who answers: `{HOST}`, `{ANY}` or the name of a model, got {text!r}")


NeedKind: TypeAlias = Literal["service", "program", "provider", "model", "tool", "llm", "host"]


class Need(msgspec.Struct, frozen=True):
    """One thing that a session needs of a process."""

    kind: NeedKind
    name: str

    def __str__(self) -> str:
        return "a model" if self.kind == "llm" else f"{self.kind} `{self.name}`"


_HOST = (Need("host", "llm"),)
ANY_MODEL = Need("llm", ANY)
"""Some model, whichever."""


class Offers(Protocol):
    """What a process has."""

    def meets(self, session: Session, need: Need) -> bool:
        """Whether the process has what a session needs. Nobody has a `host`."""
        ...


def query_needs(session: Session, query: Query) -> Sequence[Need]:
    """What a process needs to answer a query by itself, beside the driver for its kind."""
    own = session.kind_fold.query_needs(query)
    if own is not None:
        return own
    if isinstance(query, LlmQuery):
        match session.llm:
            case "host":
                return _HOST
            case "any":
                return (ANY_MODEL,)
            case model:
                return (Need("model", model),)
    return ()


def upkeep_needs(session: Session) -> list[Need]:
    """What a process needs to run the program of a session, and to end its waits when their time is over."""
    started = session.started
    if started is None or session.is_terminal:
        return []
    return [Need("service", started.service), Need("program", started.program.name)]


def step_needs(session: Session) -> list[Need]:
    """All that the next step of a session needs."""
    needs = upkeep_needs(session)
    if needs:
        needs += session.kind_fold.waiting_needs()
        for pending in session.pending.values():
            needs += [need for need in query_needs(session, pending.query) if need.kind != "host"]
    return list(dict.fromkeys(needs))


def missing_needs(session: Session, offers: Offers) -> list[Need]:
    """What a process lacks for the next step of a session. If there is anything, it leaves the session."""
    return missing(session, step_needs(session), offers)


def missing(session: Session, needs: Iterable[Need], offers: Offers) -> list[Need]:
    """Those needs of a session that a process does not meet."""
    return [need for need in needs if not offers.meets(session, need)]


def explain_missing(needs: Sequence[Need]) -> str:
    """What a session waits for, in words: "waits for a process that serves provider `A`"."""
    names = [str(need) for need in needs]
    listed = names[-1] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"waits for a process that serves {listed}"


def why_left(session: Session, offers: Offers) -> str:
    """Why a process leaves the next step of a session to somebody else, in words; empty if it does not."""
    if needs := missing_needs(session, offers):
        return explain_missing(needs)
    if session.llm == HOST and any(query_needs(session, each.query) == _HOST for each in session.pending.values()):
        return f"`{HOST}` answers its llm queries: answer them, or `assign` them to somebody else"
    return ""
