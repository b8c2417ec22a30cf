"""Holdfast: a durable session runtime for LLM programs. A program asks; anyone answers; nothing is lost."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than all of this
if TYPE_CHECKING:
    from holdfast.agent.machine.approval import Approval as Approval
    from holdfast.agent.machine.approval import Rule as Rule
    from holdfast.agent.machine.policy import Spec as Spec
    from holdfast.agent.machine.turn_limits import Limits as Limits
    from holdfast.agent.mcp.client import McpClient as McpClient
    from holdfast.agent.plugins.approve import Approve as Approve
    from holdfast.agent.plugins.output_budget import OutputBudget as OutputBudget
    from holdfast.agent.plugins.plugin import AbortTurn as AbortTurn
    from holdfast.agent.plugins.plugin import Deny as Deny
    from holdfast.agent.plugins.plugin import Instead as Instead
    from holdfast.agent.plugins.plugin import Plugin as Plugin
    from holdfast.agent.plugins.plugin import PluginCall as PluginCall
    from holdfast.agent.plugins.plugin import Replace as Replace
    from holdfast.agent.processes.plugin import ProcessControls as ProcessControls
    from holdfast.agent.runtime import Runtime as Runtime
    from holdfast.agent.runtime_options import ModelOptions as ModelOptions
    from holdfast.agent.runtime_options import RuntimeOptions as RuntimeOptions
    from holdfast.agent.session import AgentSession as AgentSession
    from holdfast.agent.subagents.definition import AgentDefinition as AgentDefinition
    from holdfast.agent.subagents.files import load_agents as load_agents
    from holdfast.agent.sync import SyncRuntime as SyncRuntime
    from holdfast.agent.tools.context import ToolContext as ToolContext
    from holdfast.agent.tools.function import tool as tool
    from holdfast.alc.lua.kind import LuaKind as LuaKind
    from holdfast.alc.lua.source import lua_code as lua_code
    from holdfast.alc.lua.source import lua_package as lua_package
    from holdfast.client.holdfast import HoldfastClient as HoldfastClient
    from holdfast.client.holdfast import connect as connect
    from holdfast.client.sync import connect_sync as connect_sync
    from holdfast.core.budget import Budget as Budget
    from holdfast.core.budget import Price as Price
    from holdfast.core.decide import GivenAnswer as GivenAnswer
    from holdfast.core.errors import HoldfastError as HoldfastError
    from holdfast.core.ids import new_session_id as new_session_id
    from holdfast.core.queries import Failure as Failure
    from holdfast.core.queries import Usage as Usage
    from holdfast.engine.drivers import Attempt as Attempt
    from holdfast.engine.drivers import NotDone as NotDone
    from holdfast.engine.drivers import Reply as Reply
    from holdfast.engine.holdfast import Holdfast as Holdfast
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.engine.sync import SyncHoldfast as SyncHoldfast
    from holdfast.engine.sync import open_sync as open_sync
    from holdfast.engine.upkeep import Upkeep as Upkeep
    from holdfast.programs.errors import QueryFailedError as QueryFailedError
    from holdfast.programs.native.ctx import Context as Context
    from holdfast.programs.registry import strategy as strategy
    from holdfast.store import Store as Store
    from holdfast.store import open_store as open_store
    from holdfast.store.session_rows import SessionFilter as SessionFilter
    from holdfast.strategies.evaluation.data.dataset import Dataset as Dataset
    from holdfast.strategies.evaluation.evaluation import Evaluation as Evaluation
    from holdfast.strategies.evaluation.evaluation import evaluate as evaluate
    from holdfast.strategies.evaluation.plan import Plan as Plan

    open = open_holdfast

__version__ = "0.2.0.dev0"

SESSION_KINDS = {
    "agent": "holdfast.agent.machine.kind",
    "process": "holdfast.agent.processes.machine",
    "trigger": "holdfast.agent.triggers.machine",
}
"""Program kinds that bring records of their own to a session, and the module that registers each with `core.kinds`."""

_HOMES = {
    "AbortTurn": "holdfast.agent.plugins.plugin",
    "AgentDefinition": "holdfast.agent.subagents.definition",
    "AgentSession": "holdfast.agent.session",
    "Approval": "holdfast.agent.machine.approval",
    "Approve": "holdfast.agent.plugins.approve",
    "Attempt": "holdfast.engine.drivers",
    "Budget": "holdfast.core.budget",
    "Context": "holdfast.programs.native.ctx",
    "Dataset": "holdfast.strategies.evaluation.data.dataset",
    "Deny": "holdfast.agent.plugins.plugin",
    "Evaluation": "holdfast.strategies.evaluation.evaluation",
    "Failure": "holdfast.core.queries",
    "GivenAnswer": "holdfast.core.decide",
    "Holdfast": "holdfast.engine.holdfast",
    "HoldfastClient": "holdfast.client.holdfast",
    "HoldfastError": "holdfast.core.errors",
    "Instead": "holdfast.agent.plugins.plugin",
    "Limits": "holdfast.agent.machine.turn_limits",
    "LuaKind": "holdfast.alc.lua.kind",
    "McpClient": "holdfast.agent.mcp.client",
    "Upkeep": "holdfast.engine.upkeep",
    "ModelOptions": "holdfast.agent.runtime_options",
    "NotDone": "holdfast.engine.drivers",
    "OutputBudget": "holdfast.agent.plugins.output_budget",
    "Plan": "holdfast.strategies.evaluation.plan",
    "Plugin": "holdfast.agent.plugins.plugin",
    "PluginCall": "holdfast.agent.plugins.plugin",
    "Price": "holdfast.core.budget",
    "ProcessControls": "holdfast.agent.processes.plugin",
    "QueryFailedError": "holdfast.programs.errors",
    "Replace": "holdfast.agent.plugins.plugin",
    "Reply": "holdfast.engine.drivers",
    "Rule": "holdfast.agent.machine.approval",
    "Runtime": "holdfast.agent.runtime",
    "RuntimeOptions": "holdfast.agent.runtime_options",
    "SessionFilter": "holdfast.store.session_rows",
    "Spec": "holdfast.agent.machine.policy",
    "Store": "holdfast.store",
    "SyncHoldfast": "holdfast.engine.sync",
    "SyncRuntime": "holdfast.agent.sync",
    "ToolContext": "holdfast.agent.tools.context",
    "Usage": "holdfast.core.queries",
    "connect": "holdfast.client.holdfast",
    "connect_sync": "holdfast.client.sync",
    "load_agents": "holdfast.agent.subagents.files",
    "evaluate": "holdfast.strategies.evaluation.evaluation",
    "lua_code": "holdfast.alc.lua.source",
    "lua_package": "holdfast.alc.lua.source",
    "new_session_id": "holdfast.core.ids",
    "open": "holdfast.engine.holdfast:open_holdfast",
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
