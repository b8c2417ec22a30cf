"""`Tool`: something that a model can call, with everything a runtime must know to run it safely."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from holdfast.agent.machine.excerpt import OutputLimits
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.errors import InvalidArgumentsError, ToolDefinitionError
from holdfast.agent.tools.schema import RAW_ARGUMENTS, Schema, problems_in
from holdfast.core.values import Json, check_value, preview
from holdfast.engine.drivers import DEFAULT_CONCURRENCY, Probe, Recovery

if TYPE_CHECKING:
    from holdfast.agent.tools.function import FunctionTool

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT_S = 120.0
"""Seconds that one run of a tool may take: longer than people wait for a reply, and than most services need."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")  # what all model services accept


class ToolRetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and after which waits, a call is retried whose failure the tool has marked as `retryable`.

    The wait doubles with each failure, unless the other side says how long to wait. It never exceeds `max_delay_s`,
    because a turn waits for it.
    """

    max_attempts: int = 3
    base_delay_s: float = 0.5
    max_delay_s: float = 30.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.base_delay_s < 0 or self.max_delay_s < 0:
            raise ValueError(f"a retry policy needs at least one attempt and no negative waits, got {self}")

    def delay_s(self, failures: int, asked_s: float | None) -> float | None:
        """How long to wait after so many failures, or None to stop retrying."""
        if failures >= self.max_attempts:
            return None
        wanted = self.base_delay_s * 2 ** (failures - 1) if asked_s is None else asked_s
        return min(max(wanted, 0.0), self.max_delay_s)


class ToolSettings(TypedDict, total=False):
    """How a tool is run."""

    recovery: Recovery
    """What to do about a call whose process died: `never` (the default) tells the model that its outcome is unknown,
    `safe` and `idempotent` run it again with the same key, `confirm` asks the `probe`."""
    probe: Probe | None
    """For `confirm`: takes the attempt, and returns what the tool returned then, or `NotDone()`."""
    timeout_s: float | None
    """Seconds for one run, or None for no limit. Each retry has as long."""
    on_error: Literal["result", "stop"]
    """Whether a failure is a result for the model, or stops the turn. Invalid arguments are always a result."""
    concurrency: int
    """How many calls may run at once in one process."""
    retry: ToolRetryPolicy | None
    output: OutputLimits
    """How much of a result the model sees. Up to 1 MiB of a longer one is kept for people."""


class Tool:
    """A tool. `Tool.of(function)` and `@tool` make one from a function; a `RemoteTool` has a schema of its own."""

    is_async = True
    """Whether `invoke` returns an awaitable. If not, it is called in a thread."""

    def __init__(
        self, name: str, description: str, parameters: Schema, *, owner: str, **settings: Unpack[ToolSettings]
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        """JSON schema of the arguments."""
        self.owner = owner
        """Where it comes from, for messages."""
        self.recovery: Recovery = settings.get("recovery", "never")
        self.probe = settings.get("probe")
        self.timeout_s = settings.get("timeout_s", DEFAULT_TIMEOUT_S)
        self.on_error = settings.get("on_error", "result")
        self.concurrency = settings.get("concurrency", DEFAULT_CONCURRENCY)
        self.retry = settings.get("retry")
        self.output = settings.get("output", OutputLimits())
        self._check()

    @staticmethod
    def of(
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **settings: Unpack[ToolSettings],
    ) -> FunctionTool[P, R]:
        """A tool made from a typed function, sync or async; by default with its own name and description."""
        from holdfast.agent.tools.function import FunctionTool

        return FunctionTool(function, name=name, description=description, **settings)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(self.name, self.description, self.parameters)

    def accept(self, arguments: dict[str, Json]) -> dict[str, Any]:
        """The arguments as `invoke` takes them. Raises `InvalidArgumentsError`, written for the model."""
        self._refuse_raw(arguments)
        if problems := list(problems_in(arguments, self.parameters)):
            raise InvalidArgumentsError(self.name, problems)
        return arguments

    def invoke(self, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        """Run the tool with accepted arguments."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<tool {self.name}: {self.owner}>"

    def _refuse_raw(self, arguments: dict[str, Json]) -> None:
        if set(arguments) == {RAW_ARGUMENTS} and RAW_ARGUMENTS not in self.parameters.get("properties", {}):
            shown = preview(arguments[RAW_ARGUMENTS])
            raise InvalidArgumentsError(self.name, [f"expected a JSON object with arguments by name, got {shown}"])

    def _check(self) -> None:
        check_named(self.name, self.parameters)
        if (self.recovery == "confirm") != (self.probe is not None):
            raise ToolDefinitionError(self.name, "a probe and the recovery 'confirm' go together")
        if self.retry is not None and self.recovery not in ("safe", "idempotent"):
            why = f"the recovery '{self.recovery}' never runs it again; a retry needs 'safe' or 'idempotent'"
            raise ToolDefinitionError(self.name, why)
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ToolDefinitionError(self.name, f"its timeout must be more than 0 seconds, got {self.timeout_s:g}")
        if self.concurrency < 1:
            raise ToolDefinitionError(self.name, f"its concurrency must be at least 1, got {self.concurrency}")


def check_named(name: str, parameters: Schema) -> None:
    """Raise `ToolDefinitionError` unless model services accept this name and schema."""
    if not _NAME.match(name):
        raise ToolDefinitionError(name, "a name consists of 1 to 64 letters, digits, '_' and '-'; set one with name=")
    if parameters.get("type") != "object":
        raise ToolDefinitionError(name, 'the schema of its arguments must have "type": "object"')
    check_value(parameters, f"schema of tool '{name}'")


Call: TypeAlias = Callable[[dict[str, Json], ToolContext], Awaitable[Any]]


class RemoteTool(Tool):
    """A tool that runs elsewhere: it has a schema of its own, and gets its JSON arguments as they are."""

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Schema,
        call: Call,
        *,
        owner: str,
        **settings: Unpack[ToolSettings],
    ) -> None:
        super().__init__(name, description, parameters, owner=owner, **settings)
        self._call = call

    def invoke(self, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        return self._call(arguments, ctx)
