"""Turns: an input, worked to an outcome; awaited, or followed while it is worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from holdfast.agent.errors import TurnConflictError, TurnContendedError, TurnInProgressError, UnknownPluginError
from holdfast.agent.live import LiveEvent, Numbered, Sink, TurnFinished, Waiting
from holdfast.agent.plugins import content_with
from holdfast.agent.results import TurnResult, result_of
from holdfast.core.conversation import Conversation, TurnInput, TurnState
from holdfast.core.errors import AnswerConflictError, InvalidValueError, StaleQueryError, UnknownQueryError
from holdfast.core.events import PausedEvent
from holdfast.core.ids import check_id, new_turn_id
from holdfast.core.messages import ContentBlock, ImageBlock, TextBlock
from holdfast.core.queries import InputQuery, Query, Value
from holdfast.core.values import Json, encode, preview

if TYPE_CHECKING:
    from holdfast.agent.session import AgentSession

Input: TypeAlias = str | Sequence[ContentBlock]

STREAM_EVENTS = 256
"""Events that wait for the reader of a stream. Past that, the turn waits for the reader."""


class TurnBuilder:
    """A turn that has not begun."""

    def __init__(self, session: AgentSession, given: Input) -> None:
        self._session = session
        self._given = self._content = _content(given)
        self._plugin_inputs: dict[str, Any] = {}
        self._id: str | None = None
        self._output: dict[str, Json] | None = None

    def output(self, schema: dict[str, Json]) -> Self:
        """Let the turn come to a value of this JSON schema: the model is given a tool to submit it by.

        A model that answers with words instead ends the turn with a message, as ever.
        """
        self._output = schema
        return self

    def plugin_input(self, plugin_id: str, value: Any) -> Self:
        """Give a plugin of the session what it works with in this turn."""
        plugins = self._session.plugins
        if plugin_id not in plugins:
            raise UnknownPluginError(plugin_id, self._session.session_id, list(plugins))
        self._plugin_inputs[plugin_id] = value
        return self

    def id(self, turn_id: str) -> Self:
        """Name the turn. Whoever tries again with the same id and input joins it, or is told what came of it."""
        self._id = check_id(turn_id, "turn id")
        return self

    async def run(self, *, wait: float | None = None) -> TurnResult:
        """Work the turn to its end. Raises `TimeoutError` after `wait` seconds; the turn goes on."""
        async with asyncio.timeout(wait):
            conversation, turn, replayed = await self._begin()
            return await self._until_over(conversation, turn, replayed)

    async def stream_to(self, sink: Sink, *, wait: float | None = None) -> TurnResult:
        """As `run`; what happens meanwhile is given to a sink, which is awaited."""
        session = self._session
        numbered = Numbered(sink)
        stop = session.place.hub.listen(session.session_id, numbered)
        try:
            async with asyncio.timeout(wait):
                conversation, turn, replayed = await self._begin()
                result = await self._until_over(conversation, turn, replayed, numbered)
        finally:
            stop()
        await numbered(TurnFinished(turn=result.turn, outcome=result.outcome))
        return result

    def stream(self) -> TurnStream:
        """Work the turn, and give its events as they come: `async for event in turn.stream(): …`."""
        return TurnStream(self)

    # --- inside ------------------------------------------------------------------------------------

    async def _begin(self) -> tuple[Conversation, TurnState, bool]:
        """Make the turn durable, or find it. It is begun before its first call of a model.

        What this process knows is right most of the time. If it is not, that is told by whoever keeps the journal, and
        it is read before another try.
        """
        session = self._session
        self._content = content_with(session.plugins, self._given, self._plugin_inputs, session.session_id)
        turn_id = self._id or new_turn_id()
        try:
            return await self._try(turn_id, fresh=False)
        except (TurnContendedError, TurnInProgressError):
            return await self._try(turn_id, fresh=True)

    async def _try(self, turn_id: str, *, fresh: bool) -> tuple[Conversation, TurnState, bool]:
        session = self._session
        conversation = await session.conversation(fresh=fresh)
        if (known := conversation.turns.get(turn_id)) is not None:
            return conversation, self._joined(known), known.ended is not None
        if conversation.running is not None or conversation.input is None:
            running = conversation.running.id if conversation.running else "?"
            raise TurnInProgressError(session.session_id, running)
        given = TurnInput(
            turn=turn_id, content=self._content, policy=session.changed_policy(conversation), output=self._output
        )
        begin = session.take_begin()
        given = msgspec.structs.replace(given, begin=begin) if begin is not None else given
        try:
            await session.place.give(session.session_id, conversation.input, Value(value=msgspec.to_builtins(given)))
        except (AnswerConflictError, StaleQueryError, UnknownQueryError):
            session.put_begin(begin)
            raise TurnContendedError(session.session_id, turn_id) from None
        except BaseException:
            session.put_begin(begin)
            raise
        conversation = await session.conversation(fresh=turn_id not in (await session.conversation()).turns)
        return conversation, conversation.turns[turn_id], False

    def _joined(self, known: TurnState) -> TurnState:
        if encode(known.content) != encode(self._content):
            before, now = preview(msgspec.to_builtins(known.content)), preview(msgspec.to_builtins(self._content))
            raise TurnConflictError(self._session.session_id, known.id, before, now)
        return known

    async def _until_over(
        self, conversation: Conversation, turn: TurnState, replayed: bool, sink: Sink | None = None
    ) -> TurnResult:
        session = self._session
        told: list[str] = []
        with session.place.store.watch(session.session_id) as changes:
            while turn.ended is None:
                if sink is not None:
                    told = await self._tell_waiting(turn, sink, told)
                await changes.changed()
                # What was committed here is known; another process may work on the turn as well.
                if turn.ended is None:
                    conversation = await session.conversation(fresh=True)
                    turn = conversation.turns[turn.id]
        return result_of(conversation, turn, replayed=replayed)

    async def _tell_waiting(self, turn: TurnState, sink: Sink, told: list[str]) -> list[str]:
        """Say which queries wait for somebody outside, once each."""
        event = await self._session.place.event(self._session.session_id)
        queries = event.queries if isinstance(event, PausedEvent) else []
        new: list[Query] = [each for each in queries if not isinstance(each, InputQuery) and each.id not in told]
        if new:
            await sink(Waiting(turn=turn.id, queries=new))
        return [*told, *(query.id for query in new)]


_followed: set[asyncio.Task[TurnResult]] = set()
"""Turns of streams. The event loop forgets tasks that nobody holds, and a stream may be let go of before its turn."""


class TurnStream:
    """The events of a turn. When it is left before its end, the turn goes on."""

    def __init__(self, turn: TurnBuilder) -> None:
        self._turn = turn
        self._task: asyncio.Task[TurnResult] | None = None
        self._is_left = False

    async def __aiter__(self) -> AsyncGenerator[LiveEvent, None]:
        queue: asyncio.Queue[LiveEvent] = asyncio.Queue(STREAM_EVENTS)

        async def take(event: LiveEvent) -> None:
            if not self._is_left:
                await queue.put(event)

        task = self._task = asyncio.create_task(self._turn.stream_to(take))
        _followed.add(task)
        task.add_done_callback(_followed.discard)
        getting = None
        try:
            while True:
                getting = asyncio.ensure_future(queue.get())
                await asyncio.wait({getting, task}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    getting.cancel()
                    while not queue.empty():
                        yield queue.get_nowait()
                    task.result()  # raises what went wrong
                    return
                event = getting.result()
                yield event
                if isinstance(event, TurnFinished):
                    return
        finally:
            if getting is not None:
                getting.cancel()
            self._is_left = True
            while not queue.empty():  # or the turn would wait for ever for a reader
                queue.get_nowait()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody asks for it

    async def result(self) -> TurnResult:
        """What the turn came to; to be asked after the events."""
        if self._task is None:
            return await self._turn.run()
        return await self._task


def _content(given: Input) -> list[ContentBlock]:
    if isinstance(given, str):
        return [TextBlock(given)] if given else []
    content = list(given)
    for block in content:
        if not isinstance(block, TextBlock | ImageBlock):
            raise InvalidValueError("input", f"an input is text and images, got {type(block).__name__}")
    return content
