"""Errors about tools and their calls, one class for each kind. What a tool itself raises is a `ToolError`."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class ToolDefinitionError(HoldfastError):
    """A tool cannot be offered as it is defined."""

    tool: str
    why: str
    kind = "tool_definition"

    def __str__(self) -> str:
        return f"tool '{self.tool}' cannot be offered: {self.why}"


class DuplicateToolError(HoldfastError):
    """Two tools have the same name."""

    tool: str
    owner: str
    other: str
    kind = "duplicate_tool"

    def __str__(self) -> str:
        return f"there are two tools '{self.tool}': {self.owner}, and {self.other}; rename one, or leave it out"


class InvalidArgumentsError(HoldfastError):
    """A tool does not accept its arguments. Written for the model, which can correct them."""

    tool: str
    problems: list[str]
    kind = "invalid_arguments"

    def __str__(self) -> str:
        return f"'{self.tool}' was not run because its arguments are invalid: {'; '.join(self.problems)}"


class InvalidResultError(HoldfastError):
    """A tool has returned a value that has no JSON form."""

    tool: str
    why: str
    kind = "invalid_result"

    def __str__(self) -> str:
        return f"'{self.tool}' has run, but its result cannot be shown: {self.why}"
