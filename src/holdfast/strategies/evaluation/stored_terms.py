"""The terms of an evaluation as its journal has them: the frozen plan, the cases, and all orders since."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import SessionNotFoundError
from holdfast.core.queries import ToolQuery
from holdfast.core.records import PausedRecord, StartedRecord
from holdfast.core.values import Json
from holdfast.store.contract import Store
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.errors import EvaluationNotFoundError
from holdfast.strategies.evaluation.orders import Terms, terms_of
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.programs import EVALUATION, ORDER


async def read_terms(store: Store, id: str) -> tuple[Terms, list[Case], Json]:
    """What an evaluation is by now, its cases, and what became of the last order; None while that is carried out.

    Raises `EvaluationNotFoundError`.
    """
    try:
        return await stored_terms(store, id)
    except SessionNotFoundError:
        raise EvaluationNotFoundError(id, "there is no such session") from None


async def stored_terms(store: Store, id: str) -> tuple[Terms, list[Case], Json]:
    """The same; raises `SessionNotFoundError` if there is no such session."""
    started: StartedRecord | None = None
    asked: ToolQuery | None = None
    async for entry in store.journal(id):
        match entry.record:
            case StartedRecord() as record:
                started = record
                if record.program.name != EVALUATION:
                    raise EvaluationNotFoundError(id, f"it runs {record.program.name}")
            case PausedRecord(queries=[ToolQuery() as query]):
                asked = query
            case _:
                pass
    assert started is not None
    plan, cases = read_plan(started.ctx)
    arguments = asked.arguments if asked is not None else {"orders": [{"do": "run"}]}
    orders = arguments["orders"]
    assert isinstance(orders, list)
    return terms_of(plan, orders), cases, arguments.get("last") if asked is not None and asked.name == ORDER else None


def read_plan(ctx: Json) -> tuple[FrozenPlan, list[Case]]:
    """The frozen plan and the cases that an evaluation was started with."""
    assert isinstance(ctx, dict)
    return msgspec.convert(ctx["plan"], FrozenPlan), msgspec.convert(ctx["cases"], list[Case])
