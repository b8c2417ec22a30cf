"""Drivers: functions that answer queries, their limits, and effects whose outcome a crash has hidden."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import PausedEvent, RunningEvent
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, Query, ToolQuery, Usage
from holdfast.core.records import AnsweredRecord, AttemptedRecord, PausedRecord, Record, attempted_in
from holdfast.engine.drivers import Attempt, NotDone, Reply
from holdfast.engine.errors import DriverError
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.patience import soon, until
from tests.engine.helpers import asked, attempts_at, of_type, prompts, quiet, records, result, sqlite, write


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with quiet(sqlite(tmp_path)) as opened:
        yield opened


@strategy(name="drivers-asks-model")
async def asks_model(ctx: Context) -> str:
    return str(await ctx.llm("what?", model="m"))


@strategy(name="drivers-uses-tool")
async def uses_tool(ctx: Context) -> Any:
    try:
        return await ctx.tool("pay", amount=3)
    except QueryFailedError as failure:
        return [failure.code, str(failure)]


# --- answering ------------------------------------------------------------------------------------------


async def test_a_model_driver_answers_without_a_host(hf: Holdfast) -> None:
    async def model(query: LlmQuery) -> str:
        return f"{query.prompt} {query.options['model']}"

    hf.drive("llm", model)
    event = await soon(hf.start(asks_model))
    assert result(event) == "what? m"
    (answered,) = await of_type(hf.store, event.session_id, AnsweredRecord)
    assert (answered.query_id, answered.by) == ("q-0", None)


async def test_a_tool_gets_its_arguments_by_name(hf: Holdfast) -> None:
    hf.drive("pay", lambda amount: {"paid": amount})
    assert result(await soon(hf.start(uses_tool))) == {"paid": 3}


async def test_a_tool_may_take_the_attempt(hf: Holdfast) -> None:
    async def pay(amount: int, attempt: Attempt) -> list[Any]:
        return [attempt.session_id, attempt.query_id, attempt.number, attempt.key]

    hf.drive("pay", pay)
    event = await soon(hf.start(uses_tool))
    assert result(event) == [event.session_id, "q-0", 1, f"{event.session_id}/q-0"]


async def test_a_model_driver_may_take_the_attempt(hf: Holdfast) -> None:
    hf.drive("llm", lambda query, attempt: f"{attempt.number}")
    assert result(await soon(hf.start(asks_model))) == "1"


async def test_a_driver_may_answer_for_people(hf: Holdfast) -> None:
    async def asks_person(ctx: Context) -> str:
        return str(await ctx.ask("sure?", choices=["yes", "no"]))

    async def person(query: HumanQuery) -> str:
        return query.choices[0]

    hf.drive("human", person)
    assert result(await soon(hf.start(asks_person))) == "yes"


async def test_usage_of_a_reply_is_counted(hf: Holdfast) -> None:
    hf.drive("llm", lambda query: Reply("text", Usage(prompt_tokens=5, completion_tokens=2)))
    event = await soon(hf.start(asks_model))
    assert result(event) == "text"
    assert event.to_json()["stats"]["auto"]["total_tokens"] == {"tokens": 7, "source": "provided"}


async def test_an_exception_of_a_driver_is_a_failure_to_the_program(hf: Holdfast) -> None:
    class RateLimitError(Exception):
        code = "rate_limit"

    def pay(amount: int) -> None:
        raise RateLimitError("slow down")

    hf.drive("pay", pay)
    code, text = result(await soon(hf.start(uses_tool)))
    assert code == "rate_limit"
    assert "slow down" in text


async def test_a_failure_that_is_returned_is_a_failure(hf: Holdfast) -> None:
    hf.drive("pay", lambda amount: Failure("no money", "declined"))
    assert result(await soon(hf.start(uses_tool))) == ["declined", "no money"]


async def test_an_outcome_that_is_no_json_is_a_failure(hf: Holdfast) -> None:
    hf.drive("pay", lambda amount: object())
    code, text = result(await soon(hf.start(uses_tool)))
    assert code == "failed"
    assert "JSON" in text


async def test_arguments_that_do_not_fit_the_tool_are_a_failure(hf: Holdfast) -> None:
    hf.drive("pay", lambda sum_: 1)
    code, text = result(await soon(hf.start(uses_tool)))
    assert code == "failed"
    assert "amount" in text


async def test_tools_without_a_driver_wait_for_anyone(hf: Holdfast) -> None:
    hf.drive("other", lambda: 1)
    event = await soon(hf.start(uses_tool))
    assert [type(query) for query in asked(event)] == [ToolQuery]
    assert result(await hf.feed(event.session_id, "by hand")) == "by hand"


async def test_a_driver_that_comes_later_takes_up_what_waits(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(uses_tool))
        assert isinstance(event, PausedEvent)
        hf.drive("pay", lambda amount: "late")
        assert await soon(hf.result(event.session_id)) == "late"


async def test_what_is_driven_is_not_offered_but_stands_in_the_status(hf: Holdfast) -> None:
    async def both_kinds(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.llm("for the host"), ctx.tool("pay", amount=1)))

    gate = asyncio.Event()

    async def pay(amount: int) -> str:
        await gate.wait()
        return "paid"

    hf.drive("pay", pay)
    event = await soon(hf.start(both_kinds))
    assert prompts(event) == {"q-0": "for the host"}
    assert len(asked(event)) == 1
    assert [each["query_id"] for each in (await hf.status(event.session_id))["pending"]] == ["q-0", "q-1"]
    gate.set()
    await hf.feed(event.session_id, {"q-0": "!"})
    assert await soon(hf.result(event.session_id)) == ["!", "paid"]


def test_a_driver_that_makes_no_sense_is_refused() -> None:
    hf = quiet("memory:")
    with pytest.raises(DriverError, match="probe"):
        hf.drive("t", lambda: 1, recovery="confirm")
    with pytest.raises(DriverError, match="probe"):
        hf.drive("t", lambda: 1, probe=lambda attempt: 1)
    with pytest.raises(DriverError, match="concurrency"):
        hf.drive("t", lambda: 1, concurrency=0)


# --- attempts and limits --------------------------------------------------------------------------------


async def test_an_attempt_stands_in_the_journal_before_the_effect_runs(hf: Holdfast) -> None:
    seen: list[Record] = []

    async def pay(amount: int, attempt: Attempt) -> str:
        seen.extend(await records(hf.store, attempt.session_id))
        return "paid"

    hf.drive("pay", pay)
    event = await soon(hf.start(uses_tool))
    assert result(event) == "paid"
    assert attempted_in(seen[-1]) == ["q-0"]


async def test_a_session_is_held_while_an_effect_runs_and_let_go_afterwards(hf: Holdfast) -> None:
    gate = asyncio.Event()

    async def pay(amount: int) -> str:
        await gate.wait()
        return "paid"

    async def pays_then_asks(ctx: Context) -> Any:
        await ctx.tool("pay", amount=1)
        return await ctx.llm("?")

    hf.drive("pay", pay)
    event = await hf.start(pays_then_asks, wait=0.01)
    assert isinstance(event, RunningEvent)
    assert (await hf.store.session(event.session_id)).owner is not None
    gate.set()
    assert prompts(await soon(hf.resume(event.session_id))) == {"q-1": "?"}
    assert (await hf.store.session(event.session_id)).owner is None


async def test_no_more_effects_of_a_driver_run_at_once_than_it_allows(hf: Holdfast) -> None:
    running = 0
    most = 0

    async def pay(amount: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "paid"

    async def pays_often(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(*(ctx.tool("pay", amount=n) for n in range(5))))

    hf.drive("pay", pay, concurrency=3)
    events = await soon(asyncio.gather(*(hf.start(pays_often) for _ in range(4))))
    assert [result(event) for event in events] == [["paid"] * 5] * 4
    assert most == 3


async def test_the_slot_of_a_question_that_was_withdrawn_at_once_is_free_again(hf: Holdfast) -> None:
    async def changes_its_mind(ctx: Context) -> str:
        paying = ctx.tool("pay", amount=1)
        looking = asyncio.create_task(ctx.state.get("x"))
        await asyncio.wait([paying, looking], return_when=asyncio.FIRST_COMPLETED)
        paying.cancel()
        return "not today"

    hf.drive("pay", lambda amount: "paid", concurrency=1)
    assert result(await soon(hf.start(changes_its_mind))) == "not today"
    assert result(await soon(hf.start(uses_tool))) == "paid"


async def test_a_session_is_let_go_when_a_host_answers_before_the_driver_gets_to_it(hf: Holdfast) -> None:
    gate = asyncio.Event()

    async def pay(amount: int) -> str:
        await gate.wait()
        return "paid"

    async def pays_then_asks_host(ctx: Context) -> Any:
        await ctx.tool("pay", amount=1)
        return await ctx.llm("?")

    hf.drive("pay", pay, concurrency=1)
    first = await hf.start(uses_tool, wait=0.01)
    second = await hf.start(pays_then_asks_host, wait=0.01)
    assert prompts(await soon(hf.feed(second.session_id, {"q-0": "by the host"}))) == {"q-1": "?"}
    gate.set()
    assert await soon(hf.result(first.session_id)) == "paid"

    async def let_go() -> bool:
        return (await hf.store.session(second.session_id)).owner is None

    await until(let_go)
    assert result(await hf.feed(second.session_id, "!")) == "!"


async def test_a_session_that_ends_stops_its_effects(hf: Holdfast) -> None:
    stopped = asyncio.Event()

    async def pay(amount: int) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            stopped.set()
            raise

    hf.drive("pay", pay, concurrency=1)
    event = await hf.start(uses_tool, wait=0.05)
    await soon(hf.cancel(event.session_id))
    await soon(stopped.wait())
    hf.drive("pay", lambda amount: "next")
    assert result(await soon(hf.start(uses_tool))) == "next"


async def test_an_effect_whose_question_was_withdrawn_is_stopped(hf: Holdfast) -> None:
    stopped = asyncio.Event()

    async def pay(amount: int) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def gives_up(ctx: Context) -> Any:
        paying = ctx.tool("pay", amount=1)
        await ctx.llm("still?")
        paying.cancel()
        return await ctx.llm("and now?")

    hf.drive("pay", pay)
    event = await soon(hf.start(gives_up))
    event = await soon(hf.feed(event.session_id, {"q-1": "no"}))
    assert prompts(event) == {"q-2": "and now?"}
    await soon(stopped.wait())


# --- recovery -------------------------------------------------------------------------------------------

LEFT: list[Record] = [
    PausedRecord(queries=[ToolQuery(id="q-0", name="pay", arguments={"amount": 3})]),
    AttemptedRecord(query_id="q-0", driver="tool:pay"),
]
"""What a process leaves that dies after it wrote down the attempt and before it wrote down the outcome."""


async def left_behind(hf: Holdfast) -> None:
    await write(hf.store, "left", uses_tool.program, LEFT)


class Till:
    """A tool that remembers how often it was used."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def pay(self, amount: int, attempt: Attempt) -> str:
        self.attempts.append(attempt)
        return "paid"


async def test_never_answers_with_an_unknown_outcome_and_does_not_run_again(hf: Holdfast) -> None:
    till = Till()
    hf.drive("pay", till.pay)
    await left_behind(hf)
    code, text = result(await soon(hf.resume("left")))
    assert code == "unknown_outcome"
    assert "may or may not have run" in text
    assert till.attempts == []


@pytest.mark.parametrize("policy", ["safe", "idempotent"])
async def test_safe_and_idempotent_run_again_with_the_same_key_and_a_higher_number(hf: Holdfast, policy: Any) -> None:
    till = Till()
    hf.drive("pay", till.pay, recovery=policy)
    await left_behind(hf)
    assert result(await soon(hf.resume("left"))) == "paid"
    assert till.attempts == [Attempt("left", "q-0", 2)]
    assert till.attempts[0].key == Attempt("left", "q-0", 1).key
    assert await attempts_at(hf.store, "left") == ["q-0", "q-0"]


async def test_confirm_takes_the_answer_of_the_probe(hf: Holdfast) -> None:
    till = Till()

    async def probe(attempt: Attempt) -> str:
        return f"paid already, {attempt.key}"

    hf.drive("pay", till.pay, recovery="confirm", probe=probe)
    await left_behind(hf)
    assert result(await soon(hf.resume("left"))) == "paid already, left/q-0"
    assert till.attempts == []


async def test_confirm_runs_again_what_the_probe_knows_not_to_have_happened(hf: Holdfast) -> None:
    till = Till()
    hf.drive("pay", till.pay, recovery="confirm", probe=lambda attempt: NotDone())
    await left_behind(hf)
    assert result(await soon(hf.resume("left"))) == "paid"
    assert till.attempts == [Attempt("left", "q-0", 2)]


async def test_a_probe_that_fails_leaves_the_outcome_unknown(hf: Holdfast) -> None:
    till = Till()

    def probe(attempt: Attempt) -> None:
        raise OSError("no route")

    hf.drive("pay", till.pay, recovery="confirm", probe=probe)
    await left_behind(hf)
    code, text = result(await soon(hf.resume("left")))
    assert code == "unknown_outcome"
    assert "no route" in text
    assert till.attempts == []


async def test_a_probe_that_answers_with_no_json_leaves_the_outcome_unknown(hf: Holdfast) -> None:
    till = Till()
    hf.drive("pay", till.pay, recovery="confirm", probe=lambda attempt: object())
    await left_behind(hf)
    code, _ = result(await soon(hf.resume("left")))
    assert code == "unknown_outcome"
    assert till.attempts == []


async def test_ask_offers_the_question_to_the_host(hf: Holdfast) -> None:
    till = Till()
    hf.drive("pay", till.pay, recovery="ask")
    await left_behind(hf)
    event = await soon(hf.resume("left"))
    assert asked(event) == [ToolQuery(id="q-0", name="pay", arguments={"amount": 3})]
    assert result(await hf.feed("left", "I looked: paid")) == "I looked: paid"
    assert till.attempts == []


async def test_ask_runs_a_question_that_was_never_attempted(hf: Holdfast) -> None:
    till = Till()
    hf.drive("pay", till.pay, recovery="ask")
    assert result(await soon(hf.start(uses_tool))) == "paid"


async def test_a_model_is_asked_again(hf: Holdfast) -> None:
    query: Query = LlmQuery(id="q-0", prompt="what?", options={"model": "m"})
    left: list[Record] = [PausedRecord(queries=[query]), AttemptedRecord(query_id="q-0", driver="llm")]
    await write(hf.store, "left", asks_model.program, left)
    hf.drive("llm", lambda query: "again")
    assert result(await soon(hf.resume("left"))) == "again"


async def test_a_question_answered_before_the_crash_is_not_executed_again(hf: Holdfast) -> None:
    from holdfast.core.queries import Value

    till = Till()
    hf.drive("pay", till.pay, recovery="safe")
    await write(
        hf.store, "left", uses_tool.program, [*LEFT, AnsweredRecord(query_id="q-0", answer=Value(value="paid before"))]
    )
    assert result(await soon(hf.resume("left"))) == "paid before"
    assert till.attempts == []


async def test_an_owner_that_is_gone_is_taken_over_when_its_lease_has_run_out(tmp_path: Path) -> None:
    till = Till()
    async with open_holdfast(sqlite(tmp_path)) as hf:
        hf.drive("pay", till.pay, recovery="safe")
        await write(hf.store, "left", uses_tool.program, LEFT, hold_ms=300)
        await asyncio.sleep(0.1)
        assert till.attempts == []
        assert await soon(hf.result("left")) == "paid"
        assert till.attempts == [Attempt("left", "q-0", 2)]


async def test_closing_an_engine_lets_go_of_its_sessions(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        hf.drive("pay", lambda amount: asyncio.sleep(30))
        event = await hf.start(uses_tool, wait=0.01)
    till = Till()
    async with quiet(sqlite(tmp_path)) as hf:
        assert (await hf.store.session(event.session_id)).owner is None
        hf.drive("pay", till.pay)
        code, _ = result(await soon(hf.resume(event.session_id)))
        assert code == "unknown_outcome"
