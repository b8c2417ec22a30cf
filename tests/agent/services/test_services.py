"""Two services and a bystander on one store, killed and restarted at random: who cannot serve leaves alone.

The default run is a slice of a few seconds. `make soak` runs a minute of it on each store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.machine.turn import MessageOutcome
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.needs import ANY, HOST
from holdfast.core.records import AnsweredRecord, Entry, attempted_in
from holdfast.core.state import Session, State
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store import Store
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.provider import ScriptedProvider
from tests.agent.services.child import BYSTANDER, LEASE_MS, SERVICES, asks
from tests.paths import REPO

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")

CHATS = 3
"""Conversations of each service."""

ASKERS = 4
"""Strategies of each service that ask their host, and as many that ask any model."""

AWAY_S = 0.6
"""Seconds that a part is away at most before it is started again."""

PAUSE_S = 0.2
"""Seconds at most between two inputs."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/services.db"
    return fresh_database(request.getfixturevalue("server"))


@dataclass
class Part:
    """A process that is started again whenever it has ended."""

    name: str
    url: str
    ledger: Path
    kills: Counter[int] = field(default_factory=Counter)
    _process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = (sys.executable, "-m", "tests.agent.services.child", self.name, self.url, str(self.ledger))
        process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=asyncio.subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        assert await soon(process.stdout.readline()) == b"ready\n"

    async def end(self, number: int) -> None:
        assert self._process is not None
        self.kills[number] += 1
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        status = await soon(self._process.wait())
        assert status == (0 if number == signal.SIGTERM else -number)
        self._process = None

    async def live(self, chance: random.Random, until_s: float) -> None:
        """Come and go until it is time to stay."""
        while time.monotonic() < until_s:
            await asyncio.sleep(chance.uniform(0.2, 1.0))
            await self.end(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            await asyncio.sleep(chance.uniform(0, AWAY_S))
            await self.start()


@dataclass
class Sent:
    """What was asked of the services, by session."""

    items: dict[str, list[str]] = field(default_factory=dict)
    to_hosts: list[str] = field(default_factory=list)
    to_models: list[str] = field(default_factory=list)


async def run(url: str, ledger: Path, seconds: float, seed: int) -> str:
    """One run, judged; what it came to, in a line."""
    parts = [Part(name, url, ledger) for name in (*SERVICES, BYSTANDER)]
    options: dict[str, Any] = {"upkeep": Upkeep(on=False), "lease_ms": LEASE_MS}
    async with contextlib.AsyncExitStack() as stack:
        hf = await stack.enter_async_context(open_holdfast(url, **options))
        sent, chats = Sent(), list[AgentSession]()
        for service in SERVICES:
            never_asked = ScriptedProvider([], id=service)
            client = Runtime(url, service=service, provider=never_asked, model="m", **options)
            await stack.enter_async_context(client)
            chats += [await client.session(f"{service}-{number}").open() for number in range(CHATS)]
            await _start(hf, service, sent)
        sent.items = {chat.session_id: [] for chat in chats}
        await asyncio.gather(*(part.start() for part in parts))
        end = time.monotonic() + seconds
        living = [asyncio.create_task(part.live(random.Random(f"{seed} {part.name}"), end)) for part in parts]
        try:
            senders = [_send(chat, random.Random(f"{seed} {chat.session_id}"), sent, living) for chat in chats]
            await asyncio.gather(*senders, *living)
            for chat in chats:
                for item in sent.items[chat.session_id]:
                    await chat.wait_for(item, HANG_S)
            for session_id in sent.to_models:
                await soon(hf.result(session_id))
            await asyncio.gather(*(_check_host(hf, session_id) for session_id in sent.to_hosts))
        finally:
            for task in living:
                task.cancel()
            await asyncio.gather(*living, return_exceptions=True)
            for part in parts:
                if part._process is not None:
                    await part.end(signal.SIGTERM)
        lines = [line.split(" ", 2) for line in ledger.read_text().splitlines()]
        for chat in chats:
            await _check_chat(chat, sent.items[chat.session_id], lines)
        for session_id in (*sent.to_hosts, *sent.to_models):
            await _check_sound(hf.store, session_id)
        by_others = [line[1:] for line in lines if line[0] == BYSTANDER]
        assert [line for line in by_others if line not in (["model", "First?"], ["model", "Second?"])] == []
        kills = {part.name: part.kills.total() for part in parts}
        return f"{sum(map(len, sent.items.values()))} inputs, {len(lines)} model calls and stamps, ended {kills}"


async def _start(hf: Holdfast, service: str, sent: Sent) -> None:
    """Start strategies that ask their host, and others that ask any model."""
    for number in range(ASKERS):
        for llm, listed in ((HOST, sent.to_hosts), (ANY, sent.to_models)):
            session_id = f"{service}-asks-{llm}-{number}"
            await hf.start(asks, id=session_id, service=service, llm=llm, wait=0)
            listed.append(session_id)


async def _send(chat: AgentSession, chance: random.Random, sent: Sent, living: list[asyncio.Task[None]]) -> None:
    """Send inputs to a conversation for as long as processes come and go."""
    items = sent.items[chat.session_id]
    while not all(task.done() for task in living):
        what = "stamp" if chance.random() < 0.4 else "say"
        item = f"{chat.session_id}-i{len(items)}"
        await soon(chat.enqueue(f"{what} {item}").id(item))
        items.append(item)
        await asyncio.sleep(chance.uniform(0, PAUSE_S))


# --- judging --------------------------------------------------------------------------------------------


async def _check_host(hf: Holdfast, session_id: str) -> None:
    """Nobody but us answers the questions of a host."""
    session = await hf.session(session_id)
    assert session.state is State.PAUSED
    assert [each.attempts for each in session.pending.values()] == [0]
    await soon(hf.feed(session_id, {"q-0": "ours"}, wait=0))

    async def asks_on() -> bool:
        return "q-1" in (await hf.session(session_id)).pending

    await until(asks_on)
    await soon(hf.feed(session_id, {"q-1": "ours too"}, wait=0))
    assert await soon(hf.result(session_id)) == ["ours", "ours too"]


async def _check_chat(chat: AgentSession, items: list[str], lines: list[list[str]]) -> None:
    service = chat.session_id.partition("-")[0]
    conversation = await chat.conversation(fresh=True)
    turns = {item: turn for turn in conversation.turns.values() for item in turn.items}
    assert sorted(turns) == sorted(items), "an input is lost, or was taken twice"
    for item, turn in turns.items():
        assert isinstance(turn.ended, MessageOutcome), (item, turn.ended)
        assert turn.messages[-1].text == f"{service} says so"
        stamps = lines.count([service, "stamp", f"stamp {item}"])
        assert stamps <= 1, f"{item} was stamped {stamps} times"
    await _check_sound(chat.mount.store, chat.session_id)


async def _check_sound(store: Store, session_id: str) -> None:
    entries: list[Entry] = [entry async for entry in store.journal(session_id)]
    session = Session.fold(session_id, entries)
    answered = Counter(entry.record.query_id for entry in entries if isinstance(entry.record, AnsweredRecord))
    assert max(answered.values(), default=1) == 1
    assert await store.mailbox(session_id) == []
    if session_id.partition("-asks-")[2].startswith(HOST):
        assert not [entry for entry in entries if attempted_in(entry.record)]
    assert session.started is not None
    assert session.started.service == session_id.partition("-")[0]


# --- runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1])
async def test_no_process_touches_what_it_cannot_serve(url: str, tmp_path: Path, seed: int) -> None:
    print(await run(url, tmp_path / "ledger", 3.0, seed))


@soak
@pytest.mark.soak
async def test_no_process_touches_what_it_cannot_serve_for_a_minute(url: str, tmp_path: Path) -> None:
    print(await run(url, tmp_path / "ledger", 60.0, random.randrange(1_000_000)))
