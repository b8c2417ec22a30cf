"""Endpoints about strategies: which there are, what they are made of, and what a run of one would ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.core.values import Json
from holdfast.programs.language import SourceText
from holdfast.programs.lookup import find_program
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, RequestBody
from holdfast.strategies.catalog import StrategyEntry, catalog, find_entry
from holdfast.strategies.checks import CheckReport, check
from holdfast.strategies.diagram import diagram, diagram_json
from holdfast.strategies.dry_run import dry_run

endpoints = Endpoints()


class DryRunBody(RequestBody, frozen=True, kw_only=True):
    """What a strategy would be started with."""

    ctx: Json = None
    budget: dict[str, Any] | None = None


class CheckBody(RequestBody, frozen=True, kw_only=True):
    """A source to check."""

    code: str
    language: str = "python"


@endpoints.add("GET", "/strategies", "strategies:read", reply=list[dict[str, Any]])
async def list_strategies(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the strategies that can be run by name, by category."""
    return JsonReply([_shown(each) for each in catalog()])


@endpoints.add("GET", "/strategies/{name}", "strategies:read", reply=dict[str, Any])
async def show_strategy(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show what a strategy says about itself."""
    return JsonReply(_shown(_entry(call)))


@endpoints.add("GET", "/strategies/{name}/source", "strategies:read", reply=dict[str, Any])
async def show_source(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show the source of a strategy."""
    entry = _entry(call)
    return JsonReply({"name": entry.name, "origin": entry.origin, "code": Path(entry.path).read_text()})


@endpoints.add("POST", "/strategies/{name}/dry-run", "strategies:read", body=DryRunBody, reply=dict[str, Any])
async def try_strategy(call: ApiCall[NoParameters, DryRunBody]) -> JsonReply:
    """Show what a run of a strategy would ask, with made-up answers. No session is stored, and nobody is asked."""
    run = await dry_run(find_program(_entry(call).name), call.body.ctx, budget=call.body.budget)
    return JsonReply({**run.to_json(), "diagram": diagram_json(diagram(run))})


@endpoints.add("POST", "/check", "strategies:read", body=CheckBody, reply=list[CheckReport])
async def check_source(call: ApiCall[NoParameters, CheckBody]) -> JsonReply:
    """Say what is wrong with a source. It is not run."""
    return JsonReply(await check([SourceText("<request>", call.body.language, call.body.code)]))


def _entry(call: ApiCall[Any, Any]) -> StrategyEntry:
    return find_entry(call.path["name"].removesuffix(".py"))


def _shown(entry: StrategyEntry) -> dict[str, Any]:
    """What a strategy says, without the paths of this machine."""
    return {key: value for key, value in entry.to_json().items() if key not in ("path", "hidden_by")}
