"""Holdfast: a durable session runtime for LLM programs. A program asks; anyone answers; nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.agent.approving import Approve as Approve
    from holdfast.agent.mcp.server import McpServer as McpServer
    from holdfast.agent.output_budget import OutputBudget as OutputBudget
    from holdfast.agent.plugins import AbortTurn as AbortTurn
    from holdfast.agent.plugins import Deny as Deny
    from holdfast.agent.plugins import Instead as Instead
    from holdfast.agent.plugins import Plugin as Plugin
    from holdfast.agent.plugins import PluginCall as PluginCall
    from holdfast.agent.plugins import Replace as Replace
    from holdfast.agent.runtime import Runtime as Runtime
    from holdfast.agent.session import AgentSession as AgentSession
    from holdfast.agent.sync import SyncRuntime as SyncRuntime
    from holdfast.agent.tools.context import ToolContext as ToolContext
    from holdfast.agent.tools.function import tool as tool
    from holdfast.core.approval import Approval as Approval
    from holdfast.core.approval import Rule as Rule
    from holdfast.core.budget import Budget as Budget
    from holdfast.core.budget import Price as Price
    from holdfast.core.decide import Given as Given
    from holdfast.core.errors import HoldfastError as HoldfastError
    from holdfast.core.ids import new_session_id as new_session_id
    from holdfast.core.policy import Spec as Spec
    from holdfast.core.queries import Failure as Failure
    from holdfast.core.queries import Usage as Usage
    from holdfast.core.turn import Limits as Limits
    from holdfast.engine.drivers import Attempt as Attempt
    from holdfast.engine.drivers import NotDone as NotDone
    from holdfast.engine.drivers import Reply as Reply
    from holdfast.engine.minder import Minder as Minder
    from holdfast.engine.runtime import Holdfast as Holdfast
    from holdfast.engine.runtime import open_holdfast
    from holdfast.engine.sync import SyncHoldfast as SyncHoldfast
    from holdfast.engine.sync import open_sync as open_sync
    from holdfast.programs.context import Context as Context
    from holdfast.programs.errors import QueryFailedError as QueryFailedError
    from holdfast.programs.lua.kind import LuaKind as LuaKind
    from holdfast.programs.lua.source import lua_code as lua_code
    from holdfast.programs.lua.source import lua_package as lua_package
    from holdfast.programs.registry import strategy as strategy
    from holdfast.store import Store as Store
    from holdfast.store import open_store as open_store
    from holdfast.store.contract import SessionFilter as SessionFilter

    open = open_holdfast

__version__ = "0.1.0"

_HOMES = {
    "AbortTurn": "holdfast.agent.plugins",
    "AgentSession": "holdfast.agent.session",
    "Approval": "holdfast.core.approval",
    "Approve": "holdfast.agent.approving",
    "Attempt": "holdfast.engine.drivers",
    "Budget": "holdfast.core.budget",
    "Context": "holdfast.programs.context",
    "Deny": "holdfast.agent.plugins",
    "Failure": "holdfast.core.queries",
    "Given": "holdfast.core.decide",
    "Holdfast": "holdfast.engine.runtime",
    "HoldfastError": "holdfast.core.errors",
    "Instead": "holdfast.agent.plugins",
    "Limits": "holdfast.core.turn",
    "LuaKind": "holdfast.programs.lua.kind",
    "McpServer": "holdfast.agent.mcp.server",
    "Minder": "holdfast.engine.minder",
    "NotDone": "holdfast.engine.drivers",
    "OutputBudget": "holdfast.agent.output_budget",
    "Plugin": "holdfast.agent.plugins",
    "PluginCall": "holdfast.agent.plugins",
    "Price": "holdfast.core.budget",
    "QueryFailedError": "holdfast.programs.errors",
    "Replace": "holdfast.agent.plugins",
    "Reply": "holdfast.engine.drivers",
    "Rule": "holdfast.core.approval",
    "Runtime": "holdfast.agent.runtime",
    "SessionFilter": "holdfast.store.contract",
    "Spec": "holdfast.core.policy",
    "Store": "holdfast.store",
    "SyncHoldfast": "holdfast.engine.sync",
    "SyncRuntime": "holdfast.agent.sync",
    "ToolContext": "holdfast.agent.tools.context",
    "Usage": "holdfast.core.queries",
    "lua_code": "holdfast.programs.lua.source",
    "lua_package": "holdfast.programs.lua.source",
    "new_session_id": "holdfast.core.ids",
    "open": "holdfast.engine.runtime:open_holdfast",
    "open_store": "holdfast.store",
    "open_sync": "holdfast.engine.sync",
    "strategy": "holdfast.programs.registry",
    "tool": "holdfast.agent.tools.function",
}
"""Where each public name lives. Nothing is imported before it is used: `import holdfast` stays light."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute or name)
