"""A random walk of decisions, and what holds at each step of every walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.budget import Budget, Price
from holdfast.core.call_history import CallHistory
from holdfast.core.decide import (
    CancelMessage,
    Decision,
    FeedMessage,
    GivenAnswer,
    decide_cancel,
    decide_complete,
    decide_due,
    decide_expire,
    decide_fail,
    decide_feed,
    decide_pause,
    decide_start,
)
from holdfast.core.errors import HoldfastError
from holdfast.core.events import event_of, reply_after
from holdfast.core.limits import MAX_INTEGER, MIN_INTEGER
from holdfast.core.queries import (
    Answer,
    ChildQuery,
    Failure,
    HumanQuery,
    LlmQuery,
    Query,
    TimerQuery,
    ToolQuery,
    Usage,
    Value,
)
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    Entry,
    LoggedRecord,
    ProgressedRecord,
    Record,
    StatRecord,
    decode_record,
)
from holdfast.core.state import Session, State
from holdfast.core.status import snapshot
from holdfast.core.values import check_value, encode, fingerprint
from holdfast.core.wake import Wake
from tests.core.helpers import PROGRAM, START, check_checkpoints, picture, recorded
from tests.examples import examples

T = TypeVar("T")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
integers = st.integers(MIN_INTEGER, MAX_INTEGER)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
waits = st.integers(0, 200)
timeouts = st.none() | waits
options = st.dictionaries(st.sampled_from(["model", "role"]), st.sampled_from(["big", "small"]), max_size=2)
queries: st.SearchStrategy[Query] = st.one_of(
    st.builds(
        LlmQuery,
        prompt=texts,
        system=st.none() | texts,
        max_tokens=st.integers(1, 50),
        grounded=st.booleans(),
        options=options,
        timeout_ms=timeouts,
    ),
    st.builds(ToolQuery, name=texts, arguments=st.dictionaries(texts, values, max_size=2), timeout_ms=timeouts),
    st.builds(HumanQuery, prompt=texts, choices=st.lists(texts, max_size=2), timeout_ms=timeouts),
    st.builds(TimerQuery, delay_ms=waits),
    st.builds(ChildQuery, program=texts, ctx=values, timeout_ms=timeouts),
)
answers: st.SearchStrategy[Answer] = st.builds(Value, value=values) | st.builds(Failure, texts, texts)
counts = st.none() | st.integers(0, 100)
usages = st.none() | st.builds(Usage, prompt_tokens=counts, completion_tokens=counts, cost=st.none() | st.floats(0, 1))
wakes: st.SearchStrategy[Wake] = st.sampled_from(get_args(Wake))
budgets = st.none() | st.builds(
    Budget,
    max_llm_calls=st.none() | st.integers(0, 20),
    max_elapsed_ms=st.none() | st.integers(0, 2000),
    max_tokens=st.none() | st.integers(0, 500),
    max_cost=st.none() | st.floats(0, 0.01),
)
PRICES = {"default": Price(1.0, 2.0), "big": Price(3.0, 10.0)}

running = precondition(lambda walk: walk.session.state is State.RUNNING)
alive = precondition(lambda walk: walk.session.state in {State.RUNNING, State.PAUSED})
waiting = precondition(lambda walk: bool(walk.session.pending))


class Walk(RuleBasedStateMachine):
    """A session to which anything may happen, in any order, with a clock that may stumble."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session("s-walk")
        self.entries: list[Entry] = []
        self.now = START
        self.asked: list[str] = []

    # --- how the walk goes on --------------------------------------------------------------------

    def decided(self, decision: Callable[[], T]) -> T | None:
        """The decision, or None if it was refused; either way, deciding changes nothing."""
        before = picture(self.session)
        try:
            return decision()
        except HoldfastError:
            return None
        finally:
            assert picture(self.session) == before

    def write(self, *records: Record | None) -> None:
        for record in records:
            if record is not None:
                entry = Entry(len(self.entries) + 1, self.now, record)
                self.session.apply(entry)
                self.entries.append(entry)

    def fed(self, message: FeedMessage) -> Decision:
        return decide_feed(self.session, message, recorded(self.session, message, self.entries))

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.session.pending)))

    # --- the steps -------------------------------------------------------------------------------

    @initialize(budget=budgets, ctx=values)
    def start(self, budget: Budget | None, ctx: Any) -> None:
        self.write(decide_start(PROGRAM, ctx=ctx, budget=budget, prices=PRICES))

    @rule(milliseconds=st.integers(-20, 150))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds

    @running
    @rule(asked=st.lists(queries, min_size=1, max_size=4), wake=wakes, data=st.data())
    def pause(self, asked: list[Query], wake: Wake, data: st.DataObject) -> None:
        pending = list(self.session.pending)
        gone = data.draw(st.lists(st.sampled_from(pending), max_size=2)) if pending else []
        draft = self.decided(lambda: decide_pause(self.session, asked, self.now, wake=wake, withdrawn=gone))
        if draft is not None:
            self.asked += [query.id for query in draft.record.queries]
            assert len(draft.record.queries) == len(asked)
            self.write(draft.record)

    @waiting
    @rule(answer=answers, usage=usages, data=st.data())
    def feed(self, answer: Answer, usage: Usage | None, data: st.DataObject) -> None:
        message = FeedMessage([GivenAnswer(answer, self.pick(data), usage)], by="walk")
        decision = self.decided(lambda: self.fed(message))
        assert decision is not None
        self.write(*decision.records)
        again = self.decided(lambda: self.fed(message))
        assert again is not None
        assert again.is_replay
        reply = reply_after(self.session.id, self.entries, again.replayed[0]).to_json()
        assert reply.pop("replayed") is True
        if self.session.state is State.RUNNING:
            assert reply == event_of(self.session, self.now).to_json()
        else:
            assert reply["remaining_ids"] == list(self.session.pending)

    @waiting
    @rule(answer=answers)
    def feed_everything(self, answer: Answer) -> None:
        message = FeedMessage([GivenAnswer(answer, query_id) for query_id in reversed(self.session.pending)])
        decision = self.decided(lambda: self.fed(message))
        assert decision is not None
        self.write(*decision.records)
        assert not self.session.pending

    @alive
    @rule(query_id=st.none() | st.sampled_from(["q-0", "q-1", "q-5", "q-999", ""]), answer=answers)
    def feed_anything(self, query_id: str | None, answer: Answer) -> None:
        decision = self.decided(lambda: self.fed(FeedMessage([GivenAnswer(answer, query_id)])))
        if decision is not None:
            self.write(*decision.records)

    @rule()
    def clock(self) -> None:
        due = self.decided(lambda: decide_due(self.session, self.now))
        self.write(*(due or []))
        still = self.session.next_due()
        assert still is None or still > self.now

    @waiting
    @rule(data=st.data())
    def attempt(self, data: st.DataObject) -> None:
        self.write(AttemptedRecord(query_id=self.pick(data), driver="walk"))

    @alive
    @rule(
        record=st.builds(LoggedRecord, message=texts)
        | st.builds(ProgressedRecord, step=integers, total=integers, message=st.none() | texts)
        | st.builds(StatRecord, key=texts, value=values)
    )
    def tell(self, record: Record) -> None:
        self.write(record)

    @rule(result=values)
    def complete(self, result: Any) -> None:
        if len(self.entries) > 8:
            self.write(self.decided(lambda: decide_complete(self.session, result)))

    @rule(error=st.text(max_size=5))
    def fail(self, error: str) -> None:
        if len(self.entries) > 8:
            self.write(self.decided(lambda: decide_fail(self.session, error)))

    @rule(reason=st.none() | texts)
    def cancel(self, reason: str | None) -> None:
        if len(self.entries) > 8:
            decision = self.decided(lambda: decide_cancel(self.session, CancelMessage(reason)))
            self.write(*(decision.records if decision else []))

    @rule(ttl_ms=st.integers(0, 1000))
    def expire(self, ttl_ms: int) -> None:
        if len(self.entries) > 8:
            self.write(*(self.decided(lambda: decide_expire(self.session, self.now, ttl_ms)) or []))

    def teardown(self) -> None:
        check_checkpoints(self.entries)

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def folding_what_was_stored_gives_the_same_session(self) -> None:
        stored = [(entry.position, entry.at, encode(entry.record)) for entry in self.entries]
        loaded = [Entry(position, at, decode_record(body)) for position, at, body in stored]
        assert loaded == self.entries
        assert picture(Session.fold(self.session.id, loaded)) == picture(self.session)

    @invariant()
    def a_query_is_known_exactly_if_it_was_asked(self) -> None:
        session = self.session
        assert self.asked == [f"q-{n}" for n in range(len(self.asked))]
        assert session.queries_asked == len(self.asked)
        assert all(map(session.has_asked, self.asked))
        assert not any(map(session.has_asked, [f"q-{len(self.asked)}", "q-", "q-00", "q-٣", "x-0", "0", ""]))
        assert not session.pending.keys() & session.settled.keys()

    @invariant()
    def every_answer_is_recorded_once(self) -> None:
        answered = [
            (entry.record, entry.position) for entry in self.entries if isinstance(entry.record, AnsweredRecord)
        ]
        positions = [(record.query_id, position) for record, position in answered]
        assert positions == list(self.session.settled.items())

    @invariant()
    def reservations_are_those_of_the_pending_calls_and_children(self) -> None:
        metrics, pending = self.session.metrics, self.session.pending.values()
        calls = [p.query for p in pending if isinstance(p.query, LlmQuery)]
        assert set(metrics.shares) <= {p.query.id for p in pending if isinstance(p.query, ChildQuery)}
        shares = sum(share.tokens for share in metrics.shares.values())
        assert metrics.reserved_tokens == sum(query.max_tokens for query in calls) + shares
        assert metrics.reserved_cost >= -1e-12
        if not calls and not metrics.shares:
            assert metrics.reserved_cost == 0

    @invariant()
    def an_ended_session_waits_for_nothing(self) -> None:
        if self.session.is_terminal:
            assert not self.session.pending
            assert self.session.metrics.reserved_tokens == 0

    @invariant()
    def a_paused_session_waits_for_something(self) -> None:
        if self.session.state is State.PAUSED:
            assert self.session.pending
            assert self.session.wake != "first" or not self.session.undelivered

    @invariant()
    def time_is_own_or_waiting(self) -> None:
        metrics = self.session.metrics
        assert metrics.own_ms(self.now) >= 0
        assert metrics.waiting_ms(self.now) >= 0
        if self.now >= metrics.last_activity_at:
            both = metrics.own_ms(self.now) + metrics.waiting_ms(self.now)
            assert both == metrics.elapsed_ms(self.now)

    @invariant()
    def it_can_always_be_shown(self) -> None:
        encode(snapshot(self.session, self.now, history=CallHistory(self.entries)))
        if self.session.state is not State.ABSENT:
            assert event_of(self.session, self.now).to_json()["session_id"] == "s-walk"


Walk.TestCase.settings = settings(
    max_examples=examples(30), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWalk = Walk.TestCase


@given(values)
@settings(max_examples=examples(100), deadline=None)
def test_a_value_that_is_accepted_survives_storing(value: Any) -> None:
    check_value(value, "value")
    record = StatRecord(key="k", value=value)
    assert picture(decode_record(encode(record))) == picture(record)


def meaning(value: Any) -> object:
    """A value with nothing left in it that has no meaning: the order of keys."""
    match value:
        case dict():
            return ["object", sorted((key, repr(meaning(item))) for key, item in value.items())]
        case list():
            return ["array", [meaning(item) for item in value]]
        case _:
            return repr(value)


def backwards(value: Any) -> Any:
    """The same value, with the keys of every object in the opposite order."""
    match value:
        case dict():
            return {key: backwards(value[key]) for key in reversed(value)}
        case list():
            return [backwards(item) for item in value]
        case _:
            return value


@given(values, values)
@settings(max_examples=examples(100), deadline=None)
def test_fingerprints_are_equal_exactly_when_the_values_mean_the_same(first: Any, second: Any) -> None:
    assert fingerprint(first) == fingerprint(backwards(first))
    assert (fingerprint(first) == fingerprint(second)) == (meaning(first) == meaning(second))
