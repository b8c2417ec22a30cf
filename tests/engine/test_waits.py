"""Why sessions do not move, and the processes that say what they offer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import tool
from holdfast.core.state import Session
from holdfast.engine import presence
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.listed_offers import ListedOffers
from holdfast.engine.process_rows import GONE_MS, NAMESPACE, ProcessRow, processes
from holdfast.engine.upkeep import Upkeep
from holdfast.engine.waits import Wait, WaitTable, wait_of
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.patience import until
from holdfast.testing.provider import ScriptedProvider
from tests.engine.helpers import sqlite

NOW = 1_000_000


@strategy(name="waits:asks")
async def asks(ctx: Context) -> Any:
    return [await ctx.llm("which?"), await ctx.ask("sure?")]


@strategy(name="waits:sleeps")
async def sleeps(ctx: Context) -> Any:
    await ctx.sleep(60_000)


@strategy(name="waits:uses")
async def uses(ctx: Context) -> Any:
    return await ctx.tool("scale")


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:", upkeep=Upkeep(on=False), service="billing") as opened:
        yield opened


def row(**offers: Any) -> ProcessRow:
    full: dict[str, Any] = {"services": ["billing"], "strategies": ["waits:asks", "waits:sleeps", "waits:uses"]}
    return ProcessRow("there.1.ab", NOW - 5, NOW - 5, ListedOffers(**full | offers))


async def wait(hf: Holdfast, program: Any, *rows: ProcessRow, **options: Any) -> Wait:
    event = await hf.start(program, wait=0, **options)
    found = wait_of(await hf.store.load(event.session_id), rows, NOW)
    assert found is not None
    return found


async def test_a_question_to_a_host_waits_for_an_answer_and_for_nothing_else(hf: Holdfast) -> None:
    found = await wait(hf, asks, row())
    assert (found.why, found.answers, found.is_stuck) == ("waits for an answer to q-0 (llm)", ["q-0"], False)
    assert found.served_by == ["there.1.ab"]


async def test_a_question_to_any_model_stands_still_where_no_process_has_one(hf: Holdfast) -> None:
    found = await wait(hf, asks, row(), llm="any")
    assert (found.why, found.missing) == ("waits for a process that serves a model", ["a model"])
    assert found.is_stuck
    assert not found.answers
    found = await wait(hf, asks, row(has_model=True), llm="any")
    assert (found.why, found.is_stuck) == ("will be taken up by there.1.ab", False)


async def test_a_model_by_its_name_is_missing_where_others_are(hf: Holdfast) -> None:
    found = await wait(hf, asks, row(has_model=True, models=["a:small"]), llm="a:large")
    assert found.missing == ["model `a:large`"]


async def test_another_service_cannot_serve_it(hf: Holdfast) -> None:
    found = await wait(hf, sleeps, row(services=["default"]))
    assert found.missing == ["service `billing`"]
    assert found.why.startswith("sleeps for ")
    assert found.is_stuck


async def test_without_any_process_all_of_it_is_missing(hf: Holdfast) -> None:
    found = await wait(hf, asks, llm="any")
    assert found.missing == ["service `billing`", "program `waits:asks`", "a model"]
    assert found.why.endswith("; no process is at work on this store")
    gone = ProcessRow("gone.1.ab", 0, NOW - GONE_MS, row(has_model=True).offers)
    assert (await wait(hf, asks, gone, llm="any")).is_stuck


async def test_a_tool_is_left_to_hosts_unless_a_process_has_it(hf: Holdfast) -> None:
    assert (await wait(hf, uses, row())).why == "waits for an answer to q-0 (tool scale)"
    found = await wait(hf, uses, row(tools=["scale"]))
    assert (found.why, found.answers) == ("will be taken up by there.1.ab", [])


async def test_what_two_processes_have_only_together_is_not_there(hf: Holdfast) -> None:
    found = await wait(hf, asks, row(strategies=[], has_model=True), row(), llm="any")
    assert found.is_stuck
    assert found.missing == ["service `billing`", "program `waits:asks`", "a model"]


async def test_an_ended_session_waits_for_nothing(hf: Holdfast) -> None:
    event = await hf.start(asks)
    await hf.cancel(event.session_id)
    assert wait_of(await hf.store.load(event.session_id), [], NOW) is None
    assert wait_of(Session("absent"), [], NOW) is None


async def test_a_message_that_nobody_takes_needs_the_program_and_no_model(hf: Holdfast) -> None:
    event = await hf.start(asks, service="billing", llm="any", wait=0)
    session = await hf.store.load(event.session_id)
    found = wait_of(session, [row(strategies=[])], NOW, mail=1)
    assert found is not None
    assert found.why == "has 1 message in its mailbox; waits for a process that serves program `waits:asks`"
    assert (found.missing, found.answers, found.is_stuck) == (["program `waits:asks`"], [], True)
    found = wait_of(session, [row()], NOW, mail=2)
    assert found is not None
    assert found.why == "has 2 messages in its mailbox; will be taken up by there.1.ab"


# --- presence -------------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes say at once that they are there, and often."""
    monkeypatch.setattr(presence, "FIRST_MS", 0)
    monkeypatch.setattr(presence, "BEAT_MS", 10)


@tool
async def weigh() -> str:
    """Weigh something."""
    return "1 kg"


@pytest.mark.usefixtures("at_once")
async def test_a_process_says_what_it_offers_and_takes_it_back(tmp_path: Path) -> None:
    url = sqlite(tmp_path)
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as looks:
        provider = ScriptedProvider(["Hm."])
        async with Runtime(url, provider=provider, model="m", tools=[weigh], service=["mail", "post"]) as runtime:
            await runtime.session("s").open()
            (found,) = await until(looks.processes)
            assert found.offers.services == ["mail", "post"]
            assert found.offers.providers == [provider.id]
            assert "weigh" in found.offers.tools
            assert "waits:asks" in found.offers.strategies
            assert found.offers.has_model

            async def is_seen_again() -> bool:
                return any(row.seen_at > found.seen_at for row in await looks.processes())

            await until(is_seen_again)
        assert await processes(looks.store) == []


@pytest.mark.usefixtures("at_once")
async def test_the_row_of_a_killed_process_grows_old_and_is_cleared_away(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(on=False)) as looks:
        old = {"name": "dead.1.ab", "since": 1, "seen_at": 2, "offers": {}}
        await looks.store.put_state(NAMESPACE, "dead.1.ab", old)
        await looks.store.put_state(NAMESPACE, "odd", {"of": "another version"})
        assert await looks.processes() == []
        async with open_holdfast(sqlite(tmp_path)):
            await until(looks.processes)
            await until(lambda: _is_gone(looks))


async def _is_gone(looks: Holdfast) -> bool:
    return [row.name for row in await processes(looks.store) if row.name == "dead.1.ab"] == []


async def test_status_says_what_a_session_waits_for(hf: Holdfast) -> None:
    event = await hf.start(asks, llm="any", wait=0)
    status = await hf.status(event.session_id)
    assert status["waits"]["missing"] == ["service `billing`", "program `waits:asks`", "a model"]
    assert status["waits"]["is_stuck"] is True
    await hf.cancel(event.session_id)
    assert "waits" not in await hf.status(event.session_id)


async def test_a_command_that_is_soon_done_says_nothing(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path)) as short:
        await asyncio.sleep(0)
        assert await processes(short.store) == []


async def test_sessions_that_wait_alike_are_told_the_same_as_each_by_itself(hf: Holdfast) -> None:
    started = [
        *[await hf.start(asks, llm=llm, wait=0) for llm in ("host", "any", "gpt", "host")],
        *[await hf.start(program, wait=0) for program in (sleeps, uses, sleeps, uses)],
    ]
    await hf.feed(started[0].session_id, "this one")
    for rows in ([], [row()], [row(tools=["scale"], has_model=True, answers_people=True)], [row(services=["other"])]):
        table = WaitTable(rows, NOW)
        for event in started * 2:
            session = await hf.store.load(event.session_id)
            for mail in (0, 2):
                assert table.wait_of(session, mail) == wait_of(session, rows, NOW, mail)
