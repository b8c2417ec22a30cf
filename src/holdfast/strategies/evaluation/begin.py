"""Beginning an evaluation, or more work on one, without waiting for its end: for a server, which works on it meanwhile.

A server takes nothing but names and values: it reads no file because a request or a store names it.
"""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.agent.runtime import Runtime
from holdfast.core.errors import SessionNotFoundError
from holdfast.core.events import PausedEvent
from holdfast.core.ids import check_id
from holdfast.core.state import State
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.dispatcher import Jobs
from holdfast.strategies.evaluation.errors import DriftError, PlanError
from holdfast.strategies.evaluation.evaluation import (
    MAX_EVALUATION_ID,
    check_prices,
    install_dispatcher,
    refrozen,
    start_frozen,
)
from holdfast.strategies.evaluation.orders import WorkOrder
from holdfast.strategies.evaluation.plan import FrozenPlan, Plan, drift
from holdfast.strategies.evaluation.programs import EVALUATION
from holdfast.strategies.evaluation.stored_terms import read_terms, stored_terms

SERVED = "evaluation.served"
"""The label of evaluations that a server has begun: after a restart it goes on with them."""


async def begin_evaluation(runtime: Runtime, id: str, plan: Plan, jobs: Jobs) -> bool:
    """Start an evaluation, and return once that is durable; True if the same one was started before.

    Raises `DriftError` if there is one of this id with another plan.
    """
    if len(check_id(id, "evaluation id")) > MAX_EVALUATION_ID:
        raise PlanError("id", f"at most {MAX_EVALUATION_ID} characters, got {len(id)}")
    frozen = await asyncio.to_thread(plan.freeze)
    hf = runtime.mount.holdfast
    try:
        terms, cases, _ = await stored_terms(hf.store, id)
    except SessionNotFoundError:
        install_dispatcher(runtime, jobs)
        return (await start_frozen(hf, id, frozen, labels=[SERVED], wait=0)).replayed
    _raise_if_changed(id, terms.plan, cases, frozen)
    return True


async def give_order(runtime: Runtime, id: str, order: WorkOrder, jobs: Jobs, *, accept_drift: bool) -> bool:
    """Order more of an evaluation, and return once that is durable; True if the order was given before, by its key."""
    hf = runtime.mount.holdfast
    terms, cases, _ = await read_terms(hf.store, id)
    if order.key and order.key in terms.keys:
        return True
    _raise_if_elsewhere(id, terms.plan)
    now = await asyncio.to_thread(refrozen, terms.plan, cases)
    changes = drift(terms.plan, cases, *now)
    if changes and changes != terms.accepted_drift[-len(changes) :]:
        if not accept_drift:
            raise DriftError(id, changes)
        order = msgspec.structs.replace(order, accepted_drift=changes)
    if order.budget is not None:
        check_prices(msgspec.structs.replace(terms.plan, budget=order.budget))
    install_dispatcher(runtime, jobs)
    event = await hf.resume(id, wait=0)
    if isinstance(event, PausedEvent):
        await hf.feed(id, {event.queries[0].id: msgspec.to_builtins(order)}, wait=0)
    elif event.status != "running":
        raise PlanError(order.do, f"evaluation '{id}' has ended ({event.status}): it takes no orders any more")
    elif order.do != "run":
        raise PlanError(order.do, f"evaluation '{id}' is at work: order more when it has done what it does now")
    return False


async def has_served_work(store: Store) -> bool:
    """Whether an evaluation that a server has begun is not done with its work."""
    where = SessionFilter(program=EVALUATION, states=[State.RUNNING, State.PAUSED], labels=[SERVED])
    for row in await store.all_sessions(where):
        _, _, last = await read_terms(store, row.session_id)
        if last is None:
            return True
    return False


def _raise_if_changed(id: str, plan: FrozenPlan, cases: list[Case], now: tuple[FrozenPlan, list[Case]]) -> None:
    changes = drift(plan, cases, *now)
    if now[0].repeat != plan.repeat:
        changes.append(f"repeat: {plan.repeat} then, {now[0].repeat} now")
    if changes:
        raise DriftError(id, changes)


def _raise_if_elsewhere(id: str, plan: FrozenPlan) -> None:
    """Raise if a plan names files or functions: they are where it began."""
    named = [spec.name for spec in plan.graders if spec.grader in ("python", "function")]
    named += [arm.subject for arm in plan.arms if "/" in arm.subject or arm.subject.endswith((".py", ".lua", ".md"))]
    if plan.source is not None:
        named.append(plan.source.path)
    if named:
        why = f"evaluation '{id}' was begun with files: continue it where they are, with `holdfast eval resume {id}`"
        raise PlanError(named[0], why)
