"""What may do harm, and has to be bounded: a call that takes its process down, and an engine that is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from holdfast.engine.drivers import MAX_DEATHS, Attempt
from holdfast.engine.errors import RuntimeClosedError, SessionFailedError
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.world import SimulatedProcess


@strategy(name="simulated_deadly")
async def deadly(ctx: Context) -> Any:
    """Call a tool that takes its process down."""
    return await ctx.tool("deadly")


class Deadly(Scenario):
    """A tool that may be repeated, and takes its process down each time: it is given up, and the session ends."""

    name: ClassVar[str] = "deadly"
    clients: ClassVar[tuple[int, int]] = (1, 1)

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def effect(attempt: Attempt) -> Any:
            done = self.world.outside.perform(process, "safe", attempt)
            self.world.kill(process)
            return await done

        hf.drive("deadly", effect, recovery="safe")

    async def drive(self, client: Client, number: int) -> None:
        await client.start(deadly, "s")

    def problems(self, run: Evidence) -> Iterator[Problem]:
        begun = len(run.world.outside.executions)
        if begun > MAX_DEATHS:
            yield Problem("bounded", "s", f"a call that takes its process down was begun {begun} times")
        answer = run.settled.get(("s", "q-0"))
        if answer is None or "its process died" not in str(answer.value):
            yield Problem("bounded", "s", f"a call that takes its process down was answered with {answer}")


@strategy(name="simulated_question")
async def question(ctx: Context) -> Any:
    """Ask a person, who does not answer, while a tool runs."""
    return await asyncio.gather(ctx.ask("Well?"), ctx.tool("slow"))


class Closing(Scenario):
    """An engine is closed while callers wait for a session, and a tool that cannot be repeated is under way."""

    name: ClassVar[str] = "closing"
    clients: ClassVar[tuple[int, int]] = (1, 1)
    waits_s: ClassVar[float] = 30.0

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        hf.drive("slow", lambda: asyncio.sleep(self.random.choice([2.0, 1000.0])))

    def prepare(self) -> None:
        self.hanging: list[str] = []
        self.other: list[object] = []
        self.closes_after_s = self.random.choice([0.5, self.random.uniform(0.0, 0.05), self.random.uniform(0.0, 5.0)])
        super().prepare()

    async def run_client(self, process: SimulatedProcess) -> None:
        async with self.opened(process) as hf:
            self.register(hf, process)
            client = Client(process, hf, self.history)
            await client.start(question, "s")
            waiting = {
                asyncio.create_task(hf.result("s"), name="result"),
                asyncio.create_task(hf.resume("s"), name="resume"),
                asyncio.create_task(_read(hf, "s"), name="watch"),
                asyncio.create_task(hf.start(question, id="t"), name="start"),
                asyncio.create_task(hf.session("s"), name="session"),
            }
            await asyncio.sleep(self.closes_after_s)
            process.world.close(process)
        done, hanging = await asyncio.wait(waiting, timeout=self.waits_s)
        self.hanging += sorted(task.get_name() for task in hanging)
        for task in hanging:
            task.cancel()
        for outcome in await asyncio.gather(*done, return_exceptions=True):
            if isinstance(outcome, BaseException) and not self._is_expected(outcome):
                self.other.append(outcome)

    def _is_expected(self, error: BaseException) -> bool:
        """Whether a caller may get an error: its engine was closed, or something went wrong that has to."""
        faults = self.world.faults
        is_in_trouble = faults.store_errors or faults.lost_replies or faults.stuck_calls or faults.cuts
        return (
            isinstance(error, RuntimeClosedError)
            or (isinstance(error, StoreUnavailableError) and bool(is_in_trouble))
            or (isinstance(error, SessionFailedError) and "may or may not have run" in str(error))
        )

    def may_wait(self, session_id: str) -> bool:
        return True

    async def inspect(self, process: SimulatedProcess) -> list[Problem]:
        return []  # the sessions go on elsewhere

    def problems(self, run: Evidence) -> Iterator[Problem]:
        if self.hanging:
            text = f"{', '.join(self.hanging)} still waits {self.waits_s:.0f} s after its engine was closed"
            yield Problem("closed", "s", text)
        elif self.other:
            yield Problem("closed", "s", f"callers of a closed engine got {self.other}")
        if not run.world.struck:
            for entry in run.journals["s"]:
                if "the process that ran it died" in str(entry.record):
                    yield Problem("closed", "s", f"a shutdown was taken for a death: {entry.record}")


async def _read(hf: Holdfast, session_id: str) -> None:
    async for _ in hf.watch(session_id):
        pass


HARM: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in (Deadly, Closing)}
"""By the name that the command line knows."""
