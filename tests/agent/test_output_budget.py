"""The output budget: of a long result a model sees beginning and end. It can read the rest, of its own session only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.machine.messages import ToolResultBlock
from holdfast.agent.plugins.output_budget import OutputBudget
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import OutputLimits, ToolContext, ToolError, full_result, tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord
from holdfast.core.values import encode
from holdfast.store.codec import blob_id_of, move_out
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call
from tests.agent.helpers import Home, journal
from tests.tables import each_row

LINES = [f"line {number}: {'x' * (number % 7)}" for number in range(1, 5_001)]
TEXT = "\n".join(LINES)


def log() -> str:
    """All that was logged."""
    return TEXT


def last_result(provider: ScriptedProvider) -> Any:
    """What the model was last told of a call."""
    found = [block for block in provider.requests[-1].messages[-1].content if isinstance(block, ToolResultBlock)]
    return found[-1].content


def reads(**arguments: Any) -> ScriptStep:
    return tool_call("read_output", **arguments)


async def after(home: Home, *calls: ScriptStep, budget: OutputBudget | None = None, **options: Any) -> list[Any]:
    """The results of some calls, as the model was told them."""
    provider = ScriptedProvider([*calls, "Done."])
    async with home.runtime(provider=provider, **options) as runtime:
        session = await runtime.session("s-1").plugin(budget or OutputBudget()).open()
        await soon(session.turn("Look").run())
    messages = [message for message in provider.requests[-1].messages if message.role == "tool"]
    return [block.content for message in messages for block in message.content if isinstance(block, ToolResultBlock)]


async def test_a_long_result_is_cut_to_head_and_tail_and_says_how_to_read_the_rest(home: Home) -> None:
    (shown,) = await after(home, tool_call("log"), tools=[log], budget=OutputBudget(max_bytes=1_000, max_lines=30))
    head, note, tail = shown.partition("\n[")[0], shown.partition("\n[")[2], shown.rpartition("]\n")[2]
    assert TEXT.startswith(head)
    assert TEXT.endswith(tail)
    assert len(head) > len(tail) > 0
    assert f"of {len(TEXT)} bytes (5000 lines in total)" in note
    assert "read_output, id 'q-2'" in note
    assert len(head.splitlines()) + len(tail.splitlines()) <= 30
    assert len(shown.encode()) < 1_200


async def test_a_result_within_the_budget_is_told_as_it_is(home: Home) -> None:
    def short() -> dict[str, int]:
        """A little."""
        return {"a": 1}

    assert await after(home, tool_call("short"), tools=[short], budget=OutputBudget(max_bytes=100)) == [{"a": 1}]


async def test_the_rest_can_be_read_by_lines_and_by_characters(home: Home) -> None:
    _, lines, characters, long, beyond = await after(
        home,
        tool_call("log"),
        reads(id="q-2", from_line=2_000, lines=3),
        reads(id="q-2", offset=100, length=50),
        reads(id="q-2", from_line=1_000, lines=5_000),
        reads(id="q-2", from_line=9_999),
        tools=[log],
    )
    assert lines.partition("\n")[2] == "\n".join(LINES[1_999:2_002]) + "\n"
    assert "lines 2000 to 2002 of 5000; continue with offset=" in lines
    assert characters.partition("\n")[2] == TEXT[100:150]
    assert long.partition("\n")[2] == "\n".join(LINES[999:1_399]) + "\n"
    assert beyond == f"[nothing at character {len(TEXT)}: the output has {len(TEXT)} characters, 5000 lines]"


async def test_a_model_that_goes_on_as_it_is_told_reads_all_of_it(home: Home) -> None:
    text = "".join(f"{number} – größer\n" if number % 50 else "y" * 9_000 for number in range(3_000))

    def big() -> str:
        """Much."""
        return text

    read: list[str] = []

    def next_piece(request: Any) -> ScriptStep:
        told = request.messages[-1].content[-1].content
        if told.startswith("[characters"):
            note, _, piece = told.partition("\n")
            read.append(piece)
            if "this is the end" in note:
                return "Done."
            return reads(id="q-2", offset=int(note.partition("offset=")[2].rstrip("]")))
        return reads(id="q-2")

    provider = ScriptedProvider([tool_call("big"), *[next_piece] * 100])
    async with home.runtime(provider=provider, tools=[big], limits={"iterations": 200}) as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        assert (await soon(session.turn("Read").run())).text == "Done."
    assert "".join(read) == text
    assert all(len(piece.encode()) <= 16 * 1024 for piece in read)


async def test_the_output_can_be_searched(home: Home) -> None:
    _, found, more, none = await after(
        home,
        tool_call("log"),
        reads(id="q-2", search="LINE 123:"),
        reads(id="q-2", search="line 1"),
        reads(id="q-2", search="nowhere", from_line=7),
        tools=[log],
    )
    assert found == f"123: {LINES[122]}"
    assert len(more.splitlines()) == 51
    assert more.splitlines()[-1] == "[there are more: search again with from_line=139]"
    assert none == "[no match from line 7 on; the output has 5000 lines]"


async def test_a_long_line_is_shown_around_what_was_found_in_it(home: Home) -> None:
    def line() -> str:
        """One line."""
        return "a" * 50_000 + "needle" + "b" * 50_000

    _, found = await after(home, tool_call("line"), reads(id="q-2", search="needle"), tools=[line])
    assert found == f"1: …{'a' * 100}needle{'b' * 194}…"


async def test_json_is_read_in_lines(home: Home) -> None:
    def rows() -> list[dict[str, int]]:
        """A table."""
        return [{"number": number, "square": number**2} for number in range(3_000)]

    shown, found = await after(home, tool_call("rows"), reads(id="q-2", search='"square": 4000000'), tools=[rows])
    assert shown.startswith('[\n {\n  "number": 0,\n')
    assert found.endswith('"square": 4000000')


async def test_the_tighter_of_the_budget_and_the_tools_own_limit_holds(home: Home) -> None:
    @tool(output=OutputLimits(max_bytes=500))
    def tight() -> str:
        """Little at once."""
        return TEXT

    @tool(output=OutputLimits(max_bytes=100_000, max_lines=10_000))
    def wide() -> str:
        """Much at once."""
        return TEXT[:50_000]

    tools, budget = [tight, wide], OutputBudget(max_bytes=2_000)
    shown, other = await after(home, tool_call("tight"), tool_call("wide"), tools=tools, budget=budget)
    assert len(shown.encode()) < 700
    assert "q-2" in shown
    assert 1_500 < len(other.encode()) < 2_200
    assert "q-4" in other


async def test_what_a_tool_said_before_it_failed_can_be_read_too(home: Home) -> None:
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.output(TEXT)
        raise ToolError("it broke", code="broken")

    failed, found = await after(
        home, tool_call("work"), reads(id="q-2", search="line 2500:"), tools=[work], budget=OutputBudget(max_lines=20)
    )
    assert (failed["error"], failed["code"]) == ("it broke", "broken")
    assert "q-2" in failed["partial"]
    assert found == f"2500: {LINES[2_499]}"


async def test_the_output_is_stored_once_as_a_part_of_the_answer(tmp_path: Path) -> None:
    provider = ScriptedProvider([tool_call("log"), reads(id="q-2", from_line=10), "Done."])
    async with Runtime(f"sqlite:///{tmp_path}/a.db", provider=provider, tools=[log]) as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(session.turn("Look").run())
        answers = [entry.record.answer for entry in await journal(session) if isinstance(entry.record, AnsweredRecord)]
        values = [answer.value for answer in answers if isinstance(answer, Value)]
        assert [full_result(value) for value in values if full_result(value) is not None] == [TEXT]
        assert sum(len(encode(value)) > len(TEXT) for value in values) == 1


async def test_outputs_longer_than_an_answer_keeps_by_itself_are_kept_whole(home: Home) -> None:
    text = "z" * 3_000_000 + "the end"

    def huge() -> str:
        """Very much."""
        return text

    _, read = await after(home, tool_call("huge"), reads(id="q-2", offset=2_999_990), tools=[huge])
    assert read == f"[characters 2999990 to 3000007 of 3000007, lines 1 to 1 of 1; this is the end]\n{text[-17:]}"


# --- whose it is ---------------------------------------------------------------------------------------


async def test_no_session_can_read_what_is_anothers(home: Home) -> None:
    blob = blob_id_of(encode(TEXT))  # whoever knows the content knows the id by which a store has it
    attempts = [reads(id="q-2"), reads(id="s-1/q-2"), reads(id=blob)]
    provider = ScriptedProvider([tool_call("log"), "Done.", *attempts, "Done."])
    async with home.runtime(provider=provider, tools=[log]) as runtime:
        one = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(one.turn("Look").run())
        kept = [move_out(encode(entry.record), {}) async for entry in runtime.mount.store.journal("s-1")]
        assert blob.encode() in b"".join(kept)
        other = await runtime.session("s-2").plugin(OutputBudget()).open()
        result = await soon(other.turn("Look").run())
        assert [call.is_error for call in result.tool_calls] == [True, True, True]
        assert {call.result["code"] for call in result.tool_calls} == {"not_found"}


async def test_what_was_shown_whole_is_told_apart_from_what_was_cut(home: Home) -> None:
    def short() -> str:
        """A little."""
        return "short"

    _, refused = await after(home, tool_call("short"), reads(id="q-2"), tools=[short])
    assert refused == {"error": "there is no shortened output with the id 'q-2'", "code": "not_found"}


async def test_another_process_reads_it_after_a_restart(shared_home: Home) -> None:
    async with shared_home.runtime(tool_call("log"), "Done.", tools=[log]) as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(session.turn("Look").run())
    provider = ScriptedProvider([reads(id="q-2", from_line=77, lines=1), "Done."])
    async with shared_home.runtime(provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(session.turn("And line 77?").run())
        assert last_result(provider).partition("\n")[2] == f"{LINES[76]}\n"


async def test_a_fork_reads_what_it_shares_also_when_the_source_is_gone(shared_home: Home) -> None:
    async with shared_home.runtime(tool_call("log"), "Done.", tools=[log]) as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(session.turn("Look").run())
        position = (await session.conversation()).position
        await runtime.mount.holdfast.fork("s-1", at=position, id="s-2")
        await runtime.mount.store.delete("s-1", 0)
    provider = ScriptedProvider([reads(id="q-2", search="line 4321:"), "Done."])
    async with shared_home.runtime(provider=provider) as runtime:
        fork = await runtime.session("s-2").plugin(OutputBudget()).open()
        await soon(fork.turn("And line 4321?").run())
        assert last_result(provider) == f"4321: {LINES[4_320]}"


async def test_it_stays_readable_when_the_conversation_has_been_summed_up(home: Home) -> None:
    script: list[ScriptStep] = [
        tool_call("log"),
        "Done.",
        "A log was read, id 'q-2'.",
        reads(id="q-2", lines=1),
        "Done.",
    ]
    provider = ScriptedProvider(script)
    async with home.runtime(provider=provider, tools=[log]) as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(session.turn("Look").run())
        await soon(session.compact(keep=0))
        await soon(session.turn("And the first line?").run())
        assert last_result(provider).partition("\n")[2] == f"{LINES[0]}\n"


async def test_it_stays_readable_in_a_session_that_began_anew_and_forgot(home: Home) -> None:
    provider = ScriptedProvider([tool_call("log"), "Done.", "Hello.", reads(id="q-2", lines=1), "Done."])
    async with home.runtime(provider=provider, tools=[log], residency="active_path_only") as runtime:
        session = await runtime.session("s-1").plugin(OutputBudget()).open()
        await soon(session.turn("Look").run())
        again = await runtime.session("s-1").plugin(OutputBudget()).open_fresh()
        await soon(again.turn("Hello").run())
        await soon(again.turn("And the first line?").run())
        assert last_result(provider).partition("\n")[2] == f"{LINES[0]}\n"


# --- configuration -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [lambda: (OutputBudget(max_bytes=500), None), lambda: (OutputBudget(), {"max_bytes": 500})]
)
async def test_the_budget_is_recorded_and_holds_in_other_processes(
    given: Callable[[], tuple[OutputBudget, Any]], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    silent = ScriptedProvider([reply(delay_s=60)])
    async with Runtime(url, provider=silent, tools=[log]) as runtime:
        session = await runtime.session("s-1").plugin(*given()).open()
        turn = asyncio.create_task(session.turn("Look").run())
        await until(lambda: silent.requests)
        turn.cancel()
    provider = ScriptedProvider([tool_call("log"), "Done."])
    async with Runtime(url, provider=provider, tools=[log], plugins=[OutputBudget(max_bytes=5_000)]) as runtime:
        await runtime.mount.holdfast.resume("s-1", wait=10)  # as a worker does, which opens nothing
    assert len(last_result(provider).encode()) < 700


@each_row("config", [{"max_bytes": 3}, {"max_words": 3}, {"max_lines": "many"}, "little", [1]])
async def test_a_budget_that_makes_no_sense_is_refused_at_once(config: Any) -> None:
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        with pytest.raises(InvalidValueError, match="output_budget"):
            runtime.session("s-1").plugin(OutputBudget(), config)
