"""What sessions have spent, summed up by key; and told apart by model, which no row of a store says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.results import session_report
from holdfast.core.errors import HoldfastError
from holdfast.serve.http.door import Door
from holdfast.store.overview import SessionTotal

MODEL_SESSIONS = 200
"""Sessions that are opened to see which models they used, the dearest first: the others are a small part of the sum."""

CostKey: TypeAlias = tuple[tuple[str, str], ...]


class Spending(dict[CostKey, tuple[int, int, float]]):
    """Sessions, tokens and costs by key."""

    def __missing__(self, key: CostKey) -> tuple[int, int, float]:
        return 0, 0, 0.0

    def add(self, key: CostKey, sessions: int, tokens: int, cost: float) -> None:
        before = self[key]
        self[key] = before[0] + sessions, before[1] + tokens, before[2] + cost

    def rows(self) -> list[tuple[CostKey, tuple[int, int, float]]]:
        """All of it, by key, without what is empty but for what rounding has left."""
        return [(key, spent) for key, spent in sorted(self.items()) if spent[0] or spent[1] or spent[2] > 1e-9]


def is_between(day: str, first: str | None, last: str | None) -> bool:
    """Whether a day is among those that were asked for."""
    return (first is None or day >= first) and (last is None or day <= last)


async def by_model(
    door: Door, sessions: Sequence[SessionTotal], days: tuple[str | None, str | None], sums: Spending
) -> Spending:
    """The same sums told apart by model, for the sessions that cost most. What is left has an empty name."""
    told = Spending(sums)
    wanted = [each for each in sessions if is_between(each.key["day"], *days) and (each.cost or each.tokens)]
    for each in wanted[:MODEL_SESSIONS]:
        rest = next((key for key in sums if dict(key).get("day") in (None, each.key["day"])), None)
        if rest is None:
            continue
        try:
            models = await _models(door, each.key["session"])
        except HoldfastError:
            continue  # it cannot be read any more: it stays with the rest
        for model, (tokens, cost) in models.items():
            key = tuple((name, model if name == "model" else value) for name, value in rest)
            told.add(key, 1, tokens, cost)
            told.add(rest, 0, -min(tokens, told[rest][1]), -min(cost, told[rest][2]))
        told.add(rest, -min(1, told[rest][0]), 0, 0.0)
    return told


async def _models(door: Door, session_id: str) -> dict[str, tuple[int, float]]:
    """The tokens and the cost of a session, by model; for a strategy, by who answers its questions to models."""
    conversation: Conversation = await door.runtime.mount.conversations.get(session_id)
    found = session_report(conversation).by_model
    if found:
        return {model or "unnamed": (usage.total, usage.cost) for model, usage in found.items()}
    session = await door.holdfast.session(session_id)
    policy = conversation.next_policy
    model = session.llm if policy is None else policy.model or "unnamed"
    return {model: (session.metrics.total_tokens, session.metrics.cost)}
