"""Calls that wait for approval, seen and answered by an MCP host that has nothing to do with the agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from holdfast import Approve, Rule, Runtime
from holdfast.agent.machine.queries import ApprovalCall, ApprovalQuery
from holdfast.agent.session import AgentSession
from holdfast.alc.mcp.sessions import TOOLS as ALC_TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.serve.mcp.holdfast_tools import TOOLS as OWN_TOOLS
from holdfast.serve.mcp.required_input import _request
from holdfast.testing import ScriptedProvider, tool_call
from holdfast.testing.patience import HANG_S, soon
from tests.serve.calls import ERAS, Host, host_of


@pytest.fixture
async def holdfast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db", upkeep=Upkeep(on=False)) as opened:
        yield opened


@pytest.fixture
def did() -> list[str]:
    return []


@pytest.fixture
async def session(tmp_path: Path, holdfast: Holdfast, did: list[str]) -> AsyncIterator[AgentSession]:
    """A session in another runtime, whose turn waits for an approval."""

    def remove(path: str) -> str:
        """Remove a file."""
        did.append(path)
        return "removed"

    script = ScriptedProvider([tool_call("remove", path="/x"), "Done."])
    rules = Approve([Rule.confirm("remove").because("for good")])
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", provider=script, tools=[remove], plugins=[rules]) as runtime:
        opened = await runtime.session("talk").open()
        turn = asyncio.create_task(opened.turn("Go").id("t-1").run())
        async with asyncio.timeout(HANG_S):
            with runtime.mount.store.watch("talk") as changes:
                while not (await opened.read_view()).approvals:
                    await changes.changed()
        yield opened
        turn.cancel()


CALL = {"id": "call_1", "tool": "remove", "arguments": {"path": "/x"}, "reason": "for good"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("response", "removed"),
    [("approve", ["/x"]), ("deny", []), ('{"decision": "approve", "arguments": {"path": "/y"}}', ["/y"])],
)
async def test_a_host_of_algoclines_tools_sees_the_call_and_decides(
    holdfast: Holdfast, session: AgentSession, did: list[str], era: Any, response: str, removed: list[str]
) -> None:
    async with host_of(holdfast, ALC_TOOLS, era) as host:
        told = await host.call("alc_status", session_id="talk", pending_filter="full")
        assert CALL in [query.get("approves") for query in told["pending"]]
        why = await host.refusal("alc_continue", session_id="talk", query_id="q-2", response="sure")
        assert "q-2 asks whether to run the tool 'remove'" in why
        await host.call("alc_continue", session_id="talk", query_id="q-2", response=response)
    result = await soon(session.turn("Go").id("t-1").run())
    assert (result.text, did) == ("Done.", removed)


async def test_a_host_of_our_own_tools_sees_the_call_and_decides(
    holdfast: Holdfast, session: AgentSession, did: list[str]
) -> None:
    async with host_of(holdfast, OWN_TOOLS, ERAS[0]) as host:
        await decided(host)
    await soon(session.turn("Go").id("t-1").run())
    assert did == ["/x"]


async def decided(host: Host) -> None:
    shown = await host.call("show", session_id="talk")
    assert CALL in [query.get("approves") for query in shown["pending"]]
    await host.call("answer", session_id="talk", response="approve")


def test_a_form_shows_the_call_and_takes_what_may_be_answered() -> None:
    call = ApprovalCall("call_1", "remove", {"path": "/x"}, "for good")
    query = ApprovalQuery(
        id="q-2", prompt="Run the tool 'remove'?", choices=["approve", "deny", "always"], approves=call
    )
    request = _request(query, samples=True)
    assert isinstance(request, types.ElicitRequest)
    form = request.params
    assert isinstance(form, types.ElicitRequestFormParams)
    asked, reason, *arguments = form.message.split("\n")
    assert (asked, reason, json.loads("".join(arguments))) == ("Run the tool 'remove'?", "for good", {"path": "/x"})
    assert form.requested_schema["properties"]["response"]["enum"] == ["approve", "deny", "always"]
