"""JSON's null in Lua programs: nil, or a value of its own where a program was started that way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast.alc.lua.source import NULL_VARIABLE, lua_code, source_of
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import CompletedEvent, PausedEvent
from holdfast.core.queries import ToolQuery
from holdfast.engine.sync import SyncHoldfast, open_sync
from tests.alc.lua.sessions import Run, echo, logs, run


@pytest.fixture(scope="module")
def hf() -> Iterator[SyncHoldfast]:
    with open_sync("memory:") as opened:
        yield opened


ROUTE = """
local plan = alc.json_decode(alc.llm("How hard is it?"))
local difficulty = plan.difficulty or "medium"
return "route: " .. difficulty:upper()
"""


def test_a_null_that_a_model_wrote_takes_the_default(hf: SyncHoldfast) -> None:
    assert run(hf, ROUTE, lambda _: '{"difficulty": null}').result == "route: MEDIUM"


def test_null_is_nil_wherever_json_comes_in(hf: SyncHoldfast) -> None:
    code = """
        alc.state.set("kept", alc.null)
        alc.stats.record("kept", alc.null)
        return { ctx.none == nil, alc.json_extract('{"a": null}').a == nil, std.json.decode("null") == nil,
                 alc.state.get("kept", 5) == nil, alc.state.has("kept"), alc.stats.get("kept") == nil,
                 alc.budget_remaining() == nil, alc.tool("look") == nil }
    """
    assert run(hf, code, lambda _: None, ctx={"none": None}).result == [True] * 8


def test_a_ctx_of_null_is_nil(hf: SyncHoldfast) -> None:
    assert run(hf, "return type(ctx)").result == "nil"


def test_an_array_with_nulls_is_written_as_it_was_read(hf: SyncHoldfast) -> None:
    ctx: dict[str, Any] = {"list": [1, None, 3, None], "only": [None]}
    assert run(hf, "return { ctx.list, ctx.only, ctx.list[3] }", ctx=ctx).result == [*ctx.values(), 3]


def test_a_program_writes_null_with_alc_null(hf: SyncHoldfast) -> None:
    event = hf.start(lua_code("return { answer = alc.tool('look', { at = alc.null }) or alc.null }"))
    assert isinstance(event, PausedEvent)
    (query,) = event.queries
    assert isinstance(query, ToolQuery)
    assert query.arguments == {"at": None}
    ended = hf.feed(event.session_id, {query.id: None})
    assert isinstance(ended, CompletedEvent)
    assert ended.result == {"answer": None}


def test_what_a_result_loses_as_json_is_told_with_its_place(hf: SyncHoldfast) -> None:
    ran = run(hf, "return { plan = { steps = { 'a', 'b', [7] = 'c', owner = 'me' } } }")
    assert ran.result == {"plan": {"steps": ["a", "b"]}}
    (line,) = logs(hf, ran.id)
    assert line.message == (
        'result.plan.steps is a list with other keys, which JSON has no place for: 7, "owner" dropped'
    )


KINDS = 'return { type(ctx.none), ctx.none == alc.null, type(alc.json_decode("[null]")[1]) }'


def test_an_option_keeps_null_as_a_value(hf: SyncHoldfast) -> None:
    event = hf.start(lua_code(KINDS, null="userdata"), ctx={"none": None})
    assert Run(hf, event, echo).result == ["userdata", True, "userdata"]


def test_the_environment_keeps_null_as_a_value(hf: SyncHoldfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NULL_VARIABLE, "userdata")
    assert run(hf, KINDS, ctx={"none": None}).result == ["userdata", True, "userdata"]
    monkeypatch.setenv(NULL_VARIABLE, "none")
    with pytest.raises(InvalidValueError, match="nil, userdata"):
        lua_code("return 1")


def test_a_session_that_began_before_there_was_a_choice_keeps_its_null(hf: SyncHoldfast) -> None:
    program = lua_code(KINDS)
    assert source_of(program).null == "nil"
    recorded = msgspec.json.decode(program.source or "")
    del recorded["null"]
    before = msgspec.structs.replace(program, source=msgspec.json.encode(recorded).decode())
    assert Run(hf, hf.start(before, ctx={"none": None}), echo).result == ["userdata", True, "userdata"]
