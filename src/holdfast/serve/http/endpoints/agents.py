"""Endpoints about agents: begin a conversation, read it, and change how it is run."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.policy import Policy, Spec
from holdfast.agent.results import UsageReport, ViewMessage
from holdfast.agent.session import AgentSession
from holdfast.core.errors import InvalidValueError, SessionNotFoundError
from holdfast.core.ids import new_session_id
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, Parameters, RequestBody
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import PAGE_ROWS, VALUE_BODY_BYTES
from holdfast.serve.http.paths import session_path

endpoints = Endpoints()


class AgentSessionBody(RequestBody, frozen=True, kw_only=True):
    """What an agent's session begins with."""

    id: str | None = None
    spec: Spec = Spec()
    approval: Approval | None = None
    parent: str | None = None
    title: str | None = None
    labels: list[str] | None = None


class AgentReport(msgspec.Struct, frozen=True):
    """An agent that the server runs."""

    name: str
    model: str
    provider: str
    tools: list[str]
    modes: list[str]


class OpenedReport(msgspec.Struct, frozen=True):
    """An agent's session as it was opened."""

    session_id: str
    policy: Policy


class ConversationParameters(Parameters, frozen=True, kw_only=True):
    """Which part of a conversation to show: its end, or what is before a message."""

    before: str | None = None
    limit: int = PAGE_ROWS


class ConversationPage(msgspec.Struct, frozen=True):
    """Messages, the oldest first, and before which one the earlier page ends."""

    messages: list[ViewMessage]
    before: str | None
    running: str | None
    """The turn that is running, if any."""


class ToolReport(msgspec.Struct, frozen=True):
    """A tool that the model has."""

    name: str
    description: str


@endpoints.add("GET", "/agents", "sessions:read", reply=list[AgentReport])
async def list_agents(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the agents of this server."""
    return JsonReply([_report(call)])


@endpoints.add("GET", "/agents/{name}", "sessions:read", reply=AgentReport)
async def show_agent(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show an agent of this server."""
    _check_name(call)
    return JsonReply(_report(call))


@endpoints.add(
    "POST",
    "/agents/{name}/sessions",
    "agents:run",
    body=AgentSessionBody,
    reply=OpenedReport,
    status=201,
    body_bytes=VALUE_BODY_BYTES,
)
async def open_agent_session(call: ApiCall[NoParameters, AgentSessionBody]) -> JsonReply:
    """Open a session of an agent, or begin it. What is recorded of one that is there holds."""
    _check_name(call)
    body = call.body
    key = call.headers.get("idempotency-key")
    session_id = body.id or derived_id("s-", call.principal, "agent", key) or new_session_id()
    call.principal.check_session(session_id)
    builder = call.door.runtime.session(session_id).spec(body.spec)
    if body.approval is not None:
        builder = builder.approval(body.approval)
    if body.parent is not None:
        call.principal.check_session(body.parent)
        builder = builder.parent(body.parent)
    session = await builder.open()
    if body.title is not None or body.labels is not None:
        by = call.principal.name
        await call.door.holdfast.label(session_id, title=body.title, labels=body.labels, by=by)
    report = OpenedReport(session_id, session.policy)
    return JsonReply(report, headers={"location": session_path(session_id)})


@endpoints.add(
    "GET", "/sessions/{session_id}/conversation", "sessions:read", query=ConversationParameters, reply=ConversationPage
)
async def show_conversation(call: ApiCall[ConversationParameters, None]) -> JsonReply:
    """Show the conversation of an agent's session, its end first."""
    session = await opened(call)
    view = await session.read_view()
    messages = view.messages
    limit = checked_limit(call.query.limit)
    end = len(messages)
    if call.query.before is not None:
        end = next((i for i, each in enumerate(messages) if each.id == call.query.before), -1)
        if end < 0:
            why = f"session '{session.session_id}' has no message '{call.query.before}'"
            raise InvalidValueError("before", why)
    begin = max(0, end - limit)
    page = messages[begin:end]
    return JsonReply(ConversationPage(page, page[0].id if begin else None, view.running))


@endpoints.add("GET", "/sessions/{session_id}/usage", "sessions:read", reply=UsageReport)
async def show_usage(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show what the turns of an agent's session have used, by source and by model."""
    return JsonReply(await (await opened(call)).usage_report())


@endpoints.add("GET", "/sessions/{session_id}/policy", "sessions:read", reply=Policy)
async def show_policy(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show how the next turn of an agent's session is run."""
    return JsonReply((await opened(call)).policy)


@endpoints.add("PATCH", "/sessions/{session_id}/policy", "agents:run", body=Spec, reply=Policy)
async def change_policy(call: ApiCall[NoParameters, Spec]) -> JsonReply:
    """Change how an agent's session is run, from its next turn on."""
    return JsonReply(await (await opened(call)).configure(call.body, by=call.principal.name))


@endpoints.add("GET", "/sessions/{session_id}/tools", "sessions:read", reply=list[ToolReport])
async def list_tools(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the tools that the model of an agent's session has now."""
    return JsonReply(await _tools(await opened(call)))


@endpoints.add("POST", "/sessions/{session_id}/tools/refresh", "agents:run", reply=list[ToolReport])
async def refresh_tools(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Ask all that bring tools to an agent's session which they have now, and list them."""
    session = await opened(call)
    await session.refresh_catalog()
    return JsonReply(await _tools(session))


async def _tools(session: AgentSession) -> list[ToolReport]:
    return [ToolReport(each.name, each.description) for each in (await session.catalog()).summaries]


async def opened(call: ApiCall[Any, Any]) -> AgentSession:
    """The agent's session that the path names, which has to be there. Opening it writes nothing."""
    session_id = call.session_id
    await call.door.store.session(session_id)  # raises if there is none: opening would begin one
    return await call.door.runtime.session(session_id).open()


def _report(call: ApiCall[Any, Any]) -> AgentReport:
    runtime = call.door.runtime
    tools = sorted(each.name for each in runtime.tools)
    policy = runtime.policy
    return AgentReport(call.door.name, policy.model, policy.provider, tools, sorted(runtime.modes))


def _check_name(call: ApiCall[Any, Any]) -> None:
    if call.path["name"] != call.door.name:
        raise SessionNotFoundError(call.path["name"])
