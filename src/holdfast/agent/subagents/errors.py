"""What can be wrong with subagents."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import HoldfastError


class AgentDefinitionError(HoldfastError):
    """A subagent that cannot be used as it is defined."""

    where: str
    """Its file, or its name."""
    why: str
    kind = "agent_definition"

    def __str__(self) -> str:
        return f"subagent '{self.where}': {self.why}"


class UnknownAgentError(HoldfastError):
    """A subagent that this runtime does not have."""

    name: str
    names: Sequence[str]
    kind = "unknown_agent"

    def __str__(self) -> str:
        there = f"there are: {', '.join(self.names)}" if self.names else "there are none"
        return f"there is no subagent '{self.name[:64]}' ({there})"
