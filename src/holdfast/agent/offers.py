"""`MountOffers`: what a runtime has for the sessions in one of its stores: providers, models and tools; and which of
those models answers a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.kind import KIND
from holdfast.core.needs import Need
from holdfast.core.queries import LlmQuery
from holdfast.core.state import Session
from holdfast.engine.listed_offers import ListedOffers

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.drivers import ToolDrivers


class MountOffers:
    """What a runtime offers."""

    def __init__(self, runtime: Runtime, tools: ToolDrivers) -> None:
        self._runtime = runtime
        self._tools = tools

    def meets(self, session: Session, need: Need) -> bool | None:
        """Whether the runtime has what a session needs; None if that is not for runtimes to say."""
        runtime = self._runtime
        match need.kind:
            case "provider":
                return need.name in runtime.providers
            case "llm":
                return runtime.policy.provider in runtime.providers
            case "model":
                return need.name in runtime.named_models
            case "tool":
                return self._tools.has(session.id, need.name, agent_fold(session).policies.current.plugins)
            case "agent":
                return need.name in runtime.subagents
            case _:
                return None

    def may_meet(self, need: Need) -> bool | None:
        """Whether the runtime may have what some session needs; None if that is not for runtimes to say."""
        runtime = self._runtime
        match need.kind:
            case "provider":
                return need.name in runtime.providers
            case "llm":
                return runtime.policy.provider in runtime.providers
            case "model":
                return need.name in runtime.named_models
            case "tool" if self._tools.may_have(need.name):
                return True
            case _:
                return None

    def listed(self) -> ListedOffers:
        """What the runtime offers to all sessions, by name."""
        runtime = self._runtime
        return ListedOffers(
            providers=sorted(runtime.providers),
            models=sorted(runtime.named_models),
            tools=self._tools.names,
            agents=sorted(runtime.subagents),
            has_model=runtime.policy.provider in runtime.providers,
        )

    def model_names(self, session: Session, query: LlmQuery) -> Sequence[str]:
        """The names of the model that answers a query here: `PROVIDER:MODEL`, and the others that it has."""
        runtime = self._runtime
        provider, model = runtime.policy.provider, runtime.policy.model
        if session.program_kind == KIND:
            policy = agent_fold(session).policies.current
            provider, model = policy.provider or provider, policy.model or model
        elif (assigned := runtime.named_models.get(session.llm)) is not None:
            provider, model = assigned.provider.id, assigned.model
        named = query.options.get("model")
        model = named if isinstance(named, str) else model
        known = (
            name
            for name, choice in runtime.named_models.items()
            if (choice.provider.id, choice.model) == (provider, model)
        )
        return list(dict.fromkeys([f"{provider}:{model}", model, *known]))
