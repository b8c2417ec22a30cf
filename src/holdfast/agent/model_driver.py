"""The driver that answers `llm` queries: of agents, from their conversation; of strategies, from their prompt."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, assert_never

import msgspec

from holdfast.agent import live_events as live
from holdfast.agent.errors import ProviderUnavailableError
from holdfast.agent.machine.calls import HARMLESS, wish
from holdfast.agent.machine.compaction import content_tokens
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.delegation import DELEGATE_TOOL, READ_TOOL
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.kind import KIND
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock, ToolUseBlock, plain_text
from holdfast.agent.machine.policy import RLM, Policy
from holdfast.agent.machine.program import NOTHING_TO_SUM_UP, OVERFLOW
from holdfast.agent.machine.queries import CellTool, ReplyQuery, ServedBy, SummaryQuery
from holdfast.agent.machine.tree import REMARKS, Tree
from holdfast.agent.machine.turn import RecordedReply
from holdfast.agent.plugins.hooks import abort_failure
from holdfast.agent.plugins.plugin import AbortTurn
from holdfast.agent.providers.provider import (
    ModelReply,
    ModelRequest,
    ProviderError,
    ReasoningDelta,
    TextDelta,
)
from holdfast.agent.providers.retry import CallItem, CallResult, FailedAttempt, ProviderModel, ResetDelta, call
from holdfast.agent.rlm.emission import RUN_CODE, as_sent, in_fences
from holdfast.agent.rlm.fence import CellCutter
from holdfast.agent.rlm.prompts import cell_tools, identifier, parameters_of, rlm_prompt
from holdfast.agent.summary_prompt import TRIES, most_chars, summary_request, summary_task
from holdfast.agent.tools.finish import finish_tools
from holdfast.core.budget import DEFAULT_PRICE
from holdfast.core.queries import Failure, LlmQuery, Usage
from holdfast.core.tokens import estimate_tokens
from holdfast.engine.drivers import Attempt, Reply

if TYPE_CHECKING:
    from holdfast.agent.loaded_session import LoadedSession
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.session_catalog import SessionCatalog


class _Caller(msgspec.Struct, frozen=True):
    """On whose behalf a model is called."""

    session_id: str
    turn: str
    iteration: int
    """0 for a summary."""
    model: str
    """The model that the session is recorded with."""


class ModelDriver:
    """Answers `llm` queries of the sessions in one store."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        self._runtime = runtime
        self._mount = mount

    async def __call__(self, query: LlmQuery, attempt: Attempt) -> Reply | Failure:
        if not isinstance(query, ReplyQuery | SummaryQuery):
            return await self._of_strategy(query, attempt)
        conversation = await self._mount.conversations.with_query(attempt.session_id, query.id)
        turn, recorded = conversation.running, conversation.policy
        assert recorded is not None
        policy = self._runtime.provided(recorded)
        try:
            loaded = await self._mount.loaded_sessions.at_work(conversation, recorded)
            if isinstance(query, SummaryQuery):
                return await self._sum_up(query, conversation, policy, attempt)
            request = await self._request(loaded, conversation, policy, attempt)
        except AbortTurn as abort:
            return abort_failure(abort)
        caller = _Caller(attempt.session_id, turn.id if turn is not None else "", query.iteration, recorded.model)
        return await self._ask(policy, request, caller, loaded)

    async def _request(
        self, loaded: LoadedSession, conversation: Conversation, policy: Policy, attempt: Attempt
    ) -> ModelRequest:
        """The request to the model: tools and system text, which seldom change, then the growing conversation."""
        turn = conversation.running
        catalog = loaded.catalog(policy)
        hooks, tree = loaded.hooks, conversation.tree
        messages = window = tree.window
        if hooks.plugins:
            messages = await hooks.history(list(messages))
        tools = catalog.shown_specs(policy.catalog_tokens)
        if turn is not None and turn.output is not None:
            tools = [*tools, *finish_tools(turn.output)]
        system = loaded.prompt(policy, turn.prompt if turn is not None else None, catalog)
        if policy.mode == RLM:
            written = rlm_prompt(catalog.shown_specs(policy.catalog_tokens), policy, turn.output if turn else None)
            system = "\n\n".join(filter(None, (system, written)))
            tools = [RUN_CODE] if policy.emission == "tool" else []
            messages = as_sent(messages, policy.emission)
        request = ModelRequest(
            model=policy.model,
            messages=_shown(messages) if messages is not window or tree.has_remarks else window[:],
            system=system,
            tools=tools,
            params=policy.generation,
            key=attempt.key,
        )
        return await hooks.before_model(request) if hooks.plugins else request

    async def _sum_up(
        self, query: LlmQuery, conversation: Conversation, policy: Policy, attempt: Attempt
    ) -> Reply | Failure:
        """A summary of the conversation except its latest part."""
        tree, running = conversation.tree, conversation.running
        inputs = [id(message) for message in running.messages if message.role == "user"] if running is not None else []
        if all(id(message) in inputs for message in tree.summed):  # the model is shown its input in any case
            return Failure("there is nothing to summarize: the whole conversation is kept as it is", NOTHING_TO_SUM_UP)
        recorded = conversation.policy.model if conversation.policy is not None else ""
        caller = _Caller(attempt.session_id, running.id if running is not None else "", 0, recorded)
        await self._emit(caller, live.CompactionStartedEvent(turn=caller.turn, model=policy.model))
        called = await self._summary(query, tree, policy, caller, attempt.key)
        if isinstance(called, Failure):
            await self._emit(caller, live.CompactionFinishedEvent(turn=caller.turn, error=called.message))
            return called
        done = await self._reply(called, called.reply, caller)
        await self._emit(caller, live.CompactionFinishedEvent(turn=caller.turn, summary=text_of(called.reply.content)))
        return done

    async def _summary(
        self, query: LlmQuery, tree: Tree, policy: Policy, caller: _Caller, key: str
    ) -> CallResult | Failure:
        """A summary; if the conversation is too long for the model, of less and less of it."""
        former, most, number = tree.frame.task or tree.frame.summary, most_chars(policy), 1
        while True:
            task = summary_task(tree.summed, query.prompt, former=former, most=most)
            called = await self._call(policy, summary_request(policy, task, key), caller)
            if number == TRIES or not isinstance(called, Failure) or called.code != OVERFLOW:
                return called
            most, number, key = len(task) // 2, number + 1, f"{key}/{number}"  # it is another request

    async def _ask(
        self, policy: Policy, request: ModelRequest, caller: _Caller, loaded: LoadedSession
    ) -> Reply | Failure:
        started = live.ModelStartedEvent(turn=caller.turn, iteration=caller.iteration, model=request.model)
        await self._emit(caller, started)
        is_rlm = policy.mode == RLM
        called = await self._call(policy, request, caller, CellCutter if is_rlm else None)
        if isinstance(called, Failure):
            return called
        if called.is_cut and called.reply.usage is None:
            usage = _estimated(request, called.reply)
            called = msgspec.structs.replace(called, reply=msgspec.structs.replace(called.reply, usage=usage))
        hooks = loaded.hooks
        reply = await hooks.after_model(request, called.reply) if hooks.plugins else called.reply
        if is_rlm:
            reply = in_fences(reply) if policy.emission == "tool" else reply
            return await self._reply(
                called, reply, caller, cell=_tools_in(reply, loaded.catalog(policy), policy, self._runtime.subagents)
            )
        is_text = plain_text(reply.content) is not None  # which calls no tools
        return await self._reply(called, reply, caller, None if is_text else loaded.catalog(policy))

    async def _call(
        self, policy: Policy, request: ModelRequest, caller: _Caller, cutter: type[CellCutter] | None = None
    ) -> CallResult | Failure:
        """Call a model. Its deltas become live events, unless it writes a summary."""
        turn, number = caller.turn, 1

        def publish(item: CallItem) -> Awaitable[None] | None:
            nonlocal number
            event: live.LiveEvent
            match item:
                case FailedAttempt(attempt=failed, error=error, delay_s=delay):
                    number = failed + 1
                    event = live.RetryEvent(turn=turn, attempt=failed, why=error, delay_s=delay)
                case _ if not caller.iteration:
                    return None
                case TextDelta(text=text):
                    event = live.TextDeltaEvent(turn=turn, text=text, attempt=number)
                case ReasoningDelta(text=text):
                    event = live.ReasoningDeltaEvent(turn=turn, text=text, attempt=number)
                case ResetDelta(attempt=failed):
                    event = live.RetractedEvent(turn=turn, attempt=failed)
                case _:
                    assert_never(item)
            return self._mount.live_events.take(caller.session_id, event)

        try:
            choices = self._choices(caller.session_id, policy, request.model)
            random, retry = self._mount.engine.owner.random.random, self._runtime.models.retry
            return await call(choices, request, retry=retry, emit=publish, random=random, cutter=cutter)
        except ProviderError as error:
            return Failure(str(error), error.fault)

    async def _reply(
        self,
        called: CallResult,
        reply: ModelReply,
        caller: _Caller,
        catalog: SessionCatalog | None = None,
        *,
        cell: dict[str, CellTool] | None = None,
    ) -> Reply:
        """A reply as the journal keeps it, with the cost of the call; `catalog` has the tools that it may call, and
        `cell` those that its cell mentions."""
        usage = self._priced(called, caller.session_id)
        if usage is not None:
            await self._emit(caller, live.UsageEvent(turn=caller.turn, model=called.model, usage=usage))
        model = "" if called.model == caller.model else called.model
        kept = RecordedReply(
            content=reply.content,
            stop=reply.stop,
            model=model,
            attempts=called.attempts,
            served_by={} if catalog is None else _served_by(reply, catalog, self._runtime.subagents),
            cut=called.is_cut,
            tools=cell,
        )
        return Reply(kept.to_value(), usage)

    async def _emit(self, caller: _Caller, event: live.LiveEvent) -> None:
        taking = self._mount.live_events.take(caller.session_id, event)
        if taking is not None:
            await taking

    async def _of_strategy(self, query: LlmQuery, attempt: Attempt) -> Reply | Failure:
        """Answer a strategy's query: one prompt, answered with text."""
        options = dict(query.options)
        model = options.pop("model", None)
        options.pop("role", None)
        session = self._mount.holdfast.engine.at_hand(attempt.session_id)
        assigned = self._runtime.named_models.get(session.llm) if session is not None else None
        policy = self._runtime.policy
        if session is not None and session.program_kind == KIND:  # the cell of an rlm agent asks
            policy = self._runtime.provided(agent_fold(session).policies.current)
        elif assigned is not None:
            policy = msgspec.structs.replace(policy, provider=assigned.provider.id, model=assigned.model)
        request = ModelRequest(
            model=model if isinstance(model, str) else policy.model,
            messages=[AgentMessage("user", [TextBlock(query.prompt)])],
            system=query.system or "",
            params={**policy.generation, "max_tokens": query.max_tokens, **options},
            key=attempt.key,
        )

        def ignore(item: object) -> None:
            return

        turn = agent_fold(session).turn if session is not None and session.program_kind == KIND else None
        caller = _Caller(attempt.session_id, turn or "", 0, request.model)
        if turn is not None:  # watchers of the turn see it as they see the tools that a cell calls
            begun = live.ToolStartedEvent(turn=turn, call=query.id, name="llm", arguments={"prompt": query.prompt})
            await self._emit(caller, begun)
        try:
            choices = self._choices(attempt.session_id, policy, request.model)[:1]
            random = self._mount.engine.owner.random.random
            called = await call(choices, request, retry=self._runtime.models.retry, emit=ignore, random=random)
        except ProviderError as error:
            if turn is not None:
                failed = live.ToolFinishedEvent(turn=turn, call=query.id, name="llm", result=str(error), is_error=True)
                await self._emit(caller, failed)
            return Failure(str(error), error.fault)
        text = text_of(called.reply.content)
        if turn is not None:
            await self._emit(caller, live.ToolFinishedEvent(turn=turn, call=query.id, name="llm", result=text))
        usage = self._priced(called, attempt.session_id)
        by_model = {called.model: usage} if usage is not None else None
        return Reply(text, msgspec.structs.replace(usage, by_model=by_model) if usage is not None else None)

    def _priced(self, called: CallResult, session_id: str) -> Usage | None:
        """The usage of a call; its cost is computed if the provider gave none and the price is known."""
        usage = called.reply.usage
        session = self._mount.engine.at_hand(session_id)
        recorded = session.started.prices if session is not None and session.started is not None else {}
        prices = {**recorded, **self._runtime.models.prices}
        price = prices.get(called.model) or recorded.get(DEFAULT_PRICE) or prices.get(DEFAULT_PRICE)
        if usage is None or usage.cost is not None or price is None:
            return usage
        cost = price.of(usage.prompt_tokens or 0, usage.completion_tokens or 0)
        return msgspec.structs.replace(usage, cost=cost)

    def _choices(self, session_id: str, policy: Policy, model: str) -> list[ProviderModel]:
        """The session's provider with this model, then the fallbacks."""
        provider = self._runtime.providers.get(policy.provider)
        if provider is None:
            raise ProviderUnavailableError(policy.provider, "this runtime does not have it", session_id)
        return [ProviderModel(provider, model), *self._runtime.fallbacks]


def _served_by(reply: ModelReply, catalog: SessionCatalog, subagents: Collection[str]) -> dict[str, ServedBy]:
    """Who runs the tools that a reply calls, where that is not a process that has them; and that nobody is a subagent
    whose name the model has made up."""
    calls = [wish(block) for block in reply.content if isinstance(block, ToolUseBlock)]
    called = {name for name, _ in calls} - HARMLESS
    served: dict[str, ServedBy] = {name: by for name in sorted(called) if (by := catalog.served_by(name)) != "process"}
    if served.get(DELEGATE_TOOL) == "subagent":
        wanted = {str(arguments.get("agent")) for name, arguments in calls if name == DELEGATE_TOOL}
        served.update({f"{DELEGATE_TOOL}:{name}": "nobody" for name in sorted(wanted) if name not in subagents})
    return served


def _tools_in(
    reply: ModelReply, catalog: SessionCatalog, policy: Policy, subagents: Collection[str]
) -> dict[str, CellTool] | None:
    """The tools that the cell of a reply mentions, or None if it has no cell."""
    text = text_of(reply.content)
    if "```" not in text and "~~~" not in text and "<code>" not in text:
        return None
    specs = catalog.shown_specs(policy.catalog_tokens)
    by_name = {identifier(spec.name): spec for spec in specs}
    mentioned = cell_tools(text, [CellTool(spec.name) for spec in specs if spec.name not in (DELEGATE_TOOL, READ_TOOL)])
    delegated: dict[str, CellTool] = {}
    if DELEGATE_TOOL in catalog.names and re.search(r"\bagent(_async|_batch)?\b", text):
        delegated["agent"] = CellTool(DELEGATE_TOOL, sorted(subagents), "subagent")
    return delegated | {
        name: CellTool(
            tool.name,
            parameters_of(by_name[name]),
            "process" if tool.name in HARMLESS else catalog.served_by(tool.name),
        )
        for name, tool in mentioned.items()
    }


def _estimated(request: ModelRequest, reply: ModelReply) -> Usage:
    """What a call cost that was cut off before the service said so."""
    sent = estimate_tokens(request.system) + sum(content_tokens(message.content) for message in request.messages)
    return Usage(prompt_tokens=sent, completion_tokens=content_tokens(reply.content))


def text_of(content: Sequence[ContentBlock]) -> str:
    """The text of the text blocks."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def _shown(window: list[AgentMessage]) -> list[AgentMessage]:
    """The conversation as providers take it.

    Few providers take remarks of the runtime in the middle of a conversation, so these become messages of the user,
    marked as the runtime's.
    """
    return [_marked(message) if message.role in REMARKS else message for message in window]


def _marked(remark: AgentMessage) -> AgentMessage:
    return AgentMessage("user", [TextBlock(f"<runtime>\n{remark.text}\n</runtime>")])
