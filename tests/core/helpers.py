"""What the tests of the core share: a session with its journal and clock, and a picture to compare sessions by."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar

import msgspec
import pytest

from holdfast.core.budget import Budget, Price
from holdfast.core.decide import (
    CancelMessage,
    Decision,
    FeedMessage,
    GivenAnswer,
    Message,
    decide_cancel,
    decide_complete,
    decide_due,
    decide_expire,
    decide_fail,
    decide_feed,
    decide_pause,
    decide_start,
    repeats_of,
)
from holdfast.core.events import Event, event_of, reply_after
from holdfast.core.queries import Answer, Failure, LlmQuery, Query, Usage, Value
from holdfast.core.records import Entry, Imported, Program, Record, StartedRecord
from holdfast.core.replay import LazyReplayFold, ReplayFold, Waking
from holdfast.core.state import Session, State
from holdfast.core.wake import Wake

START = 1_700_000_000_000
PROGRAM = Program("native", "demo")
START_RECORD = StartedRecord(program=PROGRAM)

E = TypeVar("E", bound=Exception)


class Journal:
    """A session, the entries it is folded from, and the time of the next one."""

    def __init__(self, session_id: str = "s-1") -> None:
        self.session = Session(session_id)
        self.entries: list[Entry] = []
        self.now = START

    def later(self, milliseconds: int) -> Journal:
        self.now += milliseconds
        return self

    def write(self, *records: Record) -> Journal:
        for record in records:
            entry = Entry(len(self.entries) + 1, self.now, record)
            self.session.apply(entry)
            self.entries.append(entry)
        return self

    def start(self, *, budget: Budget | None = None, prices: dict[str, Price] | None = None) -> Journal:
        return self.write(decide_start(PROGRAM, budget=budget, prices=prices))

    def ask(self, *queries: Query, wake: Wake = "all", withdrawn: Sequence[str] = ()) -> Journal:
        return self.write(decide_pause(self.session, queries, self.now, wake=wake, withdrawn=withdrawn).record)

    def feed(self, *answers: GivenAnswer, by: str | None = None) -> Decision:
        message = FeedMessage(list(answers), by)
        decision = decide_feed(self.session, message, recorded(self.session, message, self.entries))
        self.write(*decision.records)
        return decision

    def answer(self, query_id: str, value: Any = "ok", usage: Usage | None = None) -> Journal:
        self.feed(given(query_id, value, usage))
        return self

    def due(self) -> list[Record]:
        records = decide_due(self.session, self.now)
        self.write(*records)
        return records

    def complete(self, result: Any = None) -> Journal:
        return self.write(decide_complete(self.session, result))

    def fail(self, error: str = "boom") -> Journal:
        return self.write(decide_fail(self.session, error))

    def cancel(self, reason: str | None = None) -> Journal:
        return self.write(*decide_cancel(self.session, CancelMessage(reason)).records)

    def expire(self) -> Journal:
        return self.write(*decide_expire(self.session, self.now, 0))

    def event(self) -> Event:
        return event_of(self.session, self.now)

    def wire(self) -> dict[str, Any]:
        return self.event().to_json()

    def stats(self) -> dict[str, Any]:
        budget = self.session.started.budget if self.session.started else None
        auto: dict[str, Any] = self.session.metrics.to_json(self.now, budget)["auto"]
        return auto

    def reply(self, decision: Decision) -> dict[str, Any]:
        """The reply to a feed that was a replay."""
        return reply_after(self.session.id, self.entries, max(decision.replayed)).to_json()


def recorded(session: Session, message: Message, entries: Sequence[Entry]) -> dict[str, Entry]:
    """The entries that a message may repeat, as an engine finds them in the journal."""
    repeats = repeats_of(session, message)
    return repeats.among(entries) if repeats is not None else {}


CHECKPOINTS = 16
"""Positions of a long journal that are tried: to try each of them, and to look at each one after it, grows with the
square of the journal, and properties try hundreds of journals."""


def check_checkpoints(entries: Sequence[Entry]) -> None:
    """From a checkpoint at any position, the rest of a journal leads to what the whole of it leads to."""
    unbroken = ReplayFold("s-1")
    folds = [(unbroken.dump(), picture(unbroken))]
    wakings = []
    for entry in entries:
        wakings.append(unbroken.apply(entry))
        folds.append((unbroken.dump(), picture(unbroken)))
    for position in range(0, len(folds), 1 + len(folds) // CHECKPOINTS):
        dumped, before = folds[position]
        restored = ReplayFold.restore("s-1", dumped)
        assert restored is not None
        assert picture(restored) == before
        assert [restored.apply(entry) for entry in entries[position:]] == wakings[position:]
        assert picture(restored) == folds[-1][1]
        rest = list(zip(entries[position:], wakings[position:], folds[position + 1 :], strict=True))
        looks = (0, 1, 4)[position % 3]
        every = -(-len(rest) // looks) if looks else 0
        check_lazy(dumped, [(entry, waking, fold) for entry, waking, (_, fold) in rest], every=every)


def check_lazy(dumped: bytes, following: Sequence[tuple[Entry, Waking | None, object]], *, every: int) -> None:
    """A fold that is looked at never, always or now and then says the same as one that folds each entry at once."""
    begun = ReplayFold.restore("s-1", dumped)
    assert begun is not None
    lazy = LazyReplayFold(begun)
    for number, (entry, waking, fold) in enumerate(following, 1):
        assert lazy.apply(entry) == waking
        if (every and number % every == 0) or number == len(following):
            assert picture(lazy.folded()) == fold


def started(**limits: Any) -> Journal:
    return Journal().start(**limits)


def paused(*queries: Query, wake: Wake = "all") -> Journal:
    return started().ask(*(queries or (llm(),)), wake=wake)


def in_state(state: State) -> Journal:
    """A session in the given state; while it is alive, q-0 is pending and may be answered."""
    match state:
        case State.ABSENT:
            return Journal()
        case State.RUNNING:  # q-0 is left over from a pause that ended with the answer to q-1
            return paused(llm(), llm(), wake="first").answer("q-1")
        case State.PAUSED:
            return paused()
        case State.IMPORTED:  # while it was paused
            return Journal().write(msgspec.structs.replace(START_RECORD, imported=Imported(2, START))).ask(llm())
        case State.COMPLETED:
            return started().complete()
        case State.FAILED:
            return started().fail()
        case State.CANCELLED:
            return paused().cancel()
        case State.EXPIRED:
            return paused().expire()


def llm(prompt: str = "why?", **fields: Any) -> LlmQuery:
    return LlmQuery(prompt=prompt, **fields)


def given(query_id: str | None, value: Any = "ok", usage: Usage | None = None) -> GivenAnswer:
    answer: Answer = value if isinstance(value, Failure) else Value(value=value)
    return GivenAnswer(answer, query_id, usage)


def nested(depth: int) -> Any:
    """A list in a list in a list, `depth` levels."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@contextmanager
def refused(session: Session, error: type[E]) -> Iterator[pytest.ExceptionInfo[E]]:
    """What happens inside raises `error`, and the session is afterwards as it was before."""
    before = picture(session)
    with pytest.raises(error) as caught:
        yield caught
    assert picture(session) == before


_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def picture(thing: object) -> object:
    """All that a thing is made of, down to the last field, as something to compare: 1, 1.0 and True differ."""
    if type(thing) in _PLAIN:
        return repr(thing)
    match thing:
        case Enum():
            return repr(thing)
        case type():
            return thing.__name__
        case msgspec.Struct():
            return [type(thing).__name__, [picture(getattr(thing, name)) for name in thing.__struct_fields__]]
        case dict():
            return [(picture(key), picture(value)) for key, value in thing.items()]
        case list() | tuple() | deque():
            return [picture(item) for item in thing]
        case set() | frozenset():
            return sorted(map(repr, thing))
        case _:
            names = vars(thing) if hasattr(thing, "__dict__") else type(thing).__slots__  # type: ignore[attr-defined]
            fields: dict[str, object] = {name: getattr(thing, name) for name in names}
            return [type(thing).__name__, picture(fields)]
