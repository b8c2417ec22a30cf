"""Turns in RLM mode: cells are run, what they do is told, and their variables stay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.live_events import (
    CellFinishedEvent,
    CellPrintedEvent,
    CellStartedEvent,
    ToolFinishedEvent,
    ToolStartedEvent,
)
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome, ValueOutcome
from holdfast.core.errors import InvalidValueError
from holdfast.testing.patience import until
from holdfast.testing.provider import reply, stream, tool_call
from tests.agent.rlm.helpers import cell, rlm


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_variables_persist_across_cells_and_turns() -> None:
    async with rlm(cell("x = [1, 2]"), "One.", cell("x.append(3)\nprint(sum(x))"), "Two.") as agent:
        assert (await agent.turn()).text == "One."
        await agent.turn()
        told = await agent.told()
        assert "new: x: list" in told[0]
        assert "[OUTPUT]\n6" in told[1]
        assert "changed: x: list" in told[1]


async def test_the_names_that_cells_can_read_are_told_once_in_a_window() -> None:
    async with rlm(cell("x = [1, 2]"), "One.", "Two.", bind={"text": "abc"}) as agent:
        await agent.turn()
        await agent.turn()
        told = await agent.told()
        assert [text for text in told if "text (read-only)" in text] == [told[0]]
        assert not [text for text in told if "variable: x" in text]


async def test_names_are_told_again_after_a_summary() -> None:
    async with rlm(cell("x = [1, 2]"), "One.", "A summary.", "Two.", "Three.") as agent:
        await agent.turn()
        await agent.session.compact(keep=0)
        await agent.turn()
        await agent.turn()
        assert [text for text in await agent.told() if "variable: x: list" in text] == [(await agent.told())[-1]]


async def test_a_new_frame_is_told_its_seed_at_once() -> None:
    code = "big = [1] * 9\ncontinue_as('Go on.', seed={'n': 7})"
    async with rlm(cell(code), "Done.") as agent:
        await agent.turn()
        shown = "".join(message.text for message in agent.requests[-1].messages)
        assert "variable: n: int, 1 B = 7" in shown
        assert "big" not in shown


async def test_the_stream_is_aborted_at_the_end_of_the_first_cell() -> None:
    rest = ["```python\nx = 2\n```\n", *["and more "] * 50]
    async with rlm(stream("Look\n", "```python\nx = 1\n``", "`\n", *rest), "ok") as agent:
        await agent.turn()
        conversation = await agent.runtime.mount.conversations.get("s")
        assert conversation.messages[1].text == "Look\n```python\nx = 1\n```"
        assert (await agent.bound())[0].bindings.set["x"].value == 1


async def test_a_cut_reply_has_estimated_usage() -> None:
    async with rlm(stream("```python\nx = 1\n```\n", "more"), "ok") as agent:
        result = await agent.turn()
        assert result.usage.output > 0


async def test_unclosed_foreign_and_native_replies_are_asked_again() -> None:
    replies = ["```python\nx = (", tool_call("add", a=1, b=2), "", cell("import os"), "fine"]
    async with rlm(*replies, tools=[add]) as agent:
        result = await agent.turn()
        assert result.text == "fine"
        told = await agent.told()
        assert "not closed" in told[0]
        assert "no native tool calls" in told[1]
        assert "empty" in told[2]
        assert "no module 'os'" in told[3]
        assert await agent.bound() == []


async def test_replies_that_run_nothing_count_as_no_progress() -> None:
    async with rlm(*["```python\nx = ("] * 12, spec={"limits": {"no_progress": 3}}) as agent:
        outcome = (await agent.turn()).outcome
        assert isinstance(outcome, StoppedOutcome)
        assert outcome.limit == "no_progress"
        assert len(agent.requests) == 3


async def test_a_prose_reply_ends_a_natural_turn_and_finish_ends_it_with_a_value() -> None:
    async with rlm("Hello.", cell("finish({'n': 3})")) as agent:
        assert isinstance((await agent.turn()).outcome, MessageOutcome)
        assert (await agent.turn()).outcome == ValueOutcome({"n": 3})
        assert "[FINISHED]" in (await agent.told())[-1]


async def test_a_required_value_is_checked_and_problems_are_fed_back() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    replies = ["It is 3.", cell("finish({'n': 'three'})"), cell("finish({'n': 3})")]
    async with rlm(*replies) as agent:
        result = await agent.turn(output=schema)
        assert result.outcome == ValueOutcome({"n": 3})
        told = await agent.told()
        assert "finish(value)" in told[0]
        assert "not accepted" in told[1]
        assert '"n"' in agent.requests[0].system


async def test_fail_ends_the_turn_with_the_reason() -> None:
    async with rlm(cell("fail('no data')")) as agent:
        outcome = (await agent.turn()).outcome
        assert isinstance(outcome, StoppedOutcome)
        assert (outcome.reason, outcome.detail) == ("submitted_error", "no data")


async def test_the_first_finish_counts_and_nothing_is_called_after_it() -> None:
    calls: list[int] = []

    def note(n: int) -> None:
        """Note a number."""
        calls.append(n)

    code = """
try:
    finish(1)
except Exception:
    note(1)
finally:
    note(2)
note(3)
"""
    bare = "try:\n    finish(1)\nexcept:\n    y = 5\nfinish(2)\nnote(4)"
    async with rlm(cell(code), cell(bare), tools=[note]) as agent:
        assert (await agent.turn()).value == 1
        assert (await agent.turn()).value == 1
        assert calls == []
        assert (await agent.table()).variables["y"].preview == "5"


async def test_output_is_shortened_in_the_middle() -> None:
    async with rlm(cell("print('a' * 9000)\nprint('b' * 9000)"), "ok") as agent:
        await agent.turn()
        (told,) = await agent.told()
        assert "characters are missing" in told
        assert len(told) < 10_200
        assert told.count("b") > 2_900
        assert len((await agent.bound())[0].printed) > 18_000


async def test_an_exception_keeps_what_was_done_before_it() -> None:
    async with rlm(cell("x = 1\ny = 1 / 0\nz = 3"), cell("print(x)"), "ok") as agent:
        await agent.turn()
        told = await agent.told()
        assert "[ERROR] ZeroDivisionError" in told[0]
        assert "line 2: y = 1 / 0" in told[0]
        assert "new: x" in told[0]
        assert "[OUTPUT]\n1" in told[1]


@pytest.mark.parametrize(
    "code",
    [
        "x = 2\nwhile True:\n    pass",
        "x = 2\nwhile True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "x = 2\ns = 'a'\nwhile True:\n    s = s + s",
        "x = 2\nn = 7\nfor i in range(10 ** 6):\n    n = n * n",
        "x = 2\nfor i in range(2000):\n    budget()",
    ],
    ids=["loop", "loop that catches", "memory", "big integers", "calls"],
)
async def test_a_hostile_cell_ends_as_feedback_and_leaves_the_state_of_before(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("live_cell", "workers"):
        monkeypatch.setattr(f"holdfast.agent.rlm.{module}.CELL_S", 1.0)
    async with rlm(cell("x = 1"), cell(code), cell("print(x)"), "ok", "hi") as agent:
        other = await agent.runtime.session("other").rlm().open()
        working = asyncio.create_task(agent.turn())
        result = await working
        told = await agent.told()
        assert result.text == "ok"
        assert "[POLICY] The cell was stopped" in told[1]
        assert "as they were before" in told[1]
        assert "[OUTPUT]\n1" in told[2]
        assert (await other.turn("hello").run()).text == "hi"


async def test_other_sessions_work_on_while_a_hostile_cell_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("live_cell", "workers"):
        monkeypatch.setattr(f"holdfast.agent.rlm.{module}.CELL_S", 4.0)
    order: list[str] = []
    async with rlm(cell("while True:\n    pass"), *[cell("x = 1\nfinish(x)")] * 3, "ok") as agent:

        async def hostile() -> None:
            await agent.turn()
            order.append("hostile")

        working = asyncio.create_task(hostile())
        await until(lambda: agent.requests)
        for number in range(3):
            other = await agent.runtime.session(f"other-{number}").rlm().open()
            assert (await other.turn("hello").run()).value == 1
            order.append("other")
        await working
    assert order == ["other"] * 3 + ["hostile"]


async def test_recursion_and_endless_printing_are_feedback() -> None:
    deep = "def f(n):\n    return f(n + 1)\nf(0)"
    async with rlm(cell(deep), cell("for i in range(100000):\n    print('line', i)"), "ok") as agent:
        await agent.turn()
        told = await agent.told()
        assert "RecursionError" in told[0]
        assert "missing" in told[1]
        assert len(told[1]) < 11_000


async def test_tools_are_functions_with_positional_and_named_arguments() -> None:
    code = (
        "a = add(1, 2)\nb = add(b=3, a=4)\nimport asyncio\nc = await asyncio.gather(add_async(5, 6), add_async(7, 8))"
    )
    async with rlm(cell(f"{code}\nprint(a, b, c)"), cell("add(1, 2, 3)"), cell("ad(1)"), "ok", tools=[add]) as agent:
        await agent.turn()
        told = await agent.told()
        assert "3 7 [11, 15]" in told[0]
        assert "too many arguments" in told[1]
        assert "name 'ad' is not defined" in told[2]


async def test_a_tool_that_fails_raises_in_the_cell() -> None:
    def broken() -> None:
        """Break."""
        raise ValueError("no")

    code = "try:\n    broken()\nexcept RuntimeError as error:\n    print('caught', error)"
    async with rlm(cell(code), "ok", tools=[broken]) as agent:
        await agent.turn()
        assert "caught broken: ValueError: no" in (await agent.told())[0]


async def test_fan_out_keeps_the_order_of_calls() -> None:
    async def slow(n: int) -> int:
        """Wait."""
        await asyncio.sleep(0.01 * (5 - n))
        return n

    code = "import asyncio\nprint(await asyncio.gather(*[slow_async(n) for n in range(5)]))"
    async with rlm(cell(code), "ok", tools=[slow]) as agent:
        await agent.turn()
        assert "[0, 1, 2, 3, 4]" in (await agent.told())[0]


async def test_sub_model_calls_are_answered_and_their_usage_is_attributed() -> None:
    code = "a = llm('one')\nb = llm_batch(['two', 'three'])\nc = parallel([1, 2], lambda n: f'n{n}')\nprint(a, b, c)"
    async with rlm(cell(code), "ok") as agent:
        result = await agent.turn()
        assert "ONE ['TWO', 'THREE'] ['N1', 'N2']" in (await agent.told())[0]
        assert sorted(agent.provider.asked) == ["n1", "n2", "one", "three", "two"]
        assert result.report.by_source["cell"].calls == 5


async def test_functions_classes_and_imports_stay() -> None:
    first = "import math\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
    first += "def norm(p):\n    return math.sqrt(p.x)\np = P(16)"
    async with rlm(cell(first), cell("print(norm(p), P(2))"), "ok") as agent:
        await agent.turn()
        assert "4.0 P(x=2)" in (await agent.told())[1]


async def test_what_cannot_be_kept_is_named_with_what_to_do() -> None:
    code = "r = range(3)\nimport re\np = re.compile('a')\nc = []\nc.append(c)\nf = [lambda: 1]\nok = 1"
    async with rlm(cell(code), cell("print(ok)\nr"), "done") as agent:
        await agent.turn()
        told = await agent.told()
        assert "not kept: r: a value of the type range is not kept; keep list(…) of it" in told[0]
        assert "not kept: p:" in told[0]
        assert "not kept: c: it contains itself" in told[0]
        assert "not kept: f:" in told[0]
        assert "NameError" in told[1]


async def test_two_names_of_one_object_stay_one() -> None:
    async with rlm(cell("a = [1]\nb = a"), cell("b.append(2)"), cell("print(a, a is b)"), "ok") as agent:
        await agent.turn()
        told = await agent.told()
        assert "the same object: a = b" in told[0]
        assert "[1, 2] True" in told[2]


async def test_forget_drops_and_variables_lists() -> None:
    async with rlm(cell("x = 1\ny = 2"), cell("forget('x')"), cell("print(variables())"), cell("x"), "ok") as agent:
        await agent.turn()
        told = await agent.told()
        assert "dropped: x" in told[1]
        assert "{'y': 'int, 1 B = 2'}" in told[2]
        assert "NameError" in told[3]


async def test_projections_are_lazy_and_read_only() -> None:
    reads: list[str] = []

    from holdfast.agent.rlm.projections import Projection

    def resolve() -> Any:
        reads.append("read")
        return {"rows": [1, 2]}

    lazy = Projection("dict: the rows", resolve)
    cells = [cell("x = 1"), cell("data['rows'].append(3)\nprint(data)"), cell("print(data)"), cell("data = 3"), "ok"]
    async with rlm(*cells, bind={"data": lazy}) as agent:
        await agent.turn()
        told = await agent.told()
        assert "data (read-only): dict: the rows" in told[0]
        assert "[1, 2, 3]" in told[2]
        assert "{'rows': [1, 2]}" in told[3]
        assert "'data' is the runtime's" in told[4]
        assert reads == ["read", "read"]
        assert "data" not in (await agent.table()).variables


async def test_a_projection_is_not_bound_twice_or_under_a_name_of_the_runtime() -> None:
    async with rlm("ok") as agent:
        builder = agent.runtime.session("x").rlm().bind("data", [1])
        with pytest.raises(InvalidValueError, match="bound twice"):
            builder.bind("data", [2])
        with pytest.raises(InvalidValueError, match="function of cells"):
            builder.bind("llm", 1)


async def test_a_large_lazy_projection_takes_no_space_and_is_not_fetched(tmp_path: Path) -> None:
    file = tmp_path / "big.txt"
    file.write_text("line of text\n" * 4_000_000)
    store = f"sqlite:///{tmp_path}/s.db"
    async with rlm(
        cell("x = 1"), cell("n = data.count('\\n')\nprint(n)"), "ok", store=store, bind={"data": file}
    ) as agent:
        await agent.turn()
        assert "4000000" in (await agent.told())[2]
    stored = sum(each.stat().st_size for each in tmp_path.glob("s.db*"))
    assert stored < 2_000_000


async def test_history_is_a_projection_of_what_was_said() -> None:
    async with rlm("Hello.", cell("print([m['role'] for m in history], history[0]['text'])"), "ok") as agent:
        await agent.turn("First.")
        await agent.turn("Second.")
        assert "['user', 'assistant', 'user'] First." in (await agent.told())[0]


async def test_continue_as_goes_on_in_a_fresh_window_with_only_its_seed() -> None:
    cells = [cell("a = 1\nb = 2"), cell("continue_as('Go on with b', seed={'b': b})"), cell("print(b)\na"), "done"]
    async with rlm(*cells) as agent:
        result = await agent.turn("Secret.")
        assert result.text == "done"
        last = agent.requests[2].messages
        assert "Go on with b" in last[0].text
        assert not any("Secret" in message.text for message in last)
        told = await agent.told()
        assert "NameError" in told[-1]
        assert "2" in told[-1]


async def test_the_default_formats_of_root_and_child() -> None:
    async with rlm("ok") as agent:
        assert agent.session.policy.final_answer == "markdown"
        child = await agent.runtime.session("child").rlm().parent("s").open()
        assert child.policy.final_answer == "raw"
        own = await agent.runtime.session("own").rlm().rlm_final_answer_format("As a haiku.").open()
        assert own.policy.final_answer == "As a haiku."


async def test_the_format_holds_in_every_frame() -> None:
    cells = [cell("continue_as('Go on')"), "done"]
    async with rlm(*cells, build=lambda builder: builder.rlm_final_answer_format("As a haiku.")) as agent:
        await agent.turn()
        assert all("As a haiku." in request.system for request in agent.requests)


async def test_a_runtime_can_have_the_mode_as_its_default() -> None:
    async with rlm(cell("x = 1"), "ok", mode="rlm", build=lambda builder: builder) as agent:
        session = await agent.runtime.session("plain").open()
        assert session.policy.mode == "rlm"


async def test_a_reply_over_the_token_limit_is_told_so() -> None:
    async with rlm(reply("```python\nx = [", stop="length"), "ok") as agent:
        await agent.turn()
        assert "token limit" in (await agent.told())[0]


async def test_watchers_see_cells_start_print_and_finish() -> None:
    seen: list[str] = []

    async def sink(event: Any) -> None:
        match event:
            case CellStartedEvent(cell=number, code=code):
                seen.append(f"started {number}: {code}")
            case CellPrintedEvent(cell=number, text=text):
                seen.append(f"printed {number}: {text}")
            case CellFinishedEvent(cell=number, told=told):
                seen.append(f"finished {number}: {told}")
            case ToolStartedEvent(name=name, arguments=arguments):
                seen.append(f"call {name} {arguments}")
            case ToolFinishedEvent(name=name, result=result):
                seen.append(f"result {name} {result}")
            case _:
                pass

    code = "print('a')\nadd(1, 2)\nprint('b')\nllm('word')"
    async with rlm(cell(code), "ok", tools=[add]) as agent:
        await agent.session.turn("go").stream_to(sink)
    assert seen[0].startswith("started 1: print('a')")
    assert seen[1:7] == [
        "printed 1: a\n",
        "call add {'a': 1, 'b': 2}",
        "result add 3",
        "printed 1: b\n",
        "call llm {'prompt': 'word'}",
        "result llm WORD",
    ]
    assert seen[7].startswith("finished 1: [OUTPUT]\na\nb\nWORD")
