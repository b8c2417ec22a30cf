"""Which session a chat is held in, with which model and tools: found, put together, and opened."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.errors import InputError
from holdfast.cli.lookup import find_session, opened
from holdfast.cli.models import MODEL_VARIABLE, close_provider, find_model
from holdfast.cli.options import settings

if TYPE_CHECKING:
    from holdfast.agent.machine.approval import Rule
    from holdfast.agent.machine.conversation import Conversation
    from holdfast.agent.machine.policy import Policy
    from holdfast.agent.mcp.client import McpClient
    from holdfast.agent.providers.provider import ModelRequest, Provider, StreamItem
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.catalog import DeclaredTool, Toolish
    from holdfast.cli.chat.conversation import Chat
    from holdfast.cli.chat.screen import Screen
    from holdfast.store.contract import Store


class Found(msgspec.Struct, frozen=True):
    """A session to go on with."""

    session_id: str
    conversation: Conversation

    @property
    def policy(self) -> Policy:
        assert self.conversation.policy is not None
        return self.conversation.policy


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    session_id: str
    found: Found | None
    tools: list[Toolish | DeclaredTool]
    instructions: str | None
    model: str | None
    base_url: str | None
    rules: list[Rule] = []
    """About calls of tools; those that the session is recorded with stay, if there are none."""


class _Gone:
    """The provider that a session had, where it cannot be asked: the session is opened to go on with another one."""

    def __init__(self, provider_id: str) -> None:
        self.id = provider_id

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        from holdfast.agent.providers.provider import ProviderError

        raise ProviderError(f"provider '{self.id}' cannot be used here", fault="auth")
        yield  # which makes it an iterator


async def find_chat(given: str) -> Found:
    """A session to go on with, as it is in the store: read before anything here could go on with it."""
    from holdfast.agent.conversation_cache import ConversationCache
    from holdfast.agent.errors import NotAnAgentError, SessionEndedError
    from holdfast.agent.machine.kind import KIND

    async with opened() as store:
        session_id = await find_session(store, given)
        summary = (await store.session(session_id)).summary
        if summary.program_kind != KIND:
            raise NotAnAgentError(session_id, summary.program_kind)
        if summary.state.is_terminal:
            raise SessionEndedError(session_id, summary.state)
        return Found(session_id, await ConversationCache(store).get(session_id))


def find_servers(given: Sequence[str]) -> list[McpClient]:
    """The servers behind `name=command …` or `name=https://…`."""
    if not given:
        return []
    from holdfast.agent.mcp.client import McpClient
    from holdfast.core.errors import HoldfastError

    found = []
    for each in given:
        name, _, where = each.partition("=")
        try:
            command = shlex.split(where)
            if not name or not command:
                raise InputError(f"--mcp {each}: say how it is called and where it is, as NAME=COMMAND or NAME=URL")
            is_url = where.startswith(("http://", "https://"))
            found.append(McpClient.http(name, where) if is_url else McpClient.stdio(name, command))
        except (ValueError, HoldfastError) as error:
            raise error if isinstance(error, InputError) else InputError(f"--mcp {each}: {error}") from None
    return found


def _chosen(asked: Asked) -> tuple[Provider, str]:
    """The model that is to answer: the one that was named, else the session's, else that of the environment."""
    variable = os.environ.get(MODEL_VARIABLE)
    if asked.model is not None:
        is_bare = ":" not in asked.model and asked.base_url is None
        if is_bare and asked.found is not None:
            return _recorded(asked.found, _url_of(variable), asked.model)
        return find_model(asked.model, asked.base_url)
    if asked.found is not None:
        return _recorded(asked.found, asked.base_url or _url_of(variable), asked.found.policy.model)
    if variable:
        return find_model(variable, asked.base_url)
    from holdfast.agent.providers.model_names import POSSIBLE

    raise InputError(f"no model was named: give --model, or set {MODEL_VARIABLE}; there is {POSSIBLE}")


def _recorded(found: Found, base_url: str | None, model: str) -> tuple[Provider, str]:
    """A model of the session's provider. Where that was named by its URL, the URL is not recorded."""
    from holdfast.agent.providers.model_names import URL_ID

    provider = found.policy.provider
    if provider != URL_ID:
        return find_model(f"{provider}:{model}", None)
    if base_url is None:
        why = f"session '{found.session_id}' was held with '{model}' at a URL, which is not recorded"
        raise InputError(f"{why}: give --base-url URL, or another model with --model SERVICE:MODEL")
    return find_model(model, base_url)


def _url_of(variable: str | None) -> str | None:
    return variable.partition("#")[0] if variable and variable.startswith("http") else None


def runtime_for(asked: Asked) -> Runtime:
    """The runtime, which goes on with this session alone: whatever else waits in the store is none of our business."""
    from holdfast.agent.machine.policy import Spec
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.runtime_options import RuntimeOptions
    from holdfast.agent.tools.catalog import DeclaredTool
    from holdfast.core.errors import HoldfastError
    from holdfast.engine.minder import Minder

    provider, model = _chosen(asked)
    known = asked.found.policy if asked.found is not None else None
    instructions = asked.instructions if asked.instructions is not None else known.instructions if known else ""
    runtime = Runtime(
        settings().url(create=True),
        provider=provider,
        model=model,
        tools=[tool for tool in asked.tools if not isinstance(tool, DeclaredTool)],
        instructions=instructions,
        spec=Spec(limits=msgspec.structs.asdict(known.limits), generation=known.generation) if known else None,
        options=RuntimeOptions(name="chat"),
        minder=Minder(only=asked.session_id),
    )
    for tool in asked.tools:
        if isinstance(tool, DeclaredTool):
            runtime.tools.declare(tool.name, tool.description, tool.parameters)
    if asked.found is None or known is None:
        return runtime
    if known.provider not in runtime.providers:
        before: Provider
        try:
            before, _ = _recorded(asked.found, asked.base_url, known.model)
        except HoldfastError:
            before = _Gone(known.provider)
        runtime.add_provider(before)
    return runtime


async def start(runtime: Runtime, asked: Asked) -> None:
    """Start the runtime, as soon as it is known which tools there are."""
    await runtime.tools.refresh()
    for name in _tools_waited_for(asked.found.conversation) if asked.found is not None else ():
        # A call that waits for a tool which is not here is not to be answered with "there is no such tool".
        if name not in runtime.tools:
            runtime.tools.declare(name, "", {"type": "object"})
    await runtime.__aenter__()


def _tools_waited_for(conversation: Conversation) -> set[str]:
    """The tools whose calls wait to be run, or to be approved."""
    from holdfast.agent.machine.calls import HARMLESS
    from holdfast.cli.approval import approved_call
    from holdfast.core.queries import ToolQuery, is_own

    asked = conversation.asked.values()
    names = {query.name for query in asked if isinstance(query, ToolQuery) and not is_own(query)}
    return (names | {call.tool for query in asked if (call := approved_call(query)) is not None}) - HARMLESS


async def open_chat(runtime: Runtime, asked: Asked, screen: Screen, *, asks: bool) -> Chat:
    """Open the session, and show it; `asks`: there is a person to approve what has to be."""
    from holdfast.agent.plugins.approve import Approve
    from holdfast.cli.chat.conversation import Chat
    from holdfast.core.errors import SessionExistsError

    builder = runtime.session(asked.session_id)
    if asked.rules:
        builder.plugin(Approve(asked.rules))
    if asked.found is None:
        if await _exists(runtime.mount.store, asked.session_id):
            raise SessionExistsError(asked.session_id)
        session = await builder.open()
    else:
        known = asked.found.policy
        session = await builder.mode(known.mode).open()
        # The recorded provider is kept by whoever opens; who names another one means it.
        session.configure(provider=runtime.policy.provider, model=runtime.policy.model, tools=known.tools)
    chat = Chat(runtime, session, screen, asks=asks)
    await chat.begin(is_new=asked.found is None)
    return chat


async def _exists(store: Store, session_id: str) -> bool:
    from holdfast.core.errors import SessionNotFoundError

    try:
        await store.position(session_id)
    except SessionNotFoundError:
        return False
    return True


async def close_chat(runtime: Runtime) -> None:
    """Let go of everything. A turn that is under way stays as it is, to be gone on with."""
    await runtime.__aexit__()
    for provider in runtime.providers.values():
        await close_provider(provider)
