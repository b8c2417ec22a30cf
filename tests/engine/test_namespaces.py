"""Durable state belongs to whoever was given its namespace: a strategy in a sandbox sees no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import CompletedEvent, FailedEvent
from holdfast.core.records import Program, StartedRecord
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.kinds import get_language
from holdfast.programs.namespaces import check_child_namespace, found_namespace
from holdfast.testing.patience import soon


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        await opened.store.put_state("secrets", "key", "hunter2")
        yield opened


def python(code: str) -> Program:
    return get_language("python").program(code, name="thief", file="thief.py")


THEFTS = {
    "lua show": lua_code('return alc.state.show("secrets", "key")'),
    "lua list": lua_code('return alc.state.list("secrets")'),
    "lua reset": lua_code('return alc.state.reset("secrets", "key", {steps = {"x"}})'),
    "python show": python('state.show("secrets", "key")'),
    "python list": python('state.list("secrets")'),
}


@pytest.mark.parametrize("theft", THEFTS)
async def test_a_sandboxed_strategy_cannot_read_the_state_of_another(hf: Holdfast, theft: str) -> None:
    event = await soon(hf.start(THEFTS[theft]))
    assert isinstance(event, FailedEvent), event
    assert "is not this strategy's" in event.error
    assert "hunter2" not in event.error
    assert await hf.store.list_state("secrets") == ["key"]


async def test_a_namespace_that_whoever_starts_it_names_is_its_own(hf: Holdfast) -> None:
    for theft in ("lua show", "python show"):
        event = await soon(hf.start(THEFTS[theft], ctx={"_ns": "secrets"}))
        assert isinstance(event, CompletedEvent)
        assert event.result == "hunter2"


def test_a_sandboxed_strategy_cannot_grant_what_it_has_not() -> None:
    for program in (THEFTS["lua show"], THEFTS["python show"]):
        parent = StartedRecord(program=program, ctx={"_ns": "own"})
        for ctx in (None, {}, {"_ns": 5}, {"_ns": "own"}, {"_ns": "default"}, {"_ns": "fork-1"}):
            check_child_namespace(parent, ctx)
        with pytest.raises(InvalidValueError, match="is not this strategy's"):
            check_child_namespace(parent, {"_ns": "secrets"})
    check_child_namespace(StartedRecord(program=Program("native", "app.run")), {"_ns": "secrets"})


OWN = {
    "lua": lambda name, code: lua_code(f"return alc.state.{code}", name=name),
    "python": lambda name, code: get_language("python").program(f"state.{code}", name=name, file="s.py"),
}


@pytest.mark.parametrize("language", OWN)
async def test_state_belongs_to_a_strategy_where_no_namespace_is_named(hf: Holdfast, language: str) -> None:
    async def result(name: str, code: str) -> object:
        event = await soon(hf.start(OWN[language](name, code)))
        assert isinstance(event, CompletedEvent), event
        return event.result

    await result("ada", "set('key', 'hers')")
    assert await result("ada", "get('key')") == "hers"
    assert await result("ada", "show('default', 'key')") == "hers"
    assert await result("ada", "show('ada', 'key')") == "hers"
    for other in ("bob", "strategy"):
        assert await result(other, "get('key', 'none')") == "none"
        assert await result(other, "keys()") == []
    await result("strategy", "set('key', 'of this text')")
    assert await result("strategy", "get('key', 'none')") == "none"
    assert await hf.store.list_state("default") == []


def test_the_branches_of_a_fork_share_no_state_with_those_of_another_strategy() -> None:
    for name in ("ada", "bob"):
        started = StartedRecord(program=lua_code("return 1", name=name))
        assert found_namespace(started, "fork-0") == f"{name}.fork-0"


async def test_a_trusted_strategy_manages_every_namespace(hf: Holdfast) -> None:
    event = await soon(hf.start(lua_code('return alc.state.show("secrets", "key")', trust="trusted")))
    assert isinstance(event, CompletedEvent)
    assert event.result == "hunter2"
