"""Background work: events, triggers, schedules and processes, and the sessions that they wake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar, NamedTuple

import msgspec

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.processes.kind import readable_terms
from holdfast.agent.processes.terms import ProcessTerms, ToolWork, TurnWork
from holdfast.agent.runtime import Runtime
from holdfast.agent.triggers.terms import EventSource, TriggerTerms
from holdfast.agent.triggers.triggers import EmitReceipt
from holdfast.core.records import StartedRecord
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenarios.agents import Agents
from holdfast.testing.simulation.scenarios.conversations import entered
from holdfast.testing.simulation.world import EPOCH_MS

EVENT = "order"
"""The type of all events."""

KEYS = ("red", "blue")
"""The keys of events."""

EVERY_S = (1.0, 2.0)
"""Seconds, from and to, between two runs of a schedule."""

RUNS = 2
"""Runs of a schedule that a client waits for before it removes the schedule."""

EARLY_S = 0.1
"""Seconds by which a run may be early if its process has the right time: clocks are read to the millisecond."""


class PlannedTrigger(NamedTuple):
    """A trigger that a client registers."""

    name: str
    terms: dict[str, Any]
    every_s: float | None
    """Seconds between the runs of a schedule; None for one whose source is an event."""
    key: str | None
    """The key of the events that it is for; None for all of them."""


class PlannedProcess(NamedTuple):
    """A process that a client starts."""

    id: str
    terms: dict[str, Any]
    is_cancelled: bool


class Emission(NamedTuple):
    """An event that was acknowledged."""

    key: str
    """The key of the event, not of its emission."""
    receipt: EmitReceipt
    concerned: list[str]
    """The triggers that were registered for it then."""


class Background(Agents):
    """A client registers triggers, emits events and starts processes; workers do what follows from that."""

    name: ClassVar[str] = "background"
    clients: ClassVar[tuple[int, int]] = (1, 1)

    def prepare(self) -> None:
        super().prepare()
        self.inputs, self.observers, self.cancels = {}, [], set()
        self.emissions: list[Emission] = []
        self.is_removing = False
        """Whether triggers have been removed, in whichever life of their client."""
        random = self.random
        self.agents = [f"a{number}" for number in range(random.randint(1, 2))]
        drawn = [self._trigger(number) for number in range(random.randint(1, 3))]
        self.triggers = [each for each in drawn if self.keeps(each.name)]
        events = [(f"e{number}", random.choice(KEYS)) for number in range(random.randint(1, 3))]
        self.events = [each for each in events if self.keeps(each[0])]
        started = [self._process(number) for number in range(random.randint(0, 2))]
        self.started = [each for each in started if self.keeps(each.id)]

    def _trigger(self, number: int) -> PlannedTrigger:
        random = Random(f"{self.world.seed}/trigger/{number}")
        is_clock, key = random.random() < 0.3, random.choice((None, None, *KEYS))
        terms = self._work(random, f"trigger {number}")
        every_s = round(random.uniform(*EVERY_S), 1)
        if is_clock:
            terms |= {"overlap": random.choice(("skip", "queue")), "missed": "all", "missed_limit": 1_000}
        return PlannedTrigger(f"t{number}", terms, every_s if is_clock else None, key)

    def _process(self, number: int) -> PlannedProcess:
        random = Random(f"{self.world.seed}/process/{number}")
        return PlannedProcess(f"p{number}", self._work(random, f"process {number}"), random.random() < 0.2)

    def _work(self, random: Random, text: str) -> dict[str, Any]:
        """What is done, whether it may be done again, and whom it wakes."""
        is_bound, wake = random.random() < 0.2, random.choice((None, *self.agents))
        work: ToolWork | TurnWork = ToolWork(tool="never" if is_bound else "idempotent")
        if random.random() < 0.3:
            work, is_bound = TurnWork(input=text, session=random.choice(self.agents)), False
        return {"target": work, "recovery": "owner_bound" if is_bound else "rerunnable", "wake": wake}

    # --- the client ----------------------------------------------------------------------------------

    async def talk(self, client: Client, runtime: Runtime, number: int) -> None:
        for session_id in self.agents:
            await client.insist(lambda: runtime.session(session_id).open())  # noqa: B023
            self.history.started.setdefault(session_id, client.now_s())
        if not self.is_removing:
            await self._register(client, runtime)
            await self._emit(client, runtime)
            await self._start(client, runtime)
            await self._see_runs(client, runtime)
        await self._remove(client, runtime)

    async def _register(self, client: Client, runtime: Runtime) -> None:
        await client.insist(lambda: runtime.triggers.declare(EVENT))
        for planned in self.triggers:
            await client.insist(lambda: self._registered(runtime, planned))  # noqa: B023
            client.process.note(f"registered {planned.name}")

    async def _registered(self, runtime: Runtime, planned: PlannedTrigger) -> None:
        terms = dict(planned.terms)
        target = terms.pop("target")
        if planned.every_s is not None:
            await runtime.triggers.schedule(planned.name, target, every=planned.every_s, **terms)
        else:
            await runtime.triggers.register(planned.name, EventSource(type=EVENT, key=planned.key), target, **terms)

    async def _emit(self, client: Client, runtime: Runtime) -> None:
        for unique, key in self.events:
            receipt = await client.insist(
                lambda: runtime.triggers.emit(EVENT, key, idempotency_key=unique)  # noqa: B023
            )
            client.process.note(f"emitted {unique}: {receipt.occurrence}")
            concerned = [each.name for each in self.triggers if each.every_s is None and each.key in (None, key)]
            self.emissions.append(Emission(key, receipt, concerned))
            await client.rest()

    async def _start(self, client: Client, runtime: Runtime) -> None:
        for planned in self.started:
            terms = dict(planned.terms)
            work = terms.pop("target")
            await client.insist(lambda: runtime.processes.start(work, id=planned.id, **terms))  # noqa: B023
            self.history.started.setdefault(planned.id, client.now_s())
            if planned.is_cancelled:
                await client.insist(lambda: runtime.processes.cancel(planned.id, "enough"))  # noqa: B023

    async def _see_runs(self, client: Client, runtime: Runtime) -> None:
        """Wait until each schedule has had some runs."""
        for planned in self.triggers:
            while planned.every_s is not None:
                runs = await client.insist(lambda: runtime.triggers.history(planned.name))  # noqa: B023
                if len(runs) >= RUNS:
                    break
                await client.rest()

    async def _remove(self, client: Client, runtime: Runtime) -> None:
        self.is_removing = True
        for view in await client.insist(runtime.triggers.list):
            await client.insist(lambda: runtime.triggers.remove(view.name))  # noqa: B023

    # --- the laws ------------------------------------------------------------------------------------

    def problems(self, run: Evidence) -> Iterator[Problem]:
        for text in self.malformed:
            yield Problem("requests", text.partition("/")[0], f"a model got a request that is not well formed: {text}")
        processes = dict(_processes(run))
        yield from self._occurrences(processes)
        for planned in self.triggers:
            if planned.every_s is not None:
                yield from self._times(run, processes, planned)
        yield from self._wakes(run, processes)
        for session_id in self.agents:
            if session_id in run.journals:
                yield from self._bad_turns(session_id, run)

    def _occurrences(self, processes: dict[str, ProcessTerms]) -> Iterator[Problem]:
        """Each event starts one process for each trigger that it concerns, and none for another."""
        for emission in self.emissions:
            occurrence = emission.receipt.occurrence
            begun = [
                str(terms.origin.get("trigger"))
                for terms in processes.values()
                if terms.origin.get("occurrence") == occurrence
            ]
            if Counter(begun) != Counter(emission.concerned):
                text = f"event {occurrence} of {emission.key} concerns {emission.concerned}, and started {begun}"
                yield Problem("occurrences", occurrence, text)
            if missing := set(emission.receipt.processes.values()) - set(processes):
                yield Problem("occurrences", occurrence, f"{occurrence} was to start {missing}, which are not there")

    def _times(self, run: Evidence, processes: dict[str, ProcessTerms], planned: PlannedTrigger) -> Iterator[Problem]:
        """Each time of a schedule starts one process at most, and none before it has come."""
        source: Any = next(
            (terms.source for _, terms in _triggers(run) if terms.name == planned.name and terms.is_clock), None
        )
        if source is None:
            yield Problem("times", "", f"schedule {planned.name} was registered, and is not there")
            return
        runs = {
            process: int(str(terms.origin["at"]))
            for process, terms in processes.items()
            if terms.origin.get("trigger") == planned.name and "at" in terms.origin
        }
        for at, times in Counter(runs.values()).items():
            if times > 1 or (at - source.since) % source.every_ms or at <= source.since:
                yield Problem("times", "", f"{planned.name} had {times} runs for {at}, counted from {source.since}")
        for process, at in runs.items():
            early_s = (at - EPOCH_MS) / 1000 - run.committed[process, 1]
            if early_s > self.world.faults.wrong_by_s + EARLY_S:
                yield Problem("times", process, f"a run of {planned.name} was {early_s:.3f} s early")

    def _wakes(self, run: Evidence, processes: dict[str, ProcessTerms]) -> Iterator[Problem]:
        """Each process that is over has woken whom it was to wake, once."""
        for session_id in self.agents:
            if session_id not in run.sessions:
                continue
            accepted = agent_fold(run.sessions[session_id]).inbox.accepted
            seen = Counter(entered(run, session_id, run.journals[session_id]))
            for process, terms in processes.items():
                item_id = f"wake-{process}"
                if terms.wake != session_id:
                    if item_id in accepted:
                        yield Problem("wakes", process, f"{process} has woken {session_id}, which it was not to")
                elif run.is_settled and (item_id not in accepted or seen[item_id] != 1):
                    is_there = "is" if item_id in accepted else "is not"
                    text = f"{process} woke {session_id}: the item {is_there} there, and entered {seen[item_id]} times"
                    yield Problem("wakes", process, text)


def _processes(run: Evidence) -> Iterator[tuple[str, ProcessTerms]]:
    """The processes of a run with their terms."""
    for session_id, entries in run.journals.items():
        started = entries[0].record
        if isinstance(started, StartedRecord) and started.program.kind == "process":
            terms = readable_terms(started.ctx, ProcessTerms)
            if terms is not None:
                yield session_id, terms


def _triggers(run: Evidence) -> Iterator[tuple[str, TriggerTerms]]:
    """The triggers of a run with what they were registered with."""
    for session_id, entries in run.journals.items():
        started = entries[0].record
        if isinstance(started, StartedRecord) and started.program.kind == "trigger":
            yield session_id, msgspec.convert(started.ctx, TriggerTerms)
