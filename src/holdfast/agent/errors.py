"""What can go wrong with agent sessions, one class a kind."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.errors import ExitCode, HoldfastError


@dataclass(eq=False)
class ModeNotInstalledError(HoldfastError):
    """A session was asked for in a mode that the runtime does not have."""

    mode: str
    installed: list[str]
    kind = "mode_not_installed"

    def __str__(self) -> str:
        return f"mode '{self.mode}' is not installed; there is {', '.join(self.installed)}"


@dataclass(eq=False)
class StoreSessionMismatchError(HoldfastError):
    """A state is of another session than the one that was asked for."""

    loaded: str
    requested: str
    kind = "store_session_mismatch"

    def __str__(self) -> str:
        return f"the state is of session '{self.loaded}', and session '{self.requested}' was asked for"


@dataclass(eq=False)
class StoreFactoryError(HoldfastError):
    """The store of a session could not be had."""

    session_id: str
    message: str
    kind = "store_factory"

    def __str__(self) -> str:
        return f"session '{self.session_id}': its store cannot be had: {self.message}"


@dataclass(eq=False)
class NotAnAgentError(HoldfastError):
    """A session is there under that id, and is no agent."""

    session_id: str
    found: str
    kind = "not_an_agent"

    def __str__(self) -> str:
        return f"session '{self.session_id}' is no agent session but one of the kind '{self.found}'; choose another id"


@dataclass(eq=False)
class SessionEndedError(HoldfastError):
    """An agent session takes no more turns."""

    session_id: str
    state: str
    kind = "session_ended"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}' is {self.state} and takes no more turns; fork it, or open another one"


@dataclass(eq=False)
class ProviderMismatchError(HoldfastError):
    """A session began with another provider than the one that it is opened with."""

    expected: str
    actual: str
    session_id: str
    kind = "provider_mismatch"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' began with the provider '{self.expected}', and this runtime has"
            f" '{self.actual}'; open it with that one, or begin anew with open_fresh()"
        )


@dataclass(eq=False)
class ProviderUnconfiguredError(HoldfastError):
    """There is no provider to ask."""

    session_id: str
    kind = "provider_unconfigured"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': there is no model to ask; give Runtime(model='provider:name') or"
            " Runtime(provider=…)"
        )


@dataclass(eq=False)
class ProviderUnavailableError(HoldfastError):
    """The provider that is named cannot be used here."""

    provider: str
    why: str
    kind = "provider_unavailable"
    exit_code = ExitCode.UNAVAILABLE

    def __str__(self) -> str:
        return f"provider '{self.provider}' cannot be used here: {self.why}"


@dataclass(eq=False)
class TurnInProgressError(HoldfastError):
    """Another turn of the session is under way."""

    session_id: str
    running: str
    kind = "turn_in_progress"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}' works on turn '{self.running}'; wait for it, or stop it, and try again"


@dataclass(eq=False)
class TurnConflictError(HoldfastError):
    """A turn of that id was given another input before."""

    session_id: str
    turn: str
    before: str
    now: str
    kind = "turn_conflict"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': turn '{self.turn}' was given {self.before} before, and is given {self.now}"
            " now; a new input needs a new turn id"
        )


@dataclass(eq=False)
class TurnContendedError(HoldfastError):
    """Somebody else's turn was taken first. Nothing of this one was kept; it may be tried again."""

    session_id: str
    turn: str
    kind = "turn_contended"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}': another turn was taken before '{self.turn}'; try again after it"


@dataclass(eq=False)
class MissingPluginInputError(HoldfastError):
    """A plugin of the session needs an input that the turn does not have."""

    plugin: str
    session_id: str
    kind = "missing_plugin_input"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': plugin '{self.plugin}' needs an input with every turn; give it with"
            f" turn(…).plugin_input('{self.plugin}', …)"
        )


@dataclass(eq=False)
class UnknownPluginError(HoldfastError):
    """An input is for a plugin that the session does not have."""

    plugin: str
    session_id: str
    active: list[str]
    kind = "unknown_plugin"

    def __str__(self) -> str:
        there = f"it has {', '.join(self.active)}" if self.active else "it has none"
        return f"session '{self.session_id}' has no plugin '{self.plugin}' to give an input to; {there}"


@dataclass(eq=False)
class PluginConflictError(HoldfastError):
    """A session was given two plugins of one id."""

    plugin: str
    session_id: str
    kind = "plugin_conflict"

    def __str__(self) -> str:
        return f"session '{self.session_id}' has a plugin '{self.plugin}' already; inputs would be for both of them"


@dataclass(eq=False)
class PluginError(HoldfastError):
    """Something that a plugin was to do has failed."""

    plugin: str
    """Empty where none had it to do."""
    hook: str
    session_id: str
    error: str
    kind = "plugin"

    def __str__(self) -> str:
        who = f"plugin '{self.plugin}' failed at '{self.hook}'" if self.plugin else f"'{self.hook}' failed"
        return f"session '{self.session_id}': {who}: {self.error}"


@dataclass(eq=False)
class UnknownItemError(HoldfastError):
    """No item of that id was sent to the session."""

    session_id: str
    item_id: str
    kind = "unknown_item"

    def __str__(self) -> str:
        return f"session '{self.session_id}' was sent no item '{self.item_id}'"


@dataclass(eq=False)
class ObservationClosedError(HoldfastError):
    """The runtime that a session was watched through was closed."""

    session_id: str
    kind = "observation_closed"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' is not watched any more, as the runtime was closed; "
            "go on with the last cursor, through another"
        )
