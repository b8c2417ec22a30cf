"""`SessionAdmin`: everything that a host may do to a session beside its turns, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.agent.commands import PluginActions, SessionCommands
from holdfast.agent.machine.policy import Policy, Spec
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.processes.processes import SessionProcesses
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.agent.triggers.session_triggers import SessionTriggers

if TYPE_CHECKING:
    from holdfast.agent.session import AgentSession


class SessionAdmin:
    """The parts of a session that can be administered."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session

    def config(self) -> SessionConfig:
        """Its policy: read it, and change it from the next turn on."""
        return SessionConfig(self._session)

    def commands(self) -> SessionCommands:
        """Its commands: list, run and enqueue them."""
        return self._session.commands()

    def plugin_actions(self) -> PluginActions:
        """What its plugins let hosts do."""
        return self._session.plugin_actions()

    def triggers(self) -> SessionTriggers:
        """What starts its turns, or work for it, by itself."""
        return self._session.triggers()

    def processes(self) -> SessionProcesses:
        """Its background work."""
        return self._session.processes()

    def tools(self) -> SessionTools:
        """The tools of its model."""
        return SessionTools(self._session)


class SessionConfig:
    """The policy of a session."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session

    @property
    def policy(self) -> Policy:
        """The policy of the next turn, as far as this process knows."""
        return self._session.policy

    async def update(self, patch: Spec | None = None, *, by: str | None = None, **changes: Any) -> Policy:
        """Change the policy from the next turn on, as `AgentSession.configure` does."""
        return await self._session.configure(patch, by=by, **changes)


class SessionTools:
    """The tools of a session's model."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session

    async def catalog(self) -> SessionCatalog:
        """The tools that the model has now."""
        return await self._session.catalog()

    async def refresh(self) -> SessionCatalog:
        """Ask all tool providers which tools they have now; gives the new catalog."""
        await self._session.refresh_catalog()
        return await self._session.catalog()

    async def set(
        self, tools: Sequence[Toolish] = (), prompt: Sequence[Contribution] = (), *, include_base: bool = True
    ) -> SessionCatalog:
        """Set the tools of the session in this process, as `AgentSession.set_context` does."""
        await self._session.set_context(tools, prompt, include_base=include_base)
        return await self._session.catalog()
