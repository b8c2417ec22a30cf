"""Chats are reopened from their checkpoints: as they were, with what was written after; also if those are damaged."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from holdfast.agent.conversations import read_conversation
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.results import view_of
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.records import Entry
from holdfast.store.commits import Checkpoint, Segment
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider
from tests.agent.helpers import Home

RECORDS = 12
TURNS = 10
"""So many turns make several checkpoints, and leave some records after the last."""

Kept = tuple[Checkpoint, list[Segment]] | None


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.session_fold.CHECKPOINT_RECORDS", RECORDS)


class LeakyStore(MemoryStore):
    """A store that does not give back what it was given, and notes from where journals are read."""

    def __init__(self) -> None:
        super().__init__()
        self.spoil: Callable[[Kept], Kept] = lambda kept: kept
        self.read_after: list[int] = []

    async def _checkpoint(self, session_id: str) -> Kept:
        return self.spoil(await super()._checkpoint(session_id))

    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]:
        self.read_after.append(after)
        return await super()._read(session_id, after, limit)


def new_runtime(store: MemoryStore, *replies: str) -> Runtime:
    return Runtime(store, provider=ScriptedProvider(list(replies)), model="m")


async def chat(session: AgentSession, turns: int) -> None:
    for number in range(turns):
        await soon(session.turn(f"question {number}").run())


def shown(conversation: Conversation) -> bytes:
    """All that readers see of a conversation."""
    return msgspec.json.encode([view_of(conversation), list(conversation.turns.values()), conversation.policy])


async def test_a_chat_is_reopened_from_its_checkpoint_and_the_records_after_it() -> None:
    store = LeakyStore()
    async with new_runtime(store, *["yes"] * TURNS) as runtime:
        await chat(await runtime.session("s").open(), TURNS)
        checkpoint, segments = await store._checkpoint("s") or pytest.fail("there is no checkpoint")
        assert len(segments) > 1
        store.read_after.clear()
        async with new_runtime(store, "no") as other:
            session = await other.session("s").open()
            assert set(store.read_after) == {checkpoint.position}
            assert shown(await session.conversation()) == shown(await read_conversation(store, "s"))
            store.read_after.clear()
            assert (await soon(session.turn("and now?").run())).text == "no"
            assert 0 not in store.read_after
            assert shown(await session.conversation()) == shown(await read_conversation(store, "s"))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda kept: None, id="missing"),
        pytest.param(lambda kept: (Checkpoint(kept[0].position, b"garbage"), kept[1]), id="garbage"),
        pytest.param(lambda kept: (kept[0], []), id="no segments"),
        pytest.param(lambda kept: (kept[0], kept[1][:-1]), id="the last segment is missing"),
        pytest.param(lambda kept: (Checkpoint(kept[0].position - 1, kept[0].state), kept[1]), id="of another place"),
    ],
)
async def test_a_checkpoint_in_doubt_costs_a_reading_of_the_journal_and_nothing_else(
    spoil: Callable[[Kept], Kept],
) -> None:
    store = LeakyStore()
    async with new_runtime(store, *["yes"] * TURNS) as runtime:
        await chat(await runtime.session("s").open(), TURNS)
        store.spoil = spoil
        async with new_runtime(store, "no") as other:
            session = await other.session("s").open()
            assert shown(await session.conversation()) == shown(await read_conversation(store, "s"))
            assert (await soon(session.turn("and now?").run())).text == "no"
            assert shown(await session.conversation()) == shown(await read_conversation(store, "s"))


async def test_processes_that_take_turns_leave_checkpoints_that_fit(any_home: Home) -> None:
    async with any_home.runtime(*["one"] * TURNS) as first, any_home.runtime(*["other"] * TURNS) as second:
        sessions = [await runtime.session("s").open() for runtime in (first, second)]
        for number in range(2 * TURNS):
            session = sessions[number % 3 % 2]
            await soon(session.turn(f"question {number}").run())
        async with any_home.runtime("last") as third:
            session = await third.session("s").open()
            assert await third.mount.store.checkpoint("s") is not None
            assert shown(await session.conversation()) == shown(await read_conversation(third.mount.store, "s"))
            assert (await soon(session.turn("and now?").run())).text == "last"
