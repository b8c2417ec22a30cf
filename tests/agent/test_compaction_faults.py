"""Summing up: what becomes of a turn when it cannot be done, when it is stopped, and what it costs."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.agent import live_events as live
from holdfast.agent.live_events import LiveEvent
from holdfast.agent.machine.messages import AgentMessage, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.records import FrameRecord
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.summary_prompt import RESULT_CHARS, SUMMARY_TOKENS, most_chars, summary_task
from holdfast.core.queries import Usage
from holdfast.core.records import AnsweredRecord, LoggedRecord
from holdfast.testing import fault, reply, tool_call
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from tests.agent.compaction_helpers import LONG, NOTES, WINDOW, frames, requests, shown, summaries, talked
from tests.agent.helpers import Home, add, journal
from tests.tables import each_row

# --- when it cannot be done ----------------------------------------------------------------------------


async def test_when_it_fails_by_itself_the_turn_goes_on_and_it_is_tried_again_in_the_next(home: Home) -> None:
    script: list[ScriptStep] = [
        "One.",
        "Two.",
        fault("auth", "no summaries today"),
        [tool_call("add", a=1, b=2)],
        "Three.",
        NOTES,
        "Four.",
    ]
    async with home.runtime(*script, tools=[add], window=WINDOW) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 4)
        assert len(summaries(runtime)) == 2
        logged = [each.record.message for each in await journal(session) if isinstance(each.record, LoggedRecord)]
        assert logged == ["the conversation was not summed up: no summaries today"]
        assert await frames(session) == [("threshold", NOTES)]


async def test_a_model_that_will_not_take_the_conversation_is_asked_again_after_a_summary(home: Home) -> None:
    script: list[ScriptStep] = ["One.", "Two.", fault("context_length"), NOTES, "Three."]
    async with home.runtime(*script) as runtime:
        session = await runtime.session("s").open()
        result = await talked(session, 3)
        assert (result.text, await frames(session)) == ("Three.", [("overflow", NOTES)])
        assert NOTES in shown(requests(runtime)[-1])[0]
        assert result.report.by_source.keys() <= {"turn", "compaction"}
        assert [message.text for message in result.messages] == [f"2: {LONG}", "Three."]


async def test_if_that_does_not_help_the_turn_is_stopped_and_says_so(home: Home) -> None:
    too_long = fault("context_length", "9 tokens > 8")
    script: list[ScriptStep] = ["One.", "Two.", too_long, NOTES, too_long, "Three."]
    async with home.runtime(*script) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 2)
        stopped = (await soon(session.turn("And now?").run())).stopped
        assert stopped is not None
        assert (stopped.reason, stopped.limit) == ("provider_error", "window")
        assert "even after it was summed up: 9 tokens > 8" in stopped.detail
        assert (await talked(session, 1)).text == "Three."


async def test_it_may_overflow_again_later_in_the_same_turn(home: Home) -> None:
    too_long = fault("context_length")
    script: list[ScriptStep] = ["One.", too_long, NOTES, tool_call("add", a=1, b=2), too_long, "More notes.", "Three."]
    async with home.runtime(*script, tools=[add]) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        assert (await talked(session, 1)).text == "Three."
        assert [reason for reason, _ in await frames(session)] == ["overflow", "overflow"]


async def test_a_conversation_that_neither_fits_nor_can_be_summed_up_stops_the_turn(home: Home) -> None:
    script: list[ScriptStep] = ["One.", fault("context_length"), fault("auth", "who are you?")]
    async with home.runtime(*script) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        stopped = (await soon(session.turn("And now?").run())).stopped
        assert stopped is not None
        assert (stopped.reason, stopped.limit) == ("provider_error", "window")
        assert "could not be summed up: who are you?" in stopped.detail


async def test_an_input_that_alone_is_too_long_is_not_summed_up(home: Home) -> None:
    async with home.runtime(fault("context_length"), "Hi.") as runtime:
        session = await runtime.session("s").open()
        stopped = (await soon(session.turn(LONG).run())).stopped
        assert stopped is not None
        assert (stopped.limit, len(requests(runtime))) == ("window", 1)
        await talked(session, 1)


async def test_what_is_too_long_to_be_summed_up_is_shortened_until_it_fits(home: Home) -> None:
    def sum_up(request: ModelRequest) -> ScriptStep:
        return NOTES if len(request.messages[0].text) < 1_500 else fault("context_length")

    script: list[ScriptStep] = ["One.", "Two.", fault("context_length"), sum_up, sum_up, "Three."]
    async with home.runtime(*script, compaction={"keep": 100}) as runtime:
        session = await runtime.session("s").open()
        assert (await talked(session, 3)).text == "Three."
        sizes = [len(task) for task in summaries(runtime)]
        assert sizes[0] > 2_400
        assert sizes[1] < sizes[0] / 2 + 100
        assert len({request.key for request in requests(runtime)}) == len(requests(runtime))


async def test_what_the_runtime_remarks_is_not_said_twice_when_the_model_is_asked_again(home: Home) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    script: list[ScriptStep] = ["One.", "It is 3.", fault("context_length"), NOTES, tool_call("finish", n=3)]
    async with home.runtime(*script) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        result = await soon(session.turn("A number, please").output(schema).run())
        assert result.value == {"n": 3}
        assert [message.role for message in result.messages] == ["user", "assistant", "signal", "assistant", "tool"]


# --- while it is done ----------------------------------------------------------------------------------


async def test_it_can_be_stopped(home: Home) -> None:
    begun = asyncio.Event()

    async def never(request: ModelRequest) -> ScriptStep:
        begun.set()
        await asyncio.Event().wait()
        return "?"

    script: list[ScriptStep] = ["One.", "Two.", never, NOTES, "Four."]
    async with home.runtime(*script, window=WINDOW) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 2)
        working = asyncio.create_task(session.turn(LONG).run())
        await soon(begun.wait())
        assert await soon(session.stop("enough"))
        stopped = (await soon(working)).stopped
        assert isinstance(stopped, StoppedOutcome)
        assert (stopped.reason, stopped.detail) == ("cancelled", "enough")
        assert (await talked(session, 1)).text == "Four."
        assert await frames(session) == [("threshold", NOTES)]


async def test_whoever_follows_the_turn_is_told_and_does_not_take_the_summary_for_an_answer(home: Home) -> None:
    script: list[ScriptStep] = ["One.", "Two.", fault("rate_limit"), NOTES, "Three."]
    async with home.runtime(*script, window=WINDOW) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 2)
        events: list[LiveEvent] = []

        async def sink(event: LiveEvent) -> None:
            events.append(event)

        await soon(session.turn(LONG).stream_to(sink))
        kinds = [type(event) for event in events if not isinstance(event, live.WaitingEvent)]
        assert kinds == [
            live.CompactionStartedEvent,
            live.RetryEvent,
            live.CompactionFinishedEvent,
            live.ModelStartedEvent,
            live.TextDeltaEvent,
            live.TurnFinishedEvent,
        ]
        assert [event.summary for event in events if isinstance(event, live.CompactionFinishedEvent)] == [NOTES]
        assert [event.text for event in events if isinstance(event, live.TextDeltaEvent)] == ["Three."]


async def test_whoever_follows_the_turn_is_told_why_it_was_not_done(home: Home) -> None:
    async with home.runtime("One.", "Two.", fault("auth", "no"), "Three.", window=WINDOW) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 2)
        events = [event async for event in session.turn(LONG).stream()]
        assert [
            (event.summary, event.error) for event in events if isinstance(event, live.CompactionFinishedEvent)
        ] == [("", "no")]


async def test_what_it_takes_is_counted_and_limited(home: Home) -> None:
    used = Usage(prompt_tokens=50, completion_tokens=10)
    script: list[ScriptStep] = [
        "One.",
        "Two.",
        reply(NOTES, usage=used),
        reply(tool_call("add", a=1, b=2), usage=used),
        "Three.",
    ]
    async with home.runtime(*script, tools=[add], window=WINDOW) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 2)
        await session.configure(limits={"tokens": 100})
        result = await soon(session.turn(LONG).run())
        assert {source: used.calls for source, used in result.report.by_source.items()} == {"compaction": 1, "turn": 1}
        assert result.report.by_source["compaction"].total == 60
        assert result.stopped is not None
        assert result.stopped.limit == "tokens", "60 would have been allowed, and 120 are not"
        assert (await session.usage_report()).by_source["compaction"].total == 60


async def test_options_that_are_for_answers_are_not_sent_with_it(home: Home) -> None:
    generation = {"temperature": 0.5, "max_tokens": 9, "tool_choice": "auto", "response_format": {"type": "json"}}
    async with home.runtime("One.", NOTES, generation=generation) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        await soon(session.compact(keep=0))
        asked = requests(runtime)[-1]
        assert asked.params == {"temperature": 0.5, "max_tokens": SUMMARY_TOKENS}
        assert (asked.tools, asked.model) == ([], "m-1")


async def test_another_process_goes_on_with_what_was_counted(shared_home: Home) -> None:
    async with shared_home.runtime("One.", "Two.", window=WINDOW) as runtime:
        await talked(await runtime.session("s").open(), 2)
    async with shared_home.runtime(NOTES, "Three.", window=WINDOW) as other:
        session = await other.session("s").open()
        await talked(session, 1)
        assert await frames(session) == [("threshold", NOTES)]
        here = (await session.conversation()).window
    async with shared_home.runtime("Four.") as third:
        session = await third.session("s").open()
        assert (await session.conversation(fresh=True)).window == here
        kinds = [type(entry.record) for entry in await journal(session)]
        assert (kinds.count(FrameRecord), kinds.count(AnsweredRecord)) == (1, 3 + 3 + 1)


async def test_summaries_are_asked_for_while_many_wait_their_turn(home: Home) -> None:
    script: list[ScriptStep] = ["One.", NOTES, "Two."]
    async with home.runtime(*script) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        compacted = asyncio.create_task(session.compact(keep=0))
        await until(lambda: len(requests(runtime)) == 2)
        assert (await soon(session.turn("Next").run())).text == "Two."
        assert (await soon(compacted)).is_success


# --- what is asked -------------------------------------------------------------------------------------


def text(size: int, letter: str = "x", role: Any = "user") -> AgentMessage:
    return AgentMessage(role, [TextBlock(letter * size)])


def test_results_of_tools_are_cut_for_whoever_sums_up() -> None:
    told = summary_task(
        [
            AgentMessage("assistant", [ToolUseBlock("c", "read", {"path": "p" * 3_000})]),
            AgentMessage("tool", [ToolResultBlock("c", "r" * 5_000)]),
            AgentMessage("tool", [ToolResultBlock("d", {"error": "gone"}, is_error=True)]),
        ]
    )
    assert "assistant: [calls read with" in told
    assert f"r… ({5_000 - RESULT_CHARS} more characters)]" in told
    assert "tool: [error: {" in told
    assert len(told) < 2 * RESULT_CHARS + 1_500


def test_what_is_too_long_is_cut_and_if_need_be_the_oldest_is_left_out_but_never_the_notes() -> None:
    messages = [text(4_000, letter) for letter in "abcdefgh"]
    whole = summary_task(messages, "heed this", former="THE NOTES")
    assert [letter * 4_000 in whole for letter in "abcdefgh"] == [True] * 8
    cut = summary_task(messages, "heed this", former="THE NOTES", most=12_000)
    assert [letter * 1_000 in cut for letter in "abcdefgh"] == [True] * 8
    least = summary_task(messages, "heed this", former="THE NOTES", most=4_500)
    assert "h" * 1_000 in least
    assert "a" * 1_000 not in least
    assert "earlier messages omitted]" in least
    for task in (cut, least):
        assert "THE NOTES" in task
        assert "heed this" in task
    assert len(cut) < 12_000
    assert len(least) < 4_600, "about as long as was wished"


@each_row(("window", "most"), [(None, None), (200_000, 3 * 196_000), (900, 3 * 750)])
def test_what_is_summed_up_fits_into_the_window_with_the_summary(window: int | None, most: int | None) -> None:
    assert most_chars(Policy(window=window)) == most
