"""Watching what is said meanwhile: late, slow and far watchers, what is missed, and what many of them cost."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agent import live_events as live
from holdfast.agent import observed_events as observed
from holdfast.agent import watched_session as channel
from holdfast.agent.errors import ObservationClosedError
from holdfast.agent.live_events import ModelStartedEvent, TextDeltaEvent, ToolOutputEvent
from holdfast.agent.observed_events import (
    RedrawEvent,
    TurnEndedEvent,
)
from holdfast.agent.observer import Observers
from holdfast.agent.sync import SyncRuntime
from holdfast.agent.tools import ToolContext
from holdfast.agent.transcript import Transcript
from holdfast.engine.holdfast import Holdfast
from holdfast.store.limits import LIVE_BYTES
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.provider import ScriptedProvider, fault, stream, tool_call
from tests.agent.helpers import Home
from tests.agent.watch_helpers import Hesitant, Paused, Watcher, resumed, said_in, texts, watching


async def test_a_late_watcher_gets_the_text_so_far_in_one_piece_and_then_the_rest(any_home: Home) -> None:
    go_on = asyncio.Event()
    async with any_home.runtime(provider=Paused("It ", "is ", "a ", go_on, "long ", "story", ".")) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        followed: list[str] = []

        async def sink(event: Any) -> None:
            followed.extend([event.text] if isinstance(event, TextDeltaEvent) else [])

        turn = asyncio.create_task(session.turn("Tell.").stream_to(sink))
        await until(lambda: followed == ["It ", "is ", "a "])
        current = await observer.current()
        async with watching(observer, current.cursor) as late:  # the first, whom nobody has listened for
            await late.until(lambda now: said_in(now.seen) == "It is a ")
            assert {event.text for event in late.events if isinstance(event, TextDeltaEvent)} == {"It is a "}
            drawn = await observer.current()
            assert [draft.text for draft in drawn.drafts] == ["It is a "]
            async with watching(observer, current.cursor) as later, watching(observer, drawn.cursor) as drawer:
                await later.until(lambda now: said_in(now.seen) == "It is a ")
                assert {event.text for event in later.events if isinstance(event, TextDeltaEvent)} == {"It is a "}
                go_on.set()
                await soon(turn)
                for watcher, at in ((late, current), (later, current), (drawer, drawn)):
                    await watcher.until(lambda now: now.has(TurnEndedEvent))
                    transcript = Transcript(at)
                    for seen in watcher.seen:
                        transcript.see(seen)
                        assert "It is a long story.".startswith(transcript.text)
                    assert texts(transcript) == ["Tell.", "It is a long story."]
        assert (await observer.current()).drafts == []
        assert not any(isinstance(seen.event, TextDeltaEvent) for seen in await resumed(observer, current.cursor))


async def test_what_a_failed_attempt_said_is_retracted(home: Home) -> None:
    async with home.runtime(fault("overloaded", after=["Wro", "ng"]), "Right.") as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        transcript = Transcript(await observer.current())
        async with watching(observer, transcript.cursor) as watcher:
            await soon(session.turn("1").run())
            await watcher.until(lambda now: now.has(TurnEndedEvent))
        for seen in watcher.seen:
            transcript.see(seen)
            assert "Wrong".startswith(transcript.text) or "Right.".startswith(transcript.text)
        assert texts(transcript) == ["1", "Right."]


async def test_what_a_tool_says_is_seen_until_it_has_come_to_something(any_home: Home) -> None:
    gate = asyncio.Event()

    async def dig(ctx: ToolContext) -> str:
        """Dig."""
        ctx.output("clay ")
        ctx.output("sand ")
        await gate.wait()
        return "gold"

    async with any_home.runtime(tool_call("dig"), "Gold!", tools=[dig]) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        transcript = Transcript(await observer.current())
        turn = asyncio.create_task(session.turn("Dig.").run())
        async with asyncio.timeout(HANG_S), contextlib.aclosing(observer.subscribe_from(transcript.cursor)) as seen:
            async for each in seen:
                transcript.see(each)
                if transcript.outputs == {"call_1": "clay sand "}:
                    assert [draft.call for draft in (await observer.current()).drafts] == ["call_1"]
                    gate.set()
                if isinstance(each.event, TurnEndedEvent):
                    break
        await soon(turn)
        assert gate.is_set()
        assert transcript.outputs == {}
        assert not any(isinstance(each.event, ToolOutputEvent) for each in await resumed(observer, None))


async def test_who_comes_back_to_another_process_draws_anew(any_home: Home) -> None:
    """What was seen of a draft came from a process that is not asked any more."""
    go_on = asyncio.Event()
    async with any_home.runtime(provider=Paused("half ", go_on, "whole")) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        turn = asyncio.create_task(session.turn("1").run())
        async with watching(observer, None) as watcher:
            await watcher.until(lambda now: said_in(now.seen) == "half ")
            cursor = watcher.seen[-1].cursor
        async with watching(observer, cursor) as back:  # nobody watched in between: the ring is another one
            await back.until(lambda now: said_in(now.seen) == "half ")
            assert back.has(RedrawEvent)
        go_on.set()
        await soon(turn)


async def test_who_did_not_hear_something_draws_anew(any_home: Home) -> None:
    """Unless the session is owned here: then it is told all again, and that is what it has."""
    go_on = asyncio.Event()
    async with any_home.runtime(provider=Paused("half ", go_on, "whole")) as runtime:
        session = await runtime.session("s").open()
        elsewhere = Observers(Holdfast(runtime.mount.store)).observe("s")
        async with watching(session.observe(), None) as near, watching(elsewhere, None) as far:
            await far.until(lambda now: bool(now.seen))
            turn = asyncio.create_task(session.turn("1").run())
            for watcher in (near, far):
                await watcher.until(lambda now: said_in(now.seen) == "half ")
            before = len(near.seen), len(far.seen)
            runtime.mount.store.publish("s", b"x" * (LIVE_BYTES + 1))  # too much: it is lost, and that is heard
            await far.until(lambda now: len(now.seen) > before[1])
            assert isinstance(far.events[before[1]], RedrawEvent)
            await far.until(lambda now: said_in(now.seen) == "half ")  # what near is told again, it hears as well
            go_on.set()
            await soon(turn)
            for watcher in (near, far):
                await watcher.until(lambda now: now.has(TurnEndedEvent))
            assert not any(isinstance(event, RedrawEvent) for event in near.events[before[0] :])


async def test_what_a_process_says_that_does_not_own_the_session_any_more_is_not_shown(any_home: Home) -> None:
    go_on = asyncio.Event()
    async with any_home.runtime(provider=Paused("half ", go_on, "whole")) as runtime:
        session = await runtime.session("s").open()
        async with watching(session.observe(), None) as watcher:
            turn = asyncio.create_task(session.turn("1").id("t-1").run())
            await watcher.until(lambda now: said_in(now.seen) == "half ")
            for event in (
                TextDeltaEvent(turn="t-1", text="wrong"),
                ModelStartedEvent(turn="t-0", iteration=1, model="m-0"),
            ):
                runtime.mount.store.publish("s", msgspec.msgpack.encode(live.PublishedEvent("another", event)))
            go_on.set()
            await soon(turn)
            await watcher.until(lambda now: now.has(TurnEndedEvent))
            assert not any("wrong" in event.text for event in watcher.events if isinstance(event, TextDeltaEvent))
            assert not any(event.model == "m-0" for event in watcher.events if isinstance(event, ModelStartedEvent))


async def test_who_comes_late_from_another_process_is_soon_told_what_was_said(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REMIND_S", 0.02)
    home = Home(fresh_database(server))
    model = Hesitant("It ", "is ")
    async with home.runtime(provider=model) as runtime, home.runtime() as other:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("1").run())
        async with watching(session.observe(), None) as near:
            await near.until(lambda now: said_in(now.seen) == "It is ")
            async with watching(other.observe("s"), None) as far:  # while the model says nothing more
                await far.until(lambda now: said_in(now.seen) == "It is ")
                model.is_done = True
                model.next_word.set()
                await soon(turn)
                await far.until(lambda now: now.has(TurnEndedEvent))


async def test_a_watcher_that_stands_still_does_not_slow_the_owner(home: Home) -> None:
    pieces = [str(number) for number in range(3_000)]
    async with home.runtime(stream(*pieces)) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        began = await observer.current()
        still = [observer.subscribe_from(began.cursor) for _ in range(20)]
        turn = asyncio.create_task(session.turn("Count.").run())
        for each in still:
            await soon(anext(each))
        result = await soon(turn)
        assert result.text == "".join(pieces)
        for each in still:
            transcript = Transcript(began)
            async with asyncio.timeout(HANG_S):
                async for seen in each:
                    transcript.see(seen)
                    if isinstance(seen.event, TurnEndedEvent):
                        break
            await each.aclose()
            assert texts(transcript)[-1] == result.text


async def test_messages_that_cannot_be_understood_are_passed_over(home: Home) -> None:
    async with home.runtime("Yes.") as runtime:
        session = await runtime.session("s").open()
        async with watching(session.observe(), None) as watcher:
            await watcher.until(lambda now: bool(now.seen))
            for payload in (b"", b"\xff\xff", b"{}", msgspec.msgpack.encode(["x", {"type": "no such"}])):
                runtime.mount.store.publish("s", payload)
            await soon(session.turn("1").run())
            await watcher.until(lambda now: now.has(TurnEndedEvent))


async def test_many_watchers_share_one_fold(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with home.runtime("Yes.") as runtime:
        session = await runtime.session("s").open()
        folded: list[int] = []
        fold = observed.events_after

        def counted(conversation: Any, entry: Any) -> Any:
            folded.append(entry.position)
            assert conversation is kept
            return fold(conversation, entry)

        monkeypatch.setattr(channel, "events_after", counted)
        kept = await session.conversation()
        before = kept.position
        began = await runtime.observe("s").current()
        watchers = [Watcher(runtime.observe("s"), began.cursor) for _ in range(200)]
        await soon(session.turn("1").run())
        for watcher in watchers:
            await watcher.until(lambda now: now.has(TurnEndedEvent))
            watcher.task.cancel()
        await asyncio.wait([watcher.task for watcher in watchers])
        assert folded == list(range(before + 1, await runtime.mount.store.position("s") + 1))


async def test_watchers_are_let_go_when_the_runtime_is_closed(any_home: Home) -> None:
    async with any_home.runtime() as runtime:
        observer = (await runtime.session("s").open()).observe()
        watcher = Watcher(observer, None)
        await watcher.until(lambda now: bool(now.seen))
    await until(watcher.task.done)
    assert isinstance(watcher.task.exception(), ObservationClosedError)


def test_a_session_is_observed_without_await(tmp_path: Path) -> None:
    model = ScriptedProvider([stream("It ", "is ", "me.")])
    with SyncRuntime(f"sqlite:///{tmp_path}/s.db", provider=model, model="m-1") as runtime:
        session = runtime.session("s").open()
        began = session.observe().current()
        session.turn("Who?").run()
        transcript = Transcript(began)
        for seen in runtime.observe("s").subscribe_from(began.cursor):
            transcript.see(seen)
            if isinstance(seen.event, TurnEndedEvent):
                break
        assert texts(transcript) == ["Who?", "It is me."]
        assert [*session.observe().resume_from(transcript.cursor)] == []
