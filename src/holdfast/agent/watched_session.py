"""`WatchedSession`: one session for all its watchers in this process: the events of its journal, and the live events.

It hangs on the live session, and shows the conversation that this keeps. The journal is read when the store says that
it has changed. Live events come through the store as well, from this
process or another. They are compared with the journal: those that it has settled are dropped, and those that are ahead
of it wait. Watchers read at their own pace, and nothing here waits for them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec

from holdfast.agent.errors import ObservationClosedError
from holdfast.agent.kept_events import KeptEvents
from holdfast.agent.live_events import (
    DRAFT_CHARS,
    OUTPUT_CHARS,
    CatchUpEvent,
    CompactionFinishedEvent,
    CompactionStartedEvent,
    LiveEvent,
    ModelStartedEvent,
    PluginFailedEvent,
    PublishedEvent,
    ReasoningDeltaEvent,
    RetractedEvent,
    RetryEvent,
    TextDeltaEvent,
    ToolOutputEvent,
    published_decoder,
)
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.queries import ReplyQuery
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.observed_events import Draft, DurableEvent, Observation, events_after, events_of, observation_of
from holdfast.core.cursors import Cursor
from holdfast.core.errors import HoldfastError
from holdfast.core.kinds import KindView
from holdfast.core.queries import Query
from holdfast.core.records import Entry, PausedRecord
from holdfast.engine.engine import Engine
from holdfast.store.limits import READ_LIMIT
from holdfast.store.watch import LiveItem, MissedMessages

RING_EVENTS = 2_048
"""Live events kept for slow watchers: a long answer, token by token."""

REST_S = 100e-6
"""Seconds of rest after live events, for each watcher: a few times what it takes to wake one. Events that come
meanwhile are joined, and the session's owner, if it is in this process, can work: a thousand watchers see text ten
times a second."""

_Judged: TypeAlias = Literal["past", "now", "later"]


class WatchedSession:
    """A session that somebody watches. While somebody does, it pins the live session."""

    def __init__(self, engine: Engine, session_id: str, remind: Callable[[str], bool]) -> None:
        self.store = engine.owner.store
        self.session_id = session_id
        self.conversation = Conversation(session_id)
        """The one that the live session keeps; or one folded here, where that keeps none, or not all of it."""
        self._engine = engine
        self.born = 0
        self.failure: Exception | None = None
        """The error that ended the watch."""
        self.watchers = 0
        self._remind = remind
        self._reading = asyncio.Lock()
        self._events = KeptEvents()
        self._iteration = 0
        """How often the running turn has called the model."""
        self._changed = asyncio.Event()
        self._at_work: list[asyncio.Task[None]] = []
        self._shown: tuple[Cursor, Observation] | None = None
        engine.owner.observe_view(session_id, self.observe)
        self._forget()

    def _forget(self) -> None:
        """Forget all drafts and live events."""
        self.ring_id = secrets.token_hex(4)
        self.next_live = 0
        self.lost_before = 0
        """A watcher that has not seen all live events before this number has missed some."""
        self._ring: deque[tuple[int, str, LiveEvent]] = deque()
        """Each with its number, and the tool call that it belongs to."""
        self._call = ""
        self._draft: Draft | None = None
        self._outputs: dict[str, Draft] = {}
        self._later: deque[PublishedEvent] = deque()
        self._is_waiting = False
        """Whether events were missed and a `CatchUpEvent` is on its way, which includes everything before it."""
        self._live_cache: tuple[tuple[int, int, int], list[tuple[int, LiveEvent]]] = ((0, 0, 0), [])

    # --- watchers ----------------------------------------------------------------------------------

    def enter(self) -> None:
        self.watchers += 1
        if not self._at_work:
            self.failure = None
            self._at_work = [asyncio.create_task(self._follow()), asyncio.create_task(self._listen())]

    def leave(self) -> None:
        self.watchers -= 1
        if self.watchers == 0:
            self._stop()
            self._forget()

    @property
    def is_pinned(self) -> bool:
        """Whether somebody watches."""
        return self.watchers > 0

    def committed(self, entries: Sequence[Entry]) -> None:
        """What is durable is seen in the conversation."""

    async def close(self) -> None:
        """Disconnect all watchers: this process is done with the session, or the session is not there any more."""
        self._engine.owner.ignore_view(self.session_id, self.observe)
        at_work = self._stop()
        await asyncio.gather(*at_work, return_exceptions=True)
        self.failure = ObservationClosedError(self.session_id)
        try:
            await self.store.position(self.session_id)
        except HoldfastError as error:
            self.failure = error
        self._tick()

    def _stop(self) -> list[asyncio.Task[None]]:
        at_work, self._at_work = self._at_work, []
        for task in at_work:
            task.cancel()
        return at_work

    def _tick(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait until there is more. Call it right after reading: nothing can come in between."""
        await self._changed.wait()

    # --- the journal -------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self.conversation.position

    @property
    def is_over(self) -> bool:
        return self.conversation.ended is not None

    def after(self, position: int) -> list[list[DurableEvent]] | None:
        """The events of each entry after a position, or None if they are no longer kept."""
        return self._events.after(position, self.position)

    async def read_on(self) -> None:
        """Read the journal to its present end."""
        async with self._reading:
            if not self.born:
                self.born = (await self.store.session(self.session_id)).summary.created_at
            view = await self._engine.live(self.session_id).view(fresh=True)
            if not isinstance(view, Conversation) or not view.keeps_all:
                await self._read_on_alone()
            elif view is not self.conversation:
                self._show(view)

    def _show(self, conversation: Conversation) -> None:
        """From now on, follow the conversation of the live session."""
        self.conversation, self._events = conversation, KeptEvents(conversation.position)
        running = conversation.running
        self._iteration = sum(message.role == "assistant" for message in running.messages) if running else 0
        self._note_asked(conversation.asked.values())
        self._settle()
        self._tick()

    def observe(self, view: KindView, entry: Entry) -> Callable[[], None] | None:
        """The conversation is about to be advanced by an entry; returns what to do after that."""
        if view is not self.conversation:
            return None  # that is seen when the journal is read next
        events, turn = events_after(self.conversation, entry), self.conversation.running

        def advance() -> None:
            self._take_events(events(), turn, entry)
            self._settle()
            self._tick()

        return advance

    async def _read_on_alone(self) -> None:
        """Fold what the live session does not keep."""
        while True:
            page = await self.store.read(self.session_id, self.position)
            for entry in page:
                turn = self.conversation.running
                self._take_events(events_of(self.conversation, entry), turn, entry)
            if page:
                self._settle()
                self._tick()
            if len(page) < READ_LIMIT:
                return
            await asyncio.sleep(0)  # let other work of this process proceed

    def _take_events(self, events: list[DurableEvent], turn: TurnState | None, entry: Entry) -> None:
        """Keep the events of an entry before which `turn` was under way."""
        self._events.add(events)
        if self.conversation.running is not turn:
            self._iteration = 0
        if isinstance(entry.record, PausedRecord):
            self._note_asked(entry.record.queries)

    def _note_asked(self, queries: Iterable[Query]) -> None:
        asked = (query.iteration for query in queries if isinstance(query, ReplyQuery))
        self._iteration = max(self._iteration, *asked, 0)

    async def find_earlier(self) -> None:
        """Read the events before those that are kept, once for all watchers, and keep the latest of them."""
        async with self._reading:
            if not self._events.is_complete:
                await self._events.add_earlier(self.from_journal(0, self._events.since))

    async def from_journal(self, after: int, until: int) -> AsyncIterator[list[DurableEvent]]:
        """The events of each entry between two positions, by folding the journal again."""
        conversation = Conversation(self.session_id)
        async for entry in self.store.journal(self.session_id):
            if entry.position <= until and (events := events_of(conversation, entry)) and entry.position > after:
                yield events

    def observation(self) -> Observation:
        """The session as it is known here; the same object until something changes."""
        drafts = self.drafts
        ring, live = (self.ring_id, self.next_live) if drafts else ("", 0)
        cursor = Cursor(self.session_id, self.born, self.position, ring=ring, live=live)
        if self._shown is None or self._shown[0] != cursor:
            self._shown = (cursor, observation_of(self.conversation, cursor, drafts))
        return self._shown[1]

    async def _follow(self) -> None:
        with self.store.watch(self.session_id) as changes:
            try:
                while True:
                    await self.read_on()
                    await changes.changed()
            except Exception as error:
                self.failure = error
                self._tick()

    # --- live events -------------------------------------------------------------------------------

    @property
    def drafts(self) -> list[Draft]:
        """What models and tools are saying now, unsettled."""
        return [*([self._draft] if self._draft is not None else []), *self._outputs.values()]

    def draft_events(self) -> list[LiveEvent]:
        """The drafts as events, each in one piece, for watchers that have seen nothing of them."""
        events: list[LiveEvent] = []
        if (draft := self._draft) is not None:
            events.append(ModelStartedEvent(turn=draft.turn, iteration=draft.iteration, model=draft.model))
            if draft.reasoning:
                events.append(ReasoningDeltaEvent(turn=draft.turn, text=draft.reasoning, attempt=draft.attempt))
            if draft.text:
                events.append(TextDeltaEvent(turn=draft.turn, text=draft.text, attempt=draft.attempt))
        events += [ToolOutputEvent(turn=each.turn, call=each.call, text=each.text) for each in self._outputs.values()]
        return events

    def live_after(self, seen: int) -> list[tuple[int, LiveEvent]]:
        """The live events from a number on, each with the number after it. Consecutive deltas are joined.

        Most watchers are at the same number, so the list is made once.
        """
        asked = (seen, self.next_live, len(self._ring))
        if self._live_cache[0] != asked:
            self._live_cache = (asked, self._live_after(seen))
        return self._live_cache[1]

    def _live_after(self, seen: int) -> list[tuple[int, LiveEvent]]:
        events: list[tuple[int, LiveEvent]] = []
        for number, _, event in reversed(self._ring):
            if number < seen:
                break
            joined = _joined(event, events[-1][1]) if events else None
            if joined is not None:
                events[-1] = (events[-1][0], joined)
            else:
                events.append((number + 1, event))
        return events[::-1]

    async def _listen(self) -> None:
        with self.store.listen(self.session_id) as stream:
            self._remind(self.session_id)
            while True:
                before = self.next_live
                for heard in await stream.read():
                    self._hear(heard)
                if self.next_live != before:
                    self._tick()
                    await asyncio.sleep(self.watchers * REST_S)

    def _hear(self, heard: LiveItem) -> None:
        if isinstance(heard, MissedMessages):
            self._miss()
            return
        try:
            published = published_decoder.decode(heard)
        except msgspec.MsgspecError:
            return  # from another version
        if isinstance(published.event, CatchUpEvent):
            self._is_waiting = False
        if not self._is_waiting:
            self._judge(published)

    def _judge(self, published: PublishedEvent) -> None:
        match self._judged(published.event):
            case "now":
                self._take(published)
            case "later":
                self._later.append(published)
                if len(self._later) > RING_EVENTS:
                    self._later.clear()
                    self._miss()
            case "past":
                pass
            case never:
                assert_never(never)

    def _judged(self, event: LiveEvent | CatchUpEvent) -> _Judged:
        """Whether an event belongs to the journal's present, its past, or is ahead of it."""
        turn = self.conversation.turns.get(event.turn)
        if turn is None:
            return "later"
        if turn.ended is not None:
            return "past"
        match event:
            case ToolOutputEvent(call=call):
                calls = [each for each in turn.calls if each.call.id == call]
                return "later" if not calls else "past" if all(each.done is not None for each in calls) else "now"
            case ModelStartedEvent(iteration=iteration):
                return self._judged_asking(iteration)
            case CatchUpEvent(iteration=iteration, outputs=outputs):
                return "now" if outputs else self._judged_asking(iteration)
            case _:
                return "later" if self._later else "now"  # after the events before it

    def _judged_asking(self, iteration: int) -> _Judged:
        """The same for a model call. Summaries are not shown."""
        asked = (query.iteration for query in self.conversation.asked.values() if isinstance(query, ReplyQuery))
        if iteration and iteration in asked:
            return "now"
        return "later" if iteration > self._iteration else "past"

    def _take(self, published: PublishedEvent) -> None:
        event = published.event
        match event:
            case CatchUpEvent():
                self._take_catch_up(published.call, event)
            case ToolOutputEvent(call=call, text=text):
                before = self._outputs.get(call) or Draft(turn=event.turn, call=call)
                self._outputs[call] = msgspec.structs.replace(before, text=(before.text + text)[-OUTPUT_CHARS:])
                self._put(event, call)
            case ModelStartedEvent(turn=turn, iteration=iteration, model=model):
                self._call, self._draft = published.call, Draft(turn=turn, iteration=iteration, model=model)
                self._drop("")
                self._put(event)
            case PluginFailedEvent() | CompactionStartedEvent() | CompactionFinishedEvent():
                self._put(event)
            case _ if published.call == self._call and self._draft is not None:
                self._take_piece(self._draft, event)
            case _:
                pass  # of another model call, or one whose beginning was missed

    def _take_piece(self, draft: Draft, event: LiveEvent) -> None:
        match event:
            case TextDeltaEvent(text=text, attempt=attempt):
                self._draft = msgspec.structs.replace(draft, text=draft.text + text, attempt=attempt)
            case ReasoningDeltaEvent(text=text, attempt=attempt):
                self._draft = msgspec.structs.replace(draft, reasoning=draft.reasoning + text, attempt=attempt)
            case RetractedEvent() | RetryEvent():
                self._draft = msgspec.structs.replace(draft, text="", reasoning="")
            case _:
                return
        if len(draft.text) + len(draft.reasoning) > DRAFT_CHARS:
            self._miss()
        else:
            self._put(event)

    def _take_catch_up(self, call: str, catch_up: CatchUpEvent) -> None:
        """Take a whole draft, for watchers that missed its beginning. Usually it is what is known already."""
        draft = self._draft
        if self._judged_asking(catch_up.iteration) == "now":
            draft = Draft(
                turn=catch_up.turn,
                text=catch_up.text,
                reasoning=catch_up.reasoning,
                iteration=catch_up.iteration,
                model=catch_up.model,
                attempt=catch_up.attempt,
            )
        running = {call_id for call_id in catch_up.outputs if self._judged(_output(catch_up, call_id)) == "now"}
        outputs = {
            call_id: Draft(turn=catch_up.turn, call=call_id, text=catch_up.outputs[call_id])
            for call_id in catch_up.outputs
            if call_id in running
        }
        outputs = {**self._outputs, **outputs}
        if (draft, outputs) == (self._draft, self._outputs):
            return
        is_news = not self.drafts
        self._call, self._draft, self._outputs = call if draft is not None else self._call, draft, outputs
        if is_news:
            for event in self.draft_events():
                self._put(event, event.call if isinstance(event, ToolOutputEvent) else "")
        else:
            self._redraw()

    def _put(self, event: LiveEvent, call: str = "") -> None:
        self._ring.append((self.next_live, call, event))
        self.next_live += 1
        if len(self._ring) > RING_EVENTS:
            self.lost_before = self._ring.popleft()[0] + 1

    def _drop(self, call: str) -> None:
        """Drop the events of a draft that is settled, or starts over."""
        self._ring = deque(each for each in self._ring if each[1] != call)

    def _miss(self) -> None:
        """Events were missed. If the owner is in this process, it publishes all again; else the drafts are dropped.

        A text with a gap is worse than none.
        """
        self._later.clear()
        self._is_waiting = self._remind(self.session_id)
        if not self._is_waiting:
            self._call, had = "", self.drafts
            self._draft, self._outputs = None, {}
            if had:
                self._redraw()

    def _redraw(self) -> None:
        """Let watchers replace the drafts that they have seen."""
        self._ring.clear()
        self.next_live += 1
        self.lost_before = self.next_live

    def _settle(self) -> None:
        """Drop the drafts that the journal has settled, and take events that waited for it."""
        draft = self._draft
        running = self.conversation.running
        is_of_turn = draft is not None and running is not None and running.id == draft.turn
        if draft is not None and not (is_of_turn and self._judged_asking(draft.iteration) == "now"):
            self._call, self._draft = "", None
            self._drop("")
        for call, output in [*self._outputs.items()]:
            if self._judged(ToolOutputEvent(turn=output.turn, call=call, text="")) == "past":
                del self._outputs[call]
                self._drop(call)
        if not self.drafts:
            self.lost_before = 0
        waiting, self._later = self._later, deque()
        for published in waiting:
            self._judge(published)


def _output(catch_up: CatchUpEvent, call: str) -> ToolOutputEvent:
    return ToolOutputEvent(turn=catch_up.turn, call=call, text=catch_up.outputs[call])


def _joined(first: LiveEvent, second: LiveEvent) -> LiveEvent | None:
    """Two deltas of one text as one, or None if they do not belong together."""
    match first, second:
        case TextDeltaEvent(turn=turn, attempt=attempt, text=text), TextDeltaEvent() as more:
            is_same = (more.turn, more.attempt) == (turn, attempt)
        case ReasoningDeltaEvent(turn=turn, attempt=attempt, text=text), ReasoningDeltaEvent() as more:
            is_same = (more.turn, more.attempt) == (turn, attempt)
        case ToolOutputEvent(turn=turn, call=call, text=text), ToolOutputEvent() as more:
            is_same = (more.turn, more.call) == (turn, call)
        case _:
            return None
    return msgspec.structs.replace(first, text=text + more.text) if is_same else None
