"""Code beside the turns of a session: it reads the variables, asks nobody, and leaves nothing."""

from __future__ import annotations

import pytest

from holdfast.agent.errors import CodeExecutionStoppedError, CodeExecutionUnavailableError
from holdfast.agent.rlm.execution import ExecRequest
from holdfast.programs.errors import InstanceLostError
from tests.agent.rlm.helpers import cell, rlm


async def test_a_request_runs_on_the_variables_and_changes_none() -> None:
    async with rlm(cell("x = [1, 2]"), "ok") as agent:
        await agent.turn()
        context = await agent.session.code_execution_context()
        done = await context.execute(ExecRequest(code="x.append(3)\nprint(sum(x))\nfinish(x)", accept_finish=True))
        assert (done.printed, done.is_finished, done.value, done.is_error) == ("6\n", True, [1, 2, 3], False)
        again = await context.execute(ExecRequest(code="print(x)"))
        assert again.printed == "[1, 2]\n"
        assert len(await agent.bound()) == 1


async def test_a_request_may_not_ask_or_finish_where_nobody_waits_for_it() -> None:
    async with rlm("ok") as agent:
        context = await agent.session.code_execution_context()
        asked = await context.execute(ExecRequest(code="print(llm('x'))"))
        assert asked.is_error
        assert "only a turn can call it" in asked.told
        assert agent.provider.asked == []
        assert (await context.execute(ExecRequest(code="finish(1)"))).is_error
        assert (await context.execute(ExecRequest(code="1 / 0"))).is_error
        assert (await context.execute(ExecRequest(code="del x"))).is_error


async def test_code_execution_is_unavailable_in_other_modes_and_languages() -> None:
    async with rlm("ok") as agent:
        context = await agent.session.code_execution_context()
        with pytest.raises(CodeExecutionUnavailableError, match="not 'lua'"):
            await context.execute(ExecRequest(language="lua", code="x = 1"))
        standard = await agent.runtime.session("standard").standard().open()
        with pytest.raises(CodeExecutionUnavailableError, match="session 'standard': its mode is 'standard'"):
            await (await standard.code_execution_context()).execute(ExecRequest(code="x = 1"))


async def test_a_runtime_that_stops_is_said_to_have_stopped() -> None:
    async with rlm("ok") as agent:
        context = await agent.session.code_execution_context()
    with pytest.raises(CodeExecutionStoppedError, match="exited unexpectedly") as stopped:
        await context.execute(ExecRequest(code="x = 1"))
    assert isinstance(stopped.value.__cause__, InstanceLostError)
