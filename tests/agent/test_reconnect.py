"""Watchers that are dropped at random points and come back: each ends with exactly what was said."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator

from holdfast.agent.live_events import TextDeltaEvent
from holdfast.agent.observed_events import TurnEndedEvent
from holdfast.agent.observer import Observer
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.transcript import Transcript
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedProvider, ScriptStep, stream, tool_call
from tests.agent.helpers import Home, add
from tests.paths import REPO

PIECES = [f"word{number} " for number in range(30)]

WATCHERS = 200

SESSIONS = 4

TURNS = 3


def answer(request: ModelRequest) -> ScriptStep:
    """What the model says: first that it calls a tool, and then a text that comes in pieces."""
    if request.messages[-1].role == "user":
        return [stream("Let ", "me ", "see."), tool_call("add", a=1, b=2)]
    return stream(*PIECES, every_s=0.001)


def model() -> ScriptedProvider:
    return ScriptedProvider([answer], loop=True)


KNOWN = ("Let me see.", "".join(PIECES))
"""All that the model says."""


class Client:
    """Watches a session as a browser does: it is cut off now and then, and comes back with its cursor."""

    def __init__(self, observer: Observer, rng: random.Random) -> None:
        self._observer = observer
        self._rng = rng
        self.drops = 0
        self.pieces = 0

    async def open(self) -> None:
        self.transcript = Transcript(await self._observer.current())

    async def watch(self, last: str) -> Transcript:
        """Until a turn is over."""
        transcript, is_over = self.transcript, False
        while not is_over:
            left = self._rng.randint(1, 25)
            async with contextlib.aclosing(self._observer.subscribe_from(transcript.cursor)) as events:
                async for seen in events:
                    transcript.see(seen)
                    assert any(text.startswith(transcript.text) for text in KNOWN), transcript.text
                    self.pieces += isinstance(seen.event, TextDeltaEvent)
                    is_over = isinstance(seen.event, TurnEndedEvent) and seen.event.turn == last
                    left -= 1
                    if is_over or left == 0:
                        break
            self.drops += 1
            if self._rng.random() < 0.2:
                await asyncio.sleep(self._rng.random() * 0.02)
        return transcript


async def watched(clients: list[Client], turns: int) -> list[Transcript]:
    async with asyncio.timeout(HANG_S):
        return await asyncio.gather(*(client.watch(f"t-{turns - 1}") for client in clients))


async def clients_of(runtime: Runtime, count: int, sessions: int) -> list[Client]:
    rng = random.Random(9)
    clients = [
        Client(runtime.observe(f"s-{number % sessions}"), random.Random(rng.random())) for number in range(count)
    ]
    for client in clients:
        await client.open()
    return clients


async def check(runtime: Runtime, transcripts: list[Transcript], sessions: int, turns: int) -> None:
    for number, transcript in enumerate(transcripts):
        settled = await runtime.observe(f"s-{number % sessions}").current()
        assert transcript.messages == settled.view.messages
        assert len(transcript.messages) == 4 * turns
        assert (transcript.text, transcript.outputs, transcript.running) == ("", {}, None)


async def test_watchers_that_are_dropped_end_with_exactly_the_settled_transcript(home: Home) -> None:
    async with home.runtime(provider=model(), tools=[add]) as runtime:
        opened = [await runtime.session(f"s-{number}").open() for number in range(SESSIONS)]
        clients = await clients_of(runtime, WATCHERS, SESSIONS)
        watching = asyncio.create_task(watched(clients, TURNS))

        async def work(session: AgentSession) -> None:
            for number in range(TURNS):
                await session.turn(f"Question {number}").id(f"t-{number}").run()

        await asyncio.gather(*map(work, opened))
        transcripts = await watching
        await check(runtime, transcripts, SESSIONS, TURNS)
        assert sum(client.drops for client in clients) > 2 * WATCHERS
        assert sum(client.pieces for client in clients) > WATCHERS


@contextlib.asynccontextmanager
async def child(url: str, sessions: int, turns: int) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "tests.agent.watched_child", url, str(sessions), str(turns))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdin=pipe, stdout=pipe)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_watchers_in_another_process_do_so_too(shared_home: Home) -> None:
    sessions, turns = 2, 2
    async with shared_home.runtime() as runtime, child(shared_home.url, sessions, turns) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        async with asyncio.timeout(HANG_S):
            assert await owner.stdout.readline() == b"open\n"
        clients = await clients_of(runtime, 40, sessions)
        watching = asyncio.create_task(watched(clients, turns))
        owner.stdin.write(b"go\n")
        async with asyncio.timeout(HANG_S):
            assert await owner.stdout.readline() == b"done\n"
        await check(runtime, await watching, sessions, turns)
        if shared_home.url.startswith("postgresql"):
            assert sum(client.pieces for client in clients) > 0
        owner.stdin.write(b"end\n")
