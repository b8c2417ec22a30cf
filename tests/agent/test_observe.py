"""Watching a session: what it is, what came after a cursor, what comes, and what is told of what was missed."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agent import watched_session as channel
from holdfast.agent.live_events import TextDeltaEvent
from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome
from holdfast.agent.observed_events import (
    AnsweredEvent,
    AskedEvent,
    CallAskedEvent,
    CallSettledEvent,
    CallStartedEvent,
    EntryEvent,
    FrameEvent,
    GapEvent,
    MessageEvent,
    ObservableEvent,
    PolicyEvent,
    QueueEvent,
    RedrawEvent,
    SessionEndedEvent,
    TurnBeganEvent,
    TurnEndedEvent,
)
from holdfast.agent.results import ReadView
from holdfast.agent.transcript import Transcript
from holdfast.core.cursors import Cursor, InvalidCursorError, cursor_text, read_cursor
from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.provider import tool_call
from tests.agent.helpers import Home, add
from tests.agent.watch_helpers import Paused, durable, resumed, said_in, texts, watching

# --- the acceptance list ---------------------------------------------------------------------------


async def test_resume_exact(any_home: Home) -> None:
    script: list[Any] = [[tool_call("add", a=1, b=2), tool_call("add", a=3, b=4)], "3 and 7."]
    async with any_home.runtime(*script, tools=[add]) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        began = await observer.current()
        await soon(session.turn("Add.").run())
        whole = await resumed(observer, began.cursor)
        for number, seen in enumerate(whole):
            rest = await resumed(observer, seen.cursor)
            assert [each.event for each in rest] == [each.event for each in whole[number + 1 :]]
        events = [seen.event for seen in whole]
        assert [event for event in events if isinstance(event, MessageEvent)] == events_of_view(
            await session.read_view(), events
        )
        assert isinstance(events[0], TurnBeganEvent)
        asked = [event.call for event in events if isinstance(event, CallAskedEvent)]
        assert asked == ["call_1", "call_2"]
        assert sorted(event.call for event in events if isinstance(event, CallStartedEvent)) == asked
        settled = {event.call: event.result for event in events if isinstance(event, CallSettledEvent)}
        assert settled == {"call_1": 3, "call_2": 7}
        ended = events[-1]
        assert isinstance(ended, TurnEndedEvent)
        assert ended.outcome == MessageOutcome()


def events_of_view(view: ReadView, events: list[ObservableEvent]) -> list[ObservableEvent]:
    """The events that tell of exactly the messages of a view, in its order."""
    by_id = {event.message.id: event for event in events if isinstance(event, MessageEvent)}
    assert [by_id[message.id].message for message in view.messages] == view.messages
    return [by_id[message.id] for message in view.messages]


async def test_gap_trimmed(any_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that lost live events draws anew, with all that was said; and nothing durable is missing."""
    monkeypatch.setattr(channel, "RING_EVENTS", 4)
    pieces = [f"{number} " for number in range(40)]
    first, rest = asyncio.Event(), asyncio.Event()
    async with any_home.runtime(provider=Paused(pieces[0], first, *pieces[1:20], rest, *pieces[20:])) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        transcript = Transcript(await observer.current())
        async with (
            watching(observer, transcript.cursor) as quick,
            contextlib.aclosing(observer.subscribe_from(transcript.cursor)) as slow,
        ):
            turn = asyncio.create_task(session.turn("Count.").run())
            while not transcript.text:
                transcript.see(await soon(anext(slow)))
            first.set()
            await quick.until(lambda now: said_in(now.seen) == "".join(pieces[:20]))
            seen = await soon(anext(slow))
            assert isinstance(seen.event, RedrawEvent)
            transcript.see(seen)
            assert transcript.text == "".join(pieces[:20])
            rest.set()
            await soon(turn)
            async with asyncio.timeout(HANG_S):
                while transcript.running:
                    transcript.see(await anext(slow))
            assert transcript.messages == (await session.read_view()).messages


async def test_a_watcher_that_was_away_for_long_has_the_journal_read_again(
    any_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.agent.kept_events.KEPT_EVENTS", 3)
    async with any_home.runtime("One.", "Two.", "Three.") as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        began = await observer.current()
        for text in ("1", "2", "3"):
            await soon(session.turn(text).run())
        whole = await resumed(observer, began.cursor)
        messages = [each.event.message for each in whole if isinstance(each.event, MessageEvent)]
        assert messages == (await session.read_view()).messages
        for number, seen in enumerate(whole):
            rest = await resumed(observer, seen.cursor)
            assert [each.event for each in rest] == [each.event for each in whole[number + 1 :]]


async def test_gap_unavailable(any_home: Home, tmp_path: Path) -> None:
    """Under the id of a session that was lost there is another: its watchers are told what that one is."""
    async with any_home.runtime("One.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("1").run())
        before = await session.observe().current()
    await asyncio.sleep(0.002)  # what tells the two apart is when they began
    async with Home("memory:").runtime("Another.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("2").run())
        (seen,) = await resumed(session.observe(), before.cursor)
        assert isinstance(seen.event, GapEvent)
        assert seen.event.reason == "unavailable"
        assert seen.event.observation == await session.observe().current()
        assert await resumed(session.observe(), seen.cursor) == []
        transcript = Transcript(before)
        transcript.see(seen)
        assert texts(transcript) == ["2", "Another."]


async def test_subscribe_then_events(any_home: Home) -> None:
    go_on = asyncio.Event()
    async with any_home.runtime(provider=Paused("It ", go_on, "is ", "me.")) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        async with watching(observer, (await observer.current()).cursor) as watcher:
            turn = asyncio.create_task(session.turn("Who?").id("t-1").run())
            await watcher.until(lambda now: said_in(now.seen) == "It ")
            go_on.set()
            result = await soon(turn)
            await watcher.until(lambda now: now.has(TurnEndedEvent))
            began, asked, *_, settled, ended = durable(watcher.events)
            assert isinstance(began, TurnBeganEvent)
            assert isinstance(asked, MessageEvent)
            assert isinstance(settled, MessageEvent)
            assert settled.message.text == result.text == "It is me."
            assert isinstance(ended, TurnEndedEvent)
            assert ended.turn == "t-1"


async def test_cursor_of_other_session_refused(any_home: Home) -> None:
    async with any_home.runtime() as runtime:
        one, other = await runtime.session("one").open(), await runtime.session("other").open()
        theirs = (await other.observe().current()).cursor
        for seen in (one.observe().resume_from(theirs), one.observe().subscribe_from(theirs)):
            with pytest.raises(InvalidCursorError) as raised:
                await anext(seen)
            assert (raised.value.session_id, raised.value.why) == ("one", "other_session")
            assert "other" in str(raised.value)


async def test_no_publish_before_commit(any_home: Home) -> None:
    """Nothing durable is seen that is not in the store, also by somebody else who looks there."""
    gate = asyncio.Event()
    gate.set()
    async with contextlib.AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(any_home.runtime("Yes.", "No."))
        append = runtime.mount.store.append

        async def held(commit: Commit) -> CommitReceipt:
            await gate.wait()
            return await append(commit)

        runtime.mount.store.append = held  # type: ignore[method-assign]
        stack.callback(delattr, runtime.mount.store, "append")
        beside = any_home.store()
        if beside is not runtime.mount.store:
            await stack.enter_async_context(beside)
        session = await runtime.session("s").open()
        observer = session.observe()
        async with watching(observer, (await observer.current()).cursor) as watcher:
            gate.clear()
            turn = asyncio.create_task(session.turn("1").run())
            for _ in range(50):
                await asyncio.sleep(0)
            assert watcher.events == []
            assert (await observer.current()).running is None
            gate.set()
            await soon(turn)
            async for seen in observer.subscribe_from(None):
                event = seen.event
                assert await beside.position("s") >= event.position  # type: ignore[union-attr]
                if isinstance(event, TurnEndedEvent):
                    break


# --- cursors ---------------------------------------------------------------------------------------


async def test_a_cursor_that_was_cut_or_changed_is_refused(home: Home) -> None:
    async with home.runtime() as runtime:
        observer = (await runtime.session("s").open()).observe()
        cursor = (await observer.current()).cursor
        changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
        for bad in ("", "5", "c1-", cursor[:-2], changed, cursor + "x", "s", f"{cursor}é"):
            with pytest.raises(InvalidCursorError) as raised:
                await anext(observer.resume_from(bad))
            assert raised.value.why == "garbled", bad
        with pytest.raises(InvalidCursorError) as raised:
            await anext(observer.resume_from(f"c2-{cursor[3:]}"))
        assert raised.value.why == "version"


async def test_a_cursor_of_what_has_not_happened_is_refused(home: Home) -> None:
    async with home.runtime() as runtime:
        observer = (await runtime.session("s").open()).observe()
        here = read_cursor((await observer.current()).cursor, "s")
        for change in ({"position": here.position + 1}, {"part": 1}):
            with pytest.raises(InvalidCursorError) as raised:
                await anext(observer.resume_from(cursor_text(msgspec.structs.replace(here, **change))))
            assert raised.value.why == "future"
        with pytest.raises(InvalidCursorError) as raised:
            await anext(observer.resume_from(cursor_text(Cursor("s", here.born, -1))))
        assert raised.value.why == "garbled"


async def test_a_session_that_is_not_there_or_no_more_is_an_error(any_home: Home) -> None:
    async with any_home.runtime("Yes.") as runtime:
        with pytest.raises(SessionNotFoundError):
            await runtime.observe("nobody").current()
        session = await runtime.session("s").open()
        observer = runtime.observe("s")
        before = await observer.current()
        async with watching(observer, before.cursor) as watcher:
            await soon(session.turn("1").run())
            await watcher.until(lambda now: now.has(TurnEndedEvent))
            await runtime.mount.holdfast.delete("s")
            await until(watcher.task.done)
            assert isinstance(watcher.task.exception(), SessionDeletedError)
        with pytest.raises(SessionDeletedError):
            await observer.current()
        with pytest.raises(SessionDeletedError):
            await anext(observer.resume_from(before.cursor))


# --- what is seen ----------------------------------------------------------------------------------


async def test_current_is_the_same_object_until_something_changes(any_home: Home) -> None:
    async with any_home.runtime("Yes.") as runtime:
        session = await runtime.session("s").open()
        one, other = session.observe(), runtime.observe("s")
        first = await one.current()
        assert await one.current() is first
        assert await other.current() is first
        await soon(session.turn("1").run())
        second = await other.current()
        assert second is not first
        assert second.view == await session.read_view()
        assert second.usage == await session.usage_report()


async def test_an_observation_tells_what_the_session_waits_for(home: Home) -> None:
    script: list[Any] = [tool_call("add", a=1, b=2), "3."]
    async with home.runtime(*script, tools=[add]) as runtime:
        session = await runtime.session("s").approval(Approval(default="confirm")).open()
        observer = session.observe()
        async with watching(observer, None) as watcher:
            turn = asyncio.create_task(session.turn("Add.").id("t-1").run())
            await watcher.until(lambda now: now.has(AskedEvent))
            await session.enqueue("And then?").id("i-1")
            now = await observer.current()
            assert (now.running, now.ended) == ("t-1", None)
            assert [call.name for call in now.calls] == ["add"]
            (query,) = now.waiting
            assert [item.id for item in now.queue] == ["i-1"]
            await session.answer(query.id, True)
            await soon(turn)
            await watcher.until(lambda now: now.has(TurnEndedEvent))
            answered = [event.query for event in watcher.events if isinstance(event, AnsweredEvent)]
            assert answered == [query.id]
            changed = [event for event in watcher.events if isinstance(event, QueueEvent)]
            assert [(event.added[0].id, event.waiting) for event in changed] == [("i-1", 1)]
        assert (await observer.current()).waiting == []


async def test_items_that_are_taken_or_taken_back_leave_the_queue(home: Home) -> None:
    async with home.runtime("One.") as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        began = await observer.current()
        await session.enqueue("a").id("a")
        await session.enqueue("b").id("b")
        await session.cancel_queued_work("b")
        await soon(session.queued_turn().run())
        events = [seen.event for seen in await resumed(observer, began.cursor)]
        changes = [event for event in events if isinstance(event, QueueEvent)]
        told = [([item.id for item in each.added], each.removed, each.waiting) for each in changes]
        assert told == [(["a"], [], 1), (["b"], [], 2), ([], ["b"], 1), ([], ["a"], 0)]
        assert (await observer.current()).queue == []


async def test_policies_frames_and_the_end_are_told(home: Home) -> None:
    async with home.runtime("One.", "A summary.", "Two.") as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        began = await observer.current()
        await soon(session.turn("1").run())
        await soon(session.compact(keep=0))
        await session.configure(model="m-2")
        await soon(session.turn("2").run())
        await runtime.mount.holdfast.cancel("s", "enough")
        async with watching(observer, began.cursor) as watcher:
            await until(watcher.task.done)  # by itself: the session has ended
        events = durable(watcher.events)
        (frame,) = [event.frame for event in events if isinstance(event, FrameEvent)]
        assert frame.summary == "A summary."
        (policy,) = [event.policy for event in events if isinstance(event, PolicyEvent)]
        assert policy.model == "m-2"
        ended = events[-1]
        assert isinstance(ended, SessionEndedEvent)
        assert ended.how == "cancelled"


async def test_a_turn_that_ends_with_its_session_is_told_to_be_stopped(home: Home) -> None:
    async with home.runtime(provider=Paused("a", asyncio.Event())) as runtime:
        session = await runtime.session("s").open()
        async with watching(session.observe(), None) as watcher:
            turn = asyncio.create_task(session.turn("1").run())
            await watcher.until(lambda now: now.has(TextDeltaEvent))
            await runtime.mount.holdfast.cancel("s", "enough")
            await soon(turn)
            await until(watcher.task.done)
            outcomes = [event.outcome for event in watcher.events if isinstance(event, TurnEndedEvent)]
            assert [type(outcome) for outcome in outcomes] == [StoppedOutcome]


async def test_a_conversation_that_begins_anew_is_told_so(home: Home) -> None:
    async with home.runtime("One.", "Two.") as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        transcript = Transcript(await observer.current())
        await soon(session.turn("1").run())
        anew = await runtime.session("s").open_fresh()
        await soon(anew.turn("2").run())
        for seen in await resumed(observer, transcript.cursor):
            transcript.see(seen)
        assert texts(transcript) == ["2", "Two."]
        assert transcript.messages == (await anew.read_view()).messages


async def test_a_strategy_is_watched_by_its_entries(any_home: Home) -> None:
    @strategy
    async def observed_strategy(ctx: Context) -> Any:
        return await ctx.ask("Who?")

    async with any_home.runtime() as runtime:
        hf = runtime.mount.holdfast
        await hf.start(observed_strategy, id="run", wait=0)
        async with watching(runtime.observe("run"), None) as watcher:
            await watcher.until(lambda now: len(now.seen) == 2)
            await hf.feed("run", "me")
            await until(watcher.task.done)
        entries = [event.entry for event in watcher.events if isinstance(event, EntryEvent)]
        assert entries == [entry async for entry in hf.store.journal("run")]
        rest = await resumed(runtime.observe("run"), watcher.seen[1].cursor)
        assert [seen.event for seen in rest] == watcher.events[2:]


async def test_an_agent_can_be_watched_by_its_entries_too(home: Home) -> None:
    go_on = asyncio.Event()
    async with home.runtime(provider=Paused("Yes", go_on, ".")) as runtime:
        session = await runtime.session("s").open()
        observer = runtime.observe("s", entries=True)
        async with watching(observer, None) as watcher:
            turn = asyncio.create_task(session.turn("1").run())
            await watcher.until(lambda now: now.has(TextDeltaEvent))
            go_on.set()
            await soon(turn)
            entries = [entry async for entry in runtime.mount.store.journal("s")]
            await watcher.until(lambda now: len(durable(now.events)) == len(entries))
            assert [event.entry for event in watcher.events if isinstance(event, EntryEvent)] == entries
