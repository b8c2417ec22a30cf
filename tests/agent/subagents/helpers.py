"""What the tests of subagents share: a model that plays every role, told apart by its instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.agent.machine.messages import ToolResultBlock
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.session import AgentSession
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.core.queries import Usage
from holdfast.core.records import Entry
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call

PARENT_USED = Usage(prompt_tokens=10, completion_tokens=5)
CHILD_USED = Usage(prompt_tokens=7, completion_tokens=3)

Role = Callable[[ModelRequest], ScriptStep]


def agent(name: str, **fields: Any) -> AgentDefinition:
    """A subagent whose instructions are its name."""
    return AgentDefinition(name=name, description=f"the {name}", instructions=name, **fields)


def cast(roles: Mapping[str, Role], parent: Role) -> ScriptedProvider:
    """A model that plays each subagent by the role of its name, and otherwise the parent."""

    def play(request: ModelRequest) -> ScriptStep:
        return roles.get(request.system, parent)(request)

    return ScriptedProvider([play], loop=True)


def results(request: ModelRequest) -> list[Json]:
    """The results of the tool calls in a request, in their order."""
    blocks = (block for message in request.messages for block in message.content)
    return [block.content for block in blocks if isinstance(block, ToolResultBlock)]


def delegating(*calls: dict[str, Any], tool: str = "delegate") -> Role:
    """A parent that delegates all this in one reply, and then says what it got."""

    def play(request: ModelRequest) -> ScriptStep:
        got = results(request)
        if got:
            return reply(" | ".join(str(each) for each in got), usage=PARENT_USED)
        return reply(*(tool_call(tool, **call) for call in calls), usage=PARENT_USED)

    return play


def saying(text: str) -> Role:
    """A subagent that says something."""
    return lambda request: reply(text, usage=CHILD_USED)


def echo(request: ModelRequest) -> ScriptStep:
    """A subagent that says what it was told."""
    return reply(request.messages[-1].text, usage=CHILD_USED)


async def child_of(session: AgentSession, query: str) -> Session:
    """The session of a subagent."""
    return await session.mount.holdfast.session(f"{session.session_id}.{query}")


async def entries(session: AgentSession, session_id: str) -> list[Entry]:
    """The journal of any session in the same store."""
    return [entry async for entry in session.mount.store.journal(session_id)]
