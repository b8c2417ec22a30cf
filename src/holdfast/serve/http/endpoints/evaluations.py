"""Endpoints that show evaluations: which there are, their figures, their cases by arm, and two arms compared."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.state import State
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, Parameters
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.strategy_scores import StrategyScore
from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.evaluation.errors import EvaluationNotFoundError
from holdfast.strategies.evaluation.evaluation import Evaluation
from holdfast.strategies.evaluation.overview import EvaluationOverview, list_evaluations, overview_of
from holdfast.strategies.evaluation.programs import EVALUATION
from holdfast.strategies.evaluation.report.report import EvaluationReport
from holdfast.strategies.evaluation.report.views import (
    ComparedArms,
    EvaluationCases,
    EvaluationFigures,
    case_of,
    compared_arms,
    figures_of,
    numbers_in_order,
)
from holdfast.strategies.evaluation.scenario_runs import SCENARIO_RUN
from holdfast.strategies.evaluation.trials import parse_trial_id

endpoints = Endpoints()

in_thread = asyncio.to_thread
"""Figures of many trials take a second to make: other requests must not wait for them."""


class EvaluationsParameters(Parameters, frozen=True, kw_only=True):
    """How many evaluations."""

    limit: int = 50


class EvaluationsPage(msgspec.Struct, frozen=True):
    """Evaluations, the newest first."""

    data: list[EvaluationOverview]


class StrategyScoresReport(msgspec.Struct, frozen=True):
    """Scores of strategies, by name."""

    data: list[StrategyScore]


class CasesParameters(Parameters, frozen=True, kw_only=True):
    """Which cases, in which order."""

    after: int = 0
    """How many to skip: `next` of the page before."""
    limit: int = 100
    order: Literal["number", "hardest"] = "number"
    differing: bool = False
    """Only cases on which the arms differ."""


class ComparedArmsParameters(Parameters, frozen=True, kw_only=True):
    """Which arms: `EVALUATION:ARM`, or `EVALUATION` if it has only one."""

    left: str
    right: str


@endpoints.add("GET", "/evaluations", "sessions:read", query=EvaluationsParameters, reply=EvaluationsPage)
async def list_all_evaluations(call: ApiCall[EvaluationsParameters, None]) -> JsonReply:
    """List evaluations, the newest first."""
    limit = checked_limit(call.query.limit)
    return JsonReply(EvaluationsPage(await list_evaluations(call.door.store, limit, call.principal.id_prefix)))


@endpoints.add("GET", "/evaluations/comparison", "sessions:read", query=ComparedArmsParameters, reply=ComparedArms)
async def compare_two_arms(call: ApiCall[ComparedArmsParameters, None]) -> JsonReply:
    """Compare two arms, of one evaluation or of two, on the cases that both have."""
    sides: list[tuple[EvaluationReport, str]] = []
    for text in (call.query.left, call.query.right):
        id, _, arm = text.partition(":")
        call.principal.check_session(id)
        report = await Evaluation(id, call.door.store).report()
        sides.append((report, report.arm(arm or None).arm))
    (left, left_arm), (right, right_arm) = sides
    return JsonReply(await in_thread(compared_arms, left, left_arm, right, right_arm))


@endpoints.add("GET", "/evaluations/strategies", "sessions:read", reply=StrategyScoresReport)
async def list_strategy_scores(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List how strategies did, each in the latest of the last evaluations that has a figure of it."""
    return JsonReply(StrategyScoresReport(await call.door.strategy_scores.latest(call.principal.id_prefix)))


@endpoints.add("GET", "/evaluations/{session_id}", "sessions:read", reply=EvaluationFigures)
async def show_evaluation(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show the figures of an evaluation by now."""
    overview, report = await _read(call)
    under_way = await _running(call, report) if report is not None else {}
    running = sum(len(each) for each in under_way.values())
    return JsonReply(await in_thread(figures_of, overview, report, running))


@endpoints.add("GET", "/evaluations/{session_id}/cases", "sessions:read", query=CasesParameters, reply=EvaluationCases)
async def list_cases(call: ApiCall[CasesParameters, None]) -> JsonReply:
    """List the cases of an evaluation, and what each arm made of them by now."""
    limit, after = checked_limit(call.query.limit), call.query.after
    if after < 0:
        raise InvalidValueError("after", f"it is 0 or more, got {after}")
    _, report = await _read(call)
    if report is None:
        return JsonReply(EvaluationCases([], None, 0))
    numbers = await in_thread(numbers_in_order, report, call.query.order, call.query.differing)
    under_way = await _running(call, report)
    rows = [case_of(report, number, under_way) for number in numbers[after : after + limit]]
    more = after + limit < len(numbers)
    return JsonReply(EvaluationCases(rows, after + limit if more else None, len(numbers)))


# --- reading -------------------------------------------------------------------------------------------


async def _read(call: ApiCall[Any, Any]) -> tuple[EvaluationOverview, EvaluationReport | None]:
    """The evaluation that the path names, and its report; None for a scenario that has not ended with one."""
    store, id = call.door.store, call.session_id
    row = await store.session(id)
    if row.summary.program not in (EVALUATION, SCENARIO_RUN):
        raise EvaluationNotFoundError(id, f"it runs {row.summary.program}")
    overview = await overview_of(store, row)
    if overview.kind == "scenario" and overview.cases == 0:
        return overview, None
    return overview, await Evaluation(id, store).report()


async def _running(call: ApiCall[Any, Any], report: EvaluationReport) -> dict[tuple[str, int], list[str]]:
    """The sessions of trials that are under way, by arm and case."""
    found: dict[tuple[str, int], list[str]] = {}
    if report.state not in ("running", "waiting"):
        return found
    where = SessionFilter(id_prefix=f"{report.id}.t-", states=[State.RUNNING, State.PAUSED])
    for row in await call.door.store.all_sessions(where):
        if (parsed := parse_trial_id(row.session_id, report.id)) is not None:
            found.setdefault((parsed[0].arm, parsed[0].case), []).append(row.session_id)
    return found
