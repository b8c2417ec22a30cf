"""How the sessions of an evaluation begin: trials of strategies, of agents and of bare models, judges and people."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agent.machine.delegation import TASK_TURN
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.policy import RAW, RLM, Policy, limits_from
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.agent.runtime import Runtime
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.core.budget import Budget
from holdfast.core.errors import SessionExistsError
from holdfast.core.events import Event, PausedEvent, RunningEvent
from holdfast.core.values import Json
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.lookup import find_program
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.errors import PlanError
from holdfast.strategies.evaluation.models import ModelTable
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.programs import PART, ask_judge, ask_person


class TrialStarts:
    """What the sessions of an evaluation are started with: the arguments of `Holdfast.start`."""

    def __init__(self, runtime: Runtime | None, models: ModelTable, plan: FrozenPlan) -> None:
        self._runtime = runtime
        self._models = models
        self._plan = plan

    def trial(self, arm: Arm, case: Case, budget: Budget | None) -> dict[str, Any]:
        """A case run by an arm."""
        ctx: Json = self._agent_ctx(arm, case) if arm.kind == "agent" else case.ctx(arm.options)
        return {"program": arm.program, "ctx": ctx, **self._terms(arm.llm, arm.model, budget)}

    def judge(self, prompts: list[str], model: str | None, budget: Budget | None) -> dict[str, Any]:
        """A judge who is asked these prompts."""
        return {"program": ask_judge.program, "ctx": {"prompts": prompts}, **self._terms(model, model, budget)}

    def person(self, question: str) -> dict[str, Any]:
        """A person who is asked a question."""
        return {"program": ask_person.program, "ctx": {"question": question}, **self._terms(None, None, None)}

    def strategy(self, name: str, ctx: Json, budget: Budget | None) -> dict[str, Any]:
        """A strategy that grades."""
        return {"program": find_program(name), "ctx": ctx, **self._terms(None, None, budget)}

    def is_priced(self, arm: Arm) -> bool:
        """Whether it is known what the model of an arm costs."""
        return self._models.price(arm.model) is not None

    def _terms(self, llm: str | None, model: str | None, budget: Budget | None) -> dict[str, Any]:
        prices = self._models.session_prices(model, budget)  # with them, whoever runs the session knows what it costs
        return {"llm": llm, "service": self._plan.service, "budget": budget, "prices": prices, "labels": [PART]}

    def _agent_ctx(self, arm: Arm, case: Case) -> Json:
        """An agent gets the input of a case as its one turn, and ends with it."""
        if self._runtime is None or arm.llm is None:
            raise PlanError(arm.name, "an agent needs a runtime and a model: name one under models")
        chosen = self._runtime.named_models[arm.llm]
        definition = msgspec.convert(arm.definition, AgentDefinition)
        limits = {} if definition.iterations is None else {"iterations": definition.iterations}
        policy = Policy(
            provider=chosen.provider.id,
            model=chosen.model,
            mode=definition.mode,
            final_answer=RAW if definition.mode == RLM else "",
            instructions=definition.instructions,
            limits=limits_from(limits, self._runtime.policy.limits),
            tools=definition.tools,
            deny=definition.deny,
        )
        schema = definition.result if isinstance(definition.result, dict) else None
        task = TurnInput(turn=TASK_TURN, content=[TextBlock(case.task)], output=schema)
        return {"policy": msgspec.to_builtins(self._runtime.windowed(policy)), "task": task.to_answer().value}


async def start_or_resume(hf: Holdfast, session_id: str, start: dict[str, Any]) -> Event:
    """Start a session and wait for it; or wait for the one that exists already, whatever it was given to spend."""
    try:
        event = await hf.start(**start, id=session_id)
    except SessionExistsError:
        event = await hf.resume(session_id)
    if event.replayed and isinstance(event, PausedEvent):
        # A start that is tried again is told what the first one was told: somebody may have answered since.
        event = await hf.resume(session_id)
    return await _until_ended_elsewhere(hf, session_id) if isinstance(event, RunningEvent) else event


async def _until_ended_elsewhere(hf: Holdfast, session_id: str) -> Event:
    """Wait for a session that other processes run, until it has ended or waits for a person."""
    with hf.engine.watch(session_id) as changes:
        while True:
            summary = (await hf.store.session(session_id)).summary
            if summary.state.is_terminal or summary.waiting_for == "human":
                return await hf.event(session_id)
            await changes.changed()
