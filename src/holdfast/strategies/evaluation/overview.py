"""The list of evaluations: what each is about and how far it is, without its figures."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.state import State
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter, SessionRow
from holdfast.strategies.evaluation.programs import EVALUATION
from holdfast.strategies.evaluation.scenario_runs import SCENARIO_RUN, read_scenario_run
from holdfast.strategies.evaluation.stored_terms import read_terms


class EvaluationOverview(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation in a list."""

    id: str
    state: str
    """`running`, `interrupted` if no process works on it, `waiting` for people, `done`, `stopped` for lack of budget,
    `failed` or `cancelled`."""
    kind: Literal["plan", "scenario"] = "plan"
    """Whether it runs a plan, or a Lua session runs a scenario."""
    dataset: str
    cases: int
    """0 if that is not known before it has ended."""
    repeat: int = 1
    arms: list[str]
    created_at: int
    updated_at: int


async def list_evaluations(store: Store, limit: int | None = None, id_prefix: str = "") -> list[EvaluationOverview]:
    """Evaluations, the newest first: all of them, or so many."""
    rows: list[SessionRow] = []
    for program in (EVALUATION, SCENARIO_RUN):
        rows += await store.all_sessions(SessionFilter(program=program, id_prefix=id_prefix or None))
    rows.sort(key=lambda row: -row.summary.created_at)
    return [await overview_of(store, row) for row in rows[:limit]]


async def overview_of(store: Store, row: SessionRow) -> EvaluationOverview:
    """The evaluation that a row of the store is."""
    summary, id = row.summary, row.session_id
    if summary.program == SCENARIO_RUN:
        run = await read_scenario_run(store, id)
        left_out = len(run.result.get("not_run") or []) if run.result is not None else 0
        return EvaluationOverview(
            id=id,
            state=_scenario_state(summary.state, run.result is not None and "stopped" in run.result),
            kind="scenario",
            dataset=run.scenario,
            cases=len(run.results) + left_out,
            arms=[run.strategy],
            created_at=summary.created_at,
            updated_at=summary.updated_at,
        )
    terms, cases, last = await read_terms(store, id)
    state = last.get("state") if isinstance(last, dict) else "running" if row.owner else "interrupted"
    return EvaluationOverview(
        id=id,
        state=str(summary.state) if summary.state.is_terminal else str(state),
        dataset=terms.plan.dataset,
        cases=len(cases),
        repeat=terms.plan.repeat,
        arms=[arm.name for arm in terms.plan.arms],
        created_at=summary.created_at,
        updated_at=summary.updated_at,
    )


def _scenario_state(state: State, is_stopped: bool) -> str:
    match state:
        case State.COMPLETED:
            return "stopped" if is_stopped else "done"
        case State.PAUSED:
            return "waiting"
        case _:
            return str(state)
