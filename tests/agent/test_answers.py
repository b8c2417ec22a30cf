"""Answers to a turn that waits for somebody outside: only what was asked can be answered."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent.machine.errors import NotAnInputError
from holdfast.agent.session import AgentSession
from holdfast.core.errors import UnknownQueryError
from holdfast.core.queries import Failure, Value
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import tool_call
from tests.agent.helpers import OBJECT, Home, journal


async def asked(session: AgentSession, kind: str) -> str | None:
    pending = (await session.conversation(fresh=True)).asked
    return next((query.id for query in pending.values() if query.kind == kind), None)


async def test_an_unknown_id_is_refused_and_the_open_ones_are_named(home: Home) -> None:
    runtime = home.runtime(tool_call("approve"), "Thank you.")
    runtime.tools.declare("approve", "Ask somebody.", OBJECT)
    async with runtime:
        session = await runtime.session("s").open()
        running = asyncio.create_task(session.turn("May I?").run())
        waiting = await until(lambda: asked(session, "tool"))
        before = await journal(session)
        with pytest.raises(UnknownQueryError, match=rf"call_1 .*waits for {waiting}"):
            await soon(session.answer("call_1", "yes"))
        assert await journal(session) == before
        await soon(session.answer(waiting, {"call_1": "yes"}))
        assert (await soon(running)).text == "Thank you."


async def test_between_turns_there_is_nothing_to_answer(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        before = await journal(session)
        waiting = await asked(session, "input")
        assert waiting is not None
        with pytest.raises(UnknownQueryError):
            await soon(session.answer("call_1", "yes"))
        for answer in ("yes", Value(value={"text": "yes"}), Failure("no")):
            with pytest.raises(NotAnInputError, match="between turns"):
                await soon(session.answer(waiting, answer))
            with pytest.raises(NotAnInputError):
                await runtime.mount.holdfast.feed("s", answer)
        assert await journal(session) == before
        assert (await soon(session.turn("Hi").run())).text == "Hello"
