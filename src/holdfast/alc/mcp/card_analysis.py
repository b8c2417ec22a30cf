"""`alc_card_analyze`: a strategy that looks at a card and its samples, and says what to change."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated

import mcp_types as types

from holdfast.alc.cards.errors import CardNotFoundError
from holdfast.alc.cards.tool import own_library
from holdfast.alc.lua.packages import find_package
from holdfast.alc.lua.source import lua_code
from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.mcp.sessions import EVENT
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.serve.mcp import sessions
from holdfast.serve.mcp.host_events import plain_event
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about

DEFAULT = "card_analysis"
"""The package that analyses, if none is named; where it is not installed, our own program does."""

MAX_SAMPLES = 1_000
"""Samples that are looked at: more do not change what fails most."""


class AnalyzeParams(Params):
    card_id: Annotated[str, about("The card.")]
    pkg: Annotated[str | None, about(f"The package that analyses it; {DEFAULT} if left out.")] = None
    project_root: ProjectRoot = None


async def alc_card_analyze(call: McpCall, params: AnalyzeParams) -> Object | types.InputRequiredResult:
    card, samples = await _card_of(call, params.card_id)
    where = directories_of(params.project_root)

    def program() -> Program:
        name = params.pkg or DEFAULT
        if params.pkg is None and find_package(where.roots(), name) is None:
            return lua_code(_own_program(), name=name, project=where.project)
        project = None if where.project is None else str(where.project)
        return sessions.program_named(name, project)

    return await sessions.run(
        call, program, {"card_id": params.card_id, "card": card, "samples": samples}, show=plain_event
    )


async def _card_of(call: McpCall, card_id: str) -> tuple[Json, Json]:
    cards = own_library(call.holdfast.store)
    card = await cards.get(card_id)
    if card is None:
        raise McpToolError(f"card '{card_id}' not found")
    try:
        return card, list(await cards.read_samples(card_id, 0, MAX_SAMPLES))
    except CardNotFoundError:
        return card, []


@cache
def _own_program() -> str:
    return (files("holdfast.alc.mcp") / "card_analysis.lua").read_text("utf-8")


TOOL: McpTool[AnalyzeParams] = McpTool(
    "alc_card_analyze",
    "Analyse a card",
    "Look at a card and its samples, find what its failures have in common, and suggest one change. Asks one question"
    " (needs_response: answer it with alc_continue); the result has pattern, suggested_change and confidence.",
    AnalyzeParams,
    alc_card_analyze,
    output=EVENT,
)
