"""The client keeps the contract of the embedded API: each test runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Approve, Failure, Rule, Runtime, tool
from holdfast.core.errors import AnswerConflictError, SessionExistsError, SessionNotFoundError, UnknownQueryError
from holdfast.core.events import AcceptedEvent, CompletedEvent, FailedEvent, PausedEvent
from holdfast.core.queries import HumanQuery, LlmQuery, Usage
from holdfast.core.state import State
from holdfast.engine.errors import ResultTimeoutError, SessionFailedError
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.serve.http.api_server import TOKEN, api_server
from tests.serve.http.programs import two_questions

SCRIPT: list[ScriptStep] = [tool_call("erase", name="a"), "gone", "two", "three"]


class Doors:
    """The same runtime, embedded or behind a server."""

    def __init__(self, sessions: Any, agents: Any) -> None:
        self.sessions = sessions
        self.agents = agents


@tool
def erase(name: str) -> str:
    """Erase a file."""
    return f"{name} is gone"


@pytest.fixture(params=["embedded", "remote"])
async def doors(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Doors]:
    url = f"sqlite:///{tmp_path}/contract.db"
    rules = Approve([Rule.confirm("erase")])
    async with Runtime(url, provider=ScriptedProvider(SCRIPT), tools=[erase], plugins=[rules]) as runtime:
        if request.param == "embedded":
            yield Doors(runtime.mount.holdfast, runtime)
            return
        async with api_server(runtime) as server, holdfast.connect(server.url, TOKEN) as client:
            yield Doors(client, client)


async def started(doors: Doors, session_id: str = "s-1") -> Any:
    return await doors.sessions.start(two_questions.name, llm="host", id=session_id)


async def test_a_session_is_run_to_its_end(doors: Doors) -> None:
    event = await started(doors)
    assert isinstance(event, PausedEvent)
    assert event.queries == [LlmQuery(id="q-0", prompt="Bug, wish or question?")]
    event = await doors.sessions.feed("s-1", "bug", usage=Usage(prompt_tokens=3, completion_tokens=1))
    assert event.queries == [HumanQuery(id="q-1", prompt="File it?", choices=["yes", "no"])]
    event = await doors.sessions.feed("s-1", {"q-1": "yes"})
    assert isinstance(event, CompletedEvent)
    assert event.result == ["bug", "yes"]
    assert await doors.sessions.result("s-1") == ["bug", "yes"]


async def test_starting_again_is_the_same_and_other_content_a_conflict(doors: Doors) -> None:
    await started(doors)
    assert (await started(doors)).replayed
    with pytest.raises(SessionExistsError) as refused:
        await doors.sessions.start(two_questions.name, llm="host", id="s-1", ctx={"task": "other"})
    assert refused.value.session_id == "s-1"


async def test_errors_are_those_of_the_embedded_api_with_their_fields(doors: Doors) -> None:
    await started(doors)
    with pytest.raises(UnknownQueryError) as unknown:
        await doors.sessions.feed("s-1", {"q-9": "x"})
    assert (unknown.value.query_id, unknown.value.pending) == ("q-9", ["q-0"])
    await doors.sessions.feed("s-1", {"q-0": "bug"})
    with pytest.raises(AnswerConflictError) as conflict:
        await doors.sessions.feed("s-1", {"q-0": "wish"})
    assert (conflict.value.recorded, conflict.value.given) == ('"bug"', '"wish"')
    with pytest.raises(SessionNotFoundError):
        await doors.sessions.status("none")
    with pytest.raises(ResultTimeoutError):
        await doors.sessions.result("s-1", timeout=0.01)


async def test_a_failure_is_an_answer(doors: Doors) -> None:
    await started(doors)
    event = await doors.sessions.feed("s-1", Failure(message="the model is down"))
    assert isinstance(event, FailedEvent)
    with pytest.raises(SessionFailedError, match="the model is down"):
        await doors.sessions.result("s-1")


async def test_sessions_are_listed_by_filters(doors: Doors) -> None:
    for number in range(3):
        await started(doors, f"s-{number}")
    await doors.sessions.cancel("s-1", "not needed")
    page = await doors.sessions.sessions(SessionFilter(states=[State.PAUSED]), limit=1)
    rest = await doors.sessions.sessions(SessionFilter(states=[State.PAUSED]), limit=5, after=page.next)
    assert [row.session_id for row in [*page.rows, *rest.rows]] == ["s-2", "s-0"]
    assert page.rows[0].summary.program == two_questions.name


async def test_titles_labels_and_questions_are_found(doors: Doors) -> None:
    hf = doors.sessions
    await hf.start(two_questions.name, llm="host", id="s-1", title="Mail", labels=["b", "a"])
    await hf.start(two_questions.name, llm="host", id="s-2")
    await hf.label("s-2", title="Letters", labels=["a"])
    rows = (await hf.sessions(SessionFilter(labels=["a"]))).rows
    assert [(row.summary.title, row.summary.labels) for row in rows] == [("Letters", ("a",)), ("Mail", ("a", "b"))]
    assert [row.session_id for row in (await hf.sessions(SessionFilter(text="mail"))).rows] == ["s-1"]
    await hf.feed("s-1", {"q-0": "bug"})
    found = (await hf.questions()).questions
    assert [(each.row.session_id, each.query.id) for each in found] == [("s-2", "q-0"), ("s-1", "q-1")]
    (human,) = (await hf.questions(kind="human")).questions
    assert isinstance(human.query, HumanQuery)
    assert human.query.choices == ["yes", "no"]


async def test_a_watch_shows_every_entry_until_the_end(doors: Doors) -> None:
    await started(doors)
    seen = []
    async with asyncio.timeout(HANG_S):
        async for entry in doors.sessions.watch("s-1", 1):
            seen.append((entry.position, type(entry.record).__name__))
            if entry.position == 2:
                await doors.sessions.cancel("s-1")
    assert seen == [(2, "PausedRecord"), (3, "CancelledRecord")]


async def test_forks_and_comparisons(doors: Doors) -> None:
    await started(doors)
    await doors.sessions.feed("s-1", "bug")
    fork = await doors.sessions.fork("s-1", before="q-0", id="s-2")
    assert fork.queries[0].id == "q-0"
    await doors.sessions.feed("s-2", "wish")
    compared = await doors.sessions.compare("s-1", "s-2")
    assert compared.left.session_id == "s-1"
    assert "answer" in compared.difference
    assert [each.position for each in await doors.sessions.fork_points("s-1")]


async def test_the_same_fork_again_is_the_same_and_another_one_a_conflict(doors: Doors) -> None:
    await started(doors)
    await doors.sessions.feed("s-1", {"q-0": "bug"})
    first = await doors.sessions.fork("s-1", before="q-0", id="s-2")
    again = await doors.sessions.fork("s-1", before="q-0", id="s-2")
    assert (first.replayed, again.replayed) == (False, True)
    assert [query.id for query in again.queries] == [query.id for query in first.queries]
    for source, place in (("s-1", {"before": "q-1"}), ("s-2", {})):
        with pytest.raises(SessionExistsError):
            await doors.sessions.fork(source, id="s-2", **place)
    with pytest.raises(SessionExistsError):
        await doors.sessions.fork("s-2", id="s-1")


async def test_a_deleted_session_is_gone(doors: Doors) -> None:
    await started(doors)
    await doors.sessions.delete("s-1")
    with pytest.raises(SessionNotFoundError):
        await doors.sessions.event("s-1")


async def test_answers_by_child_ids_and_several_at_once(doors: Doors) -> None:
    code = "import asyncio\nasync def run(ctx):\n    return await asyncio.gather(llm_async('a'), llm_async('b'))\n"
    from holdfast.programs.kinds import get_language

    program = get_language("python").program(code, name="pair", file="pair.py")
    event = await doors.sessions.start(program, llm="host", id="s-1")
    assert [each.id for each in event.queries] == ["q-0", "q-1"], event
    event = await doors.sessions.feed("s-1", {"q-1": "B"})
    assert isinstance(event, AcceptedEvent)
    assert event.remaining == ["q-0"]
    assert (await doors.sessions.feed("s-1", {"q-0": "A"})).result == ["A", "B"]


async def test_a_turn_with_an_approval_and_what_is_read_of_it(doors: Doors) -> None:
    session = await doors.agents.session("chat").spec(instructions="Be brief.").open()
    assert session.policy.instructions == "Be brief."
    receipt = await session.turn("clean up").id("t-1").begin()
    assert receipt.turn == "t-1"

    async def waits() -> Any:
        return (await session.observe().current()).waiting

    waiting = await until(waits)
    assert waiting[0].approves.tool == "erase"
    await session.answer(waiting[0].id, {"decision": "approve"})
    result = await session.turn_result("t-1", timeout=HANG_S)
    assert (result.text, [call.result for call in result.tool_calls]) == ("gone", ["a is gone"])
    again = await session.turn("clean up").id("t-1").run()
    assert again.receipt.replayed
    types = [seen.event.__struct_config__.tag async for seen in session.observe().resume_from(None)]
    assert types[-1] == "turn_ended"
    assert "asked" in types


async def test_an_item_is_queued_and_settings_last(doors: Doors) -> None:
    session = await doors.agents.session("chat").open()
    receipt = await session.enqueue("later").id("i-1")
    assert (receipt.item_id, receipt.replayed) == ("i-1", False)
    assert (await session.enqueue("later").id("i-1")).replayed
    assert [item.id for item in await session.queued_work()] == ["i-1"]
    assert (await session.outcome("i-1")).status == "waiting"
    await session.configure(instructions="Be long.")
    again = await doors.agents.session("chat").open()
    assert again.policy.instructions == "Be long."
    assert (await session.cancel(item="i-1")).state == "withdrawn"


async def test_an_observer_follows_a_session_from_a_cursor(doors: Doors) -> None:
    await started(doors)
    observer = doors.agents.observe("s-1", entries=True)
    first = [seen async for seen in observer.resume_from(None)]
    assert [seen.event.entry.position for seen in first] == [1, 2]
    seen = []
    async with asyncio.timeout(HANG_S):
        async for each in observer.subscribe_from(first[0].cursor):
            seen.append(each.event.entry.position)
            if seen == [2]:
                await doors.sessions.cancel("s-1")
    assert seen == [2, 3]
