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
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.kinds import KindFold
from holdfast.core.labels import PRIORITY, priority_of
from holdfast.core.queries import LlmQuery, Query, is_own

if TYPE_CHECKING:
    from holdfast.core.pending_queries import PendingQuery
    from holdfast.core.state import Session

HOST = "host"
"""Who answers `llm` queries: whoever started the session or found it, through `feed`, and no process by itself."""

ANY = "any"
"""Who answers `llm` queries: any process of the session's service that has a model."""


def check_llm(text: object) -> None:
    """Raise unless this can say who answers `llm` queries."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValueError("llm", f"say who answers: `{HOST}`, `{ANY}` or the name of a model, got {text!r}")


NeedKind: TypeAlias = Literal["service", "program", "provider", "model", "tool", "agent", "llm", "host"]


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


def is_for_host(session: Session, query: Query) -> bool:
    """Whether a query waits for a person or a host, unless a process that has the tool, or answers people, takes it.

    Models that a session names, or that any process may bring, are no matter of a host's.
    """
    return _goes_to_host(query, query_needs(session, query))


def _goes_to_host(query: Query, needs: Sequence[Need]) -> bool:
    if not query.is_question or is_own(query) or query.tool_needed == "":
        return False
    return not needs or needs[0].kind == "host"


def host_queries(session: Session) -> list[PendingQuery]:
    """What waits for a person or a host: nobody has begun to answer it, and no process has to."""
    return [each for each in session.pending.values() if not each.is_under_way and is_for_host(session, each.query)]


def count_asked(session: Session) -> int:
    """How many such queries there are, as far as that can be told without looking at each of many: those of a group
    are begun together."""
    pending = session.pending
    asked = 0
    for group, query in pending.groups.items():
        sample = pending.get(query.id)
        if (sample is None or not sample.is_under_way) and is_for_host(session, query):
            asked += pending.count(group)
    return asked


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


RUN = "run"
"""What stands for the program itself among the needs of a row: the session can go on at once."""

MANY = "many"
"""What stands for needs that are too long for a row: every process looks for itself."""

MAX_NEEDS_CHARS = 500
"""Characters of the needs in a row: a few dozen tools, and a key that fits into an index."""


def row_needs(session: Session, own: str | None) -> str:
    """What a process has to have to move a session, as its row says it: sorted, and joined by commas.

    `own` is what its program kind waits for, beside its queries.

    That is a model (`llm`, `model:NAME`, `provider:NAME`), a tool (`tool:NAME`), `human` for whoever answers people,
    `child`, a word of its program kind, or `run`. Empty if it has ended, or only a host, a person or time moves it on.
    Each is a hint: who reads the session itself knows better. A comma in a name is written `%2C`. A priority of the
    session stands among them (`priority:5`), so that those who look for work find it by the same index.
    """
    state, groups, kind_fold = session.state, session.pending.groups, session.kind_fold
    if state != "paused":
        return _with_priority([RUN], session) if state == "running" else ""
    found = {name for query in groups.values() for name in _process_needs(query, query_needs(session, query))}
    if own is not None and kind_fold.next_due() is None:
        found |= {own, *map(_need_name, kind_fold.waiting_needs())}
    text = _with_priority(found, session)
    return text if len(text) <= MAX_NEEDS_CHARS else _with_priority([MANY], session)


def only_query_traits(session: Session, only: PendingQuery) -> tuple[str, int]:
    """`row_needs` and `count_asked` of a session that is paused and waits for this alone, as nearly always."""
    query, is_under_way = only.query, only.attempts and only.deaths
    if query.kind == "llm" and type(session.kind_fold) is KindFold and not session.labels:
        return _answerer_needs(session.llm), int(session.llm == HOST and not is_under_way)  # of a strategy
    needs = query_needs(session, query)
    asks = 0 if is_under_way else int(_goes_to_host(query, needs))
    found = _process_needs(query, needs)
    return (_with_priority(found, session) if session.labels else ",".join(found)), asks


def _with_priority(needs: Iterable[str], session: Session) -> str:
    """Needs as a row has them, with the priority of the session if it has one."""
    names = sorted(needs)
    if names and session.labels and (priority := priority_of(session.labels)):
        names = sorted([*names, f"{PRIORITY}:{priority}"])
    return ",".join(names)


def _process_needs(query: Query, needs: Sequence[Need]) -> Sequence[str]:
    """What a process has to have to answer a query, which has these needs, by itself."""
    if query.kind == "child":
        return ("child",)
    if needs:
        return _need_names(tuple(needs))
    if query.kind == "tool":
        tool = query.tool_needed
        return () if tool is None else (_need_name(Need("tool", tool)),)
    return (query.kind,) if query.kind in ("llm", "human") else ()


@lru_cache(maxsize=256)
def _need_names(needs: tuple[Need, ...]) -> tuple[str, ...]:
    """Those of them that a process can have. Kept: there are few, and they are asked for often."""
    return tuple(_need_name(need) for need in needs if need.kind != "host")


@lru_cache(maxsize=256)
def _answerer_needs(llm: str) -> str:
    """What a process has to have to answer the `llm` queries of a strategy. Kept: few are asked for, and often."""
    if llm == HOST:
        return ""
    return "llm" if llm == ANY else _need_name(Need("model", llm))


def _need_name(need: Need) -> str:
    if need.kind == "llm":
        return "llm"
    return f"{need.kind}:{need.name.replace('%', '%25').replace(',', '%2C')}"


class RowNeeds(NamedTuple):
    """The needs that a row names, read."""

    named: list[Need]
    """Models and tools."""
    words: frozenset[str]
    """The others: `run`, `many`, `human`, `child`, and words of program kinds."""
    priority: int = 0


def parse_needs(text: str) -> RowNeeds:
    """What a row says that its session needs."""
    named: list[Need] = []
    words: set[str] = set()
    priority = 0
    for word in text.split(","):
        kind, _, written = word.partition(":")
        name = written.replace("%2C", ",").replace("%25", "%")
        match kind:
            case "llm":
                named.append(ANY_MODEL)
            case "model" | "provider" | "tool":
                named.append(Need(kind, name))
            case "priority" if name.removeprefix("-").isdecimal():
                priority = int(name)
            case _:
                words.add(word)
    return RowNeeds(named, frozenset(words), priority)


def explain_missing(needs: Sequence[Need]) -> str:
    """What a session waits for, in words: "waits for a process that serves provider `A`"."""
    names = [str(need) for need in needs]
    listed = names[-1] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"waits for a process that serves {listed}"


def why_left(session: Session, offers: Offers) -> str:
    """Why a process leaves the next step of a session to somebody else, in words; empty if it does not."""
    if session.adopted_state is not None:
        return "was imported and is not adopted"
    if needs := missing_needs(session, offers):
        return explain_missing(needs)
    if session.llm == HOST and any(query_needs(session, each.query) == _HOST for each in session.pending.values()):
        return f"`{HOST}` answers its llm queries: answer them, or `assign` them to somebody else"
    return ""
