"""Questions of children reach the host of their parent, and its answers reach them by their paths, in any process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.budget import Price
from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import (
    AnswerConflictError,
    NoPendingQueryError,
    QueryIdRequiredError,
    StaleQueryError,
    UnknownQueryError,
)
from holdfast.core.events import AcceptedEvent, CompletedEvent, PausedEvent, SentEvent
from holdfast.core.queries import Failure, Usage, Value
from holdfast.core.records import AnsweredRecord
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.patience import soon, until
from tests.engine.helpers import asked, of_type, prompts, quiet, records, result, sqlite
from tests.engine.shown_child import asker, by_name, helped, middle, three, top
from tests.paths import REPO


@pytest.fixture(params=["memory", "sqlite"])
async def hf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with quiet("memory:" if request.param == "memory" else sqlite(tmp_path)) as opened:
        yield opened


async def only_child(ctx: Context) -> Any:
    return await ctx.child(asker, ctx.data)


# --- what is shown --------------------------------------------------------------------------------------


async def test_a_question_of_a_child_is_shown_and_answered_as_one_of_its_parent(hf: Holdfast) -> None:
    event = await soon(hf.start(only_child, ctx={"name": "a", "count": 2}, id="p"))
    assert event.session_id == "p"
    assert prompts(event) == {"q-0.q-0": "a 0"}
    event = await soon(hf.feed("p", {"q-0.q-0": "first"}))
    assert event.session_id == "p"
    assert prompts(event) == {"q-0.q-1": "a 1"}
    assert result(await soon(hf.feed("p", {"q-0.q-1": "second"}))) == ["first", "second"]


async def test_questions_two_deep_have_the_whole_way_in_their_ids(hf: Holdfast) -> None:
    event = await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    assert prompts(event) == {"q-0.q-0": "middle", "q-0.q-1.q-0": "deep 0"}
    event = await soon(hf.feed("p", {"q-0.q-1.q-0": "d"}))
    assert event == AcceptedEvent(session_id="p", remaining=["q-0.q-0"])
    assert prompts(await soon(hf.feed("p", {"q-0.q-0": "m"}))) == {"q-1": "after"}
    assert result(await soon(hf.feed("p", {"q-1": "!"}))) == {"below": ["m", ["d"]], "after": "!"}


async def test_a_fork_of_three_asks_in_one_pause_with_the_own_questions_of_its_parent(hf: Holdfast) -> None:
    event = await soon(hf.start(three, id="p"))
    shown = {"q-0": "own", "q-1.q-0": "a 0", "q-2.q-0": "b 0", "q-3": "person", "q-4.q-0": "c 0"}
    assert prompts(event) == shown
    assert list(prompts(event)) == list(shown)  # in the order in which they were asked
    event = await soon(hf.feed("p", {each: each for each in shown}))
    assert prompts(event) == {"q-1.q-1": "a 1", "q-2.q-1": "b 1"}
    ended = await soon(hf.feed("p", {"q-1.q-1": "A", "q-2.q-1": "B"}))
    assert result(ended) == ["q-0", ["q-1.q-0", "A"], ["q-2.q-0", "B"], "q-3", ["q-4.q-0"]]


async def test_answers_one_by_one_are_accepted_until_something_new_is_asked(hf: Holdfast) -> None:
    await soon(hf.start(three, id="p"))
    assert await soon(hf.feed("p", {"q-4.q-0": "C"})) == AcceptedEvent(
        session_id="p", remaining=["q-0", "q-1.q-0", "q-2.q-0", "q-3"]
    )
    assert await soon(hf.feed("p", {"q-0": "O"})) == AcceptedEvent(
        session_id="p", remaining=["q-1.q-0", "q-2.q-0", "q-3"]
    )
    asks_on = await soon(hf.feed("p", {"q-1.q-0": "A"}))
    assert prompts(asks_on) == {"q-1.q-1": "a 1", "q-2.q-0": "b 0", "q-3": "person"}


async def test_what_is_asked_comes_in_one_pause_however_long_a_child_takes(hf: Holdfast) -> None:
    gate = asyncio.Event()

    async def slow_tool() -> str:
        await gate.wait()
        return "done"

    async def prepares(ctx: Context) -> Any:
        await ctx.tool("slow")
        return await ctx.llm("late")

    async def waits_for_both(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.llm("own"), ctx.child(prepares), ctx.child(asker, {"name": "a"})))

    hf.drive("slow", slow_tool)
    early = await soon(hf.start(waits_for_both, id="p", wait=0.2))
    assert prompts(early) == {"q-0": "own", "q-2.q-0": "a 0"}  # all there is when the wait is over
    resuming = asyncio.create_task(hf.resume("p"))
    await asyncio.sleep(0.1)
    assert not resuming.done()
    gate.set()
    assert prompts(await soon(resuming)) == {"q-0": "own", "q-1.q-1": "late", "q-2.q-0": "a 0"}


async def test_a_child_that_only_sleeps_does_not_hold_back_the_questions_of_others(hf: Holdfast) -> None:
    async def sleeps(ctx: Context) -> Any:
        await ctx.sleep(3600)

    async def one_sleeps(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.child(sleeps), ctx.child(asker, {"name": "a"})))

    assert prompts(await soon(hf.start(one_sleeps))) == {"q-1.q-0": "a 0"}


async def test_a_child_whose_program_is_not_here_does_not_make_its_parent_wait(tmp_path: Path) -> None:
    from holdfast.programs import registry

    async def elsewhere(ctx: Context) -> Any:
        await ctx.llm("once")
        return await ctx.llm("twice")

    async def parent_of_foreign(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.child("shown-foreign"), ctx.child(asker, {"name": "a"})))

    foreign = registry.strategy(name="shown-foreign")(elsewhere)
    parent = registry.strategy(name="shown-parent-of-foreign")(parent_of_foreign)
    async with quiet(sqlite(tmp_path)) as hf:
        await soon(hf.start(parent, id="p"))
    del registry._registered[foreign.name]
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.feed("p", {"q-0.q-0": "kept", "q-1.q-0": "A"}))
        assert isinstance(event, SentEvent)
        assert (event.session_id, event.program) == ("p", "shown-foreign")


async def test_due_times_of_children_are_shown_under_their_ids(hf: Holdfast) -> None:
    async def impatient(ctx: Context) -> Any:
        return await ctx.llm("soon?", timeout_ms=60_000)

    async def parent_of_impatient(ctx: Context) -> Any:
        return await ctx.child(impatient)

    event = await soon(hf.start(parent_of_impatient, id="p"))
    assert isinstance(event, PausedEvent)
    assert list(event.due_at) == ["q-0.q-0"]
    assert event.to_json()["due_at"] == event.due_at["q-0.q-0"]


async def test_the_status_of_a_parent_shows_what_its_children_wait_for(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    pending = {each["query_id"]: each for each in (await hf.status("p"))["pending"]}
    assert list(pending) == ["q-0", "q-0.q-0", "q-0.q-1", "q-0.q-1.q-0"]
    assert pending["q-0.q-1.q-0"]["prompt"] == "deep 0"
    assert "pending" not in await hf.status("p", pending=None)


async def test_a_fork_of_a_parent_has_children_of_its_own(hf: Holdfast) -> None:
    await soon(hf.start(only_child, ctx={"name": "a"}, id="p"))
    event = await soon(hf.fork("p", id="f"))
    assert prompts(event) == {"q-0.q-0": "a 0"}
    assert result(await soon(hf.feed("f", {"q-0.q-0": "forked"}))) == ["forked"]
    assert result(await soon(hf.feed("p", {"q-0.q-0": "first"}))) == ["first"]


async def test_a_child_that_ends_badly_is_told_and_its_siblings_are_shown(hf: Holdfast) -> None:
    async def breaks(ctx: Context) -> Any:
        raise ValueError("broken")

    async def one_breaks(ctx: Context) -> Any:
        outcomes = await asyncio.gather(ctx.child(breaks), ctx.child(asker, {"name": "a"}), return_exceptions=True)
        return [str(outcome) for outcome in outcomes]

    event = await soon(hf.start(one_breaks))
    assert prompts(event) == {"q-1.q-0": "a 0"}
    assert "broken" in result(await soon(hf.feed(event.session_id, "A")))[0]


# --- answers --------------------------------------------------------------------------------------------


async def test_a_bare_answer_goes_to_the_only_open_query_wherever_it_is(hf: Holdfast) -> None:
    await soon(hf.start(only_child, ctx={"name": "a"}, id="p"))
    assert result(await soon(hf.feed("p", "bare"))) == ["bare"]


async def test_a_bare_answer_where_several_are_open_is_refused_with_their_ids(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    with pytest.raises(QueryIdRequiredError) as refused:
        await soon(hf.feed("p", "which?"))
    assert refused.value.session_id == "p"
    assert refused.value.pending == ["q-0.q-0", "q-0.q-1.q-0"]


async def test_a_bare_answer_where_nothing_is_open_is_refused(hf: Holdfast) -> None:
    async def sleeps(ctx: Context) -> Any:
        await ctx.sleep(3600)

    async def parent_of_sleeper(ctx: Context) -> Any:
        return await ctx.child(sleeps)

    await soon(hf.start(parent_of_sleeper, id="p", wait=0.2))
    with pytest.raises(NoPendingQueryError, match="'p' is paused"):
        await soon(hf.feed("p", "for whom?"))


async def test_an_answer_may_be_a_failure_and_carry_usage(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    usage = Usage(prompt_tokens=5, completion_tokens=7)
    await soon(
        hf.feed("p", {"q-0.q-0": GivenAnswer(Value(value="m"), None, usage), "q-0.q-1.q-0": Failure("away")}, by="me")
    )
    (answered,) = await of_type(hf.store, "p.q-0.q-1", AnsweredRecord)
    assert (answered.answer, answered.by) == (Failure("away"), "me")
    assert (await of_type(hf.store, "p.q-0", AnsweredRecord))[0].usage == usage


@pytest.mark.parametrize(
    "path", ["q-0.q-7", "q-7.q-0", "q-0.q-0.q-0", "q-0.q-1.q-0.q-0", "q-9", "q-0.q-1.q-00", "q-3.q-0"]
)
async def test_an_answer_under_a_wrong_path_is_refused_and_nothing_is_taken(hf: Holdfast, path: str) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    before = [await records(hf.store, each) for each in ("p", "p.q-0", "p.q-0.q-1")]
    with pytest.raises(UnknownQueryError) as refused:
        await soon(hf.feed("p", {"q-0.q-0": "right", path: "wrong"}))
    assert (refused.value.session_id, refused.value.query_id) == ("p", path)
    assert refused.value.pending == ["q-0.q-0", "q-0.q-1.q-0"]
    assert [await records(hf.store, each) for each in ("p", "p.q-0", "p.q-0.q-1")] == before


async def test_a_session_that_only_has_the_id_of_a_child_is_none(hf: Holdfast) -> None:
    await soon(hf.start(only_child, ctx={"name": "a"}, id="p"))
    await soon(hf.start(asker, ctx={"name": "other"}, id="p.q-5"))
    with pytest.raises(UnknownQueryError, match=r"unknown query_id: q-5\.q-0 \(session 'p' waits for q-0\.q-0\)"):
        await soon(hf.feed("p", {"q-5.q-0": "no"}))


async def test_another_answer_to_a_query_of_a_child_is_a_conflict_that_names_the_parent(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    await soon(hf.feed("p", {"q-0.q-1.q-0": "first"}))
    with pytest.raises(AnswerConflictError, match="already responded") as refused:
        await soon(hf.feed("p", {"q-0.q-0": "m", "q-0.q-1.q-0": "second"}))
    assert (refused.value.session_id, refused.value.query_id) == ("p", "q-0.q-1.q-0")
    assert prompts(await soon(hf.resume("p"))) == {"q-0.q-0": "middle"}


async def test_the_same_answer_again_is_told_so_and_changes_nothing(hf: Holdfast) -> None:
    await soon(hf.start(only_child, ctx={"name": "a", "count": 2}, id="p"))
    event = await soon(hf.feed("p", {"q-0.q-0": "A"}))
    again = await soon(hf.feed("p", {"q-0.q-0": "A"}))
    assert again.replayed
    assert asked(again) == asked(event)
    await soon(hf.feed("p", {"q-0.q-1": "B"}))
    ended = await soon(hf.feed("p", {"q-0.q-0": "A"}))
    assert ended.replayed
    assert result(ended) == ["A", "B"]
    assert len(await of_type(hf.store, "p.q-0", AnsweredRecord)) == 2


async def test_a_repeated_feed_takes_what_was_not_taken_the_first_time(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    await soon(hf.feed("p.q-0.q-1", "d"))  # all that a process could do before it died
    event = await soon(hf.feed("p", {"q-0.q-1.q-0": "d", "q-0.q-0": "m"}))
    assert not event.replayed
    assert prompts(event) == {"q-1": "after"}


async def test_answers_that_come_too_late_say_so(hf: Holdfast) -> None:
    await soon(hf.start(only_child, ctx={"name": "a"}, id="p"))
    await soon(hf.cancel("p", "enough"))
    await until(lambda: is_in(hf, "p.q-0", State.CANCELLED))
    with pytest.raises(StaleQueryError) as refused:
        await soon(hf.feed("p", {"q-0.q-0": "A"}))
    assert (refused.value.session_id, refused.value.query_id) == ("p", "q-0.q-0")


async def test_children_can_still_be_answered_by_their_own_ids(hf: Holdfast) -> None:
    await soon(hf.start(only_child, ctx={"name": "a"}, id="p"))
    assert result(await soon(hf.feed("p.q-0", "direct"))) == ["direct"]
    assert await soon(hf.result("p")) == ["direct"]


async def test_many_answers_at_once_from_many_hosts_are_all_taken_once(hf: Holdfast) -> None:
    async def wide(ctx: Context) -> Any:
        return list(await asyncio.gather(*(ctx.child(asker, {"name": str(each)}) for each in range(20))))

    event = await soon(hf.start(wide, id="p"))
    assert len(asked(event)) == 20
    answers = [hf.feed("p", {query.id: query.id}) for query in asked(event)]
    events = await soon(asyncio.gather(*answers))
    assert result(await soon(hf.resume("p"))) == [[f"q-{each}.q-0"] for each in range(20)]
    assert any(isinstance(event, CompletedEvent) for event in events)


# --- cancel, budget -------------------------------------------------------------------------------------


async def is_in(hf: Holdfast, session: str, state: State) -> bool:
    return (await hf.store.session(session)).summary.state is state


async def test_cancelling_the_parent_ends_children_of_any_depth(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    await soon(hf.cancel("p", "enough"))
    for child in ("p.q-0", "p.q-0.q-1"):
        await until(lambda child=child: is_in(hf, child, State.CANCELLED))  # type: ignore[misc]


async def test_a_child_begins_with_what_is_left_of_the_budget_and_its_spending_counts(hf: Holdfast) -> None:
    async def spends(ctx: Context) -> Any:
        left = [ctx.budget_remaining()]
        await ctx.llm("own", max_tokens=10)
        told = await ctx.child(reports)
        left.append(ctx.budget_remaining())
        return [told, *(each and each.llm_calls for each in left)]

    async def reports(ctx: Context) -> Any:
        left = ctx.budget_remaining()
        assert left is not None
        await ctx.llm("child's", max_tokens=10)
        return [left.llm_calls, left.tokens, left.cost]

    budget = {"max_llm_calls": 5, "max_tokens": 1000, "max_elapsed_ms": 60_000, "max_cost": 1.0}
    prices = {"default": Price(prompt=1.0, completion=1000.0)}
    await soon(hf.start(spends, id="p", budget=budget, prices=prices))
    usage = Usage(prompt_tokens=100, completion_tokens=200, cost=0.25)
    await soon(hf.feed("p", "o", usage=usage))
    ended = await soon(hf.feed("p", {"q-1.q-0": "c"}, usage=usage))
    told, before, after = result(ended)
    assert told == [4, 700, 0.75]
    assert (before, after) == (5, 3)
    auto = ended.stats["auto"]
    assert (auto["llm_calls"], auto["total_tokens"]["tokens"], auto["cost"]) == (2, 600, 0.5)
    assert auto["children"] == {"llm_calls": 1, "tokens": 300, "cost": 0.25}
    started = (await hf.store.load("p.q-1")).started
    assert started is not None
    assert started.budget is not None
    assert 0 < (started.budget.max_elapsed_ms or 0) <= 60_000


async def test_a_child_cannot_spend_what_its_parent_has_not(hf: Holdfast) -> None:
    event = await soon(hf.start(only_child, ctx={"name": "a", "count": 3}, id="p", budget={"max_llm_calls": 2}))
    event = await soon(hf.feed("p", "1"))
    event = await soon(hf.feed("p", "2"))
    assert event.status == "error"
    assert "budget_exceeded: max_llm_calls (2) reached (2 used)" in (event.error or "")
    assert event.stats["auto"]["llm_calls"] == 2


async def test_what_grandchildren_spend_counts_once_at_the_top(hf: Holdfast) -> None:
    await soon(hf.start(top, ctx={"name": "deep"}, id="p"))
    await soon(hf.feed("p", {"q-0.q-0": "m", "q-0.q-1.q-0": "d"}))
    ended = await soon(hf.feed("p", "!"))
    assert ended.stats["auto"]["llm_calls"] == 3
    assert ended.stats["auto"]["children"]["llm_calls"] == 2
    told = [record.usage for record in await of_type(hf.store, "p", AnsweredRecord) if record.usage]
    assert [usage.llm_calls for usage in told] == [2]


# --- by name --------------------------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "packages"
    (root / "lua_asker").mkdir(parents=True)
    (root / "lua_asker" / "init.lua").write_text(
        "return { run = function(ctx) ctx.result = alc.llm('lua: ' .. ctx.task) return ctx end }"
    )
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_PACKAGES_PATH", str(root))
    return root


async def test_a_child_is_found_by_name_in_any_language_and_kept_as_it_was(hf: Holdfast, packages: Path) -> None:
    event = await soon(hf.start(by_name, ctx={"program": "lua_asker", "ctx": {"task": "t"}}, id="p"))
    assert prompts(event) == {"q-0.q-0": "lua: t"}
    started = (await hf.store.load("p.q-0")).started
    assert started is not None
    assert (started.program.kind, started.program.name) == ("lua", "lua_asker")
    (packages / "lua_asker" / "init.lua").unlink()
    assert result(await soon(hf.feed("p", "A"))) == {"task": "t", "result": "A"}


@pytest.mark.parametrize("name", ["no_such_thing", "../shown", "a b"])
async def test_a_name_that_nothing_has_is_a_failure_with_the_reason(hf: Holdfast, packages: Path, name: str) -> None:
    ended = result(await soon(hf.start(by_name, ctx={"program": name})))
    assert ended["code"] == "program_not_found"
    assert name in ended["why"]
    assert "no strategy has that name" in ended["why"]


# --- processes ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def process(url: str, session: str, program: str, ctx: Any, *drives: str) -> AsyncIterator[Any]:
    """A process that starts a session and stays; gives what the session said. It is killed at the end."""
    command = (sys.executable, "-m", "tests.engine.shown_child", url, session, program, json.dumps(ctx), *drives)
    started = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=asyncio.subprocess.PIPE)
    try:
        assert started.stdout is not None
        yield json.loads(await soon(started.stdout.readline()))
    finally:
        started.kill()  # kill -9: it has no chance to say anything
        await started.wait()


async def test_children_are_answered_from_another_process_after_the_first_was_killed(tmp_path: Path) -> None:
    async with process(sqlite(tmp_path), "p", top.name, {"name": "deep"}) as said:
        assert [query["id"] for query in said["queries"]] == ["q-0.q-0", "q-0.q-1.q-0"]
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.feed("p", {"q-0.q-1.q-0": "d"}))
        assert event == AcceptedEvent(session_id="p", remaining=["q-0.q-0"])
    async with quiet(sqlite(tmp_path)) as hf:
        assert prompts(await soon(hf.resume("p"))) == {"q-0.q-0": "middle"}
        event = await soon(hf.feed("p", {"q-0.q-0": "m", "q-0.q-1.q-0": "d"}))
        assert prompts(event) == {"q-1": "after"}
        ended = await soon(hf.feed("p", "!"))
    assert result(ended) == {"below": ["m", ["d"]], "after": "!"}
    assert ended.stats["auto"]["llm_calls"] == 3


async def test_a_bare_answer_finds_the_child_in_a_fresh_process(tmp_path: Path) -> None:
    async with process(sqlite(tmp_path), "p", by_name.name, {"program": asker.name, "ctx": {"name": "a"}}) as said:
        assert said["query_id"] == "q-0.q-0"
    async with quiet(sqlite(tmp_path)) as hf:
        assert result(await soon(hf.feed("p", "A"))) == ["A"]


async def test_a_child_that_another_process_owns_is_answered_through_it(tmp_path: Path) -> None:
    ctx = {"program": helped.name}
    async with process(sqlite(tmp_path), "p", by_name.name, ctx, "work") as said:
        assert said["query_id"] == "q-0.q-0"
        async with quiet(sqlite(tmp_path)) as hf:
            owner = (await hf.store.session("p.q-0")).owner
            assert owner is not None
            event = await soon(hf.feed("p", {"q-0.q-0": "A"}))
            assert event == AcceptedEvent(session_id="p", remaining=["q-0.q-1"])  # here nobody does the work
            assert (await hf.store.session("p.q-0")).owner == owner
            assert result(await soon(hf.feed("p", {"q-0.q-1": "W"}))) == ["A", "W"]


async def test_the_questions_of_a_parent_in_one_process_and_a_child_in_another_are_one_pause(tmp_path: Path) -> None:
    async with process(sqlite(tmp_path), "p", middle.name, {"name": "a"}), quiet(sqlite(tmp_path)) as hf:
        waiting = asyncio.create_task(hf.resume("p"))
        assert prompts(await soon(waiting)) == {"q-0": "middle", "q-1.q-0": "a 0"}
        async with quiet(sqlite(tmp_path)) as other:
            await soon(other.feed("p.q-1", "A"))
        assert prompts(await soon(hf.resume("p"))) == {"q-0": "middle"}
        assert result(await soon(hf.feed("p", "M"))) == ["M", ["A"]]


async def test_a_waiting_host_hears_of_a_child_that_is_answered_elsewhere(tmp_path: Path) -> None:
    async def asks_after_sleep(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.sleep(3600), ctx.child(asker, ctx.data)))

    async with quiet(sqlite(tmp_path)) as hf, quiet(sqlite(tmp_path)) as other:
        await soon(hf.start(asks_after_sleep, ctx={"name": "a", "count": 2}, id="p"))
        await soon(hf.feed("p", {"q-1.q-0": "A"}))
        await soon(other.feed("p.q-1", "B"))
        waiting = asyncio.create_task(hf.resume("p"))  # nothing is open now: it waits for the timer
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await soon(other.cancel("p"))
        assert (await soon(waiting)).status == "cancelled"


async def test_no_child_is_left_when_all_is_over(hf: Holdfast) -> None:
    await soon(hf.start(three, id="p"))
    await soon(hf.cancel("p"))

    async def all_ended() -> bool:
        page = await hf.sessions(SessionFilter(states=[State.RUNNING, State.PAUSED]))
        return not page.rows

    await until(all_ended)
