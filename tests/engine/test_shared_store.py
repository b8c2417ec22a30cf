"""Engines that share a store, and engines that keep few programs in memory, continue any session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.decide import FeedMessage, GivenAnswer
from holdfast.core.errors import StaleQueryError
from holdfast.core.events import PausedEvent, SentEvent
from holdfast.core.queries import LlmQuery, Value
from holdfast.core.records import AnsweredRecord, PausedRecord, StartedRecord
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon
from tests.engine.helpers import of_type, prompts, quiet, result, sqlite, write
from tests.engine.programs import two_questions

# --- two engines on one store ---------------------------------------------------------------------------


async def test_engines_that_share_a_store_see_what_the_other_did(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as one, quiet(sqlite(tmp_path)) as two:
        event = await one.start(two_questions)
        assert prompts(await two.feed(event.session_id, {"q-0": "1"})) == {"q-1": "two"}
        assert prompts(await one.resume(event.session_id)) == {"q-1": "two"}
        assert result(await one.feed(event.session_id, {"q-1": "2"})) == ["1", "2"]
        assert await soon(two.result(event.session_id)) == ["1", "2"]


async def test_a_start_that_waits_returns_when_another_engine_goes_on_with_the_session(tmp_path: Path) -> None:
    async def sleeps_then_asks(ctx: Context) -> str:
        await ctx.sleep(0.1)
        return str(await ctx.llm("awake"))

    async with quiet(sqlite(tmp_path)) as one, open_holdfast(sqlite(tmp_path)):
        assert prompts(await soon(one.start(sleeps_then_asks))) == {"q-1": "awake"}


async def test_a_replay_in_an_engine_that_takes_over_is_durable_before_it_is_told(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        started = StartedRecord(program=two_questions.program, seed=1)
        paused = PausedRecord(queries=[LlmQuery(id="q-0", prompt="one")])
        answered = AnsweredRecord(query_id="q-0", answer=Value(value="1"))
        await write(hf.store, "left", started, [paused, answered])
        event = await soon(hf.feed("left", {"q-0": "1"}))
        if isinstance(event, PausedEvent):
            assert len(await of_type(hf.store, "left", PausedRecord)) == 2
        assert prompts(await soon(hf.resume("left"))) == {"q-1": "two"}
        assert len(await of_type(hf.store, "left", PausedRecord)) == 2


async def test_a_message_that_its_owner_has_not_taken_yet_is_only_sent_and_later_a_replay() -> None:
    done, store = asyncio.Event(), MemoryStore()

    async def slow() -> str:
        await done.wait()
        return "slow"

    async def waits_for_both(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.tool("slow"), ctx.ask("well?")))

    async with quiet(store) as owner, quiet(store) as other:
        owner.drive("slow", slow)
        session_id = (await owner.start(waits_for_both, wait=0)).session_id
        sent = await soon(other.feed(session_id, {"q-1": "yes"}, wait=0))
        assert isinstance(sent, SentEvent)
        assert sent.to_json()["sent"] is True
        done.set()
        assert await soon(owner.result(session_id)) == ["slow", "yes"]
        assert (await soon(other.feed(session_id, {"q-1": "yes"}))).replayed


async def test_a_message_that_a_dead_owner_never_took_is_taken_by_the_next(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(two_questions, id="s")
        message = FeedMessage([GivenAnswer(Value(value="1"), "q-0")])
        await hf.store.send(event.session_id, "k-1", message, 1)
    async with quiet(sqlite(tmp_path)) as hf:
        assert prompts(await soon(hf.resume("s"))) == {"q-1": "two"}
        assert await hf.store.mailbox("s") == []


async def test_mail_of_a_session_that_ends_is_gone_and_its_sender_hears_why(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        await hf.start(two_questions, id="s")
        message = FeedMessage([GivenAnswer(Value(value="1"), "q-0")])
        await hf.store.send("s", "k-1", message, 1)
        await hf.cancel("s", "enough")
        assert await hf.store.mailbox("s") == []
        with pytest.raises(StaleQueryError, match="cancelled"):
            await soon(hf.feed("s", {"q-0": "1"}))


# --- few programs in memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("hot", [0, 1, 5])
async def test_many_sessions_work_with_few_programs_in_memory(tmp_path: Path, hot: int) -> None:
    async with open_holdfast(sqlite(tmp_path), hot_programs=hot) as hf:
        events = await soon(asyncio.gather(*(hf.start(two_questions) for _ in range(50))))
        ids = [event.session_id for event in events]
        await soon(asyncio.gather(*(hf.feed(each, f"1 {each}") for each in ids)))
        ended = await soon(asyncio.gather(*(hf.feed(each, "2") for each in ids)))
        assert [result(event) for event in ended] == [[f"1 {each}", "2"] for each in ids]
