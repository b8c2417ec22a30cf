"""Running the soak, and judging what the journals say afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import random
import signal
import statistics
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import INBOX
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.core.records import AnsweredRecord, Entry
from holdfast.core.state import Session, State
from holdfast.store import Store, open_store
from holdfast.store.session_rows import SessionFilter, SessionRow
from tests.paths import REPO

WORKERS = 2

SPARES = 3
"""Processes that are ready to take the place of one that was killed, or about to be."""

SETTLE_S = 60.0
"""Seconds after the last item within which all of them have to be settled."""

LOOK_S = 0.05
"""Seconds between looks for who has the sessions of a killed worker."""

START_S = 30.0
"""Seconds that a process has to start in, on a machine that does other things."""


@dataclass(frozen=True)
class Plan:
    """One run."""

    url: str
    ledger: Path
    seconds: float
    sessions: int
    seed: int = 1


@dataclass
class Life:
    """When a worker began (unix ms), and when it was killed."""

    began: int
    ended: float = math.inf


@dataclass
class Kill:
    """A worker that was killed, and what it was at work on just before."""

    at: int
    held: dict[str, tuple[int, int]]
    """Epoch and position of each session."""


@dataclass
class Report:
    """What came of a run."""

    plan: Plan
    took_s: float = 0.0
    kills: list[Kill] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    turns: int = 0
    items: int = 0
    cancels: Counter[str] = field(default_factory=Counter)
    takeovers_ms: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        took = sorted(self.takeovers_ms) or [0]
        return (
            f"{self.plan.url.partition(':')[0]}: seed {self.plan.seed}, {self.plan.sessions} sessions,"
            f" {self.items} items, {self.turns} turns in {self.took_s:.1f} s ({self.turns / self.took_s:.0f}/s),"
            f" {len(self.kills)} kills, {len(self.takeovers_ms)} takeovers"
            f" (p50 {statistics.median(took):.0f} ms, max {took[-1]} ms), cancels {dict(self.cancels)}"
        )


class Part:
    """A process of the soak."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.owner = ""
        self.life = Life(0)

    @classmethod
    async def start(cls, *arguments: str) -> Part:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "tests.agent.soak.child", *arguments)
        part = cls(await asyncio.create_subprocess_exec(*command, cwd=REPO, stdin=pipe, stdout=pipe))
        await part.heard()
        return part

    async def heard(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
        assert line, f"a process of the soak has ended with {await self._process.wait()}"
        return line.decode().strip()

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def work(self) -> Life:
        self.tell()
        self.owner = await self.heard()
        self.life = Life(_now())
        return self.life

    async def kill(self, number: int = signal.SIGKILL) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await asyncio.wait_for(self._process.wait(), START_S)


async def run(plan: Plan) -> Report:
    """Workers at work, one killed and replaced every second, and items and cancellations sent meanwhile."""
    report = Report(plan)
    chance = random.Random(plan.seed)
    sender = await Part.start(
        "sender", plan.url, f"{plan.seed}", f"{plan.seconds}", f"{plan.sessions}", str(plan.ledger)
    )
    numbers = itertools.count()
    watching: list[asyncio.Task[None]] = []

    def new() -> asyncio.Task[Part]:
        """Python takes its time to start, so it is not waited for before it is needed."""
        return asyncio.create_task(Part.start("worker", plan.url, f"{plan.seed}-{next(numbers)}"))

    workers = [await part for part in [new() for _ in range(WORKERS)]]
    spares = deque(new() for _ in range(SPARES))
    try:
        async with open_store(plan.url) as store:
            for worker in workers:
                report.lives.append(await worker.work())
            began = time.monotonic()
            sender.tell()
            while time.monotonic() - began < plan.seconds:
                await asyncio.sleep(1.0)
                victim = chance.choice(workers)
                workers.remove(victim)
                held = await _held(store, victim.owner)
                await victim.kill()
                victim.life.ended = _now()
                report.kills.append(Kill(_now(), held))
                watching.append(asyncio.create_task(_taken_over(store, report, report.kills[-1])))
                replaced = await spares.popleft()
                workers.append(replaced)
                spares.append(new())
                report.lives.append(await replaced.work())
            assert await sender.heard() == "done"
            await _settled(store)
            await asyncio.gather(*watching)
            report.took_s = time.monotonic() - began
            for worker in workers:
                assert await worker.kill(signal.SIGTERM) == 0
            await _judge(store, report)
    finally:
        for part in (*workers, sender, *[await spare for spare in spares]):
            await part.kill()
    return report


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _at_work(store: Store) -> dict[str, SessionRow]:
    """The sessions that wait for the model."""
    rows = (await store.sessions(SessionFilter(states=[State.PAUSED], waiting_for="llm"))).rows
    return {row.session_id: row for row in rows}


async def _held(store: Store, owner: str) -> dict[str, tuple[int, int]]:
    rows = (await _at_work(store)).values()
    return {row.session_id: (row.epoch, row.position) for row in rows if row.owner == owner}


async def _taken_over(store: Store, report: Report, kill: Kill) -> None:
    """Note how long it takes until somebody has each session that a killed worker had under way.

    It is counted for whoever was there all that time: those who could have done it may have been killed as well.
    """
    rows = await _at_work(store)
    left = {name for name, was in kill.held.items() if name in rows and (rows[name].epoch, rows[name].position) == was}
    while left:
        await asyncio.sleep(LOOK_S)
        rows = await _at_work(store)
        now = _now()
        there = [life.began for life in report.lives if life.ended > now]
        for name in list(left):
            if name not in rows or (rows[name].epoch, rows[name].position) != kill.held[name]:
                left.remove(name)
                report.takeovers_ms.append(now - max(kill.at, min(there, default=kill.at)))


async def _settled(store: Store) -> None:
    """Wait until no session is at work, or has something to do."""
    async with asyncio.timeout(SETTLE_S):
        while True:
            rows, after = [], None
            while True:
                page = await store.sessions(after=after)
                rows += page.rows
                if (after := page.next) is None:
                    break
            if all(row.summary.waiting_for == "input" for row in rows):
                return
            await asyncio.sleep(0.2)


# --- judging -----------------------------------------------------------------------------------------


async def _judge(store: Store, report: Report) -> None:
    ledger = [json.loads(line) for line in report.plan.ledger.read_text().splitlines()]
    report.items = sum(line["what"] == "accepted" for line in ledger)
    report.cancels = Counter(line["state"] for line in ledger if line["what"] == "cancelled")
    for number in range(report.plan.sessions):
        name = f"s-{number}"
        entries = [entry async for entry in store.journal(name)]
        told = [line for line in ledger if line["session"] == name]
        conversation = Conversation(name)
        for entry in entries:
            conversation.apply(entry)
        report.turns += len(conversation.turns)
        judged = Judged(Session.fold(name, entries), conversation, entries)
        report.broken += [f"{name}: {sentence}" for sentence in judged.broken(told)]


@dataclass
class Judged:
    """A session after the run."""

    session: Session
    conversation: Conversation
    entries: list[Entry]

    def broken(self, told: list[dict[str, Any]]) -> list[str]:
        """What was promised, and is not so."""
        return [
            *self._items([line["item"] for line in told if line["what"] == "accepted"]),
            *self._turns(),
            *(why for line in told if line["what"] == "cancelled" and (why := self._cancel(line)) is not None),
        ]

    def _items(self, accepted: list[str]) -> list[str]:
        in_turns = Counter(item for turn in self.conversation.turns.values() for item in turn.items)
        known = agent_fold(self.session).inbox.accepted
        broken = [f"item {item} was accepted, and is lost" for item in accepted if item not in known]
        for item, outcome in known.items():
            outcomes = in_turns[item] + (outcome.state == "cancelled")
            if outcomes != 1:
                broken.append(f"item {item} ({outcome.state}) has come to {outcomes} outcomes")
        places = [
            self.conversation.turns[outcome.turn].position
            for outcome in sorted(known.values(), key=lambda each: each.position)
            if outcome.turn is not None
        ]
        if places != sorted(places):
            broken.append(f"items were taken out of their order: {places}")
        return broken

    def _turns(self) -> list[str]:
        begun = Counter(
            msgspec.to_builtins(entry.record.answer)["value"]["turn"]
            for entry in self.entries
            if isinstance(entry.record, AnsweredRecord) and entry.record.by == INBOX
        )
        broken = [f"turn {turn} was begun {count} times" for turn, count in begun.items() if count != 1]
        broken += [f"turn {turn.id} did not end" for turn in self.conversation.turns.values() if turn.ended is None]
        ends = Counter(turn.ended_position for turn in self.conversation.turns.values())
        return broken + [f"{count} turns ended at {position}" for position, count in ends.items() if count != 1]

    def _cancel(self, line: dict[str, Any]) -> str | None:
        """Why an acknowledged cancellation was in vain, if it was."""
        if line["state"] == "withdrawn":
            known = agent_fold(self.session).inbox.accepted[line["item"]]
            return None if known.state == "cancelled" else f"item {line['item']} was withdrawn, and is {known.state}"
        if line["state"] == "stopped":
            ended = self.conversation.turns[line["turn"]].ended
            is_so = isinstance(ended, StoppedOutcome) and ended.reason == "cancelled"
            return None if is_so else f"turn {line['turn']} was stopped, and has come to {ended}"
        return None
