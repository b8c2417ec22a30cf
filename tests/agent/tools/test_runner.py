"""Running tools: whatever a tool does, its call comes to an answer that a model can read."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import decimal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast.agent.machine.turn import FrameSwitchOutcome
from holdfast.agent.tools import (
    Finish,
    SwitchFrame,
    Tool,
    ToolContext,
    ToolError,
    tool,
)
from holdfast.agent.tools.runner import ToolRunner
from holdfast.core.queries import Failure
from holdfast.engine.drivers import Attempt
from holdfast.testing.patience import soon
from tests.agent.tools.helpers import Model


@pytest.fixture
def model() -> Model:
    return Model()


# --- returning ----------------------------------------------------------------------------------------------


async def test_sync_and_async_functions_answer_alike(model: Model) -> None:
    @tool
    def here(n: int) -> int:
        return n + 1

    @tool
    async def there(n: int) -> int:
        return n + 1

    assert (await model.call(here, n=1)).content == 2
    assert (await model.call(there, n=1)).content == 2


async def test_a_sync_function_does_not_hold_up_the_loop(model: Model) -> None:
    release = threading.Event()

    @tool
    def block() -> str:
        assert release.wait(5)
        return "released"

    running = asyncio.create_task(model.call(block))
    await asyncio.sleep(0.01)
    release.set()
    assert (await running).content == "released"


async def test_a_sync_function_sees_the_context_variables_of_its_caller(model: Model) -> None:
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where")
    where.set("here")

    @tool
    def look() -> str:
        return where.get()

    assert (await model.call(look)).content == "here"


async def test_a_function_that_returns_an_awaitable_is_waited_for(model: Model) -> None:
    async def later() -> str:
        return "later"

    def begin() -> Any:
        return later()

    assert (await model.call(Tool.of(begin))).content == "later"


@dataclass
class Plain:
    at: datetime.date


class Struct(msgspec.Struct):
    amount: decimal.Decimal


class Pydantic(pydantic.BaseModel):
    path: Path


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({1: "one"}, {"1": "one"}),
        (Plain(datetime.date(2024, 2, 29)), {"at": "2024-02-29"}),
        (Struct(decimal.Decimal("1.50")), {"amount": "1.50"}),
        ([Pydantic(path=Path("/x"))], [{"path": "/x"}]),
        (Path("/x"), "/x"),
        ({"$tool": {"content": 1}}, {"$tool": {"content": 1}}),
    ],
    ids=str,
)
async def test_what_a_tool_returns_is_told_as_json(model: Model, value: Any, expected: Any) -> None:
    assert (await model.call(Tool.of(lambda: value, name="give"))).content == expected


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "object has no JSON form"),
        ({"image": b"\x89PNG"}, "bytes has no JSON form (at .image); a tool returns text or JSON: save binary data"),
        (float("nan"), "nan is not a JSON number"),
        (2**80, "past 64 bits"),
        ("\ud800", "lone surrogate"),
        (Finish(object()), "object has no JSON form"),
    ],
    ids=["object", "bytes", "nan", "int", "surrogate", "finish"],
)
async def test_what_has_no_json_form_is_a_failure_that_says_so(model: Model, value: Any, told: str) -> None:
    error = await model.error(Tool.of(lambda: value, name="give"))
    assert error["code"] == "invalid_result"
    assert told in error["error"]


class Spiteful:
    def __str__(self) -> str:
        raise RuntimeError("no")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


class SpitefulError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


async def test_an_object_that_does_not_want_to_be_told_is_a_failure_too(model: Model) -> None:
    assert (await model.error(Tool.of(Spiteful, name="give")))["code"] == "invalid_result"
    assert (await model.error(Tool.of(lambda: SwitchFrame(1, "t"), name="give")))["code"] == "invalid_result"  # type: ignore[arg-type]

    @tool
    def fail() -> None:
        raise SpitefulError

    assert (await model.error(fail))["error"] == "SpitefulError: its message cannot be read"


async def test_a_tool_cannot_change_the_arguments_of_its_query(model: Model) -> None:
    @tool
    def greedy(items: list[Any]) -> int:
        items[0]["a"] = 2
        return len(items)

    given = [{"a": 1}]
    await model.call(greedy, items=given)
    assert given == [{"a": 1}]


async def test_a_plain_result_is_a_plain_answer(model: Model) -> None:
    assert await model.answer(Tool.of(lambda: {"a": 1}, name="give")) == {"a": 1}


async def test_a_tool_can_end_the_turn_with_a_value(model: Model) -> None:
    done = await model.call(Tool.of(lambda: Finish({"total": 3}), name="submit"))
    assert done.finish == {"total": 3}
    assert (await model.call(Tool.of(lambda: Finish(None), name="stop"))).finish is None


async def test_a_tool_can_open_a_new_frame(model: Model) -> None:
    done = await model.call(Tool.of(lambda: SwitchFrame("review", "Look at it anew."), name="go_on"))
    assert done.frame == FrameSwitchOutcome("review", "Look at it anew.")


# --- failing ------------------------------------------------------------------------------------------------


async def test_an_exception_is_told_by_type_and_words_and_without_a_traceback(model: Model) -> None:
    @tool
    def fail() -> None:
        raise LookupError("no such thing")

    error = await model.error(fail)
    assert error == {"error": "LookupError: no such thing", "code": "failed"}


async def test_an_error_of_the_tools_own_has_its_code(model: Model) -> None:
    @tool
    async def fail() -> None:
        raise ToolError("the card was declined", code="declined")

    assert await model.error(fail) == {"error": "the card was declined", "code": "declined"}


async def test_a_failure_that_is_returned_is_a_failure(model: Model) -> None:
    assert await model.error(Tool.of(lambda: Failure("no", "refused"), name="f")) == {"error": "no", "code": "refused"}


async def test_a_tool_cannot_say_that_the_turn_was_cancelled(model: Model) -> None:
    with pytest.raises(ValueError, match="choose another"):
        ToolError("stop", code="cancelled")
    error = await model.error(Tool.of(lambda: Failure("no", "cancelled"), name="f"))
    assert error["code"] == "failed"


async def test_several_errors_at_once_are_all_told(model: Model) -> None:
    @tool
    async def fail() -> None:
        raise ExceptionGroup("both", [KeyError("a"), ValueError("b")])

    assert (await model.error(fail))["error"] == "2 errors: KeyError: 'a'; ValueError: b"


async def test_a_long_error_is_cut(model: Model) -> None:
    @tool
    def fail() -> None:
        raise ValueError("x" * 100_000)

    assert len((await model.error(fail))["error"]) <= 2_000


async def test_words_that_are_no_unicode_are_repaired(model: Model) -> None:
    @tool
    def fail() -> None:
        raise ValueError("bad \ud800")

    assert (await model.error(fail))["error"] == "ValueError: bad ?"


class Panic(BaseException):
    pass


async def test_tool_panic_contained(model: Model) -> None:
    @tool
    def in_thread() -> None:
        raise Panic("native code")

    @tool
    async def in_loop() -> None:
        raise Panic("native code")

    assert await model.error(in_thread) == {"error": "Panic: native code", "code": "tool_panicked"}
    assert await model.error(in_loop) == {"error": "Panic: native code", "code": "tool_panicked"}


async def test_a_tool_in_a_thread_cannot_end_the_process(model: Model) -> None:
    @tool
    def leave() -> None:
        raise SystemExit(2)

    error = await model.error(leave)
    assert error["code"] == "tool_panicked"
    assert "SystemExit: 2" in error["error"]


@pytest.mark.parametrize("stop", [SystemExit(2), KeyboardInterrupt("now")])
async def test_an_async_tool_cannot_end_the_process(model: Model, stop: BaseException) -> None:
    @tool
    async def leave() -> None:
        await asyncio.sleep(0)
        raise stop

    error = await model.error(leave)
    assert error["code"] == "tool_panicked"
    assert type(stop).__name__ in error["error"]


async def test_a_tool_that_cancels_itself_is_a_failure_like_any_other(model: Model) -> None:
    @tool
    async def give_in() -> None:
        raise asyncio.CancelledError

    assert (await model.error(give_in))["code"] == "tool_panicked"


async def test_a_stop_iteration_in_a_thread_is_told(model: Model) -> None:
    @tool
    def exhausted() -> int:
        return next(iter(list[int]()))

    assert "StopIteration" in (await model.error(exhausted))["error"]


async def test_a_failure_can_stop_the_turn(model: Model) -> None:
    @tool(on_error="stop")
    def fail() -> None:
        raise ValueError("it is no use")

    done = await model.call(fail)
    assert (done.is_error, done.stops) == (True, True)
    assert done.content == {"error": "ValueError: it is no use", "code": "failed"}


async def test_a_tool_that_the_model_was_not_told_of_is_not_run() -> None:
    ran: list[str] = []
    model = Model(allowed=["reader"])
    done = await model.call(Tool.of(lambda: ran.append("it"), name="read"))
    assert (done.is_error, done.executed, ran) == (True, False, [])
    assert done.content == {"error": "there is no tool 'read'; did you mean 'reader'?", "code": "unknown_tool"}


# --- for strategies -----------------------------------------------------------------------------------------


async def asked(called: Tool) -> Any:
    return await soon(ToolRunner().run(called, Attempt("s", "q-0", 1), {}))


async def test_a_strategy_gets_values_and_failures_and_nothing_else() -> None:
    @tool(timeout_s=0.02)
    async def slow(ctx: ToolContext) -> None:
        ctx.output("begun")
        await asyncio.sleep(60)

    assert await asked(Tool.of(lambda: "x" * 50_000, name="read")) == "x" * 50_000
    assert await asked(Tool.of(lambda: Finish(3), name="finish_it")) == 3
    timed_out = await asked(slow)
    assert isinstance(timed_out, Failure)
    assert timed_out.code == "timeout"
    switched = await asked(Tool.of(lambda: SwitchFrame("f", "t"), name="go_on"))
    assert isinstance(switched, Failure)
    assert "only agents" in switched.message
