"""algocline's tools for evaluations, by their names. An evaluation is a session, whose id is that of its result."""

from __future__ import annotations

from typing import Annotated, Any

import mcp_types as types
import msgspec

from holdfast.alc.evaluations.comparison import compare_results
from holdfast.alc.evaluations.program import ScenarioText, evaluation_ctx, evaluation_program
from holdfast.alc.evaluations.results import read_history, read_result
from holdfast.alc.lua.meta import read_source
from holdfast.alc.lua.packages import find_package, find_roots
from holdfast.alc.mcp.sessions import EVENT
from holdfast.alc.scenarios import ScenarioFiles
from holdfast.core.records import Program
from holdfast.core.values import repaired
from holdfast.serve.mcp import sessions
from holdfast.serve.mcp.directories import file_below
from holdfast.serve.mcp.host_events import plain_event
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about, unquoted

MAX_HISTORY = 1_000
"""Evaluations that one call lists: their figures are read for it."""


class EvalParams(Params):
    strategy: Annotated[str, about("The name of a package or of a strategy in another language.")]
    scenario: Annotated[
        str | None, about("Lua code that returns a scenario: {cases = {{input, expected}, ...}, graders = {...}}.")
    ] = None
    scenario_file: Annotated[
        str | None, about("A file with such code, in the project or where the operator allows it.")
    ] = None
    scenario_name: Annotated[str | None, about("The name of an installed scenario; see alc_scenario_list.")] = None
    strategy_opts: Annotated[Any, about("An object: more fields for the strategy's ctx, in every case.")] = None
    auto_card: Annotated[bool, about("Keep the figures as a card, and the results as its samples.")] = False
    project_root: ProjectRoot = None


async def alc_eval(call: McpCall, params: EvalParams) -> Object | types.InputRequiredResult:
    options = unquoted(params.strategy_opts)
    if options is not None and not isinstance(options, dict):
        raise McpToolError("`strategy_opts` must be an object")
    if call.state is not None:  # a later round of a call that has begun
        return _with_id(await sessions.run(call, _not_needed, None, show=plain_event))
    sessions.program_named(params.strategy, params.project_root)  # what is not there is told before anything is asked
    scenario = _scenario(call, params)
    project = sessions.project_root(params.project_root)
    given = await sessions.run(
        call,
        lambda: evaluation_program(scenario, params.strategy, project),
        evaluation_ctx(scenario, params.strategy, options, params.auto_card),
        show=plain_event,
    )
    return _with_id(given)


def _not_needed() -> Program:
    raise McpToolError("the evaluation has begun")


def _with_id(given: Object | types.InputRequiredResult) -> Object | types.InputRequiredResult:
    return given if isinstance(given, types.InputRequiredResult) else {**given, "eval_id": given["session_id"]}


def _scenario(call: McpCall, params: EvalParams) -> ScenarioText:
    """The scenario that a call means. A package comes before a stored scenario of the same name."""
    given = [each for each in (params.scenario, params.scenario_file, params.scenario_name) if each is not None]
    if len(given) != 1:
        raise McpToolError("Provide exactly one of `scenario`, `scenario_file` and `scenario_name`.")
    if params.scenario is not None:
        return ScenarioText("inline", params.scenario)
    if params.scenario_file is not None:
        path = file_below(params.scenario_file, call.code_directories, "scenario_file")
        text = read_source(path)
        if text is None:
            raise McpToolError(f"`scenario_file`: '{path}' cannot be read")
        return ScenarioText(path.stem, repaired(text))
    assert params.scenario_name is not None
    name = params.scenario_name
    project = sessions.project_root(params.project_root)
    if find_package(find_roots(project), name) is not None:
        return ScenarioText(name)
    return ScenarioText(name, ScenarioFiles().read(name)[1])


class HistoryParams(Params):
    strategy: Annotated[str | None, about("Only evaluations of this strategy.")] = None
    limit: Annotated[int, about("How many, the newest first.")] = 20


async def alc_eval_history(call: McpCall, params: HistoryParams) -> Object:
    limit = min(max(params.limit, 0), MAX_HISTORY)
    found, warnings = await read_history(call.holdfast.store, params.strategy, limit)
    shown: Object = {"evals": msgspec.to_builtins(found)}
    return {**shown, "warnings": warnings} if warnings else shown


class DetailParams(Params):
    eval_id: Annotated[str, about("The evaluation's id: that of its session. Of a plan with several arms: EVAL:ARM.")]


async def alc_eval_detail(call: McpCall, params: DetailParams) -> Object:
    return await read_result(call.holdfast.store, params.eval_id)


class CompareParams(Params):
    eval_id_a: Annotated[str, about("The first evaluation.")]
    eval_id_b: Annotated[str, about("The second evaluation.")]


async def alc_eval_compare(call: McpCall, params: CompareParams) -> Object:
    sides = [await read_result(call.holdfast.store, each) for each in (params.eval_id_a, params.eval_id_b)]
    return {"status": "completed", "result": compare_results(sides[0], sides[1])}


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_eval",
        "Evaluate a strategy",
        "Run a strategy on every case of a scenario and grade its answers. Gives the first question (needs_response:"
        " answer it with alc_continue) or the report (completed). The evaluation is durable: eval_id finds its result.",
        EvalParams,
        alc_eval,
        output=EVENT,
    ),
    McpTool(
        "alc_eval_history",
        "List evaluations",
        "Evaluations, the newest first, with their pass rates and mean scores.",
        HistoryParams,
        alc_eval_history,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_eval_detail",
        "Show an evaluation",
        "The whole report of an evaluation: figures, and the result of every case.",
        DetailParams,
        alc_eval_detail,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_eval_compare",
        "Compare two evaluations",
        "Whether two evaluations differ: by Welch's test, and paired on the cases that both have.",
        CompareParams,
        alc_eval_compare,
        read_only=True,
        idempotent=True,
    ),
]
