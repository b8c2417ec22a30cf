"""The driver that asks models: for turns of agents, from their conversation; for strategies, from their prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.agent import live
from holdfast.agent.errors import ProviderUnavailableError
from holdfast.agent.providers.calling import Called, CallItem, Choice, Reset, Retrying, call
from holdfast.agent.providers.protocol import ModelRequest, ProviderError, ReasoningDelta, TextDelta, ToolSpec
from holdfast.agent.tools.running import finish_schema
from holdfast.core.budget import DEFAULT_PRICE
from holdfast.core.conversation import TurnState
from holdfast.core.messages import AgentMessage, TextBlock
from holdfast.core.policy import Policy
from holdfast.core.queries import Failure, LlmQuery, Usage
from holdfast.core.turn import FINISH_TOOL, Replied
from holdfast.engine.drivers import Attempt, Reply

if TYPE_CHECKING:
    from holdfast.agent.place import Place
    from holdfast.agent.runtime import Runtime


class ModelDriver:
    """Answers `llm` queries of the sessions in one place."""

    def __init__(self, runtime: Runtime, place: Place) -> None:
        self._runtime = runtime
        self._place = place

    async def __call__(self, query: LlmQuery, attempt: Attempt) -> Reply | Failure:
        if query.iteration is None:
            return await self._of_strategy(query, attempt)
        conversation = await self._place.conversations.with_query(attempt.session_id, query.id)
        policy = conversation.policy
        assert policy is not None
        request = ModelRequest(
            model=policy.model,
            messages=_shown(conversation.window),
            system=policy.instructions,
            tools=[*self._runtime.tools.specs(policy.tools), *_finish(conversation.running)],
            params=policy.generation,
            key=attempt.key,
        )
        turn = conversation.running.id if conversation.running is not None else ""
        return await self._ask(policy, request, turn, query.iteration, attempt)

    async def _ask(
        self, policy: Policy, request: ModelRequest, turn: str, iteration: int, attempt: Attempt
    ) -> Reply | Failure:
        hub, session_id = self._place.hub, attempt.session_id
        number = 1

        async def tell(item: CallItem) -> None:
            nonlocal number
            match item:
                case TextDelta(text=text):
                    await hub.emit(session_id, live.TextDelta(turn=turn, text=text, attempt=number))
                case ReasoningDelta(text=text):
                    await hub.emit(session_id, live.ReasoningDelta(turn=turn, text=text, attempt=number))
                case Reset(attempt=failed):
                    await hub.emit(session_id, live.Retracted(turn=turn, attempt=failed))
                case Retrying(attempt=failed, error=error, delay_s=delay):
                    number = failed + 1
                    await hub.emit(session_id, live.Retrying(turn=turn, attempt=failed, why=error, delay_s=delay))

        started = live.ModelStarted(turn=turn, iteration=iteration, model=request.model)
        await hub.emit(session_id, started)
        try:
            called = await call(self._choices(policy), request, retry=self._runtime.retry, emit=tell)
        except ProviderError as error:
            return Failure(str(error), error.fault)
        reply, usage = called.reply, self._priced(called)
        if usage is not None:
            await hub.emit(session_id, live.UsageEvent(turn=turn, model=called.model, usage=usage))
        kept = Replied(content=reply.content, stop=reply.stop, model=called.model, attempts=called.attempts)
        return Reply(msgspec.to_builtins(kept), usage)

    async def _of_strategy(self, query: LlmQuery, attempt: Attempt) -> Reply | Failure:
        """A strategy's question: one prompt, answered with text."""
        options = dict(query.options)
        model = options.pop("model", None)
        options.pop("role", None)
        policy = self._runtime.policy
        request = ModelRequest(
            model=model if isinstance(model, str) else policy.model,
            messages=[AgentMessage("user", [TextBlock(query.prompt)])],
            system=query.system or "",
            params={**policy.generation, "max_tokens": query.max_tokens, **options},
            key=attempt.key,
        )

        async def ignore(item: object) -> None:
            return

        try:
            choices = [Choice(choice.provider, request.model) for choice in self._choices(policy)[:1]]
            called = await call(choices, request, retry=self._runtime.retry, emit=ignore)
        except ProviderError as error:
            return Failure(str(error), error.fault)
        text = "".join(block.text for block in called.reply.content if isinstance(block, TextBlock))
        return Reply(text, self._priced(called))

    def _priced(self, called: Called) -> Usage | None:
        """The usage of a call, with what it costs, where that is known here and was not said by the provider."""
        usage = called.reply.usage
        price = self._runtime.prices.get(called.model) or self._runtime.prices.get(DEFAULT_PRICE)
        if usage is None or usage.cost is not None or price is None:
            return usage
        cost = price.of(usage.prompt_tokens or 0, usage.completion_tokens or 0)
        return msgspec.structs.replace(usage, cost=cost)

    def _choices(self, policy: Policy) -> list[Choice]:
        provider = self._runtime.providers.get(policy.provider)
        if provider is None:
            raise ProviderUnavailableError(policy.provider, "this runtime does not have it")
        return [Choice(provider, policy.model), *self._runtime.fallbacks]


def _finish(turn: TurnState | None) -> list[ToolSpec]:
    """The tool by which the model submits the value that the turn is to come to."""
    if turn is None or turn.output is None:
        return []
    return [ToolSpec(FINISH_TOOL, "Submit the result. Call it once, when you are done.", finish_schema(turn.output))]


def _shown(window: list[AgentMessage]) -> list[AgentMessage]:
    """The conversation as providers take it: what the runtime itself remarked is told as by the user."""
    return [AgentMessage("user", each.content) if each.role in ("system", "signal") else each for each in window]
