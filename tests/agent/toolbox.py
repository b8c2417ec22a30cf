"""What the tests of loaded sessions share: a runtime with two tools, a provider of tools, the names in a catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import ToolContext
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.testing.provider import ScriptedProvider, ScriptStep
from tests.agent.helpers import OBJECT


class Shelf:
    """A provider of tools. Two of them are equal if they have the same tools."""

    def __init__(self, *names: str, id: str = "shelf") -> None:
        self.id = id
        self.names = list(names)
        self.asked = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shelf) and other.names == self.names

    __hash__ = None  # type: ignore[assignment]

    async def list_tools(self) -> Sequence[ToolSpec]:
        self.asked += 1
        if "broken" in self.names:
            raise ConnectionError("the shelf has fallen down")
        return [ToolSpec(name, f"Take the {name}.", OBJECT) for name in self.names]

    async def call(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        return f"the {name} of {ctx.session_id}"


def saw() -> str:
    """Saw."""
    return "sawn"


def drill() -> str:
    """Drill."""
    return "drilled"


async def catalog(session: AgentSession) -> SessionCatalog:
    return await session.catalog()


async def names(session: AgentSession) -> list[str]:
    return [manifest.name for manifest in (await session.catalog()).summaries]


async def runtime_with(*script: ScriptStep, **options: Any) -> Runtime:
    return Runtime("memory:", provider=ScriptedProvider(script), tools=[saw, drill], **options)
