"""Sandboxed Python runs as its authors expect: results, questions of every kind, errors that can be caught."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.events import AcceptedEvent, CompletedEvent, PausedEvent
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, Query, ToolQuery
from holdfast.core.records import AnsweredRecord, ProgressedRecord, StartedRecord, StatRecord
from holdfast.core.values import Json
from tests.programs.sandbox.helpers import asked, begin, broken, code, converse, echo, engine, logged, result, run
from tests.tables import each_row


def fails(*words: str, code: str = "failed") -> Any:
    """A host that fails queries in which one of the words occurs, and echoes the others."""

    def answer(query: Query) -> Any:
        return Failure("nobody knows", code) if any(word in str(echo(query)) for word in words) else echo(query)

    return answer


# --- where a program begins, and what it comes to ---------------------------------------------------------


@each_row(
    ("source", "expected"),
    [
        ("def run(ctx):\n    return ctx['n'] + 1", 8),
        ("async def run(ctx):\n    return ctx['n'] + 2", 9),
        ("ctx['n'] + 3", 10),
        ("x = ctx['n']\nx", 7),
        ("x = ctx['n']", None),
        ("", None),
        ("# nothing but a comment", None),
        ("def run(ctx):\n    ctx['result'] = llm('q')\n    return ctx", {"n": 7, "result": "<q>"}),
        ("def run(ctx):\n    pass", None),
    ],
)
async def test_the_value_of_run_is_the_result_or_that_of_the_last_expression(source: str, expected: Json) -> None:
    assert await run(source, ctx={"n": 7}) == expected


async def test_a_program_started_without_ctx_gets_an_empty_one() -> None:
    assert await run("def run(ctx):\n    return [ctx, 1]") == [{}, 1]


@each_row("given", [["a", 1], "text", 5, 2.5, True])
async def test_ctx_may_be_any_json(given: Json) -> None:
    assert await run("def run(ctx):\n    return ctx", ctx=given) == given


async def test_what_run_does_to_its_ctx_does_not_reach_the_record_of_the_start() -> None:
    async with engine() as hf:
        event = await hf.start(code("def run(ctx):\n    ctx['a'].append(2)\n    return ctx"), ctx={"a": [1]})
        assert result(event) == {"a": [1, 2]}
        records = [entry.record async for entry in hf.store.journal(event.session_id)]
        assert isinstance(records[0], StartedRecord)
        assert records[0].ctx == {"a": [1]}


@each_row(
    ("expression", "kept"),
    [
        ("(1, (2, 3))", [1, [2, 3]]),
        ("{'a': (1,)}", {"a": [1]}),
        ("2 ** 62", 2**62),
        ("1e300", 1e300),
        ("'a\\x00b\\U0001f600'", "a\0b\U0001f600"),
        ("[None, True, -0.5]", [None, True, -0.5]),
    ],
)
async def test_results_are_kept_as_json(expression: str, kept: Json) -> None:
    assert await run(expression) == kept


@each_row(
    ("expression", "word"),
    [
        ("{1, 2}", "set"),
        ("[b'x']", "bytes"),
        ("{1: 2}", "key"),
        ("2 ** 64", "64 bits"),
        ("float('nan')", "nan"),
        ("1j", "complex"),
        ("ValueError('x')", "ValueError"),
        ("...", "ellipsis"),
    ],
)
async def test_a_result_that_json_has_no_form_for_ends_the_session_and_says_so(expression: str, word: str) -> None:
    end = await broken(expression)
    assert end.error_kind == "invalid_result"
    assert word in end.error
    assert "a strategy returns JSON" in end.error


@each_row(
    ("made", "type_name"),
    [
        ("from decimal import Decimal\nx = Decimal('1.5')", "Decimal"),
        ("from datetime import date\nx = date(2024, 5, 1)", "date"),
        ("x = {1}", "set"),
        ("x = b'1'", "bytes"),
    ],
)
async def test_arguments_that_json_has_no_form_for_are_refused_where_they_are_passed(made: str, type_name: str) -> None:
    source = f"{made}\ntry:\n    tool('t', a=[x])\nexcept ValueError as error:\n    said = str(error)\nsaid"
    assert await run(source) == f"invalid tool: arguments at .a[0]: {type_name} has no JSON form"


async def test_objects_of_its_own_classes_stay_inside() -> None:
    source = """
        class A:
            def __init__(self):
                self.x = self
        said = []
        for call in (lambda: tool("t", a=[A()]), lambda: tuning({"a": A()}, {}), lambda: stats.record("a", A())):
            try:
                call()
            except ValueError as error:
                said.append(str(error))
        log(A())
        said
    """
    assert await run(source) == [
        f"invalid {what}: A is of a class of your own; pass its fields instead" for what in ("tool", "tuning", "stats")
    ]
    assert "A is of a class of your own" in (await broken("class A:\n    pass\nA()")).error


async def test_tuples_in_arguments_are_lists() -> None:
    async with engine() as hf:
        event = await hf.start(code("tool('t', a=(1, (2,)), b={'c': ()})"))
        assert isinstance(event, PausedEvent)
        assert isinstance(query := event.queries[0], ToolQuery)
        assert query.arguments == {"a": [1, [2]], "b": {"c": []}}


# --- one question ------------------------------------------------------------------------------------------


async def test_every_option_of_a_question_reaches_the_host() -> None:
    async with engine() as hf:
        source = "llm('p', system='s', max_tokens=5, grounded=True, timeout_ms=900, model='m', tags=['a'])"
        event = await hf.start(code(source))
        assert isinstance(event, PausedEvent)
        options = {"model": "m", "tags": ["a"]}
        assert event.queries == [
            LlmQuery(id="q-0", prompt="p", system="s", max_tokens=5, grounded=True, timeout_ms=900, options=options)
        ]


async def test_ground_and_specify_ask_as_llm_does() -> None:
    async with engine() as hf:
        event = await hf.start(code("[ground('c', role='r'), specify('p')]"))
        assert event.queries == [LlmQuery(id="q-0", prompt="c", grounded=True, options={"role": "r"})]
        event = await hf.feed(event.session_id, "yes")
        assert event.queries == [LlmQuery(id="q-1", prompt="p", underspecified=True)]
        assert result(await hf.feed(event.session_id, "no")) == ["yes", "no"]


async def test_people_and_tools_answer_with_any_json() -> None:
    async with engine() as hf:
        event = await hf.start(code("[ask('which?', choices=['a', 'b'], timeout_ms=5000), tool('search', q='x')]"))
        assert event.queries == [HumanQuery(id="q-0", prompt="which?", choices=["a", "b"], timeout_ms=5000)]
        event = await hf.feed(event.session_id, {"q-0": {"deep": [1]}})
        assert event.queries == [ToolQuery(id="q-1", name="search", arguments={"q": "x"})]
        assert result(await hf.feed(event.session_id, {"q-1": [None]})) == [{"deep": [1]}, [None]]


async def test_an_answer_of_a_model_is_a_text_whatever_the_host_says() -> None:
    assert await run("llm('q')", lambda _: {"a": [1]}) == '{"a":[1]}'


async def test_functions_of_the_host_are_values() -> None:
    source = """
        def twice(f, x):
            return [f(x), f(x + "!")]
        table = {"ask": llm, "read": json_extract}
        [twice(table["ask"], "a"), table["read"]("so: {}"), [g("b") for g in (llm, ask)]]
    """
    assert await run(source) == [["<a>", "<a!>"], {}, ["<b>", "<b>"]]


@each_row("kind", ["failed", "refused", "unknown_outcome"])
async def test_a_failed_question_is_a_runtime_error_that_can_be_caught(kind: str) -> None:
    source = "try:\n    x = llm('q')\nexcept RuntimeError as error:\n    x = str(error)\nx"
    expected = "nobody knows" if kind == "failed" else f"{kind}: nobody knows"
    assert await run(source, fails("q", code=kind)) == expected


async def test_a_question_that_lapses_is_a_timeout_error() -> None:
    source = "try:\n    x = llm('q')\nexcept TimeoutError as error:\n    x = ['late', str(error)]\nx"
    assert await run(source, fails("q", code="timeout")) == ["late", "nobody knows"]


async def test_a_failure_that_is_not_caught_ends_the_session_with_its_place() -> None:
    end = await broken("def run(ctx):\n    return helper()\n\ndef helper():\n    return llm('q')\n", fails("q"))
    assert end.error_kind == "RuntimeError"
    assert end.error.splitlines() == [
        "RuntimeError: nobody knows (strategy.py:5:12)",
        "Traceback (most recent call last):",
        '  File "strategy.py", line 2, in run',
        "    return helper()",
        '  File "strategy.py", line 5, in helper',
        "    return llm('q')",
    ]


# --- several at once ---------------------------------------------------------------------------------------


async def test_a_batch_is_one_pause_and_keeps_the_order() -> None:
    async with engine() as hf:
        event = await hf.start(code("llm_batch(['a', {'prompt': 'b', 'system': 's'}, 'c'], system='t', role='r')"))
        assert [(q.prompt, q.system, q.options) for q in event.queries if isinstance(q, LlmQuery)] == [
            ("a", "t", {"role": "r"}),
            ("b", "s", {"role": "r"}),
            ("c", "t", {"role": "r"}),
        ]
        event = await hf.feed(event.session_id, {"q-2": "C", "q-0": "A"})
        assert isinstance(event, AcceptedEvent)
        assert result(await hf.feed(event.session_id, {"q-1": "B"})) == ["A", "B", "C"]


async def test_a_batch_of_nothing_asks_nothing() -> None:
    assert await run("[llm_batch([]), parallel([], lambda i: i)]") == [[], []]


async def test_a_failure_in_a_batch_withdraws_the_rest() -> None:
    source = """
        try:
            llm_batch(["a", "b", "c"])
        except RuntimeError as error:
            said = str(error)
        [said, llm("after")]
    """
    async with engine() as hf:
        event = await hf.start(code(source))
        event = await hf.feed(event.session_id, {"q-1": Failure("no idea")})
        assert asked(event) == ["after"]
        assert result(await hf.feed(event.session_id, "x")) == ["llm_batch: item 2: no idea", "x"]


async def test_what_a_failed_batch_has_left_is_withdrawn_although_the_next_question_was_refused() -> None:
    source = """
        try:
            llm_batch(["a", "b"])
        except RuntimeError:
            pass
        try:
            llm("too much")
        except RuntimeError:
            pass
        ask("a person")
    """
    async with engine() as hf:
        event = await hf.start(code(source), budget={"max_llm_calls": 2})
        event = await hf.feed(event.session_id, {"q-0": Failure("no idea")})
        assert asked(event) == ["a person"]
        assert result(await hf.feed(event.session_id, "x")) == "x"


async def test_gather_is_one_pause() -> None:
    source = """
        import asyncio
        async def one(x):
            first = await llm_async(f"{x}1")
            return [first, await llm_async(f"{x}2")]
        async def run(ctx):
            return await asyncio.gather(one("a"), llm_async("b"), one("c"))
    """
    async with engine() as hf:
        pauses, event = await converse(hf, await hf.start(code(source)))
    assert [sorted(prompts) for prompts in pauses] == [["a1", "b", "c1"], ["a2", "c2"]]
    assert result(event) == [["<a1>", "<a2>"], "<b>", ["<c1>", "<c2>"]]


async def test_answers_to_gather_may_come_in_any_order_and_one_by_one() -> None:
    source = (
        "import asyncio\nasync def run(ctx):\n    return await asyncio.gather(*[llm_async(str(i)) for i in range(5)])"
    )
    async with engine() as hf:
        event = await hf.start(code(source))
        session_id = event.session_id
        for number in (3, 0, 4, 1):
            event = await hf.feed(session_id, {f"q-{number}": f"A{number}"})
            assert isinstance(event, AcceptedEvent)
        assert result(await hf.feed(session_id, {"q-2": "A2"})) == ["A0", "A1", "A2", "A3", "A4"]


async def test_a_failure_in_gather_is_told_at_once_and_the_program_goes_on() -> None:
    source = """
        import asyncio
        async def run(ctx):
            try:
                await asyncio.gather(llm_async("a"), llm_async("b"))
            except RuntimeError as error:
                said = str(error)
            return [said, await llm_async("c"), llm("d")]
    """
    async with engine() as hf:
        event = await hf.start(code(source))
        event = await hf.feed(event.session_id, {"q-0": Failure("no idea")})
        assert asked(event) == ["b", "c"], "what was asked is asked still, as a task of asyncio goes on"
        event = await hf.feed(event.session_id, {"q-1": "late", "q-2": "C"})
        assert asked(event) == ["d"]
        assert result(await hf.feed(event.session_id, "D")) == ["no idea", "C", "D"]


async def test_a_plain_call_waits_while_futures_are_open() -> None:
    source = """
        async def run(ctx):
            early = llm_async("early")
            plain = llm("plain")
            return [plain, await early]
    """
    for order in (["q-0", "q-1"], ["q-1", "q-0"]):
        async with engine() as hf:
            event = await hf.start(code(source))
            assert asked(event) == ["early", "plain"]
            event = await hf.feed(event.session_id, {order[0]: order[0]})
            assert not isinstance(event, CompletedEvent)
            assert result(await hf.feed(event.session_id, {order[1]: order[1]})) == ["q-1", "q-0"]


async def test_whoever_answers_first_is_heard_first() -> None:
    source = """
        import asyncio
        async def person():
            return await llm_async("about " + await ask_async("you?"))
        async def model():
            return await llm_async("about " + await llm_async("model?"))
        async def run(ctx):
            return await asyncio.gather(person(), model())
    """
    async with engine() as hf:
        event = await hf.start(code(source))
        assert sorted(asked(event)) == ["model?", "you?"]
        by_prompt = {query.prompt: query.id for query in event.queries if isinstance(query, LlmQuery | HumanQuery)}
        event = await hf.feed(event.session_id, {by_prompt["model?"]: "M"})
        assert asked(event) == ["you?", "about M"]
        event = await hf.feed(event.session_id, {by_prompt["you?"]: "P", "q-2": "m"})
        assert asked(event) == ["about P"]
        assert result(await hf.feed(event.session_id, "p")) == ["p", "m"]


async def test_a_call_that_is_never_awaited_is_not_asked_and_the_log_says_so() -> None:
    async with engine() as hf:
        event = await hf.start(code("forgotten = llm_async('never')\n5"))
        assert result(event) == 5
        (line,) = await logged(hf.store, event.session_id, "holdfast")
    assert "1 awaitable call(s) were never awaited" in line
    assert "never" in line


# --- time and chance ---------------------------------------------------------------------------------------


async def test_time_stands_still_between_pauses_and_is_the_recorded_one() -> None:
    source = """
        import time
        from datetime import date, datetime, timezone
        def clocks():
            utc = datetime.now(timezone.utc)
            return [time.time(), now(), utc.timestamp(), time.monotonic(), str(date.today()) == str(utc)[:10]]
        before = clocks()
        again = clocks()
        llm("q")
        [before, again, clocks()]
    """
    async with engine() as hf:
        event = await hf.start(code(source))
        await asyncio.sleep(0.01)
        before, again, after = result(await hf.feed(event.session_id, "a"))
        journal = [entry async for entry in hf.store.journal(event.session_id)]
    assert before == again
    assert len(set(before[:4])) == 1
    assert before[0] == journal[0].at / 1000
    assert before[4] is True
    answered = next(entry for entry in journal if isinstance(entry.record, AnsweredRecord))
    assert after[0] == answered.at / 1000 > before[0]


@each_row("waiting", ["sleep(0.01)", "time.sleep(0.01)", "await sleep_async(0.01)", "await asyncio.sleep(0.01)"])
async def test_every_way_to_sleep_is_a_timer_of_the_session(waiting: str) -> None:
    source = f"import asyncio, time\nasync def run(ctx):\n    before = now()\n    {waiting}\n    return now() - before"
    async with engine(minds=True) as hf:
        event = await hf.start(code(source), wait=20)
        assert 0.01 <= result(event) < 20
        records = [entry.record async for entry in hf.store.journal(event.session_id)]
    assert sum("TimerQuery(" in repr(record) for record in records) == 1


async def test_chance_is_seeded_by_the_session() -> None:
    source = "import random\n[random.random(), random.randint(0, 10**9), uuid(), uuid(), llm('x'), random.random()]"
    results = []
    for seed in (1, 1, 2):
        async with engine() as hf:
            await begin(hf.store, "s", code(source), seed=seed)
            results.append(result((await converse(hf, await hf.resume("s")))[1]))
    assert results[0] == results[1]
    assert all(one != other for one, other in zip(results[0], results[2], strict=True) if one != "<x>")
    assert results[0][2] != results[0][3]


async def test_hashes_and_the_order_of_sets_are_the_same_in_every_worker() -> None:
    source = "[hash('text'), list({'b', 'a', 'c' * 9, 7, None, (1, 2)}) == list({'b', 'a', 'c' * 9, 7, None, (1, 2)})]"
    assert await run(f"{source} + [str({{'x', 'y', 'z', 'zz', 'yy'}})]") == await run(
        f"{source} + [str({{'x', 'y', 'z', 'zz', 'yy'}})]"
    )


# --- what it may say ---------------------------------------------------------------------------------------


async def test_prints_are_lines_of_the_log_before_the_pause_they_precede() -> None:
    async with engine() as hf:
        event = await hf.start(code("print('one', 1)\nprint('two\\nthree', end='')\nllm('q')\nprint()\nprint('last')"))
        assert await logged(hf.store, event.session_id, "print") == ["one 1", "two", "three"]
        await hf.feed(event.session_id, "a")
        assert await logged(hf.store, event.session_id, "print") == ["one 1", "two", "three", "", "last"]


async def test_log_progress_and_stats_are_recorded() -> None:
    source = """
        log({"a": [1]}, "warn")
        progress(1, 3, "first")
        stats.record("n", [1])
        got = [stats.get("n"), stats.get("nothing"), stats.llm_calls()]
        llm("q")
        [got, stats.get("n"), stats.llm_calls()]
    """
    async with engine() as hf:
        event = await hf.start(code(source))
        event = await hf.feed(event.session_id, "a")
        assert result(event) == [[[1], None, 0], [1], 1]
        assert event.stats["custom"] == {"n": [1]}
        records = [entry.record async for entry in hf.store.journal(event.session_id)]
    assert ProgressedRecord(step=1, total=3, message="first") in records
    assert StatRecord(key="n", value=[1]) in records
    assert "{'a': [1]}" in repr(records)
