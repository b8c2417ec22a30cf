"""`Plugin`, the base class of plugins: what they add to sessions, and the hooks by which they take part in turns.

A plugin is a small class that overrides the hooks it needs. Each session gets a copy of its own, which knows its
session and its configuration. The id and the configuration are recorded with the session, so another process uses its
plugin with the same id.

Hooks may be plain functions or coroutines, unless they say otherwise. If one fails, or returns something invalid, the
log and the watchers of the session are told which plugin and hook it was, and the turn continues without it. Only if
the hook decides whether a tool may run does a failure mean no.

Hooks are awaited. A slow one delays its turn, and one that never returns blocks it until the turn is stopped: set a
time limit when a hook calls something outside. A hook must not modify its arguments in place.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

import msgspec

from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.excerpt import OutputLimits
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.session_catalog import ToolSummary
from holdfast.core.records import Entry
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.loaded_session import SessionContext
    from holdfast.agent.providers.provider import ModelReply, ModelRequest
    from holdfast.agent.results import TurnResult
    from holdfast.agent.tools.results import ToolResult

T = TypeVar("T")

Maybe: TypeAlias = T | Awaitable[T]
"""What a hook returns: the value, or an awaitable of it."""


_DEFAULT_OUTPUT = OutputLimits()


@dataclass(frozen=True, kw_only=True)
class PluginSession:
    """The session that a plugin belongs to."""

    session_id: str
    parent: str | None
    services: SessionContext
    """What a plugin may use of the runtime."""


@dataclass(frozen=True, kw_only=True)
class PluginCall:
    """A tool call, as plugins see it."""

    session_id: str
    turn: str
    id: str
    """The model's id of the call."""
    tool: str
    arguments: dict[str, Json]
    key: str
    """An idempotency key: the same each time this call is run, and for no other call."""
    query: str = ""
    """The id of its query in the journal, unique within the session."""
    output: OutputLimits = _DEFAULT_OUTPUT
    """How much of a result the tool lets the model see."""


# --- what `before_tool` may return -----------------------------------------------------------------------


class Deny(msgspec.Struct, frozen=True):
    """Do not run the call. The model is told why."""

    reason: str


class Replace(msgspec.Struct, frozen=True):
    """Run the call with other arguments. All plugins then see these; only one plugin may replace them."""

    arguments: dict[str, Json]


class Instead(msgspec.Struct, frozen=True):
    """Do not run the call, and use this as its result."""

    value: Json


class AbortTurn(Exception):  # noqa: N818 - it is a wish, not an error
    """Raised or returned by `turn_started`, `history`, `before_model` or `before_tool` to stop the turn as
    `plugin_abort`, for this reason. From any other hook it is a failure."""


Directive: TypeAlias = Deny | Replace | Instead | AbortTurn

AuthorizeVerdict: TypeAlias = Literal["allow", "deny", "confirm"]
"""The verdict of code about a call that it is asked to authorize."""

Command: TypeAlias = Callable[..., Any]
"""Called on behalf of the host, with arguments by name. Its docstring tells people what it does."""


class Plugin:
    """The base class of plugins."""

    id: str
    """Identifies the plugin in recorded sessions, and in the plugin inputs of turns."""
    requires_turn_input: bool = False
    """Whether every turn must have an input for it."""
    revision: int = 0
    """Increase it when the results of `prompt` or `catalog` change: they are called again only then."""
    session: PluginSession
    config: Any = None
    source: Plugin | None = None
    """The plugin that this one is a session's copy of."""

    def build(self, session: PluginSession, config: Json) -> Plugin:
        """A copy for a session. Called once for each session in a process; it should be cheap."""
        made = self.configured(config)
        made.session = session
        return made

    def configured(self, config: Json) -> Self:
        """A copy with a configuration and no session yet. It provides what is recorded when a session is opened."""
        made = copy.copy(self)
        made.config, made.source = config, self.source or self
        return made

    # --- what it adds ------------------------------------------------------------------------------

    def instructions(self) -> str:
        """A layer of the session's instructions, recorded with it."""
        return ""

    def prompt(self) -> Sequence[Contribution]:
        """Contributions to the prompt, computed when the model is called. Must not be a coroutine."""
        return ()

    def tools(self) -> Sequence[Toolish]:
        """Tools for sessions that have the plugin; other sessions neither see them nor can call them.

        A runtime has one tool of each name. So tools for several sessions are the same functions, which learn from
        their context for which session they run, or have different names.
        """
        return ()

    def approval(self) -> Approval | None:
        """Rules about tool calls, recorded with the session."""
        return None

    def commands(self) -> Mapping[str, Command]:
        """Commands that hosts can run by name between turns: `session.command("name", …)`.

        If two plugins have the same command, the first one's is used. Every session has `compact`.
        """
        return {}

    def turn_text(self, turn_input: Any) -> str:
        """Text to add to the input of a turn; `turn_input` is None if the turn has none for this plugin.

        It must be the same for the same input: a repeated turn is recognized only if its whole input is the same.
        """
        return ""

    # --- hooks -------------------------------------------------------------------------------------

    def catalog(self, tools: Sequence[ToolSummary]) -> Sequence[ToolSummary]:
        """The tools that the model has: a plugin may leave some out, or describe them differently. Not a coroutine."""
        return tools

    def authorize(self, call: PluginCall) -> Maybe[AuthorizeVerdict | Deny]:
        """Whether a call may run, if the rules of `approval` leave that to code (`callback`)."""
        return "deny"

    def history(self, messages: list[AgentMessage]) -> Maybe[list[AgentMessage]]:
        """The messages that the model sees this time. The recorded conversation stays as it is.

        Leave out a tool call only together with its result: no provider accepts one without the other.
        """
        return messages

    def before_model(self, request: ModelRequest) -> Maybe[ModelRequest | None]:
        """Called before a model call: return another request, or None to keep this one."""
        return None

    def after_model(self, request: ModelRequest, reply: ModelReply) -> Maybe[ModelReply | None]:
        """Called after a model call: return another reply to record, or None to keep this one."""
        return None

    def before_tool(self, call: PluginCall) -> Maybe[Directive | None]:
        """Called before a tool runs: return a directive, or None to let it run."""
        return None

    def after_tool(self, call: PluginCall, result: ToolResult) -> Maybe[ToolResult | None]:
        """Called after a tool call: return another result, or None to keep this one."""
        return None

    def turn_started(self, turn: TurnState) -> Maybe[None]:
        """Called when a turn is durable, before its first model call or command.

        Called once in each process that works on the turn: usually one, unless another has to take over.
        """

    def turn_ended(self, result: TurnResult) -> Maybe[None]:
        """Called when a turn is over and durable, once, by the process that recorded its end, unless that dies just
        then.

        Callers that wait for the turn in this process wait for this hook, too.
        """

    def committed(self, entries: Sequence[Entry]) -> None:
        """Called when this process has made entries durable. Must not be a coroutine."""

    def opened(self) -> Maybe[None]:
        """Called when the session is loaded in this process."""

    def closed(self) -> Maybe[None]:
        """Called when the runtime releases the session, or the session gets other plugins or configurations."""
