"""Parents and children that have missed each other are found, and those that are well cost next to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, CancelledRecord, CompletedRecord
from holdfast.core.state import State
from holdfast.engine import patrol
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store import Store, open_store
from holdfast.testing.patience import soon, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import append_by_hand, quiet, sqlite

FAMILIES = 2 * patrol.PATROL_LOOKS + 5


@strategy(name="patrol-child")
async def child(ctx: Context) -> str:
    return str(await ctx.llm("child asks"))


@strategy(name="patrol-parent")
async def parent(ctx: Context) -> str:
    return str(await ctx.child(child))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(patrol, "PATROL_MS", 20)
    monkeypatch.setattr(patrol, "PATROL_REST_MS", 20)
    if request.param == "sqlite":
        return sqlite(tmp_path)
    return fresh_database(request.getfixturevalue("server"))


async def begin(hf: Holdfast, count: int) -> None:
    """Start parents that wait for their children, which wait for a host."""
    for number in range(count):
        await soon(hf.start(parent, id=f"p-{number}", llm="host"))


def counted(store: Store) -> Counter[str]:
    """How often each part of a store is asked from now on."""
    calls = Counter[str]()

    def count(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return await method(*arguments, **named)

        return call

    for name in ("open_children", "load_sound", "session", "mailbox", "_read"):
        setattr(store, name, count(name, getattr(store, name)))
    return calls


async def test_families_that_are_well_are_passed_without_a_look_at_each(url: str) -> None:
    async with quiet(url) as hf:
        await begin(hf, FAMILIES)
    store = open_store(url)
    calls = counted(store)
    async with holdfast.open(store):
        await until(lambda: calls["open_children"] >= 5)
        steps = calls["open_children"]
        assert calls["load_sound"] <= 3 * steps
        assert calls["session"] == calls["mailbox"] == calls["_read"] == 0


async def test_all_children_are_ended_whose_parents_ended_without_a_word(url: str) -> None:
    async with quiet(url) as hf:
        await begin(hf, FAMILIES)
        for number in range(FAMILIES):
            await append_by_hand(hf.store, f"p-{number}", CancelledRecord(reason="by hand"))
    async with holdfast.open(url) as hf:
        for number in range(FAMILIES):
            await until(lambda number=number: _has_state(hf, f"p-{number}.q-0", State.CANCELLED))  # type: ignore[misc]


@pytest.mark.parametrize("entries", [1, patrol.PATROL_ENTRIES])
async def test_a_parent_is_told_of_the_end_of_its_child_however_long_its_journal_is(
    url: str, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "PATROL_ENTRIES", entries)
    async with quiet(url) as hf:
        await begin(hf, FAMILIES)
        answered = AnsweredRecord(query_id="q-0", answer=Value(value="!"))
        await append_by_hand(hf.store, "p-0.q-0", answered, CompletedRecord(result="by hand"))
    async with holdfast.open(url) as hf:
        assert await soon(hf.result("p-0")) == "by hand"


async def _has_state(hf: Holdfast, session_id: str, state: State) -> bool:
    return (await hf.store.session(session_id)).summary.state is state
