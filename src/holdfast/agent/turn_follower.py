"""`TurnFollower`: the events of a turn that another process works, for whoever streams it here.

Deltas come as live messages through the store. What is durable, as tool calls and usage, is read from the journal, and
so is all that was missed: the text of a reply is complete once the reply is settled, whatever was heard of it before.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from holdfast.agent.live_events import (
    CatchUpEvent,
    LiveEvent,
    LiveEvents,
    ModelStartedEvent,
    RetractedEvent,
    Sink,
    TextDeltaEvent,
    ToolFinishedEvent,
    ToolStartedEvent,
    UsageEvent,
    published_decoder,
)
from holdfast.agent.machine.turn_state import TurnState
from holdfast.store.contract import Store
from holdfast.store.watch import LiveStream, MissedMessages


class TurnFollower:
    """Passes on the events of one turn, each once, from whichever process they come."""

    def __init__(self, turn: str, sink: Sink, local: LiveEvents) -> None:
        self._turn = turn
        self._sink = sink
        self._local = local
        self._texts: list[str] = []
        """What was passed on of each reply."""
        self._settled = 0
        """Replies that are complete."""
        self._usages = 0
        self._started: set[str] = set()
        self._finished: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, event: LiveEvent) -> None:
        """Pass on an event of this process."""
        if event.turn == self._turn:
            self._note(event)
        await self._sink(event)

    def _note(self, event: LiveEvent) -> None:
        match event:
            case ModelStartedEvent():
                self._texts.append("")
            case TextDeltaEvent(text=text) if self._texts:
                self._texts[-1] += text
            case RetractedEvent() if self._texts:
                self._texts[-1] = ""
            case ToolStartedEvent(call=call):
                self._started.add(call)
            case ToolFinishedEvent(call=call):
                self._finished.add(call)
            case UsageEvent():
                self._usages += 1
            case _:
                pass

    async def _pass_on(self, event: LiveEvent) -> None:
        self._note(event)
        await self._sink(event)

    # --- live messages -----------------------------------------------------------------------------

    async def listen(self, store: Store, session_id: str) -> None:
        """Pass on what other processes publish about the session, until cancelled."""
        with store.listen(session_id) as stream:
            while True:
                await self._take(stream)

    async def _take(self, stream: LiveStream) -> None:
        for item in await stream.read():
            if isinstance(item, MissedMessages):
                continue  # what is missing comes with the settled reply
            with contextlib.suppress(msgspec.MsgspecError):
                published = published_decoder.decode(item)
                if published.event.turn == self._turn and not self._local.is_own(published.call):
                    async with self._one_at_a_time:
                        await self._hear(published.event)

    async def _hear(self, event: LiveEvent | CatchUpEvent) -> None:
        match event:
            case CatchUpEvent(iteration=iteration, text=text):
                if iteration > self._settled:
                    await self._bring(iteration, text, event.model, event.attempt)
            case ModelStartedEvent(iteration=iteration):
                if iteration > len(self._texts):
                    await self._pass_on(event)
            case TextDeltaEvent() if len(self._texts) <= self._settled:
                pass  # its beginning was missed: it comes with the rest
            case _:
                await self._pass_on(event)

    async def _bring(self, number: int, text: str, model: str = "", attempt: int = 1) -> None:
        """Pass on what is missing of the n-th reply, which says this."""
        while len(self._texts) < number:
            await self._pass_on(ModelStartedEvent(turn=self._turn, iteration=len(self._texts) + 1, model=model))
        known = self._texts[number - 1]
        if not text.startswith(known):
            await self._sink(RetractedEvent(turn=self._turn, attempt=attempt))
            known = ""
        self._texts[number - 1] = text
        if more := text[len(known) :]:
            await self._sink(TextDeltaEvent(turn=self._turn, text=more, attempt=attempt))

    # --- the journal -------------------------------------------------------------------------------

    async def settle(self, turn: TurnState, model: str) -> None:
        """Pass on what the journal says of the turn by now, and nobody has said before."""
        async with self._one_at_a_time:
            replies = [message.text for message in turn.messages if message.role == "assistant"]
            for number, text in enumerate(replies[self._settled :], self._settled + 1):
                await self._bring(number, text, model)
            self._settled = max(self._settled, len(replies))
            own = [(used_model, usage) for source, used_model, usage in turn.usage if source != "subagent"]
            for used_model, usage in own[self._usages :]:
                await self._pass_on(UsageEvent(turn=self._turn, model=used_model, usage=usage))
            for each in turn.calls:
                call, done = each.call, each.done
                if (each.query or done is not None) and call.id not in self._started:
                    arguments = call.input if each.edited is None else each.edited
                    await self._pass_on(
                        ToolStartedEvent(turn=self._turn, call=call.id, name=call.name, arguments=arguments)
                    )
                if done is not None and call.id not in self._finished:
                    await self._pass_on(
                        ToolFinishedEvent(
                            turn=self._turn, call=call.id, name=call.name, result=done.content, is_error=done.is_error
                        )
                    )
