"""`TurnBuilder`: begins a turn with an input, waits for its outcome, and streams its events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from holdfast.agent.errors import (
    MissingPluginInputError,
    PluginError,
    SessionEndedError,
    TurnConflictError,
    TurnContendedError,
    TurnInProgressError,
    UnknownPluginError,
)
from holdfast.agent.live_events import Sink, TurnFinishedEvent, WaitingEvent
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.inbox import Command
from holdfast.agent.machine.messages import ContentBlock, ImageBlock, TextBlock
from holdfast.agent.machine.policy import Spec, change_from, spec_from
from holdfast.agent.machine.program import COMPACT
from holdfast.agent.machine.prompt import PromptLayer, checked_layer, merged
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import Provider, own_model
from holdfast.agent.questions_below import QuestionsBelow
from holdfast.agent.result_type import ResultType
from holdfast.agent.results import TurnResult, result_of
from holdfast.agent.tools.results import exception_text
from holdfast.agent.turn_follower import TurnFollower
from holdfast.agent.turn_stream import TurnObserver, TurnStream
from holdfast.core.decide import FeedMessage, GivenAnswer
from holdfast.core.errors import AnswerConflictError, InvalidValueError, StaleQueryError, UnknownQueryError
from holdfast.core.events import PausedEvent
from holdfast.core.ids import check_id, new_turn_id
from holdfast.core.large import is_large
from holdfast.core.queries import Query
from holdfast.core.values import Json, encode, preview
from holdfast.store.off_loop import off_loop

if TYPE_CHECKING:
    from holdfast.agent.session import AgentSession

Input: TypeAlias = str | Sequence[ContentBlock]


class _Begun(msgspec.Struct, frozen=True):
    """A turn that is durable."""

    conversation: Conversation
    turn: TurnState
    replayed: bool = False
    """Whether it had ended when it was found."""
    is_here: bool = False
    """Whether this process has just begun it, so nobody else has worked on it."""


class BeginReceipt(msgspec.Struct, frozen=True):
    """Proof that a turn has begun and is durable."""

    session_id: str
    turn: str
    replayed: bool = False
    """Whether it had begun before, under the same id and with the same input."""
    is_over: bool = False


class TurnBuilder:
    """A turn that has not begun."""

    def __init__(self, session: AgentSession, content: Input, command: Command | None = None) -> None:
        self._session = session
        self._command = command
        self._prompt: PromptLayer | None = None
        self._type: ResultType | None = None
        self._input = self._content = content_of(content)
        self._plugin_inputs: dict[str, Any] = {}
        self._id: str | None = None
        self._output: dict[str, Json] | None = None
        self._spec: Spec | None = None
        self._cancelled: asyncio.Event | None = None

    def model(self, model: str) -> Self:
        """Use another model of the session's provider for this turn alone."""
        return self.spec(model=model)

    def provider(self, provider: Provider, model: str | None = None) -> Self:
        """Use another provider for this turn alone, with this model or its own."""
        self._session.runtime.add_provider(provider)
        return self.spec(provider=provider.id, model=model or own_model(provider))

    def spec(self, **fields: Any) -> Self:
        """Where the policy differs for this turn alone: `limits`, `generation`, `tools`, … as in `Spec`.

        Several calls add up. The change is recorded with the turn, so any process works it under the same policy.
        """
        above = spec_from(fields)
        self._spec = (
            above if self._spec is None else spec_from(_set_fields(change_from(above, change_from(self._spec))))
        )
        return self

    def cancel_on(self, token: asyncio.Event) -> Self:
        """Stop the turn when this is set. If it is set before, the turn ends as soon as it begins."""
        self._cancelled = token
        return self

    def output(self, wanted: Any) -> Self:
        """Make the turn return a value of a type: a pydantic model, dataclass, TypedDict, Struct or JSON schema.

        The model gets a tool to submit the value, and one to give up. If the value is invalid, or the model ends with
        a message, it is asked to try again, up to `limits.repairs` times. `TurnResult.output` is the value.
        """
        self._type = ResultType.of(wanted)
        self._output = self._type.schema
        return self

    def prompt(self, layer: str | PromptLayer) -> Self:
        """Add to the system text for this turn only; several prompts all count, a later one as the higher layer.

        Providers will not have the changed text in their cache.
        """
        above = checked_layer(layer)
        self._prompt = above if self._prompt is None else merged([self._prompt, above])
        return self

    def plugin_input(self, plugin_id: str, value: Any) -> Self:
        """Give a plugin of the session its input for this turn."""
        plugins = self._session.plugins
        if plugin_id not in plugins:
            raise UnknownPluginError(plugin_id, self._session.session_id, list(plugins))
        self._plugin_inputs[plugin_id] = value
        return self

    def id(self, turn_id: str) -> Self:
        """Name the turn. Running it again with the same id and input joins it, or returns its result."""
        self._id = check_id(turn_id, "turn id")
        return self

    async def begin(self) -> BeginReceipt:
        """Begin the turn, or join it, and return once it is durable. It goes on by itself; `run` waits for its end."""
        begun = await self._begin()
        is_joined = not begun.is_here
        return BeginReceipt(self._session.session_id, begun.turn.id, is_joined, begun.turn.ended is not None)

    async def run(self, *, wait: float | None = None) -> TurnResult:
        """Run the turn to its end. After `wait` seconds, `TimeoutError`; the turn continues, and can be joined."""
        if wait is None and self._cancelled is None:
            return await self._until_over(await self._begin())
        async with asyncio.timeout(wait), self._cancellable():
            return await self._until_over(await self._begin())

    async def stream_to(self, sink: Sink, *, wait: float | None = None) -> TurnResult:
        """Like `run`, and pass the turn's events to a sink, which is awaited. What the sink raises is raised here."""
        session = self._session
        observer = TurnObserver(self._named(), sink)
        follower = TurnFollower(self._named(), observer, session.mount.live_events)
        stop = session.mount.live_events.listen(session.session_id, follower)
        following = asyncio.create_task(self._followed(follower))
        try:
            async with asyncio.timeout(wait), self._cancellable():
                ends: set[asyncio.Future[Any]] = {following, observer.gave_up}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if observer.gave_up.done():
                    observer.gave_up.result()
                return await following
        finally:
            stop()
            observer.leave()
            following.cancel()

    @contextlib.asynccontextmanager
    async def _cancellable(self) -> AsyncGenerator[None, None]:
        """Stop the turn when its token is set, as long as this is open."""
        token = self._cancelled
        if token is None:
            yield
            return
        session, turn_id = self._session, self._named()

        async def watch() -> None:
            await token.wait()
            await session.cancel(turn_id, reason="cancelled by its caller")

        if token.is_set():
            await watch()  # before it begins, so that no model is asked
        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()

    def stream(self) -> TurnStream:
        """Run the turn, and yield its events as they come: `async for event in turn.stream(): …`."""
        return TurnStream(self)

    # --- beginning ---------------------------------------------------------------------------------

    def _named(self) -> str:
        """The turn's id, the same for every attempt to begin it."""
        self._id = self._id or new_turn_id(self._session.mount.engine.owner.random.randbytes)
        return self._id

    async def _begin(self) -> _Begun:
        """Make the turn durable, or join it. It is durable before its first model call.

        What this process knows of the session is usually right. If it is not, the store refuses the turn, and the
        journal is read before another attempt. Turns of one handle wait for each other.
        """
        session = self._session
        if self._command is None and (session.plugins or self._plugin_inputs):
            self._content = content_with(session.plugins, self._input, self._plugin_inputs, session.session_id)
        if self._id is not None and self._id in (await session.conversation()).turns:
            return await self._joined()
        await session.writer.acquire()
        try:
            conversation = await session.conversation()
            if self._command is None or self._command.name == COMPACT:
                session.check_runs(conversation)
            await session.record_settings()
            while True:
                try:
                    return await self._try(conversation)
                except (TurnContendedError, TurnInProgressError):
                    pass
                try:
                    conversation = await session.conversation(fresh=True)
                    return await self._try(conversation)
                except TurnInProgressError as error:
                    if error.running not in session.own_turns:
                        raise
                    await self._over(error.running)
        finally:
            session.writer.release()

    async def _try(self, conversation: Conversation) -> _Begun:
        """Begin the turn in a conversation that is as it is known here."""
        session, turn_id = self._session, self._named()
        if turn_id in conversation.turns:
            return await self._joined()
        if conversation.ended is not None:
            raise SessionEndedError(session.session_id, conversation.ended)
        if conversation.running is not None or conversation.input is None:
            running = conversation.running.id if conversation.running else "?"
            raise TurnInProgressError(session.session_id, running)
        turn_input = TurnInput(
            turn=turn_id,
            content=self._content,
            begin=session.begin_with(turn_id, conversation),
            output=self._output,
            command=self._command,
            prompt=self._prompt,
            spec=None if self._spec is None else self._turn_spec(self._spec, conversation),
        )
        asked = conversation.input
        session.own_turns.add(turn_id)
        if self._type is not None:
            session.mount.expect(session.session_id, turn_id, self._type)
        try:
            to_answer = turn_input.to_answer
            answer = await off_loop(to_answer) if is_large(turn_input) else to_answer()
            message = FeedMessage([GivenAnswer(answer, asked)])
            await session.mount.engine.hand_in(session.session_id, message, wait=0)
        except (AnswerConflictError, StaleQueryError, UnknownQueryError):
            raise TurnContendedError(session.session_id, turn_id) from None
        begun = conversation.running
        session.own_turns = {turn_id}
        if begun is not None and begun.id == turn_id:
            return _Begun(conversation, begun, is_here=True)
        return await self._taken(asked)

    def _turn_spec(self, spec: Spec, conversation: Conversation) -> Spec:
        """The spec of this turn, with what follows from it here. Raises `ProviderUnavailableError`."""
        session = self._session
        if spec.provider is not None:
            session.runtime.check_provider(spec.provider, session.session_id)
        return session.runtime.completed(spec, conversation.next_policy or session.policy)

    async def _taken(self, asked: str) -> _Begun:
        """The turn, once its input is in the journal. If another process owns the session, that takes a moment."""
        session, turn_id = self._session, self._named()
        conversation = await session.conversation()
        if turn_id in conversation.turns:
            return _Begun(conversation, conversation.turns[turn_id], is_here=True)
        with session.mount.engine.watch(session.session_id) as changes:
            while True:
                conversation = await session.conversation(fresh=True)
                if turn_id in conversation.turns:
                    return _Begun(conversation, conversation.turns[turn_id])
                if conversation.input != asked:
                    raise TurnContendedError(session.session_id, turn_id)
                await changes.changed()

    async def _joined(self) -> _Begun:
        """The turn with this id, which was begun earlier with the same input."""
        session, turn_id = self._session, self._named()
        conversation = await session.conversation(fresh=True)
        turn = conversation.turns[turn_id]
        spec = None if self._spec is None else self._turn_spec(self._spec, conversation)
        now = _turn_identity(self._content, self._output, self._command, self._prompt, spec)
        before = _turn_identity(turn.content, turn.output, turn.command, turn.prompt, turn.spec)
        if encode(now) != encode(before):
            raise TurnConflictError(session.session_id, turn_id, preview(before), preview(now))
        if turn.ended is None and self._type is not None:
            session.mount.expect(session.session_id, turn_id, self._type)
        if turn.begins:
            session.has_begun_with(turn_id)
        if not turn.is_whole:
            conversation = await session.mount.conversations.whole(session.session_id)
            turn = conversation.turns[turn_id]
        return _Begun(conversation, turn, replayed=turn.ended is not None)

    # --- waiting -----------------------------------------------------------------------------------

    async def _followed(self, follower: TurnFollower) -> TurnResult:
        result = await self._until_over(await self._begin(), follower)
        await follower(TurnFinishedEvent(turn=result.turn, outcome=result.outcome))
        return result

    async def _until_over(self, begun: _Begun, sink: TurnFollower | None = None) -> TurnResult:
        session, turn = self._session, begun.turn
        if begun.is_here and sink is None:
            await session.mount.engine.until_released(session.session_id)
        if turn.ended is None:
            turn = await self._watched(begun, sink)
        session.mount.result_types.pop((session.session_id, turn.id), None)
        result = result_of(turn, replayed=begun.replayed, wanted=self._type)
        await session.mount.loaded_sessions.plugins_notified(session.session_id)
        return result

    async def _watched(self, begun: _Begun, sink: TurnFollower | None) -> TurnState:
        """The turn once it is over: it may wait for somebody else, of which a sink is told, or run elsewhere."""
        session, turn = self._session, begun.turn
        announced: list[str] = []
        engine = session.mount.engine
        with (
            engine.watch(session.session_id) as changes,
            _Elsewhere(session, sink) as elsewhere,
            QuestionsBelow(engine, session.session_id, sink) as below,
        ):
            live = engine.alive(session.session_id)
            if not begun.is_here and not (live is not None and live.is_held):
                elsewhere.listen()
            if turn.ended is None and not (begun.is_here and sink is not None):
                # Its owner may be gone. And the watch does not report what was written before it began.
                await session.mount.holdfast.resume(session.session_id, wait=0)
                turn = (await session.conversation(fresh=True)).turns[turn.id]
            while turn.ended is None:
                if sink is not None:
                    await elsewhere.settle(turn)
                    announced = await self._announce_waiting(turn, sink, announced)
                    below.look(turn.id, (await session.conversation()).asked)
                await changes.changed()
                # Commits of this process are known already; another process may work on the turn as well.
                if turn.ended is None:
                    turn = (await session.conversation(fresh=True)).turns[turn.id]
                if turn.ended is None and session.mount.conversations.is_by_others(session.session_id):
                    # The other process may have answered a query and be unable to take the next step.
                    elsewhere.listen()
                    await session.mount.holdfast.resume(session.session_id, wait=0)
            await elsewhere.settle(turn)
        return turn

    async def _over(self, turn_id: str) -> None:
        """Wait until another turn is over."""
        session = self._session
        with session.mount.engine.watch(session.session_id) as changes:
            while (await session.conversation(fresh=True)).turns[turn_id].ended is None:
                await changes.changed()

    async def _announce_waiting(self, turn: TurnState, sink: Sink, announced: list[str]) -> list[str]:
        """Emit an event for each query that waits for somebody outside, once."""
        event = await self._session.mount.event(self._session.session_id)
        queries = event.queries if isinstance(event, PausedEvent) else []
        new: list[Query] = [each for each in queries if not isinstance(each, InputQuery) and each.id not in announced]
        if new:
            await sink(WaitingEvent(turn=turn.id, queries=new))
        return [*announced, *(query.id for query in new)]


class _Elsewhere:
    """Follows a turn that another process works, for a sink; without one, it does nothing."""

    def __init__(self, session: AgentSession, sink: TurnFollower | None) -> None:
        self._session = session
        self._sink = sink
        self._listening: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._listening is not None:
            self._listening.cancel()

    def listen(self) -> None:
        """From now on, pass on what other processes say."""
        if self._sink is not None and self._listening is None:
            listening = self._sink.listen(self._session.mount.store, self._session.session_id)
            self._listening = asyncio.create_task(listening)

    async def settle(self, turn: TurnState) -> None:
        """Pass on what the journal says of the turn, if others may have written it."""
        if self._sink is not None and self._listening is not None:
            await self._sink.settle(turn, self._session.policy.model)


def content_of(source: Input) -> list[ContentBlock]:
    """An input as content blocks. Raises `InvalidValueError` if it is none."""
    if isinstance(source, str):
        return [TextBlock(source)] if source else []
    if not isinstance(source, list | tuple):
        raise InvalidValueError("input", f"{_ALLOWED}, got {type(source).__name__}")
    content: list[ContentBlock] = list(source)
    for block in content:
        if not isinstance(block, TextBlock | ImageBlock):
            raise InvalidValueError("input", f"{_ALLOWED}, got {type(block).__name__} in the list")
    return content


_ALLOWED = "it is a text, or a list of TextBlock and ImageBlock"


def content_with(
    plugins: Mapping[str, Plugin], content: list[ContentBlock], inputs: Mapping[str, Any], session_id: str
) -> list[ContentBlock]:
    """The input of a turn, with the text that plugins add. Raises `MissingPluginInputError` and `PluginError`."""
    if not plugins:
        return content
    for plugin_id, plugin in plugins.items():
        if plugin.requires_turn_input and plugin_id not in inputs:
            raise MissingPluginInputError(plugin_id, session_id)
    texts: list[str] = []
    for plugin_id, plugin in plugins.items():
        try:
            texts.append(plugin.turn_text(inputs.get(plugin_id)))
        except Exception as error:
            raise PluginError(plugin_id, "turn_text", session_id, exception_text(error)) from error
    return [*content, *(TextBlock(text) for text in texts if text)]


def _set_fields(spec: Spec) -> dict[str, Any]:
    """What a spec says."""
    names = Spec.__struct_fields__
    return {name: value for name in names if (value := getattr(spec, name)) is not None}


def _turn_identity(
    content: list[ContentBlock],
    output: dict[str, Json] | None,
    command: Command | None,
    prompt: PromptLayer | None,
    spec: Spec | None,
) -> Json:
    """Everything that must be the same for two attempts to be the same turn."""
    shown = msgspec.to_builtins(content)
    more = {"output": output, "command": msgspec.to_builtins(command), "prompt": msgspec.to_builtins(prompt)}
    more["spec"] = None if spec is None else _set_fields(spec)
    present = {name: value for name, value in more.items() if value is not None}
    return {"content": shown, **present} if present else shown
