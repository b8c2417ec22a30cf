"""Following a turn: deltas, retractions, tools, waiting; slow readers, readers that leave, and sinks that break."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast.agent.errors import TurnInProgressError
from holdfast.agent.live_events import (
    LiveEvent,
    ModelStartedEvent,
    ReasoningDeltaEvent,
    RetractedEvent,
    RetryEvent,
    TextDeltaEvent,
    ToolFinishedEvent,
    ToolOutputEvent,
    ToolStartedEvent,
    TurnFinishedEvent,
    UsageEvent,
    WaitingEvent,
)
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import ToolContext
from holdfast.agent.turn_stream import STREAM_EVENTS
from holdfast.core.queries import ToolQuery
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.provider import fault, reasoning, reply, stream, tool_call
from tests.agent.helpers import OBJECT, USED, Home, add, said


async def events_of(session: AgentSession, text: str = "Hi") -> list[LiveEvent]:
    async with asyncio.timeout(HANG_S):
        return [event async for event in session.turn(text).stream()]


def kinds(events: list[LiveEvent]) -> list[str]:
    return [str(event.__struct_config__.tag) for event in events]


def shown(events: list[LiveEvent]) -> str:
    """The text that somebody has before them who does as the events say."""
    by_attempt: dict[int, str] = {}
    for event in events:
        match event:
            case ModelStartedEvent():
                by_attempt = {}
            case TextDeltaEvent(text=text, attempt=attempt):
                by_attempt[attempt] = by_attempt.get(attempt, "") + text
            case RetractedEvent(attempt=attempt):
                by_attempt.pop(attempt, None)
            case _:
                pass
    return "".join(by_attempt.values())


# --- what is told ---------------------------------------------------------------------------------------


async def test_text_and_reasoning_come_in_pieces_and_the_end_comes_last(home: Home) -> None:
    script = reply(reasoning("hm"), stream("Hel", "lo"), usage=USED)
    async with home.runtime(script) as runtime:
        session = await runtime.session("s").open()
        events = await events_of(session)
        assert kinds(events) == ["model_started", "reasoning", "text", "text", "usage", "finished"]
        assert [e.text for e in events if isinstance(e, TextDeltaEvent | ReasoningDeltaEvent)] == ["hm", "Hel", "lo"]
        assert [e.usage for e in events if isinstance(e, UsageEvent)] == [USED]
        assert isinstance(events[-1], TurnFinishedEvent)
        assert events[-1].outcome == MessageOutcome()
        assert shown(events) == (await said(session))[-1][1] == "Hello"


async def test_the_start_the_words_and_the_end_of_each_tool_are_told(home: Home) -> None:
    async def count(ctx: ToolContext) -> int:
        """Count."""
        ctx.output("one, ")
        await asyncio.sleep(0.01)
        ctx.output("two")
        return 2

    calls: list[Any] = [tool_call("count"), tool_call("add", a=1)]
    async with home.runtime(calls, "done", tools=[count, add]) as runtime:
        events = await events_of(await runtime.session("s").open())
        assert [(e.call, e.name) for e in events if isinstance(e, ToolStartedEvent)] == [
            ("call_1", "count"),
            ("call_2", "add"),
        ]
        assert "".join(e.text for e in events if isinstance(e, ToolOutputEvent)) == "one, two"
        finished = {e.call: (e.is_error, e.result) for e in events if isinstance(e, ToolFinishedEvent)}
        assert finished["call_1"] == (False, 2)
        assert finished["call_2"][0] is True


async def test_activity_ids_are_unique_and_count_up(home: Home) -> None:
    calls: list[Any] = [tool_call("add", a=1, b=n) for n in range(6)]
    async with home.runtime(calls, stream(*"abcdef"), tools=[add]) as runtime:
        events = await events_of(await runtime.session("s").open())
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert len({event.turn for event in events}) == 1


async def test_a_reset_retracts_the_text_of_the_attempt_that_failed(home: Home) -> None:
    script: list[Any] = [fault("network", after=["Hel", "p"]), fault("overloaded"), stream("Hel", "lo")]
    async with home.runtime(*script) as runtime:
        events = await events_of(await runtime.session("s").open())
        assert kinds(events) == [
            "model_started",
            "text",
            "text",
            "retracted",
            "retrying",
            "retrying",
            "text",
            "text",
            "finished",
        ]
        assert [e.attempt for e in events if isinstance(e, TextDeltaEvent | RetractedEvent)] == [1, 1, 1, 3, 3]
        assert [e.attempt for e in events if isinstance(e, RetryEvent)] == [1, 2]
        assert shown(events) == "Hello"


async def test_text_of_a_turn_that_no_attempt_finished_is_retracted(home: Home) -> None:
    async with home.runtime(fault("invalid_request", after=["Hel"])) as runtime:
        session = await runtime.session("s").open()
        events = await events_of(session)
        assert shown(events) == ""
        assert isinstance(events[-1], TurnFinishedEvent)
        assert isinstance(events[-1].outcome, StoppedOutcome)
        assert await said(session) == [("user", "Hi")]


async def test_a_turn_that_was_over_tells_its_end_alone(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hi").id("t-1").run())
        events = [event async for event in session.turn("Hi").id("t-1").stream()]
        assert kinds(events) == ["finished"]


async def test_a_follower_that_joins_late_gets_what_happens_from_then_on(home: Home) -> None:
    gate = asyncio.Event()

    async def waits(request: Any) -> Any:
        await gate.wait()
        return stream("Hel", "lo")

    async with home.runtime(waits) as runtime:
        session = await runtime.session("s").open()
        first = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
        joined: list[LiveEvent] = []

        async def keep(event: LiveEvent) -> None:
            joined.append(event)

        second = asyncio.create_task(session.turn("Hi").id("t-1").stream_to(keep))
        await asyncio.sleep(0.02)
        gate.set()
        assert (await soon(first)).text == (await soon(second)).text == "Hello"
        assert kinds(joined) == ["text", "text", "finished"]


async def test_a_stream_tells_of_its_own_turn_only(home: Home) -> None:
    async with home.runtime(stream("a", "b"), stream("c", "d")) as runtime:
        session = await runtime.session("s").open()
        first, second = await soon(asyncio.gather(events_of(session, "one"), events_of(session, "two")))
        assert (shown(first), shown(second)) == ("ab", "cd")
        assert {event.turn for event in first}.isdisjoint({event.turn for event in second})


async def test_a_turn_that_waits_for_somebody_outside_says_so_once(home: Home) -> None:
    calls: list[Any] = [tool_call("approve", what="this"), tool_call("add", a=1, b=2)]
    async with home.runtime(calls, "thanks", tools=[add]) as runtime:
        runtime.tools.declare("approve", "Ask somebody.", OBJECT)
        session = await runtime.session("s").open()
        events: list[LiveEvent] = []
        async with asyncio.timeout(HANG_S):
            async for event in session.turn("May I?").stream():
                events.append(event)
                if isinstance(event, WaitingEvent):
                    (query,) = event.queries
                    assert isinstance(query, ToolQuery)
                    assert (query.name, query.arguments) == ("approve", {"what": "this"})
                    await session.answer(query.id, {"approved": True})
        assert kinds(events).count("waiting") == 1
        assert shown(events) == "thanks"


# --- backpressure ---------------------------------------------------------------------------------------


async def test_a_sink_that_takes_its_time_holds_the_model_up(home: Home) -> None:
    """The sink is awaited: the model is read on when the sink has taken what there is."""
    yielded = 0

    class Model:
        id = "counting"

        async def stream(self, request: Any) -> Any:
            nonlocal yielded
            from holdfast.agent.providers import provider as protocol

            for _ in range(10):
                yielded += 1
                yield protocol.TextDelta("x")
            yield protocol.ModelReply(content=[])

    taken: list[int] = []
    gate = asyncio.Semaphore(0)

    async def sink(event: LiveEvent) -> None:
        if isinstance(event, TextDeltaEvent):
            await gate.acquire()
            taken.append(yielded)

    async with home.runtime(provider=Model(), limits={"iterations": 1}) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Hi").stream_to(sink))
        for number in range(1, 11):
            await until(lambda number=number: yielded == number)  # type: ignore[misc]
            await asyncio.sleep(0.005)
            assert yielded == number
            gate.release()
        await soon(work)
    assert taken == list(range(1, 11))


async def test_a_stream_whose_reader_rests_is_held_up_and_loses_nothing(home: Home) -> None:
    many = STREAM_EVENTS * 2
    async with home.runtime(stream(*["x"] * many)) as runtime:
        session = await runtime.session("s").open()
        texts = 0
        async with asyncio.timeout(HANG_S):
            async for event in session.turn("Hi").stream():
                if isinstance(event, ModelStartedEvent):
                    await asyncio.sleep(0.05)
                    assert (await session.read_view()).running is not None
                texts += isinstance(event, TextDeltaEvent)
        assert texts == many


# --- leaving --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [3, STREAM_EVENTS * 3])
async def test_a_stream_that_is_left_early_leaves_the_turn_going_on(home: Home, pieces: int) -> None:
    async with home.runtime(stream(*["x"] * pieces), "Hello") as runtime:
        session = await runtime.session("s").open()
        following = session.turn("Hi").stream()
        async for event in following:
            if isinstance(event, TextDeltaEvent):
                break
        result = await soon(following.result())
        assert result.text == "x" * pieces
        assert (await soon(session.turn("again").run())).text == "Hello"


async def test_a_reader_that_is_cancelled_leaves_the_turn_going_on(home: Home) -> None:
    gate = asyncio.Event()

    async def waits(request: Any) -> str:
        await gate.wait()
        return "Hello"

    async with home.runtime(waits) as runtime:
        session = await runtime.session("s").open()
        turn = session.turn("Hi")
        reading = asyncio.create_task(_read(turn.stream()))
        await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        gate.set()
        assert (await soon(turn.run())).text == "Hello"


async def _read(events: Any) -> None:
    async for _ in events:
        pass


async def test_the_result_of_a_stream_can_be_had_after_its_events_and_without_them(home: Home) -> None:
    async with home.runtime("Hello", "Hello") as runtime:
        session = await runtime.session("s").open()
        following = session.turn("Hi").stream()
        await soon(_read(following))
        assert (await soon(following.result())).text == "Hello"
        assert (await soon(session.turn("Hi").stream().result())).text == "Hello"


async def test_what_a_sink_raises_is_raised_at_once_and_the_turn_goes_on(home: Home) -> None:
    gate = asyncio.Event()

    async def waits() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    async def breaks(event: LiveEvent) -> None:
        if isinstance(event, ToolStartedEvent):
            raise ZeroDivisionError("the screen is gone")

    async with home.runtime(tool_call("waits"), "Hello", tools=[waits]) as runtime:
        session = await runtime.session("s").open()
        turn = session.turn("Hi")
        with pytest.raises(ZeroDivisionError, match="the screen is gone"):
            await soon(turn.stream_to(breaks))
        gate.set()
        result = await soon(turn.run())
        assert (result.text, result.tool_calls[0].result) == ("Hello", "waited")


async def test_a_turn_that_cannot_begin_raises_from_its_stream(home: Home) -> None:
    async def hangs(request: Any) -> Any:
        await asyncio.sleep(60)

    async with home.runtime(hangs) as runtime:
        session = await runtime.session("s").open()
        first = asyncio.create_task(session.turn("Hi").run())
        await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
        with pytest.raises(TurnInProgressError):
            await events_of(await runtime.session("s").open())
        first.cancel()


async def test_following_can_be_given_up_after_a_time_and_the_turn_goes_on(home: Home) -> None:
    gate = asyncio.Event()

    async def waits(request: Any) -> str:
        await gate.wait()
        return "Hello"

    async def ignore(event: LiveEvent) -> None:
        return

    async with home.runtime(waits) as runtime:
        session = await runtime.session("s").open()
        turn = session.turn("Hi")
        with pytest.raises(TimeoutError):
            await turn.stream_to(ignore, wait=0.02)
        gate.set()
        assert (await soon(turn.run())).text == "Hello"
