"""An answer that is sent again gets the reply that it got first, without a look at the whole journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.events import AcceptedEvent, CompletedEvent, Event, PausedEvent, reply_after
from holdfast.core.past_reply import reply_since
from holdfast.core.records import AnsweredRecord
from holdfast.core.state import Session
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from tests.engine.helpers import quiet, sqlite


@strategy(name="past-replies-mixed")
async def mixed(ctx: Context) -> str:
    """Asks one by one, several together, and goes on at the first of some."""
    await ctx.llm("one")
    await ctx.llm_batch(["two", "three", "four"])
    await ctx.llm_each(["five", "six"])
    await ctx.llm("seven")
    return "done"


@strategy(name="past-replies-long")
async def long(ctx: Context) -> str:
    """Asks for ever."""
    for number in range(10_000):
        await ctx.llm(f"question {number}")
    return "done"


async def _fed(hf: Holdfast) -> dict[str, Event]:
    """The replies that the answers of a session got, in the order in which they were given."""
    replies: dict[str, Event] = {}
    for number in range(7):
        replies[f"q-{number}"] = await hf.feed("s", {f"q-{number}": f"answer {number}"})
    return replies


async def test_what_has_happened_since_tells_the_same_reply_as_the_whole_journal(tmp_path: Path) -> None:
    found = 0
    async with quiet(sqlite(tmp_path)) as hf:
        await hf.start(mixed, id="s")
        await _fed(hf)
        entries = await hf.store.entries("s")
        for end in range(2, len(entries) + 1):
            session = Session.fold("s", entries[:end])
            for answered in entries[:end]:
                if isinstance(answered.record, AnsweredRecord):
                    later = entries[answered.position : end]
                    since = reply_since(session, later)
                    assert since in (None, reply_after("s", entries[:end], answered.position)), (end, answered.position)
                    found += since is not None
    assert found > 10


async def test_each_answer_that_is_sent_again_gets_its_first_reply(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        again: Event = await hf.start(mixed, id="s")
        for asked, first in (await _fed(hf)).items():
            again = await hf.feed("s", {asked: f"answer {asked[2:]}"})
            assert again.replayed
            assert type(again) is type(first)
            if isinstance(first, PausedEvent) and isinstance(again, PausedEvent):
                assert again.queries == first.queries
            if isinstance(first, AcceptedEvent) and isinstance(again, AcceptedEvent):
                assert again.remaining == first.remaining
    assert isinstance(again, CompletedEvent)


@pytest.mark.parametrize("what", ["status", "again"])
async def test_neither_status_nor_a_repeat_reads_a_long_journal(tmp_path: Path, what: str) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        last: Event = await hf.start(long, id="s")
        for number in range(400):
            last = await hf.feed("s", f"answer {number}")
    async with quiet(sqlite(tmp_path)) as other:
        read = 0
        before = other.store._read

        async def counted(session_id: str, after: int, limit: int) -> list[object]:
            nonlocal read
            entries = await before(session_id, after, limit)
            read += len(entries)
            return list(entries)

        other.store._read = counted  # type: ignore[method-assign, assignment]
        if what == "status":
            assert (await other.status("s"))["position"] == 802
        else:
            again = await other.feed("s", {"q-399": "answer 399"})
            assert isinstance(again, PausedEvent)
            assert isinstance(last, PausedEvent)
            assert again.queries == last.queries
        assert read < 300
