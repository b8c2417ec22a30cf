"""Another process goes on where the last one died inside a cell: from its snapshot, or by running the cell again."""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.errors import ProjectionNotBoundError
from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.queries import Value
from holdfast.core.records import LoggedRecord, StartedRecord
from holdfast.store import open_store
from holdfast.testing.crash.processes import run_process
from holdfast.testing.patience import soon
from tests.agent.rlm.helpers import CellModel, cell, rlm
from tests.agent.rlm.restart_child import (
    ANSWERED,
    CHILDREN,
    HELPER,
    LEASE_MS,
    TOGETHER,
    FamilyModel,
    add,
    die_among_children,
    die_in_approval,
    die_in_gather,
    working,
)
from tests.agent.rlm.test_inside_cells import waiting

DATA = "one two three"
LARGE = f"{DATA} " + "x " * 800_000
"""More than a snapshot of a cell may hold."""


@asynccontextmanager
async def successor(
    url: str, *script: Any, tools: Any = (), **bound: Any
) -> AsyncIterator[tuple[Runtime, AgentSession]]:
    """The session in this process, after the one that began it has died."""
    async with Runtime(url, provider=CellModel(script), tools=tools, lease_ms=LEASE_MS) as runtime:
        builder = runtime.session("s")
        for name, value in bound.items():
            builder = builder.bind(name, value)
        yield runtime, await builder.open()


async def approve(runtime: Runtime) -> None:
    query = await soon(waiting(runtime, "human"))
    await runtime.mount.answer("s", query.id, Value(value={"decision": "approve"}))


def lose_snapshots(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM snapshots")
    connection.close()


def begun(tmp_path: Path, value: str = DATA) -> str:
    """A session whose process has died in an approval."""
    url = f"sqlite:///{tmp_path}/s.db"
    assert run_process(die_in_approval, url, value) == -signal.SIGKILL
    return url


async def test_an_approval_inside_a_cell_is_given_to_another_process_and_the_cell_goes_on(tmp_path: Path) -> None:
    async with successor(begun(tmp_path), tools=[add]) as (runtime, session):
        await approve(runtime)
        result = await soon(session.turn("go").id("t-1").run())
        assert result.value == ["one", 4]


@pytest.mark.parametrize("value", [DATA, LARGE], ids=["small", "large"])
async def test_a_cell_that_has_to_be_run_again_reads_its_projection_where_it_is_bound_again(
    tmp_path: Path, value: str
) -> None:
    url = begun(tmp_path, value)
    if value == DATA:
        lose_snapshots(tmp_path / "s.db")
    async with successor(url, tools=[add], data=value) as (runtime, session):
        await approve(runtime)
        result = await soon(session.turn("go").id("t-1").run())
        assert result.value == ["one", len(value.split()) + 1]


async def test_a_process_without_the_projection_says_what_to_bind_and_changes_nothing(tmp_path: Path) -> None:
    url = begun(tmp_path)
    lose_snapshots(tmp_path / "s.db")
    async with successor(url, tools=[add]) as (runtime, _):
        with pytest.raises(ProjectionNotBoundError, match=r"session 's' waits .* 'data' .*--bind data=PATH"):
            await approve(runtime)
    async with successor(url, tools=[add], data=DATA) as (runtime, session):
        await approve(runtime)
        assert (await soon(session.turn("go").id("t-1").run())).value == ["one", 4]


async def test_a_new_cell_that_reads_a_projection_that_is_not_bound_is_told_so(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    async with rlm(cell("x = len(data)"), "ok", store=store, bind={"data": DATA}) as agent:
        await agent.turn()
    async with successor(store, cell("y = len(data)"), cell("print(x)"), "ok") as (_, session):
        result = await session.turn("again").run()
        told = [message.text for message in result.messages if message.role == "signal"]
        assert "[POLICY] The cell was stopped: 'data' is not bound in this process" in told[0]
        assert f"[OUTPUT]\n{len(DATA)}" in told[1]


async def test_variables_stay_across_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    first = "rows = [{'n': n} for n in range(500)]\npair = (1, {2})\ndef double(n):\n    return 2 * n"
    async with rlm(cell(first), "ok", store=store) as agent:
        await agent.turn()
    async with successor(store, cell("print(double(rows[499]['n']), pair)"), "ok") as (_, session):
        result = await session.turn("again").run()
        assert "998 (1, {2})" in result.messages[-2].text


@pytest.mark.parametrize("damage", ["none", "deleted", "other version"])
async def test_a_gather_of_which_some_calls_have_answers_goes_on_and_repeats_none_of_them(
    tmp_path: Path, damage: str
) -> None:
    url, path, first, second = f"sqlite:///{tmp_path}/s.db", tmp_path / "s.db", tmp_path / "first", tmp_path / "second"
    assert run_process(die_in_gather, url, first) == -signal.SIGKILL
    assert {str(n) for n in range(ANSWERED)} <= set(first.read_text().split())
    with sqlite3.connect(path) as connection:
        ((size,),) = connection.execute("SELECT length(data) FROM snapshots").fetchall()
        if damage == "deleted":
            connection.execute("DELETE FROM snapshots")
        elif damage == "other version":
            connection.execute("UPDATE snapshots SET data = X'00' || data")
    connection.close()
    assert size <= 64 * 1024  # with 300 variables held
    work = working(second, ends=lambda n: True)
    async with successor(url, tools=[work]) as (_, session):
        result = await soon(session.turn("go").id("t-1").run())
    assert result.value == [[1, 2], sum(range(TOGETHER))]
    repeated = Counter(second.read_text().split())
    assert repeated == Counter(str(n) for n in range(ANSWERED, TOGETHER))
    async with open_store(url) as store:
        logged = [entry.record.message for entry in await store.entries("s") if isinstance(entry.record, LoggedRecord)]
    assert any("rebuilt by replay" in line for line in logged) == (damage != "none"), logged


async def test_of_32_subagents_each_is_started_once_though_their_process_dies_among_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    assert run_process(die_among_children, url) == -signal.SIGKILL
    async with Runtime(url, provider=FamilyModel(), agents=[HELPER], lease_ms=LEASE_MS) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").id("t-1").run())
    assert result.value == [2 * n for n in range(CHILDREN)]
    async with open_store(url) as store:
        rows = (await store.sessions()).rows
        assert len(rows) == 1 + CHILDREN
        for row in rows:
            entries = await store.entries(row.session_id)
            assert sum(isinstance(entry.record, StartedRecord) for entry in entries) == 1


async def test_approval_rules_are_those_that_the_session_began_with(tmp_path: Path) -> None:
    """A process that names no rules has not lifted them."""
    rules = Approval(rules=[Rule("add", "deny")])
    store = f"sqlite:///{tmp_path}/s.db"
    async with rlm("hi", store=store, tools=[add], build=lambda builder: builder.approval(rules)) as agent:
        await agent.turn()
    denied = cell("try:\n    add(1, 2)\nexcept RuntimeError as error:\n    print(error)")
    async with successor(store, denied, "ok", tools=[add]) as (_, session):
        result = await session.turn("again").run()
        assert "not approved" in result.messages[-2].text
