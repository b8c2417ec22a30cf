"""A turn that another process works is streamed here as if it were worked here, on both kinds of store."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.agent.live_events import LiveEvent, TextDeltaEvent, ToolFinishedEvent, TurnFinishedEvent, UsageEvent
from holdfast.core.errors import SessionNotFoundError
from holdfast.testing.crash.processes import CrashProcess
from holdfast.testing.patience import HANG_S
from tests.agent.helpers import Home, add
from tests.agent.streaming_child import PIECES, SESSION, TEXT, TURN, work


async def _until_begun(home: Home) -> None:
    async with home.store() as store:
        while True:
            try:
                if await store.position(SESSION) >= 4:
                    return
            except SessionNotFoundError:
                pass
            await asyncio.sleep(0.02)


async def test_a_stream_gets_the_events_of_a_turn_that_another_process_works(shared_home: Home, tmp_path: Path) -> None:
    go = tmp_path / "go"
    worker = CrashProcess(work, shared_home.url, str(go))
    try:
        async with asyncio.timeout(HANG_S):
            await _until_begun(shared_home)
            async with shared_home.runtime("never asked", tools=[add]) as runtime:
                session = await runtime.session(SESSION).open()
                events: list[LiveEvent] = []
                turn = session.turn(TEXT).id(TURN)

                async def take(event: LiveEvent) -> None:
                    events.append(event)

                following = asyncio.create_task(turn.stream_to(take))
                while not session.mount.store.may_be_heard(SESSION):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
                go.touch()
                result = await following
    finally:
        worker.kill()
    assert result.text == "".join(PIECES)
    deltas = [event.text for event in events if isinstance(event, TextDeltaEvent)]
    assert "".join(deltas) == "".join(PIECES)
    assert len(deltas) > 3, "they came as they were said, and not all at the end"
    assert [event.result for event in events if isinstance(event, ToolFinishedEvent)] == [5]
    assert sum(isinstance(event, UsageEvent) for event in events) == 2
    assert isinstance(events[-1], TurnFinishedEvent)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
