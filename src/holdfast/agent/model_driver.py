"""The driver that asks models: for turns of agents, from their conversation; for strategies, from their prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.agent import live_events as live
from holdfast.agent.errors import ProviderUnavailableError
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.program import NOTHING_TO_SUM_UP, OVERFLOW
from holdfast.agent.machine.queries import ReplyQuery, SummaryQuery
from holdfast.agent.machine.tree import Tree
from holdfast.agent.machine.turn import RecordedReply
from holdfast.agent.plugins.hooks import Hooks, abort_failure
from holdfast.agent.plugins.plugin import AbortTurn
from holdfast.agent.providers.provider import (
    ModelReply,
    ModelRequest,
    ProviderError,
    ReasoningDelta,
    TextDelta,
    ToolSpec,
)
from holdfast.agent.providers.retry import CallItem, CallResult, FailedAttempt, ProviderModel, ResetDelta, call
from holdfast.agent.summary_prompt import TRIES, most_chars, summary_request, summary_task
from holdfast.agent.tools.finish import finish_tools
from holdfast.core.budget import DEFAULT_PRICE
from holdfast.core.queries import Failure, LlmQuery, Usage
from holdfast.engine.drivers import Attempt, Reply

if TYPE_CHECKING:
    from holdfast.agent.loaded_session import LoadedSession
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.runtime import Runtime


class _Asking(NamedTuple):
    """On whose behalf a model is asked."""

    session_id: str
    turn: str
    iteration: int
    """0: it is to sum up."""


class ModelDriver:
    """Answers `llm` queries of the sessions in one place."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        self._runtime = runtime
        self._mount = mount

    async def __call__(self, query: LlmQuery, attempt: Attempt) -> Reply | Failure:
        if not isinstance(query, ReplyQuery | SummaryQuery):
            return await self._of_strategy(query, attempt)
        conversation = await self._mount.conversations.with_query(attempt.session_id, query.id)
        policy, turn = conversation.policy, conversation.running
        assert policy is not None
        try:
            loaded = await self._mount.loaded_sessions.at_work(conversation)
            if isinstance(query, SummaryQuery):
                return await self._sum_up(query, conversation, policy, attempt)
            request = await self._request(loaded, conversation, policy, attempt)
        except AbortTurn as abort:
            return abort_failure(abort)
        asking = _Asking(attempt.session_id, turn.id if turn is not None else "", query.iteration)
        return await self._ask(policy, request, asking, loaded.hooks)

    async def _request(
        self, loaded: LoadedSession, conversation: Conversation, policy: Policy, attempt: Attempt
    ) -> ModelRequest:
        """What a model is asked: tools and system text, which seldom change, and the conversation as it grows."""
        turn = conversation.running
        catalog = loaded.catalog(policy)
        messages = await loaded.hooks.history(list(conversation.window))
        request = ModelRequest(
            model=policy.model,
            messages=_shown(messages),
            system=loaded.prompt(policy, turn.prompt if turn is not None else None, catalog),
            tools=_with(catalog.told(policy.catalog_tokens), finish_tools(turn)),
            params=policy.generation,
            key=attempt.key,
        )
        return await loaded.hooks.before_model(request)

    async def _sum_up(
        self, query: LlmQuery, conversation: Conversation, policy: Policy, attempt: Attempt
    ) -> Reply | Failure:
        """A summary of what was said, but for the latest of it."""
        tree, running = conversation.tree, conversation.running
        given = [id(message) for message in running.messages if message.role == "user"] if running is not None else []
        if all(id(message) in given for message in tree.summed):  # the model is shown what it was given in any case
            return Failure("there is nothing to sum up: all that was said is kept as it is", NOTHING_TO_SUM_UP)
        asking = _Asking(attempt.session_id, running.id if running is not None else "", 0)
        await self._emit(asking, live.CompactionStartedEvent(turn=asking.turn, model=policy.model))
        called = await self._summary(query, tree, policy, asking, attempt.key)
        if isinstance(called, Failure):
            await self._emit(asking, live.CompactionFinishedEvent(turn=asking.turn, error=called.message))
            return called
        done = await self._reply(called, asking)
        await self._emit(asking, live.CompactionFinishedEvent(turn=asking.turn, summary=text_of(called.reply.content)))
        return done

    async def _summary(
        self, query: LlmQuery, tree: Tree, policy: Policy, asking: _Asking, key: str
    ) -> CallResult | Failure:
        """A summary, of less and less where all of it is too much for the model."""
        former, most, number = tree.frame.task or tree.frame.summary, most_chars(policy), 1
        while True:
            task = summary_task(tree.summed, query.prompt, former=former, most=most)
            called = await self._call(policy, summary_request(policy, task, key), asking)
            if number == TRIES or not isinstance(called, Failure) or called.code != OVERFLOW:
                return called
            most, number, key = len(task) // 2, number + 1, f"{key}/{number}"  # it is another request

    async def _ask(self, policy: Policy, request: ModelRequest, asking: _Asking, hooks: Hooks) -> Reply | Failure:
        started = live.ModelStartedEvent(turn=asking.turn, iteration=asking.iteration, model=request.model)
        await self._emit(asking, started)
        called = await self._call(policy, request, asking)
        if isinstance(called, Failure):
            return called
        return await self._reply(called, asking, await hooks.after_model(request, called.reply))

    async def _call(self, policy: Policy, request: ModelRequest, asking: _Asking) -> CallResult | Failure:
        """Have a model answer. What it says is told while it does, unless it is no answer to anybody."""
        turn, number = asking.turn, 1

        async def tell(item: CallItem) -> None:
            nonlocal number
            match item:
                case FailedAttempt(attempt=failed, error=error, delay_s=delay):
                    number = failed + 1
                    await self._emit(asking, live.RetryEvent(turn=turn, attempt=failed, why=error, delay_s=delay))
                case _ if not asking.iteration:
                    pass
                case TextDelta(text=text):
                    await self._emit(asking, live.TextDeltaEvent(turn=turn, text=text, attempt=number))
                case ReasoningDelta(text=text):
                    await self._emit(asking, live.ReasoningDeltaEvent(turn=turn, text=text, attempt=number))
                case ResetDelta(attempt=failed):
                    await self._emit(asking, live.RetractedEvent(turn=turn, attempt=failed))

        try:
            choices = self._choices(policy, request.model)
            return await call(choices, request, retry=self._runtime.models.retry, emit=tell)
        except ProviderError as error:
            return Failure(str(error), error.fault)

    async def _reply(self, called: CallResult, asking: _Asking, changed: ModelReply | None = None) -> Reply:
        """A reply as the journal keeps it, with what it cost."""
        reply, usage = changed or called.reply, self._priced(called)
        if usage is not None:
            await self._emit(asking, live.UsageEvent(turn=asking.turn, model=called.model, usage=usage))
        kept = RecordedReply(content=reply.content, stop=reply.stop, model=called.model, attempts=called.attempts)
        return Reply(msgspec.to_builtins(kept), usage)

    async def _emit(self, asking: _Asking, event: live.LiveEvent) -> None:
        await self._mount.live_events.emit(asking.session_id, event)

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
            choices = self._choices(policy, request.model)[:1]
            called = await call(choices, request, retry=self._runtime.models.retry, emit=ignore)
        except ProviderError as error:
            return Failure(str(error), error.fault)
        return Reply(text_of(called.reply.content), self._priced(called))

    def _priced(self, called: CallResult) -> Usage | None:
        """The usage of a call, with what it costs, where that is known here and was not said by the provider."""
        usage = called.reply.usage
        price = self._runtime.models.prices.get(called.model) or self._runtime.models.prices.get(DEFAULT_PRICE)
        if usage is None or usage.cost is not None or price is None:
            return usage
        cost = price.of(usage.prompt_tokens or 0, usage.completion_tokens or 0)
        return msgspec.structs.replace(usage, cost=cost)

    def _choices(self, policy: Policy, model: str) -> list[ProviderModel]:
        """Who is asked: the session's provider for this model, and those to fall back on."""
        provider = self._runtime.providers.get(policy.provider)
        if provider is None:
            raise ProviderUnavailableError(policy.provider, "this runtime does not have it")
        return [ProviderModel(provider, model), *self._runtime.fallbacks]


def _with(told: list[ToolSpec], more: list[ToolSpec]) -> list[ToolSpec]:
    """The very list that was told before, where there is nothing to add."""
    return [*told, *more] if more else told


def text_of(content: Sequence[ContentBlock]) -> str:
    """What is said in words."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def _shown(window: list[AgentMessage]) -> list[AgentMessage]:
    """The conversation as providers take it.

    Few of them take what the runtime itself remarks at its place in the conversation, so it is told in the user's; it
    is marked, for the user has not said it.
    """
    return [_marked(each) if each.role in ("system", "signal") else each for each in window]


def _marked(remark: AgentMessage) -> AgentMessage:
    return AgentMessage("user", [TextBlock(f"<runtime>\n{remark.text}\n</runtime>")])
