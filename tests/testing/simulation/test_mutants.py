"""Deliberate bugs that the simulation has to find: a test that cannot fail would be worth nothing.

Each mutant names what it breaks, where it is looked for, and after how many seeds at the latest it must be found.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast import strategy
from holdfast.agent.machine import decide as agent_decide
from holdfast.agent.machine import inbox as agent_inbox
from holdfast.agent.machine.inbox import Item, claim
from holdfast.agent.processes import drivers as process_drivers
from holdfast.agent.processes.processes import derived_process_id
from holdfast.agent.triggers import drivers as trigger_drivers
from holdfast.core.decide import Decision, GivenAnswer
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Value
from holdfast.core.records import Entry
from holdfast.engine import delivery, drivers, effects, keeper, live_session, session_fold
from holdfast.engine.children import ChildSessions
from holdfast.engine.drivers import Attempt, Driver
from holdfast.engine.effects import Effects
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.keeper import Keeper
from holdfast.engine.patrol import Patrol
from holdfast.engine.session_fold import SessionFold
from holdfast.engine.takeover import Takeover
from holdfast.engine.timers import Timers
from holdfast.programs.native.ctx import Context
from holdfast.store import environment, leases, memory
from holdfast.store.commits import Commit, CommitReceipt, StateWrite
from holdfast.store.errors import PositionConflictError
from holdfast.store.leases import LeaseState
from holdfast.testing.simulation import Client, Evidence, Faults, Problem, Scenario, SimulatedProcess, simulate
from holdfast.testing.simulation.scenarios.agents import Agents
from holdfast.testing.simulation.scenarios.background import Background
from holdfast.testing.simulation.scenarios.clocks import Clocks
from holdfast.testing.simulation.scenarios.strategies import Strategies
from holdfast.testing.simulation.store import ServerCall, StoreServer
from tests.testing.simulation.test_findings import AnswersOnce, Counters, LongTool, ParentAndChild


class _NeverRaisedError(HoldfastError):
    """Stands for an error that code no longer recognises."""


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def _claims_what_is_held(session_id: str, head: LeaseState, owner: str, now: int) -> int:
    return head.epoch + 1


def _without_fence(commit: Commit, head: LeaseState, now: int) -> int:
    if commit.expected != head.position:
        raise PositionConflictError(commit.session_id, commit.expected, head.position)
    return max(head.epoch, commit.epoch or head.epoch + 1)


def _without_position(commit: Commit, head: LeaseState, now: int) -> int:
    return head.epoch + 1 if commit.epoch is None else commit.epoch


async def _always_again(*_: Any) -> None:
    return None


def _other_key(attempt: Attempt) -> str:
    again = f".{attempt.number}" if attempt.number > 1 else ""
    return f"{attempt.session_id}/{attempt.query_id}{again}"


async def _always_current(fold: SessionFold) -> bool:
    return True


_carry_out = StoreServer.carry_out


def _forgets_some(server: StoreServer, client: Any, name: str, args: tuple[Any, ...]) -> Any:
    """Every fortieth call is acknowledged and not carried out, if it is a commit to a session that is there."""
    commit = args[-1] if args else None
    if name != "_append" or len(server.calls) % 40 or not isinstance(commit, Commit) or not commit.expected:
        return _carry_out(server, client, name, args)
    epoch = commit.epoch or server._by_id[commit.session_id].head.epoch + 1
    receipt = CommitReceipt(commit.session_id, commit.expected + len(commit.entries), epoch)
    server.calls.append(ServerCall(0.0, server.now(), client.name, name, args, receipt))
    return receipt


async def _at_once(call: Callable[..., Any], *args: Any) -> Any:
    return await call(*args)


_answer = drivers._answer


def _without_usage(outcome: Any, asked: str) -> GivenAnswer:
    return msgspec.structs.replace(_answer(outcome, asked), usage=None)


def _whatever_version(write: StateWrite, version: int) -> int:
    return version + 1


_watch = Holdfast.watch


async def _shows_the_last_again(hf: Holdfast, session_id: str, from_: int = 0) -> AsyncIterator[Entry]:
    async for entry in _watch(hf, session_id, max(0, from_ - 1)):
        yield entry


def _takes_the_last(waiting: Iterable[Item], now: int, **options: Any) -> list[Item]:
    return claim(list(waiting)[::-1], now, **options)


async def _made_up(driver: Driver, query: Any, attempt: Attempt, why: str) -> GivenAnswer:
    return GivenAnswer(Value(value="done"), attempt.query_id)


async def _forgets_that_it_was(store: memory.MemoryStore, session_id: str, at: int) -> None:
    store._by_id.pop(session_id)


def _held_for_ever(owner: str, hold_ms: int, now: int) -> tuple[str, int]:
    return owner, now + 10**9


async def _sends_nothing(driver: Driver, query: Any, attempt: Attempt) -> str:
    return str(query.arguments["item"])


_ids = count()


def _another_process_each_time(trigger_id: str, key: str) -> str:
    return derived_process_id(trigger_id, key, str(next(_ids)))


@strategy(name="simulated_impatient")
async def impatient(ctx: Context) -> str:
    try:
        async with asyncio.timeout(0.5):
            await ctx.child(patient)
    except TimeoutError:
        pass
    return str(await ctx.ask("Is it still there?"))


@strategy(name="simulated_patient")
async def patient(ctx: Context) -> Any:
    return await ctx.ask("Nobody answers this")


class Abandons(ParentAndChild):
    """A parent that stops waiting for its child, and ends long after that."""

    name = "abandons"

    async def drive(self, client: Client, number: int) -> None:
        await client.start(impatient, "s")
        while not await client.has_ended("s"):
            for asked in await client.open_questions("s"):
                if asked[0] == "s":
                    await asyncio.sleep(8.0)
                    await client.feed(*asked, "yes")
            await client.rest()

    def problems(self, run: Evidence) -> Iterator[Problem]:
        return iter(())


@strategy(name="simulated_reader")
async def reader(ctx: Context) -> list[Any]:
    return [await ctx.tool("read") for _ in range(10)]


class Reads(ParentAndChild):
    """A tool that has to read the store."""

    name = "reads"

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def read() -> int:
            return await hf.store.position("s")

        hf.drive("read", read, recovery="safe")

    async def drive(self, client: Client, number: int) -> None:
        await client.start(reader, "s")
        while not await client.has_ended("s"):
            await client.rest()


class AnswersBusy(AnswersOnce):
    """The same, with a tool that takes long: the answer comes while the session is held."""

    name = "answers busy"

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def effect(attempt: Attempt) -> Any:
            await asyncio.sleep(2.0)
            return await self.world.outside.perform(process, "safe", attempt)

        hf.drive("quick", effect, recovery="safe")


TROUBLE = Faults(until_s=8.0, store_errors=0.03)
UNHEARD = Faults(until_s=10.0, lost_replies=0.7)
SKEWED = Faults(until_s=6.0, skew_s=2.0, kills=3)
CALM = Faults(until_s=1.0)
LATE = Faults(until_s=4.0, late_notices=1.0)
GREAT_TROUBLE = Faults(until_s=6.0, store_errors=0.15)
TROUBLED = "StoreUnavailableError"


NO_CHANGE = (agent_decide, "decide_configure", lambda *_: Decision([]))
NO_MAIL = [(module, "take_mail", _nothing) for module in (keeper, delivery)]


class Mutant(NamedTuple):
    """A bug: what is replaced by what, and where it must show."""

    name: str
    patches: list[tuple[Any, str, Any]]
    scenario: type[Scenario] = Strategies
    faults: Faults | None = None
    most: int = 60


MUTANTS = [
    Mutant("a session is claimed although it is held", [(leases, "claim_epoch", _claims_what_is_held)]),
    Mutant("the epoch of a writer is not checked", [(memory, "commit_epoch", _without_fence)], most=500),
    Mutant("the position of a writer is not checked", [(memory, "commit_epoch", _without_position)]),
    Mutant("a commit is acknowledged and not written", [(StoreServer, "carry_out", _forgets_some)]),
    Mutant("a lease is never let go", [(memory, "lease_columns", _held_for_ever)]),
    Mutant("nobody resumes orphans", [(Takeover, "_resume_orphans", _nothing), (Patrol, "_step", _nothing)]),
    Mutant("parents are not told of their children", [(ChildSessions, "_tell", _nothing)]),
    Mutant("children that nobody waits for go on", [(ChildSessions, "_cancel", _nothing)], Abandons, CALM),
    Mutant("what must never be repeated is", [(Driver, "recover", _always_again)]),
    Mutant("a repetition has another key", [(Attempt, "key", property(_other_key))], most=100),
    Mutant("timers do not fire", [(Timers, "_look", _nothing)]),
    Mutant("a lease is not kept", [(Keeper, "start", lambda keeper: None)], LongTool, CALM),
    Mutant("what is known is taken for what is stored", [(SessionFold, "is_current", _always_current)]),
    Mutant(
        "an owner takes no messages", [(each, "take_mail", _nothing) for each in (keeper, delivery)], AnswersOnce, LATE
    ),
    Mutant("the keeper of a lease ends at an error", [(keeper, TROUBLED, _NeverRaisedError)], LongTool, TROUBLE),
    Mutant("an error stops effects", [(live_session, TROUBLED, _NeverRaisedError)], LongTool, TROUBLE),
    Mutant("an answer is given up at an error", [(effects, "insist", _at_once)], LongTool, TROUBLE, 500),
    Mutant("an error of the store is an answer", [(drivers, TROUBLED, _NeverRaisedError)], Reads, TROUBLE),
    Mutant(
        "a message is refused at an error", [(delivery, TROUBLED, _NeverRaisedError)], AnswersBusy, GREAT_TROUBLE, 120
    ),
    Mutant("what a model says that it cost is forgotten", [(drivers, "_answer", _without_usage)]),
    Mutant("a shared value is written whatever it is", [(leases, "next_version", _whatever_version)], Counters, CALM),
    Mutant("an observer that comes back sees the last again", [(Holdfast, "watch", _shows_the_last_again)]),
    Mutant(
        "an attempt that was not begun is a death",
        [(Effects, "_is_unbegun", lambda *_: False)],
        ParentAndChild,
        UNHEARD,
    ),
    Mutant("a change of the policy is acknowledged and not written", [NO_CHANGE], Agents),
    Mutant("items are taken in another order", [(agent_inbox, "claim", _takes_the_last)], Agents),
    Mutant("an outcome that is not known is made up", [(Driver, "recover", _made_up)]),
    Mutant("the id of a deleted session is free", [(memory.MemoryStore, "_delete", _forgets_that_it_was)]),
    Mutant("a wake is not sent", [(process_drivers.WakeDriver, "execute", _sends_nothing)], Background),
    Mutant(
        "an event starts another process each time",
        [(trigger_drivers, "started_process_id", _another_process_each_time)],
        Background,
    ),
    Mutant("a clock that is set is believed at once", [(environment, "SETTLE_MS", 0)], Clocks),
    Mutant("times of a journal fall", [(session_fold, "max", lambda now, last: now)], ParentAndChild, SKEWED),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_simulation_finds_it(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name, replacement in mutant.patches:
        monkeypatch.setattr(target, name, replacement, raising=name != "max")
    found = next((seed for seed in range(mutant.most) if simulate(mutant.scenario, seed, mutant.faults).problems), None)
    assert found is not None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_without_the_bug_it_finds_nothing(mutant: Mutant) -> None:
    for seed in range(8):
        assert simulate(mutant.scenario, seed, mutant.faults).problems == []
