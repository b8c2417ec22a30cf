"""The conversation that a live session keeps: it shows what is durable and nothing else, and is the only one."""

from __future__ import annotations

from holdfast.agent.observer import Observer
from holdfast.agent.runtime import Runtime
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.agent.helpers import Home, add


async def test_nothing_is_shown_before_it_is_committed(any_home: Home) -> None:
    seen: list[tuple[str, int, int, int]] = []
    observer: Observer | None = None

    async def seam(name: str) -> None:
        if observer is not None and "effect" not in name:
            shown = (await runtime.mount.conversations.get("s")).position
            observed = observer._observers.watched("s").position
            seen.append((name, shown, observed, await runtime.mount.store.position("s")))

    script: list[ScriptStep] = [tool_call("add", a=1, b=2), "three"]
    async with any_home.runtime(*script, tools=[add], seam=seam) as runtime:
        session = await runtime.session("s").open()
        observer = session.observe()
        await observer.current()
        await soon(session.turn("Add").run())
    assert {name.partition(" ")[0] for name, *_ in seen} == {"before", "after"}
    for name, shown, observed, durable in seen:
        assert shown <= durable and observed <= durable, name  # noqa: PT018
    assert any(shown < durable for name, shown, _, durable in seen if name.startswith("after")), "durable first"


async def test_readers_drivers_and_watchers_of_a_session_share_one_conversation() -> None:
    async with Runtime("memory:", provider=ScriptedProvider(["yes"]), model="m") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Is it?").run())
        kept = await session.conversation()
        assert await runtime.mount.conversations.get("s", fresh=True) is kept
        await session.observe().current()
        assert runtime.mount.observers.watched("s").conversation is kept


async def test_a_session_that_is_watched_is_not_forgotten_to_make_room() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([]), model="m", hot_programs=2) as runtime:
        watched = await runtime.session("watched").open()
        events = watched.observe().subscribe_from(None)
        await soon(anext(events))
        kept = await watched.conversation()
        for number in range(5):
            await runtime.session(f"s-{number}").open()
        assert await watched.conversation() is kept
        await events.aclose()
        for number in range(5, 10):
            await runtime.session(f"s-{number}").open()
        assert runtime.mount.holdfast.engine.alive("watched") is None
