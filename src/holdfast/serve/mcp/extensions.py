"""What other rooms add to the server: a family of tools, resources, completions, and texts for prompts.

Each is named by its home and imported with the first server, so that the server knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from holdfast.programs.kinds import load_object

if TYPE_CHECKING:
    from holdfast.serve.mcp.completion import CompletionSource
    from holdfast.serve.mcp.prompts import StrategyPrompt, ToolNames
    from holdfast.serve.mcp.resource import Resource
    from holdfast.serve.mcp.tools import McpTool

_HOMES = {"alc": "holdfast.alc.mcp.extension:EXTENSION"}
"""`module:name` of each extension, by the name of its family of tools."""


@dataclass(frozen=True)
class Extension:
    """What one room adds."""

    tools: Sequence[McpTool[Any]]
    names: ToolNames
    """What prompts call its tools."""
    resources: Sequence[Resource]
    completions: Mapping[tuple[str, str], CompletionSource]
    """What completes a hole in the template of a resource, by both."""
    new_strategy: Mapping[str, StrategyPrompt]
    """The text of the prompt `new_strategy`, by language."""


@cache
def extensions() -> dict[str, Extension]:
    """Every extension, by the name of its family."""
    return {family: load_object(home) for family, home in _HOMES.items()}
