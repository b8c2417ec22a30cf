"""`AgentScenario`: agents in a simulation, with their tools and plugins, runtimes that work for them, and clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, ClassVar

from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import ModelReply, ModelRequest
from holdfast.agent.providers.retry import RetryPolicy
from holdfast.agent.runtime import Runtime
from holdfast.agent.runtime_options import ModelOptions
from holdfast.agent.tools.context import ToolContext
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Problem
from holdfast.testing.simulation.inspection import Inspector
from holdfast.testing.simulation.model import SimulatedModel
from holdfast.testing.simulation.scenario import LEASE_MS, Scenario
from holdfast.testing.simulation.world import SimulatedProcess

CALL_S = 5.0
"""Seconds that a model has for a reply."""


class AgentScenario(Scenario):
    """Runtimes that drain the inboxes of agents, and clients that talk to them. Subclass it, and say what the model
    replies, which tools and plugins there are, and what clients do, in `reply`, `make_tools`, `make_plugins`, `talk`.
    """

    engines: ClassVar[tuple[int, int]] = (1, 2)

    # --- to be overridden ----------------------------------------------------------------------------

    def reply(self, request: ModelRequest) -> ModelReply:
        """What the model replies to a request. It must follow from the request alone."""
        raise NotImplementedError

    def make_tools(self) -> Sequence[Any]:
        """The tools of all runtimes, called once a run."""
        return ()

    def make_plugins(self) -> Sequence[Plugin]:
        """The plugins of a runtime, called for each life of each of them."""
        return ()

    async def talk(self, client: Client, runtime: Runtime, number: int) -> None:
        """What the client of that number does. Called again from the start after it was killed."""

    # --- for tools -----------------------------------------------------------------------------------

    async def perform(
        self,
        ctx: ToolContext,
        policy: str,
        value: Callable[[int], Json] | None = None,
        call_back: Callable[[Json], Awaitable[None]] | None = None,
    ) -> Json:
        """What a tool does outside, as `Outside.perform` does it; `policy` is the tool's recovery."""
        return await self.world.outside.perform(self.world.current, policy, attempt_of(ctx), value, call_back)

    # --- what runs in the processes ------------------------------------------------------------------

    @cached_property
    def tools(self) -> list[Any]:
        """The tools that `make_tools` made."""
        return list(self.make_tools())

    def provider(self, process: SimulatedProcess) -> SimulatedModel:
        """The model that a process has."""
        return SimulatedModel(process, self.reply)

    @asynccontextmanager
    async def runtime(self, process: SimulatedProcess, **options: Any) -> AsyncIterator[Runtime]:
        """A runtime in a process."""
        async with Runtime(
            process.store(),
            provider=self.provider(process),
            model="simulated-1",
            models=ModelOptions(retry=RetryPolicy(call_timeout_s=CALL_S)),
            tools=self.tools,
            plugins=self.make_plugins(),
            lease_ms=LEASE_MS,
            environment=process.environment,
            **options,
        ) as runtime:
            yield runtime

    async def serve(self, process: SimulatedProcess) -> None:
        async with self.runtime(process) as runtime, runtime.work(drain_s=1.0):
            await process.is_closing.wait()

    async def run_client(self, process: SimulatedProcess) -> None:
        number = int(process.name.rpartition("-")[2])
        upkeep = Upkeep(on=process.random.random() < 0.5)
        async with self.runtime(process, upkeep=upkeep) as runtime:
            client = Client(process, runtime.mount.holdfast, self.history)
            await self.talk(client, runtime, number)

    async def inspect(self, process: SimulatedProcess) -> list[Problem]:
        async with self.runtime(process, upkeep=Upkeep(on=False)) as runtime:
            inspector = Inspector(process, runtime.mount.holdfast)
            await inspector.inspect()
            return inspector.problems

    def may_wait(self, session_id: str) -> bool:
        return self.world.server._by_id[session_id].summary.waiting_for == "input"


def attempt_of(ctx: ToolContext) -> Attempt:
    """The attempt that a tool was called for."""
    session_id, _, asked = ctx.key.rpartition("/")
    return Attempt(session_id, asked, ctx.attempt)
