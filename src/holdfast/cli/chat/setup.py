"""Opening a chat: its session, its model, its tools and its approval rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.errors import InputError
from holdfast.cli.models import MODEL_VARIABLE, close_provider, default_model, find_model
from holdfast.cli.options import settings
from holdfast.cli.session_lookup import find_session

if TYPE_CHECKING:
    from holdfast.agent.machine.approval import Rule
    from holdfast.agent.machine.conversation import Conversation
    from holdfast.agent.machine.policy import Policy
    from holdfast.agent.providers.provider import ModelRequest, Provider, StreamItem
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.catalog import DeclaredTool, Toolish
    from holdfast.cli.chat.screen import Screen
    from holdfast.cli.chat.session import ChatSession
    from holdfast.store.contract import Store


class RecordedSession(msgspec.Struct, frozen=True):
    """A session to continue, as the store has it."""

    session_id: str
    service: str
    conversation: Conversation

    @property
    def policy(self) -> Policy:
        assert self.conversation.policy is not None
        return self.conversation.policy


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The chat that was asked for on the command line."""

    session_id: str
    recorded: RecordedSession | None
    """None: a new session."""
    tools: list[Toolish | DeclaredTool]
    instructions: str | None
    model: str | None
    base_url: str | None
    commands: list[Callable[..., Any]] = []
    """Functions that are called as `/name`."""
    agents: list[str] = []
    """Files and directories that define subagents."""
    mode: str | None = None
    """None: as the session is recorded, or else `standard`."""
    bindings: dict[str, Path] = {}
    """Files and folders that cells can read, by name."""
    rules: list[Rule] = []
    """Which tools may be called; if there are none, those recorded with the session stay."""


class _UnavailableProvider:
    """Stands for the recorded provider of a session that is to continue with another one."""

    def __init__(self, provider_id: str) -> None:
        self.id = provider_id

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        from holdfast.agent.providers.provider import ProviderError

        raise ProviderError(f"provider '{self.id}' cannot be used here", fault="auth")
        yield  # which makes it an iterator


async def find_chat(id_or_prefix: str) -> RecordedSession:
    """A session to continue, read before this process could resume it."""
    from holdfast.agent.conversations import read_conversation
    from holdfast.agent.errors import NotAnAgentError, SessionEndedError
    from holdfast.agent.machine.kind import KIND

    async with open_store() as store:
        session_id = await find_session(store, id_or_prefix)
        summary = (await store.session(session_id)).summary
        if summary.program_kind != KIND:
            raise NotAnAgentError(session_id, summary.program_kind)
        if summary.state.is_terminal:
            raise SessionEndedError(session_id, summary.state)
        return RecordedSession(session_id, summary.service, await read_conversation(store, session_id))


def _choose_model(request: ChatRequest) -> tuple[Provider, str]:
    """The model that answers: the one that was named, else the session's, else the default."""
    default = default_model()
    if request.model is not None:
        is_bare = ":" not in request.model and request.base_url is None
        if is_bare and request.recorded is not None:
            return _recorded_model(request.recorded, _url_of(default), request.model)
        return find_model(request.model, request.base_url)
    if request.recorded is not None:
        return _recorded_model(request.recorded, request.base_url or _url_of(default), request.recorded.policy.model)
    if default:
        return find_model(default, request.base_url)
    from holdfast.agent.providers.model_names import POSSIBLE

    raise InputError(f"no model is named: give --model, or set {MODEL_VARIABLE}; there is {POSSIBLE}")


def _recorded_model(recorded: RecordedSession, base_url: str | None, model: str) -> tuple[Provider, str]:
    """A model of the session's provider. Where that was named by its URL, the URL is not recorded."""
    from holdfast.agent.providers.model_names import URL_ID

    provider = recorded.policy.provider
    if provider != URL_ID:
        return find_model(f"{provider}:{model}", None)
    if base_url is None:
        why = f"session '{recorded.session_id}' used '{model}' at a URL, and URLs are not recorded"
        raise InputError(f"{why}: give --base-url URL, or another model with --model SERVICE:MODEL")
    return find_model(model, base_url)


def _url_of(model: str | None) -> str | None:
    return model.partition("#")[0] if model and model.startswith("http") else None


def runtime_for(request: ChatRequest) -> Runtime:
    """The runtime, which resumes this session only and leaves all others in the store alone."""
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.runtime_options import RuntimeOptions
    from holdfast.agent.tools.catalog import DeclaredTool
    from holdfast.core.errors import HoldfastError
    from holdfast.engine.upkeep import Upkeep

    provider, model = _choose_model(request)
    known = request.recorded.policy if request.recorded is not None else None
    runtime = Runtime(
        settings().url(create=True),
        provider=provider,
        model=model,
        tools=[tool for tool in request.tools if not isinstance(tool, DeclaredTool)],
        commands=request.commands,
        agents=request.agents,
        instructions=request.instructions or "",
        options=RuntimeOptions(name="chat"),
        upkeep=Upkeep(only=request.session_id),
        service=settings().services if request.recorded is None else request.recorded.service,
    )
    for tool in request.tools:
        if isinstance(tool, DeclaredTool):
            runtime.tools.declare(tool.name, tool.description, tool.parameters)
    if request.recorded is None or known is None:
        return runtime
    if known.provider not in runtime.providers:
        before: Provider
        try:
            before, _ = _recorded_model(request.recorded, request.base_url, known.model)
        except HoldfastError:
            before = _UnavailableProvider(known.provider)
        runtime.add_provider(before)
    return runtime


async def start(runtime: Runtime, request: ChatRequest) -> None:
    """Start the runtime, once it is known which tools there are."""
    await runtime.tools.refresh()
    for name in _awaited_tools(request.recorded.conversation) if request.recorded is not None else ():
        # A call that waits for a tool which is missing here must not be answered with "there is no such tool".
        if name not in runtime.tools:
            runtime.tools.declare(name, "", {"type": "object"})
    await runtime.__aenter__()


def _awaited_tools(conversation: Conversation) -> set[str]:
    """The tools whose calls wait to be run, or to be approved."""
    from holdfast.agent.machine.calls import HARMLESS
    from holdfast.cli.display.calls import call_to_approve
    from holdfast.core.queries import ToolQuery, is_own

    asked = conversation.asked.values()
    names = {query.name for query in asked if isinstance(query, ToolQuery) and not is_own(query)}
    return (names | {call.tool for query in asked if (call := call_to_approve(query)) is not None}) - HARMLESS


def approval_rules(allow: Sequence[str], confirm: Sequence[str], deny: Sequence[str]) -> list[Rule]:
    """Rules from patterns of tool names: denials come first, then the more specific pattern."""
    from holdfast.agent.machine.approval import Rule

    rules = [*map(Rule.deny, deny), *map(Rule.confirm, confirm), *map(Rule.allow, allow)]
    return sorted(rules, key=lambda rule: -sum(character not in "*?" for character in rule.tool))


async def open_chat(runtime: Runtime, request: ChatRequest, screen: Screen, *, asks: bool) -> ChatSession:
    """Open the session, and show it; `asks`: there is a person who can approve calls."""
    from holdfast.agent.plugins.approve import Approve
    from holdfast.cli.chat.session import ChatSession
    from holdfast.core.errors import SessionExistsError

    builder = runtime.session(request.session_id)
    if request.mode is not None:
        builder.mode(request.mode)
    for name, path in request.bindings.items():
        builder.bind(name, path)
    if request.rules:
        builder.plugin(Approve(request.rules))
    if request.recorded is None:
        if await _exists(runtime.mount.store, request.session_id):
            raise SessionExistsError(request.session_id)
        session = await builder.open()
    else:
        session = await builder.open()
        # Opening keeps what is recorded; what was named replaces it.
        provider, model = runtime.policy.provider, runtime.policy.model
        await session.configure(provider=provider, model=model, instructions=request.instructions)
    chat = ChatSession(runtime, session, screen, asks=asks)
    await chat.begin(is_new=request.recorded is None)
    return chat


async def _exists(store: Store, session_id: str) -> bool:
    from holdfast.core.errors import SessionNotFoundError

    try:
        await store.position(session_id)
    except SessionNotFoundError:
        return False
    return True


async def close_chat(runtime: Runtime) -> None:
    """Close everything. A running turn stays as it is, and can be resumed."""
    await runtime.__aexit__()
    for provider in runtime.providers.values():
        await close_provider(provider)
