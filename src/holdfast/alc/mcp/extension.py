"""What algocline's room adds to the MCP server."""

from __future__ import annotations

from dataclasses import replace

from holdfast.alc.mcp import (
    card_analysis,
    cards,
    connection,
    evaluations,
    hub,
    hub_resources,
    logs,
    migration,
    packages,
    scenarios,
    sessions,
    sessions_v2,
    settings,
    state,
    traces,
)
from holdfast.alc.mcp.completion import COMPLETIONS
from holdfast.alc.mcp.prompts import TOOL_NAMES, new_package
from holdfast.alc.mcp.resources import RESOURCES
from holdfast.serve.mcp.extensions import Extension

_LATER = (*state.TOOLS, *traces.TOOLS, settings.TOOL, connection.TOOL, card_analysis.TOOL)
"""Tools of algocline's releases after 0.29."""

EXTENSION = Extension(
    # Clients of other releases of algocline send arguments that this one does not know.
    tools=[
        replace(tool, is_lenient=True)
        for tool in (
            *sessions.TOOLS,
            *packages.TOOLS,
            *logs.TOOLS,
            *sessions_v2.TOOLS,
            *cards.TOOLS,
            *hub.TOOLS,
            *migration.TOOLS,
            *evaluations.TOOLS,
            *scenarios.TOOLS,
            *_LATER,
        )
    ],
    names=TOOL_NAMES,
    resources=(*RESOURCES, *hub_resources.RESOURCES),
    completions=COMPLETIONS,
    new_strategy={"lua": new_package},
)
