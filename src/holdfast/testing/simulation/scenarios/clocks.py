"""Clocks that are set by an hour or by days while sessions wait: timers are met, and nothing expires or is deleted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

from holdfast.core.queries import TimerQuery
from holdfast.core.records import AnsweredRecord, PausedRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store.environment import STEP_MS
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.liveness import STANDS_S
from holdfast.testing.simulation.scenarios.strategies import Strategies, drawn_step
from holdfast.testing.simulation.world import EPOCH_MS, SimulatedProcess

HOUR_S = 3_600.0
STEPS_S = (HOUR_S, 8 * 24 * HOUR_S, 60.0, -HOUR_S)
"""Seconds by which a clock is set."""

LASTS_S = (0.5, 6.0)
"""Seconds, from and to, after which it is set back."""

CLEANS_S = 0.5
"""Seconds between looks for what is too old."""


class Clocks(Strategies):
    """Sessions that sleep and wait for people, on engines that expire what is idle for an hour."""

    name: ClassVar[str] = "clocks"

    def prepare(self) -> None:
        super().prepare()
        random = Random(f"{self.world.seed}/steps")
        for number in range(random.randint(1, 4)):
            at_s, step_s, lasts_s = random.uniform(0.0, 5.0), random.choice(STEPS_S), random.uniform(*LASTS_S)
            choice = random.random()
            if self.keeps(f"step-{number}"):
                later = self.world.loop.call_later
                later(at_s, self._set_a_clock, step_s, lasts_s, choice, context=self.world.server_context)

    def _set_a_clock(self, step_s: float, lasts_s: float, choice: float) -> None:
        """Set the clock of one of the processes that live, and set it back after a while."""
        alive = [self.world.processes[name] for name in sorted(self.world.processes)]
        if not alive or self.world.is_calm:
            return
        process = alive[int(choice * len(alive))]
        self.world.jump(process, step_s)
        later = self.world.loop.call_later
        later(lasts_s, self._set_back, process, step_s, context=self.world.server_context)

    def _set_back(self, process: SimulatedProcess, step_s: float) -> None:
        if process.is_alive and not self.world.is_calm:  # in calm, all clocks are right
            self.world.jump(process, -step_s)

    def planned_steps(self, number: int) -> list[Any]:
        random = Random(f"{self.world.seed}/plan/{number}")
        sleep = ["sleep", round(random.uniform(0.1, 5.0), 2)]
        return [random.choice((sleep, drawn_step(random, 0))) for _ in range(random.randint(1, 3))] + [sleep]

    async def serve(self, process: SimulatedProcess) -> None:
        upkeep = Upkeep(idle_ttl_ms=int(HOUR_S * 1000), keep_ended_ms=int(HOUR_S * 1000))
        async with self.opened(process, upkeep=upkeep) as hf:
            self.register(hf, process)
            cleaning = asyncio.create_task(self._clean(hf))
            await process.is_closing.wait()
            cleaning.cancel()

    @staticmethod
    async def _clean(hf: Holdfast) -> None:
        while True:
            with contextlib.suppress(StoreUnavailableError):
                await hf.clean()
            await asyncio.sleep(CLEANS_S)

    def problems(self, run: Evidence) -> Iterator[Problem]:
        yield from super().problems(run)
        for session_id, entries in run.journals.items():
            asked: dict[str, tuple[float, float]] = {}
            for entry in entries:
                at_s = run.committed[session_id, entry.position]
                if isinstance(entry.record, PausedRecord):
                    timers = [query for query in entry.record.queries if isinstance(query, TimerQuery)]
                    asked_s = min(at_s, (entry.at - EPOCH_MS) / 1000)  # its commit may have taken long
                    asked |= {query.id: (asked_s, query.delay_ms / 1000) for query in timers}
                elif isinstance(entry.record, AnsweredRecord) and entry.record.query_id in asked:
                    where = f"{session_id}/{entry.record.query_id}"
                    yield from self._late_or_early(run, where, at_s, *asked[entry.record.query_id])

    def _late_or_early(
        self, run: Evidence, where: str, fired_s: float, asked_s: float, delay_s: float
    ) -> Iterator[Problem]:
        """Whether a timer fired when nobody could have meant it to.

        Clocks differ by their skew from the start, and what is less than a step is followed as drift. A timer may also
        be late for as long as things go wrong.
        """
        session_id = where.partition("/")[0]
        apart_s = 2 * (run.world.faults.wrong_by_s + STEP_MS / 1000)
        if fired_s < asked_s + delay_s - apart_s:
            text = f"{where} fired {asked_s + delay_s - fired_s:.3f} s early, and clocks were {apart_s:g} s apart"
            yield Problem("clocks", session_id, text)
        latest_s = max(asked_s + delay_s, run.world.calm_s) + apart_s + STANDS_S
        if fired_s > latest_s:
            yield Problem("clocks", session_id, f"{where} fired {fired_s - asked_s - delay_s:.3f} s late")
