"""Plugins: what sessions can be given beside their own instructions and tools, and the places where they take part.

A plugin is a small class that has the hooks it needs, and no others. Of the one that a session is given, a copy is made
for that session: it knows which session it is for, and its configuration. Both the id and the configuration are
recorded with the session, so another process that has a plugin of this id goes on with it.

Hooks may be plain functions or coroutines, unless they say otherwise. What goes wrong in one, or what it gives that
makes no sense, is told to whoever watches the session and to the log, with the plugin and the hook named; the turn goes
on without it. Only where a hook decides whether a tool may run, something wrong means no.

A hook is waited for. One that takes long holds up its turn, and one that never comes back holds it up until the turn is
stopped: whoever asks another service in a hook sets a time limit. What a hook is given it does not change in place.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

import msgspec

from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.conversation import TurnState
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.output import OutputLimits
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
"""What a hook gives: at once, or when it is awaited."""


_DEFAULT_OUTPUT = OutputLimits()


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """The session that a plugin is for."""

    session_id: str
    parent: str | None
    services: SessionContext
    """What a plugin may use of the runtime."""


@dataclass(frozen=True, kw_only=True)
class PluginCall:
    """A call of a tool, as plugins see it."""

    session_id: str
    turn: str
    id: str
    """The model's own."""
    tool: str
    arguments: dict[str, Json]
    key: str
    """The same whenever this call is run again, and for no other."""
    query: str = ""
    """The query that stands for it in the journal: the session has no other of this id."""
    output: OutputLimits = _DEFAULT_OUTPUT
    """How much of a result its tool lets the model be shown."""


# --- what a hook may want before a tool runs -------------------------------------------------------------


class Deny(msgspec.Struct, frozen=True):
    """The call is not run. The model is told why."""

    reason: str


class Replace(msgspec.Struct, frozen=True):
    """The call is run with other arguments. All plugins then see those; only one may want this."""

    arguments: dict[str, Json]


class Instead(msgspec.Struct, frozen=True):
    """The call is not run, and this is its result."""

    value: Json


class AbortTurn(Exception):  # noqa: N818 - it is a wish, not an error
    """Raised or returned by a hook that comes before a model or a tool: the turn is stopped as `plugin_abort`, for this
    reason. Those are `turn_started`, `history`, `before_model` and `before_tool`; from others it is a failure."""


Directive: TypeAlias = Deny | Replace | Instead | AbortTurn

Said: TypeAlias = Literal["allow", "deny", "confirm"]
"""What code says about a call that it is asked to authorize."""

Command: TypeAlias = Callable[..., Any]
"""Done on the host's behalf, with arguments by name. Its docstring tells people what it does."""


class Plugin:
    """A base to make plugins of."""

    id: str
    """By which sessions record it, and turns say what an input is for."""
    requires_turn_input: bool = False
    """Whether there can be no turn without an input for it."""
    revision: int = 0
    """To be counted up when what `prompt` or `catalog` give has changed: both are asked again only then."""
    session: SessionView
    config: Any = None
    source: Plugin | None = None
    """What this is a copy of, for a session."""

    def build(self, session: SessionView, config: Json) -> Plugin:
        """The plugin as a session has it. Called once for each session in a process; cheap."""
        made = self.configured(config)
        made.session = session
        return made

    def configured(self, config: Json) -> Self:
        """The plugin with a configuration, for no session yet: so it is asked what is recorded when one is opened."""
        made = copy.copy(self)
        made.config, made.source = config, self.source or self
        return made

    # --- what it adds ------------------------------------------------------------------------------

    def instructions(self) -> str:
        """A layer of the instructions of the session, recorded with it."""
        return ""

    def prompt(self) -> Sequence[Contribution]:
        """What it contributes to the prompt, worked out where the model is asked. At once, not awaited."""
        return ()

    def tools(self) -> Sequence[Toolish]:
        """Tools of sessions that have the plugin; others are not told of them, and cannot call them.

        A runtime has one tool of each name. Tools for several sessions are the same functions, which find out by their
        context for which one they run, or have names of their own.
        """
        return ()

    def approval(self) -> Approval | None:
        """Rules about calls of tools, recorded with the session."""
        return None

    def commands(self) -> Mapping[str, Command]:
        """What hosts can have done by name, between turns: `session.command("name", …)`.

        Of two plugins that have one of the same name, the first does it. `compact` is every session's own.
        """
        return {}

    def turn_text(self, turn_input: Any) -> str:
        """What is added to the input of a turn; `turn_input` is None where the turn has none for this plugin.

        The same for the same input: who tries a turn again is told what came of it only if all of it is the same.
        """
        return ""

    # --- where it takes part -----------------------------------------------------------------------

    def catalog(self, tools: Sequence[ToolSummary]) -> Sequence[ToolSummary]:
        """The tools that the model has: it may leave some out, and describe them otherwise. At once, not awaited."""
        return tools

    def authorize(self, call: PluginCall) -> Maybe[Said | Deny]:
        """Whether a call may be run, where the rules of `approval` leave that to code (`callback`)."""
        return "deny"

    def history(self, messages: list[AgentMessage]) -> Maybe[list[AgentMessage]]:
        """What the model is shown of the conversation, this time. What is recorded stays as it is.

        A call of a tool and its result are left out together or not at all: no provider takes one without the other.
        """
        return messages

    def before_model(self, request: ModelRequest) -> Maybe[ModelRequest | None]:
        """A model is about to be asked: another request, or None for this one."""
        return None

    def after_model(self, request: ModelRequest, reply: ModelReply) -> Maybe[ModelReply | None]:
        """A model has answered: another reply to be recorded in its place, or None for this one."""
        return None

    def before_tool(self, call: PluginCall) -> Maybe[Directive | None]:
        """A tool is about to run."""
        return None

    def after_tool(self, call: PluginCall, result: ToolResult) -> Maybe[ToolResult | None]:
        """A tool has come to something: another result in its place, or None for this one."""
        return None

    def turn_started(self, turn: TurnState) -> Maybe[None]:
        """A turn is about to be worked on: it is durable, and no model has been asked yet, nor a command done.

        Told once in each process that works on the turn. That is one, unless another has to take it over.
        """

    def turn_ended(self, result: TurnResult) -> Maybe[None]:
        """A turn is over, and durable. Told once, by the process that wrote its end; not if that dies right then.

        Whoever waits for the turn here waits for this, too.
        """

    def committed(self, entries: Sequence[Entry]) -> None:
        """Records have become durable, in this process. At once, not awaited."""

    def opened(self) -> Maybe[None]:
        """The session is opened or worked on in this process, for the first time since it was closed here."""

    def closed(self) -> Maybe[None]:
        """The runtime lets go of the session, or the session is to have other plugins or configurations from now on."""
