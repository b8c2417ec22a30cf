"""Completion of the holes in algocline's resources: packages, cards and scenarios."""

from __future__ import annotations

from holdfast.alc.cards.tool import own_library
from holdfast.alc.lua.packages import find_roots, list_packages
from holdfast.alc.scenarios import ScenarioFiles
from holdfast.engine.holdfast import Holdfast
from holdfast.serve.mcp.completion import CompletionSource, beginning_with, complete_ended_sessions
from holdfast.serve.mcp.tools import in_thread


async def _packages(holdfast: Holdfast, prefix: str) -> list[str]:
    found = await in_thread(lambda: [each.name for each in list_packages(find_roots()) if each.active])
    return beginning_with(found, prefix)


async def _cards(holdfast: Holdfast, prefix: str) -> list[str]:
    return beginning_with((str(card["card_id"]) for card in await own_library(holdfast.store).list()), prefix)


async def _scenarios(holdfast: Holdfast, prefix: str) -> list[str]:
    found, _ = await in_thread(ScenarioFiles().list)
    return beginning_with((scenario.name for scenario in found), prefix)


COMPLETIONS: dict[tuple[str, str], CompletionSource] = {
    ("alc://packages/{name}/init.lua", "name"): _packages,
    ("alc://packages/{name}/meta", "name"): _packages,
    ("alc://packages/{name}/narrative", "name"): _packages,
    ("alc://cards/{card_id}", "card_id"): _cards,
    ("alc://cards/{card_id}/samples{?offset,limit}", "card_id"): _cards,
    ("alc://scenarios/{name}", "name"): _scenarios,
    ("alc://eval/{result_id}", "result_id"): complete_ended_sessions,
}
"""What completes each hole, by the template and the hole."""
