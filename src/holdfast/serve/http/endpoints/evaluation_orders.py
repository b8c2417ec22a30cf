"""Endpoints that begin evaluations on this server, and order more of them: resume, retry, add, cancel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from holdfast.core.budget import Budget
from holdfast.core.errors import InvalidValueError
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, RequestBody
from holdfast.serve.http.limits import VALUE_BODY_BYTES
from holdfast.serve.http.paths import PREFIX
from holdfast.serve.http.problems import ApiError
from holdfast.serve.http.program_names import checked_name
from holdfast.strategies.evaluation.begin import begin_evaluation, give_order
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.dispatcher import Jobs
from holdfast.strategies.evaluation.evaluation import cancel_evaluation, new_evaluation_id
from holdfast.strategies.evaluation.orders import Retried, WorkOrder
from holdfast.strategies.evaluation.overview import EvaluationOverview, overview_of
from holdfast.strategies.evaluation.plan import Plan

endpoints = Endpoints()

JobsCount = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class EvaluationBody(RequestBody, frozen=True, kw_only=True):
    """A plan: each strategy with each model on each case, `repeat` times."""

    strategies: list[str | dict[str, Any]]
    """Names of strategies that the server has, `model` for the model alone, or tables with `strategy`, `name`,
    `options` and `grid`. Files are not taken: a path is code."""
    data: list[dict[str, Any]]
    """The cases: `id`, `input`, `expected`, `choices`, `tags`, `cluster`, `context`, `rubric`, `weight`."""
    dataset: str = "data"
    """What the cases are called."""
    models: list[str | dict[str, Any]] = msgspec.field(default_factory=list)
    """Models of the server; its own if left out."""
    graders: list[str | dict[str, Any]] = msgspec.field(default_factory=list)
    repeat: int = 1
    sample: int | None = None
    seed: int = 0
    budget: dict[str, Any] | None = None
    prices: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    service: str | None = None
    """Leave trials to the workers that serve this service."""
    reuse: list[str] = msgspec.field(default_factory=list)
    """Evaluations whose trials are taken over where they ran the same."""
    id: str | None = None
    """The id of the evaluation. The same id with the same plan again gets the same reply."""
    jobs: JobsCount = 16
    """Trials at once."""


class ResumeBody(RequestBody, frozen=True, kw_only=True):
    """With what an evaluation goes on."""

    budget: dict[str, Any] | None = None
    """New limits of the whole evaluation."""
    jobs: JobsCount = 16
    accept_drift: bool = False
    """Go on although something differs from the frozen plan."""


class RetryBody(ResumeBody, frozen=True, kw_only=True):
    """Which trials are tried again."""

    which: Retried = "errors"
    """`errors`: those without a result; `failed`: also those that did not pass."""


class AddBody(ResumeBody, frozen=True, kw_only=True):
    """What an evaluation gets more of."""

    repeat: int


class CancelEvaluationBody(RequestBody, frozen=True, kw_only=True):
    """Why an evaluation ends."""

    reason: str | None = None


@endpoints.add(
    "POST",
    "/evaluations",
    "sessions:write",
    body=EvaluationBody,
    reply=EvaluationOverview,
    status=202,
    body_bytes=VALUE_BODY_BYTES,
)
async def start_evaluation(call: ApiCall[NoParameters, EvaluationBody]) -> JsonReply:
    """Start an evaluation, which this server works on. It goes on after a restart."""
    body, principal = call.body, call.principal
    id = body.id or derived_id("e-", principal, "evaluation", call.headers.get("idempotency-key"))
    if id is None and principal.id_prefix:
        why = f"evaluations of this token have ids that begin with '{principal.id_prefix}': say which"
        raise InvalidValueError("id", why)
    id = id or new_evaluation_id()
    principal.check_session(id)
    for other in body.reuse:
        principal.check_session(other)
    plan = Plan(
        strategies=[_strategy(each) for each in body.strategies],
        data=Dataset(body.data, name=body.dataset),
        models=[_checked_model(call, each) for each in body.models],
        graders=[_grader(call, each) for each in body.graders],
        repeat=body.repeat,
        sample=body.sample,
        seed=body.seed,
        budget=body.budget,
        prices=body.prices,
        service=body.service,
        reuse=body.reuse,
    )
    replayed = await begin_evaluation(call.door.runtime, id, plan, Jobs(body.jobs))
    return await _overview(call, id, replayed=replayed)


@endpoints.add(
    "POST", "/evaluations/{session_id}/resume", "sessions:write", body=ResumeBody, reply=EvaluationOverview, status=202
)
async def resume_evaluation(call: ApiCall[NoParameters, ResumeBody]) -> JsonReply:
    """Run what is missing of an evaluation."""
    return await _ordered(call, WorkOrder(do="run"))


@endpoints.add(
    "POST", "/evaluations/{session_id}/retry", "sessions:write", body=RetryBody, reply=EvaluationOverview, status=202
)
async def retry_evaluation(call: ApiCall[NoParameters, RetryBody]) -> JsonReply:
    """Try again what has failed in an evaluation."""
    return await _ordered(call, WorkOrder(do="retry", which=call.body.which))


@endpoints.add(
    "POST", "/evaluations/{session_id}/add", "sessions:write", body=AddBody, reply=EvaluationOverview, status=202
)
async def add_to_evaluation(call: ApiCall[NoParameters, AddBody]) -> JsonReply:
    """Run more repeats of the same evaluation."""
    return await _ordered(call, WorkOrder(do="add", repeat=call.body.repeat))


@endpoints.add(
    "POST", "/evaluations/{session_id}/cancel", "sessions:write", body=CancelEvaluationBody, reply=EvaluationOverview
)
async def end_evaluation(call: ApiCall[NoParameters, CancelEvaluationBody]) -> JsonReply:
    """End an evaluation and its trials that are under way. What has run stays."""
    id = call.session_id
    await cancel_evaluation(call.door.holdfast, id, call.body.reason, call.principal.name)
    row = await call.door.store.session(id)
    return JsonReply(await overview_of(call.door.store, row))


# --- orders --------------------------------------------------------------------------------------------


async def _ordered(call: ApiCall[NoParameters, Any], order: WorkOrder) -> JsonReply:
    id, body = call.session_id, call.body
    key = derived_id("o-", call.principal, f"{order.do} {id}", call.headers.get("idempotency-key"))
    budget = None if body.budget is None else _budget(body.budget)
    given = msgspec.structs.replace(order, key=key or "", budget=budget)
    runtime, jobs = call.door.runtime, Jobs(body.jobs)
    return await _overview(
        call, id, replayed=await give_order(runtime, id, given, jobs, accept_drift=body.accept_drift)
    )


async def _overview(call: ApiCall[Any, Any], id: str, *, replayed: bool) -> JsonReply:
    overview = await overview_of(call.door.store, await call.door.store.session(id))
    headers = {"location": f"{PREFIX}/evaluations/{id}"}
    if replayed:
        headers["idempotency-replayed"] = "true"
    return JsonReply(overview, 200 if replayed else None, headers)


def _budget(limits: dict[str, Any]) -> Budget:
    try:
        return msgspec.convert(limits, Budget)
    except msgspec.ValidationError as error:
        raise InvalidValueError("budget", str(error)) from None


# --- what a plan may name ------------------------------------------------------------------------------


def _strategy(given: str | dict[str, Any]) -> str | dict[str, Any]:
    name = given.get("strategy") if isinstance(given, dict) else given
    checked_name(str(name))
    return given


def _grader(call: ApiCall[Any, Any], given: str | dict[str, Any]) -> str | dict[str, Any]:
    table = given if isinstance(given, dict) else {"grader": given}
    kind, colon, name = str(table.get("grader")).partition(":")
    if kind == "python":
        raise ApiError(403, "forbidden", "a function is code, and is not run for a request; name another grader")
    if colon:
        checked_name(name)
    judges = table.get("judge")
    for judge in [judges] if isinstance(judges, str) else _texts(judges):
        _checked_model(call, judge)
    return given


def _texts(value: Any) -> Iterable[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _checked_model(call: ApiCall[Any, Any], given: str | dict[str, Any]) -> str | dict[str, Any]:
    """A model that the server has: a request does not make it use another service."""
    runtime = call.door.runtime
    name = str(given.get("model")) if isinstance(given, dict) else given
    is_of_own_service = runtime.policy.provider in runtime.providers and ":" not in name and name != "test"
    if name not in runtime.named_models and not is_of_own_service:
        known = ", ".join(sorted(runtime.named_models)) or "none"
        raise InvalidValueError("models", f"this server has no model '{name[:200]}'; it has: {known}")
    return given
