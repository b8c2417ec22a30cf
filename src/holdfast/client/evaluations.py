"""Evaluations on a server: begun, continued, ended and looked at, in the words of the embedded API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.client.api_client import ApiClient
from holdfast.core.budget import Budget
from holdfast.core.errors import InvalidValueError

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.orders import Retried
    from holdfast.strategies.evaluation.overview import EvaluationOverview
    from holdfast.strategies.evaluation.plan import Plan
    from holdfast.strategies.evaluation.report.views import ComparedArms, EvaluationCases, EvaluationFigures

Limits = Budget | Mapping[str, Any]


class EvaluationsClient:
    """What a server is asked about its evaluations."""

    _client: ApiClient

    # --- work --------------------------------------------------------------------------------------

    async def start_evaluation(self, plan: Plan, *, id: str | None = None, jobs: int = 16) -> EvaluationOverview:
        """Start an evaluation that the server works on, and return once that is durable.

        Strategies, graders and models are named: the server has them. Cases are read here, and sent.
        """
        return await self._order("/evaluations", {**_body_of(plan), "id": id, "jobs": jobs})

    async def resume_evaluation(
        self, id: str, *, budget: Limits | None = None, jobs: int = 16, accept_drift: bool = False
    ) -> EvaluationOverview:
        """Let the server run what is missing of an evaluation."""
        return await self._order(f"/evaluations/{id}/resume", _terms(budget, jobs, accept_drift))

    async def retry_evaluation(
        self,
        id: str,
        which: Retried = "errors",
        *,
        budget: Limits | None = None,
        jobs: int = 16,
        accept_drift: bool = False,
    ) -> EvaluationOverview:
        """Let the server try again what has failed: trials without a result, or also those that did not pass."""
        return await self._order(f"/evaluations/{id}/retry", {**_terms(budget, jobs, accept_drift), "which": which})

    async def add_to_evaluation(
        self,
        id: str,
        repeat: int,
        *,
        budget: Limits | None = None,
        jobs: int = 16,
        accept_drift: bool = False,
    ) -> EvaluationOverview:
        """Let the server run more repeats of an evaluation."""
        return await self._order(f"/evaluations/{id}/add", {**_terms(budget, jobs, accept_drift), "repeat": repeat})

    async def cancel_evaluation(self, id: str, reason: str | None = None) -> EvaluationOverview:
        """End an evaluation and its trials that are under way. What has run stays."""
        return await self._order(f"/evaluations/{id}/cancel", {"reason": reason})

    async def _order(self, path: str, body: dict[str, Any]) -> EvaluationOverview:
        from holdfast.strategies.evaluation.overview import EvaluationOverview

        given = {key: value for key, value in body.items() if value is not None}
        return msgspec.convert(await self._client.post(path, given), EvaluationOverview)

    # --- figures -----------------------------------------------------------------------------------

    async def evaluations(self, limit: int = 50) -> list[EvaluationOverview]:
        """The evaluations of the server's store, the newest first."""
        from holdfast.strategies.evaluation.overview import EvaluationOverview

        page = await self._client.get("/evaluations", {"limit": limit})
        return msgspec.convert(page["data"], list[EvaluationOverview])

    async def evaluation_figures(self, id: str) -> EvaluationFigures:
        """The figures of an evaluation by now."""
        from holdfast.strategies.evaluation.report.views import EvaluationFigures

        return msgspec.convert(await self._client.get(f"/evaluations/{id}"), EvaluationFigures)

    async def evaluation_cases(self, id: str, after: int = 0, limit: int = 100) -> EvaluationCases:
        """Cases of an evaluation, and what each arm made of them by now; `next` is where the next page begins."""
        from holdfast.strategies.evaluation.report.views import EvaluationCases

        given = {"after": after, "limit": limit}
        return msgspec.convert(await self._client.get(f"/evaluations/{id}/cases", given), EvaluationCases)

    async def compare_arms(self, left: str, right: str) -> ComparedArms:
        """Two arms, each `EVALUATION:ARM`, on the cases that both have."""
        from holdfast.strategies.evaluation.report.views import ComparedArms

        given = {"left": left, "right": right}
        return msgspec.convert(await self._client.get("/evaluations/comparison", given), ComparedArms)


def _terms(budget: Limits | None, jobs: int, accept_drift: bool) -> dict[str, Any]:
    return {"budget": _plain(budget), "jobs": jobs, "accept_drift": accept_drift}


def _body_of(plan: Plan) -> dict[str, Any]:
    """A plan as it is sent: with names of what the server has, and with its cases."""
    dataset = plan.dataset()
    return {
        "strategies": [_named(each, "strategy") for each in plan.strategies],
        "data": msgspec.to_builtins(dataset.cases),
        "dataset": dataset.name,
        "models": [each if isinstance(each, str) else dict(each) for each in plan.models],
        "graders": [_named(each, "grader") for each in plan.graders or dataset.graders],
        "repeat": plan.repeat,
        "seed": plan.seed,
        "budget": _plain(plan.budget),
        "prices": {model: msgspec.to_builtins(price) for model, price in plan.prices.items()},
        "service": plan.service,
        "reuse": list(plan.reuse),
    }


def _plain(limits: Limits | None) -> dict[str, Any] | None:
    if isinstance(limits, Budget):
        return {key: value for key, value in msgspec.to_builtins(limits).items() if value is not None}
    return None if limits is None else dict(limits)


def _named(given: Any, what: str) -> str | dict[str, Any]:
    """A strategy or a grader by its name, or a table with one."""
    from holdfast.programs.registry import Strategy

    match given:
        case str():
            return given
        case Mapping():
            return dict(given)
        case Strategy():
            return given.name
        case _:
            raise InvalidValueError(what, f"a server is told names: {given!r} is none")
