"""`Subagents`: the subagents of a runtime, checked when it opens, and the tool with which a model uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from holdfast.agent.machine.delegation import DELEGATE_TOOL, Delegation
from holdfast.agent.subagents.definition import AgentDefinition, check_definition
from holdfast.agent.subagents.errors import AgentDefinitionError, UnknownAgentError
from holdfast.agent.subagents.files import load_agents
from holdfast.agent.tools.catalog import DelegateTool

Agentish: TypeAlias = AgentDefinition | str | Path
"""A subagent, or the file or directory that defines some."""


class Subagents(Mapping[str, AgentDefinition]):
    """Subagents by name."""

    def __init__(self, agents: Sequence[Agentish] = ()) -> None:
        """Raises `AgentDefinitionError` for a definition that makes no sense, and for two of the same name."""
        self._definitions: dict[str, AgentDefinition] = {}
        self._tools: dict[tuple[str, ...], dict[int, DelegateTool]] = {}
        for each in agents:
            found = [check_definition(each)] if isinstance(each, AgentDefinition) else load_agents(each)
            for definition in found:
                if definition.name in self._definitions:
                    raise AgentDefinitionError(definition.name, "it is defined twice")
                self._definitions[definition.name] = definition

    def __getitem__(self, name: str) -> AgentDefinition:
        try:
            return self._definitions[name]
        except KeyError:
            raise UnknownAgentError(name, list(self._definitions)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

    def __contains__(self, name: object) -> bool:
        return name in self._definitions

    def check(self, modes: Iterable[str], tools: Iterable[str]) -> None:
        """Raise `AgentDefinitionError` for a mode or a tool that is not there."""
        known = {*tools, DELEGATE_TOOL}
        for definition in self._definitions.values():
            if definition.mode not in modes:
                why = f"mode '{definition.mode}' is not installed (there are: {', '.join(sorted(modes))})"
                raise AgentDefinitionError(definition.name, why)
            for pattern in [*(definition.tools or []), *definition.deny]:
                if not any(fnmatchcase(name, pattern) for name in known):
                    why = f"there is no tool '{pattern}' (there are: {', '.join(sorted(known))})"
                    raise AgentDefinitionError(definition.name, why)

    def names(self, delegation: Delegation) -> list[str]:
        """The subagents that a session may use, in their order; none at the depth limit."""
        if delegation.depth <= 0 or delegation.children <= 0:
            return []
        allowed = delegation.agents
        return [
            name
            for name in self._definitions
            if allowed is None or any(fnmatchcase(name, pattern) for pattern in allowed)
        ]

    def tool(self, delegation: Delegation) -> DelegateTool | None:
        """The tool with which a session delegates; None if it may not."""
        if not self._definitions:
            return None
        names = tuple(self.names(delegation))
        if not names:
            return None
        by_depth = self._tools.setdefault(names, {})
        if delegation.depth not in by_depth:
            by_depth[delegation.depth] = self._made_tool(names, delegation.depth)
        return by_depth[delegation.depth]

    def _made_tool(self, names: Sequence[str], depth: int) -> DelegateTool:
        listed = "\n".join(f"- {name}: {self._definitions[name].description.strip()}" for name in names)
        below = "cannot delegate any further" if depth == 1 else "may delegate in turn, if its tools allow it"
        description = (
            "Give a task to a subagent, and wait for its result. It sees nothing of this conversation: the task has to"
            f" say all that it needs. Several calls in one reply run at the same time. A subagent {below}.\n{listed}"
        )
        return DelegateTool(DELEGATE_TOOL, description, _parameters(names))


def _parameters(names: Sequence[str]) -> dict[str, object]:
    properties = {
        "agent": {"type": "string", "enum": list(names), "description": "The subagent."},
        "task": {"type": "string", "description": "What it has to do, with all that it needs to know."},
        "seed": {"type": "object", "description": "Values that it is given with the task, by name."},
        "timeout_s": {"type": "number", "description": "Seconds after which it is stopped."},
    }
    return {"type": "object", "properties": properties, "required": ["agent", "task"], "additionalProperties": False}
