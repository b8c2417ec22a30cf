"""`AgentDefinition`: what a subagent is."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.agent.result_type import ResultType, ResultTypeError
from holdfast.agent.subagents.errors import AgentDefinitionError
from holdfast.core.budget import Budget, check_limits
from holdfast.core.errors import InvalidBudgetError, InvalidValueError
from holdfast.core.values import Json, checked
from holdfast.programs.names import invalid_name_reason


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subagent. What is not set is inherited from the session that delegates to it.

    `AgentDefinition(name="critic", description="Finds mistakes in a text", instructions="Be strict.")`
    """

    name: str
    description: str
    """What it is good for: by this, a model chooses it."""
    instructions: str = ""
    """Its system text, all of it."""
    tools: list[str] | None = None
    """The tools that it has, by name or pattern, of those that its parent has; None for all of them."""
    deny: list[str] = msgspec.field(default_factory=list)
    """Tools that it does not have, by name or pattern."""
    model: str | None = None
    """`SERVICE:MODEL`, or a model of its parent's provider."""
    mode: Literal["standard", "rlm"] = "standard"
    iterations: int | None = None
    """Model calls in its turn."""
    budget: Budget | None = None
    """What it may spend at most, beside its share of what its parent has left."""
    result: Any = None
    """The type of the value that it gives back, or its JSON schema; None if it answers in words."""

    @property
    def schema(self) -> dict[str, Json] | None:
        """The JSON schema of its result, or None."""
        return None if self.result is None else ResultType.of(self.result).schema


def check_definition(definition: AgentDefinition, where: str = "") -> AgentDefinition:
    """Give back a definition that makes sense. Raises `AgentDefinitionError`."""
    where = where or definition.name or "?"

    def fail(why: str) -> AgentDefinitionError:
        return AgentDefinitionError(where, why)

    if (why := invalid_name_reason(definition.name)) is not None:
        raise fail(f"name: {why}")
    if not definition.description.strip():
        raise fail("description: say what it is good for; a model chooses it by that")
    try:
        checked(msgspec.structs.replace(definition, result=None), "definition")
        check_limits(_without_cost(definition.budget), {})
        definition.schema  # noqa: B018 - raises if it is none
    except (InvalidValueError, InvalidBudgetError, ResultTypeError) as error:
        raise fail(str(error)) from None
    if definition.iterations is not None and definition.iterations < 1:
        raise fail(f"iterations must be at least 1, got {definition.iterations}")
    return definition


def _without_cost(budget: Budget | None) -> Budget | None:
    """A budget as far as it can be checked before prices are known."""
    if budget is None or budget.max_cost is None:
        return budget
    if budget.max_cost < 0:
        raise InvalidBudgetError(f"max_cost must be at least 0, got {budget.max_cost:g}")
    return msgspec.structs.replace(budget, max_cost=None)
