"""Agents: turns, inboxes, tools and workers, with a model that may fail, hang or break off."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

from holdfast.agent.errors import SessionEndedError, TurnInProgressError
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.messages import TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.providers.provider import ModelReply, ModelRequest, ProviderError, StreamItem, TextDelta
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.tool import Tool
from holdfast.core.queries import Usage
from holdfast.core.records import AnsweredRecord
from holdfast.engine.drivers import Attempt
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenario import LEASE_MS, Scenario
from holdfast.testing.simulation.world import SimulatedProcess

POLICIES = ("never", "safe", "idempotent", "confirm")


class SimulatedProvider:
    """A model that does what the last input says: `call never, safe` calls these tools, and then it answers.

    It keeps nothing: the same request gets the same reply, from any process, but for what that cost.
    """

    def __init__(self, process: SimulatedProcess, malformed: list[str]) -> None:
        self.id = "simulated"
        self._process = process
        self._malformed = malformed

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """See `Provider.stream`."""
        world, random = self._process.world, self._process.random
        self._check(request)
        await asyncio.sleep(random.expovariate(1 / 0.1))
        fails = world.strikes(world.faults.provider_faults, self._process.name, "model fails", random)
        fault = random.choice(("transient", "cut", "hang")) if fails else ""
        if fault == "transient":
            raise ProviderError("the service is busy", fault="overloaded")
        if fault == "hang":
            await asyncio.sleep(random.uniform(1.0, 4.0))
        reply = self._reply(request, world.outside.report(request.key, random))
        for block in reply.content:
            if isinstance(block, TextBlock):
                for word in block.text.split():
                    yield TextDelta(f"{word} ")
                    await asyncio.sleep(0.001)
        if fault == "cut":
            raise ProviderError("the stream broke off", fault="network")
        yield reply

    def _check(self, request: ModelRequest) -> None:
        """A request is well formed: each call has one result, right after it."""
        calls = [b.id for m in request.messages for b in m.content if isinstance(b, ToolUseBlock)]
        results = [b.tool_use_id for m in request.messages for b in m.content if isinstance(b, ToolResultBlock)]
        if Counter(calls) != Counter(results):
            self._malformed.append(f"{request.key}: calls {calls}, results {results}")

    @staticmethod
    def _reply(request: ModelRequest, usage: Usage) -> ModelReply:
        last = max(
            index
            for index, message in enumerate(request.messages)
            if message.role == "user" and not any(isinstance(b, ToolResultBlock) for b in message.content)
        )
        said = "".join(b.text for b in request.messages[last].content if isinstance(b, TextBlock))
        wanted = said.partition("call ")[2].split()[:4]
        done = sum(isinstance(b, ToolUseBlock) for m in request.messages[last:] for b in m.content)
        before = sum(isinstance(b, ToolUseBlock) for m in request.messages[:last] for b in m.content)
        if done < len(wanted) and done < len(POLICIES):
            call = ToolUseBlock(f"call_{before + done}", wanted[done], {})
            return ModelReply(content=[TextBlock("one moment"), call], stop="tool_use", usage=usage)
        return ModelReply(content=[TextBlock(f"done with {said}")], usage=usage)


class Agents(Scenario):
    """Agents whose inboxes workers drain, and whose clients also run turns themselves."""

    name: ClassVar[str] = "agents"
    engines: ClassVar[tuple[int, int]] = (1, 2)

    def prepare(self) -> None:
        self.malformed: list[str] = []
        self.inputs: dict[str, list[tuple[str, str]]] = {}
        for number in range(self.random.randint(1, 3)):
            random = Random(f"{self.world.seed}/inputs/{number}")
            self.inputs[f"a{number}"] = [
                (random.choice(("enqueue", "enqueue", "turn")), self._input(random, index))
                for index in range(random.randint(1, 3))
            ]
        self.cancels = {f"{each}-i0" for each in self.inputs if self.random.random() < 0.2}
        super().prepare()

    @staticmethod
    def _input(random: Random, index: int) -> str:
        tools = random.choices(POLICIES, k=random.randint(0, 3))
        return f"input {index}" + (f" call {' '.join(tools)}" if tools else "")

    @asynccontextmanager
    async def runtime(self, process: SimulatedProcess, **options: Any) -> AsyncIterator[Runtime]:
        """A runtime in a process."""
        async with Runtime(
            process.store(),
            provider=self.provider(process),
            model="simulated-1",
            tools=[self._tool(process, policy) for policy in POLICIES],
            lease_ms=LEASE_MS,
            environment=process.environment,
            **options,
        ) as runtime:
            yield runtime

    def provider(self, process: SimulatedProcess) -> SimulatedProvider:
        """The model that a process has."""
        return SimulatedProvider(process, self.malformed)

    def _tool(self, process: SimulatedProcess, policy: str) -> Any:
        outside = self.world.outside

        async def effect(ctx: ToolContext) -> str:
            """Do something outside."""
            session_id, _, asked = ctx.key.rpartition("/")
            return str(await outside.perform(process, policy, Attempt(session_id, asked, ctx.attempt)))

        settings: Any = {"recovery": policy, "probe": outside.probe if policy == "confirm" else None}
        return Tool.of(effect, name=policy, **settings)

    async def serve(self, process: SimulatedProcess) -> None:
        async with self.runtime(process) as runtime, runtime.work(drain_s=1.0):
            await process.is_closing.wait()

    async def run_client(self, process: SimulatedProcess) -> None:
        number = int(process.name.rpartition("-")[2])
        upkeep = Upkeep(on=process.random.random() < 0.5)
        async with self.runtime(process, upkeep=upkeep) as runtime:
            client = Client(process, runtime.mount.holdfast, self.history)
            mine = [each for index, each in enumerate(self.inputs) if index % self.number_of_clients == number]
            await asyncio.gather(*(self._talk(client, runtime, session_id) for session_id in mine))

    async def _talk(self, client: Client, runtime: Runtime, session_id: str) -> None:
        session = await client.insist(lambda: runtime.session(session_id).open())
        self.history.started.setdefault(session_id, client.now_s())
        for index, (how, text) in enumerate(self.inputs[session_id]):
            item_id = f"{session_id}-i{index}"
            if how == "enqueue":
                await client.insist(session.enqueue(text).id(item_id).send)
                client.process.note(f"enqueued {item_id}")
                if item_id in self.cancels:
                    await client.insist(lambda item_id=item_id: session.cancel(item=item_id))  # type: ignore[misc]
            else:
                await self._turn(client, session, f"{session_id}-t{index}", text)
            await client.rest()
        for index, (how, _) in enumerate(self.inputs[session_id]):
            while how == "enqueue" and not await self._is_settled(client, session, f"{session_id}-i{index}"):
                await client.rest()

    async def _turn(self, client: Client, session: AgentSession, turn_id: str, text: str) -> None:
        while True:
            try:
                await client.insist(lambda: session.turn(text).id(turn_id).run(wait=20.0))
                client.process.note(f"turn {turn_id} is over")
                return
            except (TurnInProgressError, TimeoutError):
                await client.rest()
            except SessionEndedError:
                return

    @staticmethod
    async def _is_settled(client: Client, session: AgentSession, item_id: str) -> bool:
        return (await client.insist(lambda: session.outcome(item_id))).is_settled

    def may_wait(self, session_id: str) -> bool:
        row = self.world.server._by_id[session_id].summary
        return row.waiting_for == "input"

    def problems(self, run: Evidence) -> Iterator[Problem]:
        for text in self.malformed:
            yield Problem("requests", text.partition("/")[0], f"a model got a request that is not well formed: {text}")
        for session_id, inputs in self.inputs.items():
            if session_id not in run.sessions:
                continue
            accepted = agent_fold(run.sessions[session_id]).inbox.accepted
            for index, (how, _) in enumerate(inputs):
                item_id = f"{session_id}-i{index}"
                if how == "enqueue" and item_id not in accepted:
                    yield Problem("inbox", session_id, f"{item_id} was accepted, and is not there")
                elif how == "enqueue" and accepted[item_id].state == "waiting":
                    yield Problem("inbox", session_id, f"{item_id} still waits")
            yield from self._bad_turns(session_id, run)

    def _bad_turns(self, session_id: str, run: Evidence) -> Iterator[Problem]:
        """Turns that ended without a reason of their own."""
        for entry in run.journals[session_id]:
            record = entry.record
            if isinstance(record, TurnRecord) and not self.world.faults.provider_faults:
                text = str(record)
                if "provider_error" in text:
                    yield Problem(
                        "truthful", session_id, f"no provider failed, but a turn of {session_id} says: {text}"
                    )
            if isinstance(record, AnsweredRecord) and "store simulated:" in str(record.answer):
                yield Problem("truthful", session_id, f"{session_id}/{record.query_id} got an error of the store")
