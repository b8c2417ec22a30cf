"""A store as it should be, made of dicts, and a hypothesis machine that compares a real one with it, call by call."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core.decide import (
    Message,
    WakeMessage,
    decide_complete,
    decide_feed,
    decide_pause,
    decide_start,
)
from holdfast.core.errors import HoldfastError, SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.queries import HumanQuery, TimerQuery
from holdfast.core.records import Entry, LoggedRecord, Program, Record
from holdfast.core.state import Session, State
from holdfast.core.summary import Summary, summarize
from holdfast.core.values import Json
from holdfast.store.commits import Checkpoint, Commit, Lease, Segment, Snapshot
from holdfast.store.contract import StateItem, Store
from holdfast.store.errors import (
    ForkPositionError,
    LeaseHeldError,
    LeaseLostError,
    MessageConflictError,
    MessageTakenError,
    PositionConflictError,
    StateConflictError,
)
from holdfast.store.mailbox import MailboxItem
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.sessions import all_rows, feed

SETTINGS = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""Small enough for every run of the suite. Where `CI` is set, hypothesis draws the same examples each time."""

T = TypeVar("T")

_NAMES = st.sampled_from(["a", "a", "a", "a", "b", "gone"])  # mostly one session, so that calls meet
_OWNERS = st.sampled_from(["alice", "bob"])
_KEYS = st.sampled_from(["k_1", "k_1", "K_1"])
_HOLDS = st.sampled_from(["long", "long", "moment"])
_ACTS = st.sampled_from(["nothing", "log", "log", "say much", "ask", "wait", "answer", "complete"])
_LONG_MS, _MOMENT_MS = 3_600_000, 1


class _AppendAttempt(msgspec.Struct, frozen=True):
    """How an append is tried: what happens, with which right to write, and what may be wrong with it."""

    what: str
    right: str
    hold: str
    takes: str
    behind: int
    snapshot: bytes | None
    checkpoint: str


_ATTEMPTS = st.builds(
    _AppendAttempt,
    what=_ACTS,
    right=st.sampled_from(["current", "current", "stale", "claim"]),
    hold=st.sampled_from(["long", "long", "moment", "none"]),
    takes=st.sampled_from(["none", "none", "first", "all", "unknown"]),
    behind=st.sampled_from([0, 0, 0, 1]),
    snapshot=st.sampled_from([None, None, b"", b"one", b"two" * 1_000]),
    checkpoint=st.sampled_from(["none", "none", "alone", "with a segment", "anew"]),
)


class _ModelSession:
    """One session of the model."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.entries: list[Entry] = []
        self.epoch = 0
        self.last_owner = ""
        self.held = False
        self.waiting: dict[int, MailboxItem] = {}
        self.sent: dict[str, MailboxItem] = {}
        self.snapshot: Snapshot | None = None
        self.checkpoint: Checkpoint | None = None
        self.segments: list[Segment] = []

    @property
    def owner(self) -> str | None:
        return self.last_owner if self.held else None

    @property
    def session(self) -> Session:
        return Session.fold(self.id, self.entries)

    @property
    def summary(self) -> Summary:
        return summarize(self.session)

    def is_held_from(self, owner: str) -> bool:
        return self.held and self.last_owner != owner

    def claim(self, owner: str) -> None:
        self.epoch += 1
        self.last_owner = owner


def act(model: _ModelSession, what: str, now: int) -> list[Record]:
    """One thing that may happen to the session next, or a line in its log, or nothing once it has ended."""
    session = model.session
    match what:
        case "nothing":
            return []
        case "say much":
            return [] if session.is_terminal else [LoggedRecord(message=LARGE)]
        case "ask" if session.state is State.RUNNING:
            return [decide_pause(session, [HumanQuery(prompt="?")], now).record, LoggedRecord(message="asked")]
        case "wait" if session.state is State.RUNNING:
            return [decide_pause(session, [TimerQuery(delay_ms=50), HumanQuery(prompt="?")], now).record]
        case "answer" if session.pending:
            return decide_feed(session, feed("x", next(iter(session.pending)))).records
        case "complete" if session.state is State.RUNNING:
            return [decide_complete(session, now)]
        case _:
            return [] if session.is_terminal else [LoggedRecord(message=f"{what} at {now}")]


class _StoreMachine(RuleBasedStateMachine):
    """Calls a store at random and says, from the model, what each call must do."""

    open_store: Callable[[], Store]
    runs: itertools.count[int]

    def __init__(self) -> None:
        super().__init__()
        self.run = next(self.runs)
        self.prefix = f"m{self.run}-"
        self.now = 1_000_000
        self.sessions: dict[str, _ModelSession] = {}
        self.deleted: list[str] = []
        self.state: dict[str, StateItem] = {}
        self.runner = asyncio.Runner()
        self.store = type(self).open_store()
        self.do(self.store.open())

    def teardown(self) -> None:
        try:
            self.do(self.store.close())
        finally:
            self.runner.close()

    # --- asking both ---------------------------------------------------------------------------------

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def refuses(self, call: Coroutine[Any, Any, object], expected: type[HoldfastError]) -> None:
        try:
            self.do(call)
        except HoldfastError as error:
            if type(error) is not expected:
                raise AssertionError(f"expected {expected.__name__}, got {error!r}") from error
        else:
            raise AssertionError(f"expected {expected.__name__}, but the call was accepted")

    def id(self, name: str) -> str:
        """The id that a name stands for: the session in use, or for `gone` one that was deleted."""
        if name == "gone" and self.deleted:
            return self.deleted[-1]
        return f"{self.prefix}{name}{sum(gone.startswith(self.prefix + name) for gone in self.deleted)}"

    def missing(self, session_id: str) -> type[HoldfastError] | None:
        """The error for a session that is not there."""
        if session_id in self.sessions:
            return None
        return SessionDeletedError if session_id in self.deleted else SessionNotFoundError

    def hold(self, model: _ModelSession, hold: str) -> None:
        """The model's side of holding a session; a lease of a moment is waited out, so that both agree on it."""
        model.held = hold == "long"
        if hold == "moment":
            self.do(asyncio.sleep(_MOMENT_MS / 1_000 + 0.004))

    # --- journals and leases -------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.create("a", "alice", "long")

    @rule(name=st.sampled_from(["b", "b", "a", "gone"]), owner=_OWNERS, hold=_HOLDS)
    def create(self, name: str, owner: str, hold: str) -> None:
        session_id = self.id(name)
        self.now += 10
        model = _ModelSession(session_id)
        model.entries = [Entry(1, self.now, decide_start(Program("native", "task"), ctx={"name": name}))]
        call = self.store.append(
            Commit(
                session_id=session_id,
                expected=0,
                entries=model.entries,
                summary=model.summary,
                owner=owner,
                hold_ms=_MOMENT_MS if hold == "moment" else _LONG_MS,
            )
        )
        if session_id in self.sessions:
            return self.refuses(call, SessionExistsError)
        if session_id in self.deleted:
            return self.refuses(call, SessionDeletedError)
        receipt = self.do(call)
        assert (receipt.session_id, receipt.position) == (session_id, 1)
        model.epoch, model.last_owner = receipt.epoch, owner
        self.hold(model, hold)
        self.sessions[session_id] = model
        return None

    @rule(source=_NAMES, name=st.sampled_from(["b", "b", "a", "gone"]), back=st.sampled_from([-1, 0, 0, 1, 2, 4]))
    def fork(self, source: str, name: str, back: int) -> None:
        """Fork a session so many records before its end."""
        origin, session_id = self.sessions.get(self.id(source)), self.id(name)
        at = max(1, len(origin.entries) - back) if origin is not None else 1
        started = decide_start(Program("native", "task"), ctx={"name": name})
        model = _ModelSession(session_id)
        model.entries = [Entry(1, self.now, started), *(origin.entries[1:at] if origin is not None else [])]
        commit = Commit(
            session_id=session_id,
            expected=0,
            entries=model.entries[:1],
            summary=model.summary,
            owner="alice",
            hold_ms=0,
        )
        call = self.store.fork(self.id(source), at, commit)
        if origin is None:
            error = self.missing(self.id(source))
            assert error is not None
            return self.refuses(call, error)
        if at > len(origin.entries):
            return self.refuses(call, ForkPositionError)
        if session_id in self.sessions:
            return self.refuses(call, SessionExistsError)
        if session_id in self.deleted:
            return self.refuses(call, SessionDeletedError)
        receipt = self.do(call)
        assert (receipt.session_id, receipt.position) == (session_id, at)
        model.epoch, model.last_owner = receipt.epoch, "alice"
        self.sessions[session_id] = model
        return None

    @rule(name=_NAMES, owner=_OWNERS, attempt=_ATTEMPTS)
    def append(self, name: str, owner: str, attempt: _AppendAttempt) -> None:
        session_id = self.id(name)
        model = self.sessions.get(session_id)
        if model is None:
            return self._append_to_nothing(session_id, owner)
        self.now += 10
        takes, behind = attempt.takes, attempt.behind
        expected = len(model.entries) + behind
        records = act(model, attempt.what, self.now)
        entries = [Entry(expected + i, self.now + i, record) for i, record in enumerate(records, 1)]
        after = _ModelSession(session_id)
        after.entries = model.entries + entries
        numbers = {"none": [], "first": [*model.waiting][:1], "all": [*model.waiting], "unknown": [10**9]}[takes]
        epoch = {"current": model.epoch, "stale": model.epoch - 1, "claim": None}[attempt.right]
        writer = owner if epoch is None else model.last_owner
        snapshot = None if attempt.snapshot is None else Snapshot(expected + len(entries), attempt.snapshot)
        position, kept = expected + len(entries), [] if attempt.checkpoint == "anew" else model.segments
        end = kept[-1].position if kept else 0
        checkpoint = None if attempt.checkpoint == "none" else Checkpoint(position, b"state at %d" % position)
        is_cut = attempt.checkpoint in ("with a segment", "anew") and end < position
        segment = Segment(end, position, b"%d" % self.now) if is_cut else None
        call = self.store.append(
            Commit(
                session_id=session_id,
                expected=expected,
                entries=entries,
                summary=model.summary if behind else after.summary,
                owner=writer,
                epoch=epoch,
                hold_ms={"long": _LONG_MS, "moment": _MOMENT_MS, "none": 0}[attempt.hold],
                takes=numbers,
                snapshot=snapshot,
                checkpoint=checkpoint,
                segment=segment,
            )
        )
        if attempt.right == "stale":
            return self.refuses(call, LeaseLostError)
        if epoch is None and model.is_held_from(writer):
            return self.refuses(call, LeaseHeldError)
        if behind:
            # The contract does not say which of two faults is reported, so there is only one.
            return self.refuses(call, PositionConflictError) if takes != "unknown" else call.close()
        if takes == "unknown":
            return self.refuses(call, MessageTakenError)
        receipt = self.do(call)
        if epoch is None:
            model.claim(writer)
        model.entries += entries
        model.snapshot = None if model.session.is_terminal else snapshot or model.snapshot
        model.checkpoint = checkpoint or model.checkpoint
        if segment is not None:
            model.segments = [*kept, segment]
        for number in [*model.waiting] if model.session.is_terminal else numbers:
            del model.waiting[number]
        self.hold(model, attempt.hold)
        assert (receipt.position, receipt.epoch) == (len(model.entries), model.epoch)
        return None

    def _append_to_nothing(self, session_id: str, owner: str) -> None:
        entries = [Entry(1, self.now, decide_start(Program("native", "task")))]
        summary = summarize(Session.fold(session_id, entries))
        commit = Commit(session_id=session_id, expected=1, entries=[], summary=summary, owner=owner)
        error = self.missing(session_id)
        assert error is not None
        self.refuses(self.store.append(commit), error)

    @rule(name=_NAMES, stale=st.booleans())
    def release(self, name: str, stale: bool) -> None:
        model = self.sessions.get(self.id(name))
        if model is None:
            return
        self.do(self.store.release(Lease(model.id, model.last_owner, model.epoch - stale, 0)))
        model.held = model.held and stale

    # --- mailboxes -----------------------------------------------------------------------------------

    @rule(name=_NAMES, key=_KEYS, message=st.sampled_from([WakeMessage(), feed("yes"), feed({"b": 1, "a": 2})]))
    def send(self, name: str, key: str, message: Message) -> None:
        self.now += 10
        call = self.store.send(self.id(name), key, message, self.now)
        if error := self.missing(self.id(name)):
            return self.refuses(call, error)
        model = self.sessions[self.id(name)]
        before = model.sent.get(key)
        if before is not None and before.message != message:
            return self.refuses(call, MessageConflictError)
        receipt = self.do(call)
        assert receipt.replayed is (before is not None)
        if before is None:
            model.sent[key] = MailboxItem(receipt.number, key, self.now, message)
            if not model.session.is_terminal:
                model.waiting[receipt.number] = model.sent[key]
        else:
            assert receipt.number == before.number
        return None

    # --- state, ends ---------------------------------------------------------------------------------

    @rule(
        key=_KEYS,
        value=st.sampled_from([None, 1, {"a": [1.0]}]),
        expect=st.sampled_from(["any", "right", "wrong", "delete"]),
    )
    def put_state(self, key: str, value: Json, expect: str) -> None:
        version = self.state[key].version if key in self.state else 0
        if expect == "delete":
            assert self.do(self.store.delete_state(f"{self.prefix}notes", key)) is bool(version)
            self.state.pop(key, None)
            return None
        expected = {"any": None, "right": version, "wrong": version + 1}[expect]
        call = self.store.put_state(f"{self.prefix}notes", key, value, expected=expected)
        if expect == "wrong":
            return self.refuses(call, StateConflictError)
        assert self.do(call) == version + 1
        self.state[key] = StateItem(value, version + 1)
        return None

    @rule(name=_NAMES, sure=st.sampled_from([False, False, False, True]))
    def delete(self, name: str, sure: bool) -> None:
        if not sure:
            return None
        session_id = self.id(name)
        call = self.store.delete(session_id, self.now)
        if self.missing(session_id) is SessionNotFoundError:
            return self.refuses(call, SessionNotFoundError)
        self.do(call)
        if self.sessions.pop(session_id, None):
            self.deleted.append(session_id)
        if name == "a":
            self.begin()
        return None

    # --- looking -------------------------------------------------------------------------------------

    @rule(states=st.lists(st.sampled_from(list(State)), max_size=3), waiting_for=st.sampled_from([None, "timer"]))
    def list_some(self, states: list[State], waiting_for: str | None) -> None:
        where = SessionFilter(states=states, waiting_for=waiting_for, id_prefix=self.prefix)
        expected = [
            model.id
            for model in reversed(self.sessions.values())
            if (not states or model.summary.state in states)
            and (waiting_for is None or waiting_for in model.summary.waiting_for.split(","))
        ]
        assert [row.session_id for row in self.do(all_rows(self.store, where, limit=1))] == expected

    @rule(later=st.sampled_from([-1, 0, 60]))
    def due_some(self, later: int) -> None:
        now = min((model.summary.due_at or self.now for model in self.sessions.values()), default=self.now) + later
        expected = sorted(
            (model.summary.due_at, model.id)
            for model in self.sessions.values()
            if model.summary.due_at is not None and model.summary.due_at <= now
        )
        found = [due for due in self.do(self.store.due(now)) if due[0].startswith(self.prefix)]
        assert sorted((at, session_id) for session_id, at in found) == expected
        assert [at for _, at in found] == [at for at, _ in expected]

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        self.do(self._compare())

    async def _compare(self) -> None:
        store = self.store
        rows = await all_rows(store, SessionFilter(id_prefix=self.prefix))
        assert [row.session_id for row in rows] == [*reversed(self.sessions)]
        for row in rows:
            model = self.sessions[row.session_id]
            assert row == await store.session(model.id)
            assert (row.summary, row.position) == (model.summary, len(model.entries))
            assert (row.owner, row.epoch) == (model.owner, model.epoch)
            assert await store.read(model.id) == model.entries
            assert await store.mailbox(model.id) == [*model.waiting.values()]
            assert await store.snapshot(model.id) == model.snapshot
            known = (model.checkpoint, model.segments) if model.checkpoint is not None else None
            assert await store.checkpoint(model.id) == known
        for session_id in self.deleted:
            try:
                await store.session(session_id)
            except SessionDeletedError:
                continue
            raise AssertionError(f"{session_id} was deleted, and is there")
        assert await store.list_state(f"{self.prefix}notes") == sorted(self.state)
        for key, item in self.state.items():
            assert await store.get_state(f"{self.prefix}notes", key) == item


def machine_for(open_store: Callable[[], Store]) -> type[_StoreMachine]:
    """The machine for one kind of store."""
    return type("_StoreMachine", (_StoreMachine,), {"open_store": staticmethod(open_store), "runs": itertools.count()})
