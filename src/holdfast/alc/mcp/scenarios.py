"""algocline's tools for scenarios, by their names; the work is in `holdfast.alc.scenarios`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.alc.scenarios import ScenarioFiles, is_scenario_name
from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, NoParams, Object, Params, about


async def alc_scenario_list(call: McpCall, params: NoParams) -> Object:
    scenarios, failures = await on_files(ScenarioFiles().list)
    return {"scenarios": msgspec.to_builtins(scenarios), "failures": failures}


class ScenarioShowParams(Params):
    name: Annotated[str, about("The scenario's name.")]


async def alc_scenario_show(call: McpCall, params: ScenarioShowParams) -> Object:
    if not is_scenario_name(params.name):
        raise McpToolError("Invalid scenario name: it is one part of a path, and does not begin with a dot")
    file, text = await on_files(ScenarioFiles().read, params.name)
    return {"name": params.name, "path": str(file), "content": text}


class ScenarioInstallParams(Params):
    url: Annotated[
        str,
        about(
            "A git URL (URL@revision pins one) or a directory. Its `scenarios/` is used if it has one; only the Lua"
            " files directly in it."
        ),
    ]


async def alc_scenario_install(call: McpCall, params: ScenarioInstallParams) -> Object:
    done: Object = msgspec.to_builtins(await on_files(ScenarioFiles().install, params.url))
    return done


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_scenario_list",
        "List scenarios",
        "The scenarios that alc_eval can run by name.",
        NoParams,
        alc_scenario_list,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_scenario_show",
        "Show a scenario",
        "The Lua code of a scenario.",
        ScenarioShowParams,
        alc_scenario_show,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_scenario_install",
        "Install scenarios",
        "Install scenarios from a git repository or a directory. Those that are there already are skipped.",
        ScenarioInstallParams,
        alc_scenario_install,
        idempotent=True,
        open_world=True,
    ),
]
