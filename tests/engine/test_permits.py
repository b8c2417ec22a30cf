"""Limits of a fleet at work: calls of several engines are counted together, and wait in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.queries import LlmQuery
from holdfast.engine.drivers import Attempt
from holdfast.engine.fleet_limits import declare_limits, parse_limits
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store import open_store
from holdfast.testing.patience import soon, until
from tests.engine.helpers import sqlite
from tests.engine.processes import Process


@strategy(name="permits-asker")
async def asker(ctx: Context) -> Any:
    return await ctx.llm("?")


@strategy(name="permits-parent")
async def parent(ctx: Context) -> Any:
    return await ctx.tool("delegate")


class Model:
    """A model whose calls last until they are let go."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.order: list[str] = []
        self.most = 0
        self._ends: dict[str, asyncio.Event] = {}
        self.lasts = True

    async def __call__(self, query: LlmQuery, attempt: Attempt) -> str:
        self.under_way.append(attempt.session_id)
        self.order.append(attempt.session_id)
        self.most = max(self.most, len(self.under_way))
        if self.lasts:
            await self._ends.setdefault(attempt.session_id, asyncio.Event()).wait()
        else:
            await asyncio.sleep(0.002)
        self.under_way.remove(attempt.session_id)
        return "yes"

    def end(self, session_id: str) -> None:
        self._ends.setdefault(session_id, asyncio.Event()).set()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite(tmp_path)
    else:
        from holdfast.testing.postgres_server import fresh_database

        yield fresh_database(request.getfixturevalue("server"))


async def start(hf: Holdfast, session_id: str, *labels: str) -> None:
    await hf.start(asker, id=session_id, labels=labels, llm="any", wait=0)


async def waiting(hf: Holdfast) -> set[str]:
    return {wait.session_id for wait in await hf.store.permit_waits()}


async def test_two_engines_keep_to_a_limit_together(url: str) -> None:
    model = Model()
    async with open_holdfast(url, limits=["service:default=3"]) as one, open_holdfast(url) as two:
        for number, hf in enumerate((one, two)):
            hf.drive("llm", model)
            await asyncio.gather(*(start(hf, f"s-{number}-{n}") for n in range(12)))
        await until(lambda: len(model.under_way) == 3)
        await until(lambda: _are_waiting(one, 21))
        model.lasts = False
        for session_id in list(model.under_way):
            model.end(session_id)
        await soon(asyncio.gather(*(one.result(f"s-{k}-{n}") for k in range(2) for n in range(12))))
        assert model.most == 3
        await until(lambda: _is_unused(one))


async def _is_unused(hf: Holdfast) -> bool:
    return not (await hf.limits())[0].counters


async def test_what_waits_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    model = Model()
    async with open_holdfast(sqlite(tmp_path), limits={"key:customer": 1}) as hf:
        hf.drive("llm", model)
        await start(hf, "a-1", "customer=acme")
        await until(lambda: model.under_way == ["a-1"])
        await start(hf, "a-2", "customer=acme")
        await start(hf, "b-1", "customer=bolt")
        await until(lambda: waiting(hf))
        await until(lambda: model.under_way == ["a-1", "b-1"])
        waits = (await hf.status("a-2"))["waits"]
        assert waits["why"] == "q-0 waits for the limit `key:customer=acme` of the fleet"
        assert waits["limits"] == ["key:customer=acme"]
        assert "waits" not in await hf.status("a-1")
        (report,) = await hf.limits()
        assert [(used.counter, used.taken, used.waiting) for used in report.counters] == [
            ("key:customer=acme", 1, 1),
            ("key:customer=bolt", 1, 0),
        ]
        model.end("a-1")
        await until(lambda: model.under_way == ["b-1", "a-2"])
        for session_id in ("a-2", "b-1"):
            model.end(session_id)
            assert await soon(hf.result(session_id)) == "yes"


async def test_a_higher_priority_goes_first_and_arrival_decides_between_equals(tmp_path: Path) -> None:
    model = Model()
    async with open_holdfast(sqlite(tmp_path), limits=["program:permits-asker=1"]) as hf:
        hf.drive("llm", model)
        await start(hf, "first")
        await until(lambda: model.under_way)
        for session_id, *labels in (("low", "priority=-3"), ("a",), ("b",), ("high", "priority=5")):
            await start(hf, session_id, *labels)
            await until(partial(_is_among, hf, session_id))
        model.lasts = False
        model.end("first")
        await soon(hf.result("low"))
        assert model.order == ["first", "high", "a", "b", "low"]


async def _is_among(hf: Holdfast, session_id: str) -> bool:
    return session_id in await waiting(hf)


async def test_calls_in_a_time_are_no_more_than_the_limit(tmp_path: Path) -> None:
    model = Model()
    model.lasts = False
    async with open_holdfast(sqlite(tmp_path), limits=["model:m=3/h"]) as hf:
        hf.drive("llm", model)
        for n in range(5):
            await hf.start(asker, id=f"s-{n}", llm="any", wait=0)  # of no model that a limit is on
        await soon(asyncio.gather(*(hf.result(f"s-{n}") for n in range(5))))
        hf.engine.owner.permits.name_model = lambda session, query: ["m"]
        for n in range(5):
            await start(hf, f"m-{n}")
        await until(lambda: _are_waiting(hf, 2))
        assert len(model.order) == 5 + 3
        await hf.unlimit(["model:m/h"])
        await hf.cancel("m-4")
        await until(lambda: _are_waiting(hf, 1))


async def _are_waiting(hf: Holdfast, number: int) -> bool:
    return len(await waiting(hf)) == number


async def test_a_call_that_waits_for_another_session_gives_back_its_permit(hf: Holdfast) -> None:
    await hf.limit(["service:default=1"])

    async def delegate() -> Any:
        await hf.start(asker, id="inner", llm="any", wait=0)
        return await hf.result("inner")

    hf.drive("llm", lambda query: "from inside")
    hf.drive("delegate", delegate)
    await hf.start(parent, id="outer", wait=0)
    assert await soon(hf.result("outer")) == "from inside"


async def test_parts_of_a_call_may_wait_for_several_sessions_at_once(hf: Holdfast) -> None:
    await hf.limit(["service:default=1"])

    async def inner(name: str) -> Any:
        await hf.start(asker, id=name, llm="any", wait=0)
        return await hf.result(name)

    async def delegate() -> Any:
        return await asyncio.gather(*map(inner, "abc"))

    hf.drive("llm", lambda query: "yes")
    hf.drive("delegate", delegate)
    await hf.start(parent, id="outer", wait=0)
    assert await soon(hf.result("outer")) == ["yes"] * 3


async def test_a_session_that_is_cancelled_leaves_the_line_and_gives_back_its_permit(tmp_path: Path) -> None:
    model = Model()
    async with open_holdfast(sqlite(tmp_path), limits=["service:default=1"]) as hf:
        hf.drive("llm", model)
        await start(hf, "a")
        await until(lambda: model.under_way)
        await start(hf, "b")
        await start(hf, "c")
        await until(lambda: _are_waiting(hf, 2))
        await hf.cancel("b")
        await until(lambda: _are_waiting(hf, 1))
        await hf.cancel("a")
        await until(lambda: "c" in model.under_way)
        model.end("c")
        assert await soon(hf.result("c")) == "yes"


async def test_a_limit_that_is_declared_later_holds_for_calls_from_then_on(tmp_path: Path) -> None:
    model = Model()
    async with open_holdfast(sqlite(tmp_path)) as hf, open_store(sqlite(tmp_path)) as operator:
        hf.drive("llm", model)
        await start(hf, "a")
        await until(lambda: model.under_way)
        await declare_limits(operator, parse_limits(["service:default=1"]))
        await hf.engine.owner.permits.read()  # as it does every few seconds
        await start(hf, "b")
        await start(hf, "c")
        await until(lambda: _are_waiting(hf, 1))
        await until(lambda: len(model.under_way) == 2)  # the one from before was not counted
        for session_id in ("a", "b", "c"):
            model.end(session_id)
            await soon(hf.result(session_id))


async def test_children_are_counted_and_ordered_as_their_parents(hf: Holdfast) -> None:
    @strategy(name="permits-child-of")
    async def with_child(ctx: Context) -> Any:
        return await ctx.child(asker, {})

    await hf.start(with_child, id="p", labels=["customer=acme", "priority=2", "urgent"], wait=0)
    child = await until(lambda: _child(hf))
    assert child == ("customer=acme", "priority=2")


async def _child(hf: Holdfast) -> tuple[str, ...] | None:
    rows = [row for row in await hf.store.all_sessions() if row.summary.parent == "p"]
    return rows[0].summary.labels if rows else None


async def test_no_store_is_asked_for_permits_where_there_are_no_limits(hf: Holdfast) -> None:
    hf.drive("llm", lambda query: "yes")
    await start(hf, "a")
    assert await soon(hf.result("a")) == "yes"
    assert "keeping the permits of calls" not in hf.engine.owner.supervisor.names


async def test_the_permit_of_a_killed_process_goes_to_whoever_takes_over_its_session(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    limits: dict[str, Any] = {"limits": ["tool:work=1"], "lease_ms": 60_000}
    async with Process.on(url, ledger, **limits) as one:
        await one.do("drive", what="work", recovery="safe")
        await one.do("start", program="processes-called", ctx={"ms": 600_000}, id="s-1", wait=0)
        await until(lambda: ledger.exists() and ledger.read_text())
        async with Process.on(url, ledger, lease_ms=60_000) as two:
            await two.do("drive", what="work", recovery="safe")
            await one.kill()
            await until(lambda: len(ledger.read_text().splitlines()) == 2)
            assert f"s-1 q-0 2 {two.pid}" in ledger.read_text()


async def test_what_a_closed_process_held_is_free_at_once(url: str) -> None:
    model = Model()
    async with open_holdfast(url, limits=["service:default=1"]) as one:
        one.drive("llm", model, recovery="never")
        async with open_holdfast(url, close_s=0.01) as two:
            two.drive("llm", model)
            await start(two, "a")
            await until(lambda: model.under_way == ["a"])
            await start(one, "b")
            await until(lambda: waiting(one))
        await until(lambda: "b" in model.under_way)
        model.end("b")
        await soon(one.result("b"))
