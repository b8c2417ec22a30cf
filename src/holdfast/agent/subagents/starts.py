"""How a subagent begins: its definition and the policy of its parent, resolved to the session that works its task."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.machine.approval import inherited_rules
from holdfast.agent.machine.delegation import DELEGATE_TOOL, READ_TOOL, TASK_TURN
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.kind import KIND
from holdfast.agent.machine.messages import ContentBlock, TextBlock
from holdfast.agent.machine.policy import RAW, RLM, Policy, limits_from
from holdfast.agent.machine.queries import DelegateQuery
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.agent.providers.prices import session_prices
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.core.budget import DEFAULT_PRICE, least
from holdfast.core.queries import ChildQuery
from holdfast.core.records import Program
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.engine.owner import ChildStart

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.runtime import Runtime


class SubagentStarts:
    """Starts the subagents of the sessions in one store."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        self._runtime = runtime
        self._mount = mount

    async def __call__(self, parent: Session, query: ChildQuery) -> ChildStart:
        """How the subagent of a query begins. Raises `UnknownAgentError`."""
        assert isinstance(query, DelegateQuery)
        definition = self._runtime.subagents[query.program]
        above = self._runtime.provided(agent_fold(parent).policies.current)
        loaded = await self._mount.loaded_sessions.get(parent.id, above)
        names = loaded.catalog(above).names
        there = [name for name in names if name == DELEGATE_TOOL or self._runtime.tools.get(name) is not None]
        policy = self._policy(definition, above, sorted(there))
        schema = query.output if query.output is not None else definition.schema
        task = TurnInput(turn=TASK_TURN, content=_content(query, policy.mode), output=schema)
        ctx: dict[str, Any] = {"policy": msgspec.to_builtins(policy), "task": task.to_answer().value}
        if policy.mode != "standard" and query.seed:
            ctx["seed"] = query.seed
        assert parent.started is not None
        given = {**parent.started.prices, **self._runtime.models.prices}
        if policy.model != above.model and policy.model not in given:
            given.pop(DEFAULT_PRICE, None)  # it is the price of the parent's model
        budget = least(parent.started.budget, query.budget, definition.budget)
        return ChildStart(
            program=Program(kind=KIND, name=definition.name),
            ctx=ctx,
            budget=definition.budget,
            prices=session_prices(policy.model, given, budget),
        )

    def _policy(self, definition: AgentDefinition, above: Policy, there: list[str]) -> Policy:
        """The policy of a subagent: what its definition says, within what its parent may do itself."""
        runtime = self._runtime
        approval, plugins = inherited_rules(above.approval, above.plugins, runtime.plugins.everywhere)
        limits = {} if definition.iterations is None else {"iterations": definition.iterations}
        policy = Policy(
            provider=above.provider,
            model=above.model,
            mode=definition.mode,
            final_answer=RAW if definition.mode == RLM else "",
            instructions=definition.instructions,
            limits=limits_from(limits, runtime.policy.limits),
            generation=above.generation,
            tools=_selected(definition, there),
            catalog_tokens=above.catalog_tokens,
            approval=approval,
            plugins=plugins,
            window=above.window,
            compaction=above.compaction,
            deadlines=above.deadlines,
            delegation=msgspec.structs.replace(above.delegation, depth=max(0, above.delegation.depth - 1)),
        )
        if definition.model is None:
            return policy
        chosen = runtime.model_of(definition.model, above.provider)
        changed = {"provider": chosen.provider.id, "model": chosen.model, "window": None}
        return runtime.windowed(msgspec.structs.replace(policy, **changed))


def _selected(definition: AgentDefinition, there: list[str]) -> list[str]:
    """The tools of a subagent, by name, of those that its parent has."""

    def fits(name: str, patterns: list[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    tools = [name for name in there if definition.tools is None or fits(name, definition.tools)]
    if READ_TOOL in there and READ_TOOL not in tools:
        tools.append(READ_TOOL)  # its tools may give back more than is shown at once
    return [name for name in tools if not fits(name, definition.deny)]


def _content(query: DelegateQuery, mode: str) -> list[ContentBlock]:
    """What a subagent is shown."""
    if not query.seed or mode != "standard":
        return [TextBlock(query.task)]
    return [TextBlock(query.task), TextBlock(f"\n\n<seed>\n{_pretty(query.seed)}\n</seed>")]


def _pretty(value: Json) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
