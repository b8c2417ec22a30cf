"""Summing up: when it is done, what the model is shown then, and what can still be read."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast.agent.machine.compaction import IMAGE_TOKENS
from holdfast.agent.machine.messages import ImageBlock, ImageSource, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.turn import CommandOutcome
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.summary_prompt import SUMMARY_SYSTEM
from holdfast.agent.sync import SyncRuntime
from holdfast.core.queries import Usage
from holdfast.testing import ScriptedProvider, fault, reply, tool_call
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptStep
from tests.agent.compaction_helpers import LONG, NOTES, WINDOW, frames, requests, shown, summaries, talked
from tests.agent.helpers import Home, add, said
from tests.tables import each_row

# --- when ----------------------------------------------------------------------------------------------


async def test_a_window_that_is_nearly_full_is_summed_up_before_the_model_is_asked(home: Home) -> None:
    script: list[ScriptStep] = ["One.", "Two.", NOTES, "Three.", "Four."]
    async with home.runtime(*script, window=WINDOW, compaction={"keep": 210}) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 4)
        assert [request.system == SUMMARY_SYSTEM for request in requests(runtime)] == [False, False, True, False, False]
        (task,) = summaries(runtime)
        assert "user: 0: word" in task
        assert "2: word" not in task, "the latest is kept as it was said"
        fresh = shown(requests(runtime)[3])
        assert NOTES in fresh[0]
        assert fresh[1:] == ["Two.", f"2: {LONG}"]
        assert await frames(session) == [("threshold", NOTES)]


async def test_what_the_provider_counts_is_believed(home: Home) -> None:
    used = Usage(prompt_tokens=700, completion_tokens=5)
    async with home.runtime(reply("One.", usage=used), NOTES, "Two.", window=WINDOW) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        result = await talked(session, 1)
        assert result.text == "Two."
        assert len(summaries(runtime)) == 1


@each_row(
    ("options", "window"),
    [
        ({"model": "m-1"}, None),
        ({"model": "m-1", "windows": {"m-": 500}}, 500),
        ({"model": "m-1", "windows": {"m-": 500, "m-1": 700}}, 700),
        ({"model": "some/claude-9"}, 200_000),
        ({"model": "claude-9", "window": 300}, 300),
    ],
)
async def test_the_window_is_that_of_the_model_where_it_is_known(options: Any, window: int | None) -> None:
    async with Home("memory:").runtime(**options) as runtime:
        assert (await runtime.session("s").open()).policy.window == window


async def test_another_model_has_another_window(home: Home) -> None:
    async with home.runtime(windows={"small": 100, "large": 5_000}, model="small") as runtime:
        session = await runtime.session("s").open()
        assert (await session.configure(model="large")).window == 5_000
        assert (await session.configure(model="nobody-knows")).window is None
        assert (await session.configure(model="small", window=70)).window == 70


async def test_where_it_is_switched_off_it_is_not_done(home: Home) -> None:
    async with home.runtime(*["One."] * 6, window=WINDOW, compaction={"auto": False}) as runtime:
        await talked(await runtime.session("s").open(), 6)
        assert summaries(runtime) == []


async def test_a_long_turn_is_summed_up_as_often_as_it_must_be(home: Home) -> None:
    def work(request: ModelRequest) -> ScriptStep:
        if request.system == SUMMARY_SYSTEM:
            return f"Notes, part {len(summaries(runtime))}."
        return tool_call("read") if len(requests(runtime)) < 20 else "Done."

    async def read() -> str:
        return LONG

    provider = ScriptedProvider([work], loop=True)
    async with home.runtime(provider=provider, tools=[read], window=WINDOW, compaction={"keep": 100}) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Read all of it, please.").run())
        assert result.text == "Done."
        assert len(summaries(runtime)) > 3
        for request in requests(runtime):
            told = request.messages[0].text
            assert "Read all of it, please." in told or request.system == SUMMARY_SYSTEM
        later = summaries(runtime)[1]
        assert "Notes, part 1." in later, "the notes until then are carried on"
        assert later.count("gets:") < 5, "what is in the notes is not told again"


async def test_a_window_that_the_system_text_fills_is_not_summed_up_again_and_again(home: Home) -> None:
    def counted(request: ModelRequest) -> ScriptStep:
        sent = (len(request.system) + sum(map(len, shown(request)))) // 3
        return reply("Yes.", usage=Usage(prompt_tokens=sent, completion_tokens=5))

    async with home.runtime(*[counted] * 8, window=WINDOW, instructions=LONG * 4) as runtime:
        await talked(await runtime.session("s").open(), 8)
        assert summaries(runtime) == []


async def test_pictures_take_room_and_are_told_of(home: Home) -> None:
    picture = ImageBlock(ImageSource("image/png", b"png"))
    async with home.runtime("A cat.", NOTES, "A dog.", window=3 * IMAGE_TOKENS) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn([TextBlock("What is it?"), picture, picture]).run())
        await soon(session.turn([TextBlock("And this?"), picture]).run())
        (task,) = summaries(runtime)
        assert "user: What is it?\n[image]\n[image]" in task
        (opening,) = requests(runtime)[-1].messages
        assert opening.content[-2:] == [TextBlock("And this?"), picture]


# --- what the model is shown ---------------------------------------------------------------------------


async def test_an_input_that_is_larger_than_what_is_kept_is_shown_as_it_was_given(home: Home) -> None:
    script: list[ScriptStep] = ["One.", "Two.", NOTES, "It is long."]
    async with home.runtime(*script, window=WINDOW, compaction={"keep": 50}) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 2)
        await soon(session.turn(f"How long is this: {LONG * 2}").run())
        (opening,) = shown(requests(runtime)[-1])
        assert NOTES in opening
        assert opening.endswith(f"How long is this: {LONG * 2}")


async def test_what_is_kept_never_has_a_result_without_its_call(home: Home) -> None:
    async def read(part: int) -> str:
        return f"{part}: {LONG}"

    calls: Any = [tool_call("read", part=1), tool_call("read", part=2)]
    for keep in (0, 150, 210, 300, 420):
        script: list[ScriptStep] = ["One.", calls, NOTES, "Done."]
        async with Home("memory:").runtime(*script, tools=[read], window=WINDOW) as runtime:
            session = await runtime.session("s").spec(compaction={"keep": keep}).open()
            await talked(session, 1)
            assert (await soon(session.turn("Read both.").run())).text == "Done."
            blocks = [block for message in requests(runtime)[-1].messages for block in message.content]
            called = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
            assert called == [block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)]


async def test_the_beginning_of_requests_stays_the_same_byte_for_byte_between_summaries(home: Home) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    script: list[ScriptStep] = [
        "Hi.",
        [tool_call("add", a=1, b=2), tool_call("nope")],
        "Three.",
        "In words.",
        tool_call("finish", n=3),
        NOTES,
        "Still here.",
        [tool_call("add", a=1, b=2)],
        "Three again.",
    ]
    async with home.runtime(*script, tools=[add], instructions="Be brief.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hello").run())
        await soon(session.turn("Add").run())
        await soon(session.turn("As a value").output(schema).run())
        await soon(session.compact(keep=10))
        await soon(session.turn("Are you there?").run())
        await soon(session.turn("Add").run())
        asked = requests(runtime)
        for group in (asked[:5], asked[6:]):
            assert len({request.system for request in group}) == 1
            for before, after in itertools.pairwise(group):
                assert after.messages[: len(before.messages)] == before.messages
        assert asked[6].messages[0] == asked[8].messages[0]
        assert NOTES in asked[6].messages[0].text


async def test_all_that_was_said_can_still_be_read_and_where_each_window_began(home: Home) -> None:
    async with home.runtime("One.", "Two.", NOTES, "Three.", "More notes.", "Four.") as runtime:
        session = await runtime.session("s").open()
        for text in ("a", "b"):
            await soon(session.turn(text).run())
        await soon(session.compact(keep=1))
        await soon(session.turn("c").run())
        await soon(session.compact(keep=0))
        await soon(session.turn("d").run())
        view = await session.read_view()
        assert [message.text for message in view.messages] == ["a", "One.", "b", "Two.", "c", "Three.", "d", "Four."]
        assert [(frame.reason, frame.summary, frame.begins) for frame in view.frames] == [
            ("initial", "", 0),
            ("manual", NOTES, 4),
            ("manual", "More notes.", 6),
        ]
        assert [frame.kept for frame in view.frames] == [None, view.messages[3].id, None]
        assert f"<notes>\n{NOTES}\n</notes>" in summaries(runtime)[1]
        assert "One." not in summaries(runtime)[1]


async def test_a_process_that_keeps_only_what_is_active_shows_the_same(home: Home) -> None:
    script: list[ScriptStep] = ["One.", "Two.", NOTES, "Three."]
    for residency in ("keep_all", "active_path_only"):
        async with home.runtime(*script, window=WINDOW, residency=residency) as runtime:
            session = await runtime.session(residency).open()
            await talked(session, 3)
            there = requests(runtime)[-1].messages
            assert NOTES in there[0].text
            assert (await session.conversation()).window[:-1] == there


# --- by hand -------------------------------------------------------------------------------------------


async def test_a_host_can_have_it_done_and_say_what_matters(home: Home) -> None:
    async with home.runtime("One.", NOTES, "Two.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("My name is Ada.").run())
        result = await soon(session.compact("Keep all names.", keep=0))
        assert result.outcome == CommandOutcome("compact", {"summary": NOTES})
        assert result.is_success
        assert "Above all: Keep all names." in summaries(runtime)[0]
        await soon(session.turn("And?").run())
        assert shown(requests(runtime)[-1])[1:] == ["And?"]
        assert await said(session) == [
            ("user", "My name is Ada."),
            ("assistant", "One."),
            ("user", "And?"),
            ("assistant", "Two."),
        ]


async def test_the_same_command_twice_is_done_once(home: Home) -> None:
    async with home.runtime("One.", NOTES) as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        first, second = [await soon(session.command("compact", keep=0).id("c-1").run()) for _ in range(2)]
        assert first.value == second.value == {"summary": NOTES}
        assert [result.receipt.replayed for result in (first, second)] == [False, True]
        assert len(summaries(runtime)) == 1


async def test_where_there_is_nothing_to_sum_up_the_host_is_told_and_no_model_is_asked(home: Home) -> None:
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.compact())
        assert result.stopped is not None
        assert (result.stopped.reason, requests(runtime)) == ("invalid_input", [])
        assert "nothing to summarize" in result.stopped.detail
        assert await frames(session) == []


async def test_a_short_conversation_is_summed_up_by_half_where_nothing_else_is_wished(home: Home) -> None:
    async with home.runtime("One.", NOTES, "Two.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("My name is Ada, by the way.").run())
        await soon(session.compact())
        await soon(session.turn("And?").run())
        assert shown(requests(runtime)[-1])[1:] == ["One.", "And?"]


async def test_a_wish_that_makes_no_sense_is_refused(home: Home) -> None:
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.compact(keep=-1))
        assert result.stopped is not None
        assert (result.stopped.reason, "keep" in result.stopped.detail) == ("invalid_input", True)


@pytest.mark.parametrize("failing", [fault("auth", "who are you?"), reply(""), reply("  \n")])
async def test_when_it_fails_by_hand_that_is_the_outcome(home: Home, failing: ScriptStep) -> None:
    async with home.runtime("One.", failing, "Two.") as runtime:
        session = await runtime.session("s").open()
        await talked(session, 1)
        result = await soon(session.compact(keep=0))
        assert result.stopped is not None
        assert result.stopped.reason == "provider_error"
        assert await frames(session) == []
        await talked(session, 1)
        assert len(requests(runtime)[-1].messages) == 3, "all is as it was"


def test_it_can_be_done_without_await(tmp_path: Any) -> None:
    provider = ScriptedProvider(["One.", NOTES])
    with SyncRuntime(f"sqlite:///{tmp_path}/chat.db", provider=provider) as runtime:
        session = runtime.session("s").open()
        session.turn("Hi").run()
        assert session.compact("Be brief.", keep=0).value == {"summary": NOTES}
        assert session.read_view().frames[-1].summary == NOTES
