"""`evaluate` and `Evaluation`: an evaluation in Python, from its start to its figures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agent.model_driver import ModelDriver
from holdfast.agent.runtime import Runtime
from holdfast.core.errors import HoldfastError, SessionNotFoundError
from holdfast.core.events import Event, PausedEvent
from holdfast.core.ids import check_id, new_session_id
from holdfast.core.queries import ToolQuery
from holdfast.core.state import State
from holdfast.core.values import Json
from holdfast.engine.drivers import DEFAULT_CONCURRENCY
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.registry import registered
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.dispatcher import Dispatcher, Jobs, Listener
from holdfast.strategies.evaluation.errors import DriftError, EvaluationNotFoundError, PlanError
from holdfast.strategies.evaluation.graders.grade import answer_text
from holdfast.strategies.evaluation.models import ModelTable
from holdfast.strategies.evaluation.orders import Terms, WorkOrder
from holdfast.strategies.evaluation.plan import FrozenPlan, Plan, drift
from holdfast.strategies.evaluation.programs import AWAITS_ORDERS, evaluation
from holdfast.strategies.evaluation.report.comparison import ArmComparison, compare_arms
from holdfast.strategies.evaluation.report.report import EvaluationReport, make_report
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.scenario_runs import SCENARIO_RUN, ScenarioRun, read_scenario_run, report_of
from holdfast.strategies.evaluation.scores import trial_score
from holdfast.strategies.evaluation.stored_terms import read_terms, stored_terms
from holdfast.strategies.evaluation.trials import TrialKey, TrialRow

MAX_EVALUATION_ID = 96
"""Characters of an evaluation's id: those of its trials and grades begin with it."""


INSISTENCE = 5
"""How often work that was given up is ordered again by a process that waits for it."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial as a report shows it."""

    key: TrialKey
    case: Case
    row: TrialRow
    score: float | None
    session_id: str
    result: Json = None

    @property
    def text(self) -> str:
        """The answer."""
        return answer_text(self.result)


class Evaluation:
    """An evaluation that has begun. Its figures are read from the store whenever they are asked for."""

    def __init__(self, id: str, store: Store | str) -> None:
        self.id = id
        self._store = store

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The store, open."""
        if isinstance(self._store, str):
            async with open_store(self._store) as opened:
                yield opened
        else:
            yield self._store

    async def terms(self) -> tuple[Terms, list[Case], Json]:
        """What it is by now, its cases, and what became of the last order (None while that is carried out)."""
        async with self.store() as store:
            return await read_terms(store, self.id)

    async def report(self, grading: int = -1) -> EvaluationReport:
        """The figures by now; `grading` chooses among the gradings, the last by default."""
        async with self.store() as store:
            if await _is_scenario_run(store, self.id):
                return report_of(await read_scenario_run(store, self.id))
            stand = await read_terms(store, self.id)
            rows = await TrialRows.load(store, self.id)
        return await asyncio.to_thread(make_report, self.id, stand, rows, grading)  # it may be of many trials

    async def compare(self, first: str, second: str) -> ArmComparison:
        """How two of its arms differ on the same cases."""
        report = await self.report()
        return compare_arms(report, first, report, second)

    async def trials(self, *, arm: str | None = None, failed: bool = False) -> AsyncGenerator[Trial, None]:
        """Its trials, with their results; with `failed`, those that did not pass."""
        async with self.store() as store:
            if await _is_scenario_run(store, self.id):
                for trial in _scenario_trials(await read_scenario_run(store, self.id)):
                    if (arm is None or trial.key.arm == arm) and not (failed and trial.score == 1.0):
                        yield trial
                return
            terms, cases, _ = await read_terms(store, self.id)
            rows = await TrialRows.load(store, self.id)
            for key, row in sorted(rows.trials(), key=lambda each: each[0]):
                score = trial_score(rows, terms.gradings[-1], key, row)
                if (arm is not None and key.arm != arm) or (failed and score == 1.0):
                    continue
                session_id = row.session_id(self.id, key)
                with contextlib.suppress(HoldfastError):
                    session = await store.load(session_id)
                    yield Trial(
                        key=key,
                        case=cases[key.case],
                        row=row,
                        score=score,
                        session_id=session_id,
                        result=getattr(session.ended, "result", None),
                    )


async def evaluate(
    plan: Plan | None = None,
    *,
    id: str | None = None,
    on: Holdfast | Runtime | str = "sqlite:///holdfast.db",
    jobs: int | Jobs = 16,
    order: WorkOrder | None = None,
    accept_drift: bool = False,
    listener: Listener | None = None,
) -> Evaluation:
    """Evaluate a plan, and wait until all its trials have run. The same id again resumes what is left.

    `on` is where: an engine with a driver for `llm`, a runtime, or the URL of a store. With the latter two, the models
    of the plan are called by their names. `order` is what else is wanted of an evaluation that exists. Without `plan`,
    an evaluation that exists is resumed as it was frozen.
    """
    evaluation_id = check_id(id, "evaluation id") if id is not None else new_evaluation_id()
    if len(evaluation_id) > MAX_EVALUATION_ID:
        raise PlanError("id", f"at most {MAX_EVALUATION_ID} characters, got {len(evaluation_id)}")
    wanted = Jobs(jobs) if isinstance(jobs, int) else jobs
    if wanted.trials < 1:
        raise PlanError("jobs", f"at least 1, got {wanted.trials}")
    frozen = plan.freeze() if plan is not None else None
    if isinstance(on, str):
        async with Runtime(on, upkeep=Upkeep(only=evaluation_id)) as runtime:
            await _evaluate(runtime, evaluation_id, frozen, wanted, _Wish(order, accept_drift, listener))
        return Evaluation(evaluation_id, on)
    await _evaluate(on, evaluation_id, frozen, wanted, _Wish(order, accept_drift, listener))
    return Evaluation(evaluation_id, on.store if isinstance(on, Holdfast) else on.mount.holdfast.store)


def new_evaluation_id() -> str:
    """A fresh id of an evaluation: `e-` and 10 characters."""
    return f"e-{new_session_id()[2:12]}"


class _Wish(msgspec.Struct, frozen=True):
    order: WorkOrder | None
    accept_drift: bool
    listener: Listener | None


async def _evaluate(
    on: Holdfast | Runtime, id: str, frozen: tuple[FrozenPlan, list[Case]] | None, jobs: Jobs, wish: _Wish
) -> None:
    hf = on.mount.holdfast if isinstance(on, Runtime) else on
    if isinstance(on, Holdfast) and frozen is not None and any(arm.model is not None for arm in frozen[0].arms):
        raise PlanError("models", "an engine answers by its own driver: leave out models, or evaluate on a Runtime")
    install_dispatcher(on, jobs, wish.listener)
    order = wish.order
    try:
        terms, cases, last = await stored_terms(hf.store, id)
    except SessionNotFoundError:
        if frozen is None:
            raise EvaluationNotFoundError(id, "there is no such session") from None
        await start_frozen(hf, id, frozen)
        await _insist(hf, id)
        return
    now = frozen if frozen is not None else refrozen(terms.plan, cases)
    changes = drift(terms.plan, cases, *now)
    if changes and changes != terms.accepted_drift[-len(changes) :]:
        if not wish.accept_drift:
            raise DriftError(id, changes)
        order = msgspec.structs.replace(order or WorkOrder(do="run"), accepted_drift=changes)
    if order is None and isinstance(last, dict) and last.get("state") == "done" and frozen is not None:
        more = added(terms.plan, frozen[0])
        if more is None:
            return
        order = more
    event = await hf.resume(id)
    if isinstance(event, PausedEvent):
        asked = event.queries[0].id
        given: Any = msgspec.to_builtins(order or WorkOrder(do="run"))
        await hf.feed(id, {asked: given})
        await _insist(hf, id)
    elif order is not None:
        raise PlanError(order.do, f"evaluation '{id}' has ended ({event.status}): it takes no orders any more")


def install_dispatcher(on: Holdfast | Runtime, jobs: Jobs, listener: Listener | None = None) -> None:
    """Let a process carry out the orders of evaluations, so much at once."""
    if isinstance(on, Holdfast):
        Dispatcher(on, None, jobs, listener).install()
        return
    hf = on.mount.holdfast
    if jobs.trials > DEFAULT_CONCURRENCY:
        hf.drive("llm", ModelDriver(on, on.mount), concurrency=2 * jobs.trials)
    Dispatcher(hf, on, jobs, listener).install()


async def start_frozen(
    hf: Holdfast,
    id: str,
    frozen: tuple[FrozenPlan, list[Case]],
    *,
    labels: Sequence[str] = (),
    wait: float | None = None,
) -> Event:
    """Start an evaluation with its first order, and wait until that is carried out, or so many seconds."""
    plan, cases = frozen
    if id in plan.reuse:
        raise PlanError("reuse", f"'{id}' is the evaluation itself")
    check_prices(plan)
    for other in plan.reuse:
        await read_terms(hf.store, other)
    ctx: Json = {"plan": msgspec.to_builtins(plan), "cases": msgspec.to_builtins(cases)}
    return await hf.start(evaluation, ctx=ctx, id=id, labels=[AWAITS_ORDERS, *labels], wait=wait)


async def _insist(hf: Holdfast, id: str) -> None:
    """Order the work again if it was given up because its processes died: whoever waits here is alive.

    A process that was cut off from its sessions for longer than its lease counts as dead, too. Trials that kill their
    process are given up one by one, so this ends.
    """
    for _ in range(INSISTENCE):
        event = await hf.event(id)
        query = event.queries[0] if isinstance(event, PausedEvent) else None
        if not isinstance(query, ToolQuery):
            return
        last = query.arguments.get("last")
        if not isinstance(last, dict) or last.get("code") != "process_died":
            return
        orders = query.arguments["orders"]
        assert isinstance(orders, list)
        await hf.feed(id, {query.id: orders[-1]})


def check_prices(plan: FrozenPlan) -> None:
    """Raise `PlanError` if money is limited, and nobody knows what a model costs."""
    table = ModelTable(plan.prices, 1, {})
    judges = [judge for spec in plan.graders for judge in spec.judges]
    for model in [*(arm.model for arm in plan.arms), *judges]:
        table.session_prices(model, plan.budget)


def added(before: FrozenPlan, now: FrozenPlan) -> WorkOrder | None:
    """The order for what a plan has more than before: arms, and repeats; None if that is nothing."""
    known = {arm.name for arm in before.arms}
    arms = [arm for arm in now.arms if arm.name not in known]
    repeat = now.repeat if now.repeat > before.repeat else None
    return None if not arms and repeat is None else WorkOrder(do="add", arms=arms, repeat=repeat)


def refrozen(plan: FrozenPlan, cases: Sequence[Case]) -> tuple[FrozenPlan, list[Case]]:
    """The plan as it would be frozen now: with strategies and data read again, where that is possible."""
    from holdfast.strategies.evaluation.arms import make_arms
    from holdfast.strategies.evaluation.graders.spec import make_grader

    arms = []
    for arm in plan.arms:
        is_function = arm.program.kind == "native" and arm.kind == "strategy"
        if is_function and arm.program.name in registered():
            found = [msgspec.structs.replace(arm, program=registered()[arm.program.name].program)]
        elif arm.kind == "agent" and not arm.subject.endswith(".md"):
            found = [arm]  # its definition was given as a value
        else:
            options: Mapping[str, Any] = {"strategy": arm.subject, "options": arm.options}
            found = make_arms([options if arm.kind != "agent" else arm.subject], [], None)
        changes: dict[str, Any] = {"name": arm.name, "model": arm.model, "model_options": arm.model_options}
        arms.append(msgspec.structs.replace(found[0], **changes))
    graders = []
    for spec in plan.graders:
        if spec.grader in ("python", "strategy"):
            table = {"grader": f"{spec.grader}:{spec.program}", "name": spec.name, "weight": spec.weight}
            scorer = {} if spec.scorer is None else {"scorer": spec.scorer}
            graders.append(make_grader({**table, **scorer, **spec.options}))
        else:
            graders.append(spec)
    source = plan.source
    rows, digest = list(cases), plan.dataset_digest
    if source is not None:
        data = Dataset.load(source.path, fields=source.fields, cluster=plan.cluster)
        data = data if source.limit is None else data.first(source.limit)
        data = data if source.sample is None else data.sample(source.sample, plan.seed)
        rows, digest = data.cases, data.digest
    return msgspec.structs.replace(plan, arms=arms, graders=graders, dataset_digest=digest), rows


# --- reading ---------------------------------------------------------------------------------------------


async def _is_scenario_run(store: Store, id: str) -> bool:
    with contextlib.suppress(SessionNotFoundError):
        return (await store.session(id)).summary.program == SCENARIO_RUN
    return False


def _scenario_trials(run: ScenarioRun) -> Iterator[Trial]:
    """The cases of an evaluation that one session ran: each is a part of that session."""
    report = report_of(run)
    for number, result in enumerate(run.results):
        (tried,) = report.trials[run.strategy][number]
        yield Trial(
            key=TrialKey(run.strategy, number, 0),
            case=report.cases[number],
            row=tried.row,
            score=tried.score,
            session_id=run.session.id,
            result=(result.get("response") or {}).get("text"),
        )


async def cancel_evaluation(hf: Holdfast, id: str, reason: str | None, by: str | None) -> tuple[Event, int]:
    """End an evaluation and all its sessions that have not ended; what has run stays. Gives how many were ended."""
    await read_terms(hf.store, id)
    event = await hf.cancel(id, reason, by=by)
    where = SessionFilter(id_prefix=f"{id}.", states=[State.RUNNING, State.PAUSED])
    rows = await hf.store.all_sessions(where)
    for row in rows:
        with contextlib.suppress(HoldfastError):
            await hf.cancel(row.session_id, f"the evaluation {id} was cancelled", by=by)
    return event, len(rows)
