"""Agents: turns, inboxes, tools and workers, with a model that may fail, hang or break off."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

from holdfast.agent.errors import SessionEndedError, TurnInProgressError
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.messages import TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.providers.provider import ModelReply, ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.tool import Tool
from holdfast.core.records import AnsweredRecord
from holdfast.core.values import Json
from holdfast.engine.errors import ContentionError
from holdfast.engine.upkeep import Upkeep
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.simulation.agent_scenario import AgentScenario
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.inspection import Inspector
from holdfast.testing.simulation.model import last_input
from holdfast.testing.simulation.scenarios.agent_observer import MANNERS, AgentObserver
from holdfast.testing.simulation.scenarios.conversations import (
    AFTER_CALLS,
    BEFORE_CALLS,
    ITEM,
    TURN,
    ConfigureCall,
    configured,
    conversation,
)
from holdfast.testing.simulation.scenarios.inbox import ItemCall, inbox
from holdfast.testing.simulation.world import SimulatedProcess

SEEN_S = 20.0
"""Virtual seconds after which an observer has seen everything: it rests between connections, and may miss a
notification."""

POLICIES = ("never", "safe", "idempotent", "confirm")


def _settings(planned: list[PlannedInput], index: int) -> set[int | None]:
    """The settings that an input may be worked with: the one that it was sent with, and those of later inputs."""
    before = [each.setting for each in planned[: index + 1] if each.setting is not None]
    later = [each.setting for each in planned[index + 1 :] if each.setting is not None]
    return {before[-1] if before else None, *later}


class PlannedInput(NamedTuple):
    """What a client sends to an agent."""

    how: Literal["enqueue", "turn"]
    text: str
    setting: int | None
    """What it sets the policy to before, if anything; no two of a session are the same."""


class Agents(AgentScenario):
    """Agents whose inboxes workers drain, and whose clients also run turns themselves.

    The model does what the last input says: `call never safe` calls these tools, and then it answers.
    """

    name: ClassVar[str] = "agents"

    def prepare(self) -> None:
        self.malformed: list[str] = []
        """Requests that models should not have got."""
        self.configured: set[tuple[str, int]] = set()
        """Inputs before which the policy was changed, in whichever life of their client."""
        self.unsure: dict[str, set[int]] = {}
        """Settings of each session of which nobody knows whether they have been taken."""
        self.settings: list[ConfigureCall] = []
        self.items: list[ItemCall] = []
        self.results: list[tuple[str, str, str]] = []
        """The results of turns that clients were told: session, input and text."""
        drawn: dict[str, list[PlannedInput]] = {}
        for number in range(self.random.randint(1, 3)):
            random = Random(f"{self.world.seed}/inputs/{number}")
            drawn[f"a{number}"] = [self._input(random, index) for index in range(random.randint(1, 3))]
        self.cancels = {f"{each}-i0" for each in drawn if self.random.random() < 0.2}
        is_observed = self.random.random() < 0.5
        observers = [AgentObserver(each, self.random.choice(MANNERS)) for each in drawn]
        kept = {session_id: inputs for session_id, inputs in drawn.items() if self.keeps(session_id)}
        super().prepare()
        self.inputs = {
            session_id: [each for index, each in enumerate(inputs) if self.keeps(f"{session_id}/{index}")]
            for session_id, inputs in kept.items()
        }
        self.observers: list[AgentObserver] = []
        if is_observed and self.keeps("observer"):
            self.observers = [each for each in observers if each.session_id in kept]
            self.world.add_process("observer", self.run_observer, restarts=True)

    @staticmethod
    def _input(random: Random, index: int) -> PlannedInput:
        how: Literal["enqueue", "turn"] = random.choice(("enqueue", "enqueue", "turn"))
        tools = random.choices(POLICIES, k=random.randint(0, 3))
        text = f"input {index}" + (f" call {' '.join(tools)}" if tools else "")
        setting = random.choice((None, None, 1, 2))
        return PlannedInput(how, text, None if setting is None else 10 * index + setting)

    def reply(self, request: ModelRequest) -> ModelReply:
        self._check(request)
        last, said = last_input(request)
        wanted = said.partition("call ")[2].split()[:4]
        done = sum(isinstance(b, ToolUseBlock) for m in request.messages[last:] for b in m.content)
        before = sum(isinstance(b, ToolUseBlock) for m in request.messages[:last] for b in m.content)
        if done < len(wanted) and done < len(POLICIES):
            call = ToolUseBlock(f"call_{before + done}", wanted[done], {})
            return ModelReply(content=[TextBlock(BEFORE_CALLS), call], stop="tool_use")
        return ModelReply(content=[TextBlock(f"{AFTER_CALLS}{said}")])

    def _check(self, request: ModelRequest) -> None:
        """A request is well formed: each call has one result, and the setting is not older than its input."""
        calls = [b.id for m in request.messages for b in m.content if isinstance(b, ToolUseBlock)]
        results = [b.tool_use_id for m in request.messages for b in m.content if isinstance(b, ToolResultBlock)]
        if Counter(calls) != Counter(results):
            self.malformed.append(f"{request.key}: calls {calls}, results {results}")
        said = last_input(request)[1]
        planned = self.inputs.get(request.key.partition("/")[0], [])
        index = next((index for index, each in enumerate(planned) if each.text == said), None)
        allowed = _settings(planned, index or 0) | self.unsure.get(request.key.partition("/")[0], set())
        if index is not None and request.params.get("seed") not in allowed:
            self.malformed.append(f"{request.key}: {said!r} was sent after the setting in {request.params}")

    def make_tools(self) -> Sequence[Any]:
        return [self._tool(policy) for policy in POLICIES]

    def _tool(self, policy: str) -> Any:
        async def effect(ctx: ToolContext) -> str:
            """Do something outside."""

            async def call_back(value: Json) -> None:
                ctx.output(f"again: {value}")

            return str(await self.perform(ctx, policy, call_back=call_back))

        settings: Any = {"recovery": policy, "probe": self.world.outside.probe if policy == "confirm" else None}
        return Tool.of(effect, name=policy, **settings)

    async def talk(self, client: Client, runtime: Runtime, number: int) -> None:
        mine = [each for index, each in enumerate(self.inputs) if index % self.number_of_clients == number]
        await asyncio.gather(*(self._talk(client, runtime, session_id) for session_id in mine))

    async def _talk(self, client: Client, runtime: Runtime, session_id: str) -> None:
        session = await client.insist(lambda: runtime.session(session_id).open())
        self.history.started.setdefault(session_id, client.now_s())
        for index, planned in enumerate(self.inputs[session_id]):
            if planned.setting is not None and (session_id, index) not in self.configured:
                await self._configure(client, session, planned.setting)
                self.configured.add((session_id, index))
            if planned.how == "enqueue":
                await self._enqueue(client, session, f"{session_id}-i{index}", planned.text)
            else:
                await self._turn(client, session, f"{session_id}-t{index}", planned.text)
            await client.rest()
        for index, planned in enumerate(self.inputs[session_id]):
            while planned.how == "enqueue" and not await self._is_settled(client, session, f"{session_id}-i{index}"):
                await client.rest()

    async def _configure(self, client: Client, session: AgentSession, setting: int) -> None:
        """Change the policy. A try that nobody hears of may take effect at any time later."""
        unsure = self.unsure.setdefault(session.session_id, set())
        is_sure = setting not in unsure
        unsure.add(setting)
        call = ConfigureCall(session.session_id, setting, client.now_s())
        self.settings.append(call)
        with contextlib.suppress(SessionEndedError):
            while True:
                call.tries += 1
                try:
                    policy = await session.configure(generation={"seed": setting})
                    call.returned_s, call.policy = client.now_s(), policy.generation.get("seed")
                    client.process.note(f"set {session.session_id} to {setting}: {call.policy}")
                    break
                except (StoreUnavailableError, ContentionError):
                    is_sure = False
                    await client.rest()
        if is_sure:
            unsure.discard(setting)

    async def _enqueue(self, client: Client, session: AgentSession, item_id: str, text: str) -> None:
        called_s = client.now_s()
        await client.insist(session.enqueue(text).id(item_id).send)
        client.process.note(f"enqueued {item_id}")
        self.items.append(ItemCall(session.session_id, item_id, None, called_s, client.now_s()))
        if item_id in self.cancels:
            called_s = client.now_s()
            done = await client.insist(lambda: session.cancel(item=item_id))
            client.process.note(f"cancelled {item_id}: {done.state}")
            self.items.append(ItemCall(session.session_id, item_id, done.state, called_s, client.now_s()))

    async def _turn(self, client: Client, session: AgentSession, turn_id: str, text: str) -> None:
        while True:
            try:
                result = await client.insist(lambda: session.turn(text).id(turn_id).run(wait=20.0))
                client.process.note(f"turn {turn_id} is over")
                if result.is_success:
                    self.results.append((session.session_id, text, result.text))
                return
            except (TurnInProgressError, TimeoutError):
                await client.rest()
            except SessionEndedError:
                return

    async def _is_settled(self, client: Client, session: AgentSession, item_id: str) -> bool:
        called_s = client.now_s()
        outcome = await client.insist(lambda: session.outcome(item_id))
        self.items.append(ItemCall(session.session_id, item_id, outcome.status, called_s, client.now_s()))
        return outcome.is_settled

    async def run_observer(self, process: SimulatedProcess) -> None:
        """One life of an observer of all agents."""
        async with self.runtime(process, upkeep=Upkeep(on=False)) as runtime:
            client = Client(process, runtime.mount.holdfast, self.history)
            following = [asyncio.create_task(each.follow(client, runtime)) for each in self.observers]
            try:
                await process.is_closing.wait()
            finally:
                for each in following:
                    each.cancel()
                await asyncio.gather(*following, return_exceptions=True)

    async def inspect(self, process: SimulatedProcess) -> list[Problem]:
        async with self.runtime(process, upkeep=Upkeep(on=False)) as runtime:
            client = Client(process, runtime.mount.holdfast, self.history)
            unseen = [each async for each in self._unseen(client, runtime)]
            inspector = Inspector(process, runtime.mount.holdfast)
            await inspector.inspect()
            return [*unseen, *inspector.problems]

    async def _unseen(self, client: Client, runtime: Runtime) -> AsyncIterator[Problem]:
        """What observers have not seen although they had the time to."""
        for each in self.observers:
            observer = runtime.mount.observers.observe(each.session_id)
            deadline_s = client.now_s() + SEEN_S
            while (missing := await each.missing(client, observer)) and client.now_s() < deadline_s:
                await client.rest()
            if missing:
                yield Problem("observers", each.session_id, f"{each.session_id}: {missing}")

    def problems(self, run: Evidence) -> Iterator[Problem]:
        for text in self.malformed:
            yield Problem("requests", text.partition("/")[0], f"a model got a request that is not well formed: {text}")
        yield from inbox(run, self.items)
        yield from configured(run, self.settings)
        for session_id, text, told in self.results:
            if told != f"{AFTER_CALLS}{text}":
                yield Problem("inbox", session_id, f"the result of {text!r} was said to be {told!r}")
        for session_id, inputs in self.inputs.items():
            if session_id not in run.sessions:
                continue
            accepted = agent_fold(run.sessions[session_id]).inbox.accepted
            for index, planned in enumerate(inputs):
                item_id = f"{session_id}-i{index}"
                if planned.how == "enqueue" and item_id not in accepted:
                    yield Problem("inbox", session_id, f"{item_id} was accepted, and is not there")
                elif planned.how == "enqueue" and accepted[item_id].state == "waiting":
                    yield Problem("inbox", session_id, f"{item_id} still waits")
            texts = {
                f"{session_id}-{ITEM if each.how == 'enqueue' else TURN}{index}": each.text
                for index, each in enumerate(inputs)
            }
            yield from conversation(run, session_id, texts)
            yield from self._bad_turns(session_id, run)

    def _bad_turns(self, session_id: str, run: Evidence) -> Iterator[Problem]:
        """Turns that ended without a reason of their own."""
        for entry in run.journals[session_id]:
            record = entry.record
            if isinstance(record, TurnRecord) and not self.world.faults.provider_faults:
                text = str(record)
                if "provider_error" in text and "its process died" not in text:
                    yield Problem(
                        "truthful", session_id, f"no provider failed, but a turn of {session_id} says: {text}"
                    )
            if isinstance(record, AnsweredRecord) and "store simulated:" in str(record.answer):
                yield Problem("truthful", session_id, f"{session_id}/{record.query_id} got an error of the store")
