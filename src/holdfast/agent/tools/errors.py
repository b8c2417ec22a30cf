"""What can go wrong with tools before and around a call, one class a kind. What a tool itself raises is `ToolError`."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.errors import HoldfastError


@dataclass(eq=False)
class ToolDefinitionError(HoldfastError):
    """A tool that cannot be offered as it is."""

    tool: str
    why: str
    kind = "tool_definition"

    def __str__(self) -> str:
        return f"tool '{self.tool}' cannot be offered: {self.why}"


@dataclass(eq=False)
class DuplicateToolError(HoldfastError):
    """Two tools of one name."""

    tool: str
    owner: str
    other: str
    kind = "duplicate_tool"

    def __str__(self) -> str:
        return f"there are two tools '{self.tool}': {self.owner}, and {self.other}; rename one, or leave it out"


@dataclass(eq=False)
class InvalidArgumentsError(HoldfastError):
    """Arguments that a tool does not take. Written for the model, which can do better the next time."""

    tool: str
    problems: list[str]
    kind = "invalid_arguments"

    def __str__(self) -> str:
        return f"'{self.tool}' was not run, its arguments are wrong: {'; '.join(self.problems)}"


@dataclass(eq=False)
class InvalidResultError(HoldfastError):
    """A tool has returned what cannot be told as JSON."""

    tool: str
    why: str
    kind = "invalid_result"

    def __str__(self) -> str:
        return f"'{self.tool}' has run, but what it returned cannot be told: {self.why}"
