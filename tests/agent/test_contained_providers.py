"""Providers are contained: whatever one raises ends its call, once, and not the turn or the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.providers.provider import ModelRequest, StreamItem
from holdfast.core.queries import Failure
from holdfast.core.records import AnsweredRecord, attempted_in
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider
from tests.agent.helpers import Home, journal
from tests.engine.helpers import error, of_type


class Panic(BaseException):
    """As native libraries raise it."""


class Panicking:
    """A provider that raises, at once or in the midst of its stream."""

    id = "panicking"

    def __init__(self, raised: BaseException, *, at_once: bool) -> None:
        self.raised = raised
        self.at_once = at_once
        self.calls = 0

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        self.calls += 1
        if self.at_once:
            raise self.raised
        return self._stream()

    async def _stream(self) -> AsyncIterator[StreamItem]:
        await asyncio.sleep(0)
        raise self.raised
        yield


each_fault = pytest.mark.parametrize(
    "raised", [Panic("the library is gone"), asyncio.CancelledError("stray")], ids=repr
)
each_moment = pytest.mark.parametrize("at_once", [True, False], ids=["at once", "streaming"])


@each_fault
@each_moment
async def test_a_turn_whose_provider_panics_ends_and_the_provider_is_called_once(
    home: Home, raised: BaseException, at_once: bool
) -> None:
    provider = Panicking(raised, at_once=at_once)
    async with home.runtime(provider=provider) as runtime:
        session = await runtime.session("s").open()
        ended = await soon(session.turn("Hi").run())
        assert isinstance(ended.outcome, StoppedOutcome)
        assert ended.outcome.reason == "provider_error"
        assert str(raised) in ended.outcome.detail
        assert provider.calls == 1
        begun = [asked for entry in await journal(session) for asked in attempted_in(entry.record)]
        assert begun == ["q-1"]


@each_fault
async def test_another_model_is_asked_when_a_provider_panics(home: Home, raised: BaseException) -> None:
    fallbacks = [(ScriptedProvider(["Hello"]), "m-2")]
    async with home.runtime(provider=Panicking(raised, at_once=False), fallbacks=fallbacks) as runtime:
        session = await runtime.session("s").open()
        assert (await soon(session.turn("Hi").run())).text == "Hello"


async def exits(query: Any) -> str:
    raise Panic("out")


async def strays(query: Any) -> str:
    raise asyncio.CancelledError("stray")


def exits_in_thread(query: Any) -> str:
    raise SystemExit(3)


async def exits_the_process(query: Any) -> str:
    raise SystemExit(3)


async def interrupts(query: Any) -> str:
    raise KeyboardInterrupt


@pytest.mark.parametrize("effect", [exits, strays, exits_in_thread, exits_the_process, interrupts])
async def test_a_driver_that_panics_has_failed(effect: Any) -> None:
    async def asks(ctx: Context) -> Any:
        return await ctx.llm("?")

    async with open_holdfast("memory:") as hf:
        hf.drive("llm", effect)
        failed = error(await soon(hf.start(asks)))
        (answered,) = await of_type(hf.store, failed.session_id, AnsweredRecord)
        assert isinstance(answered.answer, Failure)
