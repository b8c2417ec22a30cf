"""Errors of agent sessions, one class for each kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError
from holdfast.programs.errors import DivergenceError


class ModeNotInstalledError(HoldfastError):
    """The runtime does not have the mode of the session."""

    mode: str
    installed: list[str]
    kind = "mode_not_installed"

    def __str__(self) -> str:
        return f"mode '{self.mode}' is not installed; the modes are {', '.join(self.installed)}"


class CodeExecutionUnavailableError(HoldfastError):
    """A session does not run code."""

    session_id: str
    why: str
    kind = "code_execution_unavailable"

    def __str__(self) -> str:
        return f"code execution is not available in session '{self.session_id}': {self.why}"


class CodeExecutionStoppedError(HoldfastError):
    """What runs the code of a session ended unexpectedly."""

    session_id: str
    why: str
    kind = "code_execution_stopped"

    def __str__(self) -> str:
        return f"the code execution runtime of session '{self.session_id}' exited unexpectedly: {self.why}; try again"


class ProjectionNotBoundError(DivergenceError):
    """A cell that has to be run again reads a projection that this process does not have. Nothing was changed."""

    kind = "projection_not_bound"

    def __init__(self, session_id: str, name: str, about: str) -> None:
        super().__init__(session_id, 0, "", "", "")
        self.name = name
        self.about = about

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' waits inside a cell that has read the projection '{self.name}'"
            f" ({self.about}), which is not bound in this process. Nothing was changed. Open the session with"
            f" `.bind('{self.name}', …)`, or name it with `--bind {self.name}=PATH`, and the cell goes on"
        )


class StoreSessionMismatchError(HoldfastError):
    """A state belongs to another session than the one being opened."""

    loaded: str
    requested: str
    kind = "store_session_mismatch"

    def __str__(self) -> str:
        return f"the state belongs to session '{self.loaded}', but session '{self.requested}' is being opened"


class StoreFactoryError(HoldfastError):
    """The store of a session could not be created."""

    session_id: str
    message: str
    kind = "store_factory"

    def __str__(self) -> str:
        return f"session '{self.session_id}': its store could not be created: {self.message}"


class NotAnAgentError(HoldfastError):
    """The id belongs to a session that is not an agent."""

    session_id: str
    found: str
    kind = "not_an_agent"

    def __str__(self) -> str:
        return f"session '{self.session_id}' is not an agent, but of the kind '{self.found}'; choose another id"


class SessionEndedError(HoldfastError):
    """An agent session takes no more turns."""

    session_id: str
    state: str
    kind = "session_ended"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}' is {self.state} and takes no more turns; fork it, or open another session"


class ProviderMismatchError(HoldfastError):
    """A session is opened with another provider than the one it began with."""

    expected: str
    actual: str
    session_id: str
    kind = "provider_mismatch"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' began with the provider '{self.expected}', but is opened with"
            f" '{self.actual}'; use the first one, or start over with open_fresh()"
        )


class ProviderUnconfiguredError(HoldfastError):
    """The session has no model provider."""

    session_id: str
    kind = "provider_unconfigured"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': no model is configured; use Runtime(model='provider:name') or"
            " Runtime(provider=…)"
        )


class ProviderUnavailableError(HoldfastError):
    """A named provider cannot be used here."""

    provider: str
    why: str
    session_id: str | None = None
    """The session that needs it, if it is for one."""
    kind = "provider_unavailable"
    exit_code = ExitCode.UNAVAILABLE

    def __str__(self) -> str:
        whose = "" if self.session_id is None else f"session '{self.session_id}': "
        return f"{whose}provider '{self.provider}' cannot be used here: {self.why}"


class TurnInProgressError(HoldfastError):
    """Another turn of the session is running."""

    session_id: str
    running: str
    kind = "turn_in_progress"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}' is running turn '{self.running}'; wait for it or stop it, then try again"


class TurnConflictError(HoldfastError):
    """The turn id was used before with another input."""

    session_id: str
    turn: str
    before: str
    now: str
    kind = "turn_conflict"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': turn '{self.turn}' had the input {self.before} before, and now has"
            f" {self.now}; a new input needs a new turn id"
        )


class TurnContendedError(HoldfastError):
    """Another turn began first. Nothing of this one was kept, and it may be tried again."""

    session_id: str
    turn: str
    kind = "turn_contended"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}': another turn began before '{self.turn}'; try again after it"


class MissingPluginInputError(HoldfastError):
    """A plugin of the session requires an input that the turn does not have."""

    plugin: str
    session_id: str
    kind = "missing_plugin_input"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': plugin '{self.plugin}' requires an input with every turn; give it with"
            f" turn(…).plugin_input('{self.plugin}', …)"
        )


class UnknownPluginError(HoldfastError):
    """A plugin input is for a plugin that the session does not have."""

    plugin: str
    session_id: str
    active: list[str]
    kind = "unknown_plugin"

    def __str__(self) -> str:
        active = f"it has {', '.join(self.active)}" if self.active else "it has none"
        return f"session '{self.session_id}' has no plugin '{self.plugin}' to take an input; {active}"


class PluginConflictError(HoldfastError):
    """A session was given two plugins with the same id."""

    plugin: str
    session_id: str
    kind = "plugin_conflict"

    def __str__(self) -> str:
        return f"session '{self.session_id}' already has a plugin '{self.plugin}'; give each plugin an id of its own"


class PluginError(HoldfastError):
    """A hook or command of a plugin failed."""

    plugin: str
    """Empty if no plugin was responsible."""
    hook: str
    session_id: str
    error: str
    kind = "plugin"

    def __str__(self) -> str:
        who = f"plugin '{self.plugin}' failed at '{self.hook}'" if self.plugin else f"'{self.hook}' failed"
        return f"session '{self.session_id}': {who}: {self.error}"


class UnknownTurnError(HoldfastError):
    """A session has no turn of this id."""

    session_id: str
    turn_id: str
    kind = "unknown_turn"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"session '{self.session_id}' has no turn '{self.turn_id}'; its conversation lists those that it has"


class UnknownItemError(HoldfastError):
    """No item with this id was sent to the session."""

    session_id: str
    item_id: str
    kind = "unknown_item"

    def __str__(self) -> str:
        return f"session '{self.session_id}' has received no item '{self.item_id}'"


class ObservationClosedError(HoldfastError):
    """The runtime through which a session was watched has been closed."""

    session_id: str
    kind = "observation_closed"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' is no longer watched, because the runtime was closed; "
            "resume from the last cursor in another runtime"
        )
