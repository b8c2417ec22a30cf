"""Tools: what a model can call. `tool` makes one from a function; `Catalog` holds those of a runtime."""

from holdfast.agent.machine.excerpt import OutputLimits
from holdfast.agent.tools.catalog import Catalog, DeclaredTool, ToolProvider
from holdfast.agent.tools.context import Finish, SwitchFrame, ToolContext, ToolError
from holdfast.agent.tools.errors import DuplicateToolError, ToolDefinitionError
from holdfast.agent.tools.function import FunctionTool, tool
from holdfast.agent.tools.http import http_tool
from holdfast.agent.tools.results import full_result
from holdfast.agent.tools.tool import RemoteTool, Tool, ToolRetryPolicy

__all__ = [
    "Catalog",
    "DeclaredTool",
    "DuplicateToolError",
    "Finish",
    "FunctionTool",
    "OutputLimits",
    "RemoteTool",
    "SwitchFrame",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolProvider",
    "ToolRetryPolicy",
    "full_result",
    "http_tool",
    "tool",
]
