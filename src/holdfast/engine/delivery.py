"""Bringing messages to a session: decided again while others write first, and posted where another process owns it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.core.decide import FeedMessage, Message, WakeMessage
from holdfast.core.errors import AnswerConflictError, HoldfastError, SessionNotFoundError
from holdfast.core.events import Event, SentEvent
from holdfast.core.needs import Need, missing, step_needs, upkeep_needs
from holdfast.core.queries import answer_preview, says_the_same
from holdfast.core.state import Session
from holdfast.engine.errors import ContentionError, ProgramElsewhereError, StaleError
from holdfast.engine.owner import Owner
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.store.errors import LeaseHeldError, MessageTakenError, StoreUnavailableError

T = TypeVar("T")

RETRIES = 20
"""How often a message is decided again because somebody else wrote first, before that is an error."""

OWNER_LOOK_S = 1.0
"""Seconds after which a sender that waits for the owner to take a message checks that the owner still lives."""


class Recipient(Protocol):
    """A session that messages are brought to."""

    @property
    def id(self) -> str: ...
    @property
    def lock(self) -> asyncio.Lock: ...

    async def take(self, message: Message, takes: Sequence[int] = (), *, wants_reply: bool = True) -> Event | None:
        """Decide a message; `takes` are the numbers of the mail that it is. None unless the caller `wants_reply`."""
        ...

    def whole(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Do something with the session to the end, where stopping would lose effects."""
        ...

    async def check(self, message: Message) -> Message:
        """Raise if the owner would refuse a message; gives it back with the ids of the queries it is for now."""
        ...

    async def load(self) -> Session:
        """What is known of it here, read if nothing is."""
        ...

    async def refresh(self) -> Session: ...
    async def attend(self) -> None:
        """Resume whatever a dead process left behind, by what is known of it here."""
        ...


class LiveSessions(Protocol):
    """The live sessions of this process."""

    def live(self, session_id: str) -> Recipient:
        """The one object that a session is here."""
        ...

    def drop(self, session_id: str, only: Recipient | None = None) -> None:
        """Forget a session that is not there (any more); with `only`, unless it is another object by now."""
        ...

    def make_room(self) -> None:
        """Forget sessions that nothing is done with, if there are too many."""
        ...


Find: TypeAlias = Callable[[str], Recipient]
"""Finds a session by its id, anew for each try: what is known of it may have been dropped since the last look."""


async def hand_in(
    owner: Owner,
    find: Find,
    session_id: str,
    message: Message,
    wait: float | None = None,
    *,
    is_own: bool = False,
    wants_reply: bool = False,
) -> Event | None:
    """Deliver a message to the owner of a session: this process, or another through the mailbox.

    Gives the reply; unless the caller `wants_reply`, there need not be one. `is_own` if an effect of the session brings
    its answer: nobody but the session can cancel that.
    """
    takes: list[int] = []
    key = ""
    was_sent = False
    for tries in itertools.count():
        if tries == RETRIES and not was_sent:
            break  # what was sent is in the mailbox, and will be taken: that is waited for
        session = find(session_id)
        try:
            taken = session.take(message, takes, wants_reply=wants_reply)
            event = await (taken if is_own else session.whole(taken))
            return msgspec.structs.replace(event, replayed=False) if was_sent and event is not None else event
        except StaleError:
            continue
        except MessageTakenError:
            takes = []
        except (SessionNotFoundError, StoreUnavailableError):
            raise
        except LeaseHeldError:
            message = await session.check(message)
            key = key or f"m-{owner.token(12)}"
            posted = await _post(owner, session_id, key, message, wait)
            if isinstance(posted, SentEvent):
                return posted
            takes, was_sent = posted, True
            async with session.lock:
                await session.refresh()  # the owner has written since
        except ProgramElsewhereError as elsewhere:
            message = await session.check(message)
            left = await _leave(owner, session.id, message, wait, elsewhere)
            if left is not None:
                return left
            takes, was_sent = [], True
        except HoldfastError:
            if takes:
                await _refuse_mail(session, takes)
            raise
    raise ContentionError(session_id, RETRIES)


async def attend(owner: Owner, find: Find, session_id: str, *, insists: bool = True) -> bool:
    """Go on with what was left undone in a session, unless somebody else owns it; False if it is not served here.

    Unless it `insists`, it raises `StaleError` or `MessageTakenError` if somebody else was quicker.
    """
    for _ in range(RETRIES):
        session = find(session_id)
        try:
            if await misses(owner, session, upkeep_needs, fresh=True):
                return False
            await take_mail(owner, session)
            if await misses(owner, session, step_needs):
                return False
            await session.attend()
            return True
        except (StaleError, MessageTakenError):
            if not insists:
                raise
            continue  # what was known of it here was out of date: nobody else may be left to look at it
        except (LeaseHeldError, ProgramNotFoundError):
            break
    return True


async def misses(
    owner: Owner, session: Recipient, needs: Callable[[Session], list[Need]], *, fresh: bool = False
) -> bool:
    """Whether this process lacks something that a session needs: as it is known here, or `fresh` as it is now."""
    async with session.lock:
        known = await (session.refresh() if fresh else session.load())
        return bool(missing(known, needs(known), owner.offers))


async def take_mail(owner: Owner, session: Recipient, within_s: float | None = None) -> None:
    """Take what others have sent to a session; raises `TimeoutError` if the mailbox cannot be read within that time."""
    async with asyncio.timeout(within_s):
        sent = await owner.store.mailbox(session.id)
    for item in sent:
        try:
            await session.take(item.message, takes=[item.number])
        except (LeaseHeldError, StoreUnavailableError):
            raise
        except (MessageTakenError, ProgramElsewhereError):
            continue  # it is gone, or left to a process that has the program
        except HoldfastError:
            await _refuse_mail(session, [item.number])


async def _refuse_mail(session: Recipient, takes: list[int]) -> None:
    """Take refused messages out of the way: their senders decide them again, and find out why."""
    with contextlib.suppress(MessageTakenError):
        await session.take(WakeMessage(), takes)


async def _leave(
    owner: Owner, session_id: str, message: Message, wait: float | None, elsewhere: ProgramElsewhereError
) -> SentEvent | None:
    """Leave answers in the mailbox for a process that runs the program; None if one takes them within `wait` seconds.

    Answers that wait there already are not sent again. `AnswerConflictError` if others wait there for the same query.
    """
    store, monotonic = owner.store, owner.clock.monotonic
    is_there = _is_left(session_id, message, [item.message for item in await store.mailbox(session_id)])
    if not is_there:
        await store.send(session_id, f"m-{owner.token(12)}", message, owner.now())
    if owner.on_mail is not None:
        owner.on_mail(session_id)
    deadline = monotonic() + (wait or 0)
    with store.watch(session_id) as changes:
        while _is_left(session_id, message, [item.message for item in await store.mailbox(session_id)]):
            if (left := deadline - monotonic()) <= 0:
                return SentEvent(
                    session_id=session_id,
                    why=elsewhere.why,
                    program=elsewhere.program,
                    service=elsewhere.service,
                    replayed=is_there,
                )
            await changes.changed(timeout=min(OWNER_LOOK_S, left))
    return None


def _is_left(session_id: str, message: Message, mail: Sequence[Message]) -> bool:
    """Whether answers wait in the mailbox; `AnswerConflictError` if others do for the same query."""
    assert isinstance(message, FeedMessage)
    waiting = {given.query_id: given.answer for each in mail if isinstance(each, FeedMessage) for given in each.answers}
    for given in message.answers:
        other = waiting.get(given.query_id)
        if other is None:
            return False
        if not says_the_same(other, given.answer):
            previews = answer_preview(other), answer_preview(given.answer)
            raise AnswerConflictError(session_id, given.query_id or "", *previews)
    return True


async def _post(owner: Owner, session_id: str, key: str, message: Message, wait: float | None) -> SentEvent | list[int]:
    """Send a message to the owner, and wait until it is taken.

    Afterwards it is decided again here: what the owner has done is then a replay, or was refused. If the owner has let
    go without taking it, its number is given back, to be taken with that decision.
    """
    store, monotonic = owner.store, owner.clock.monotonic
    receipt = await store.send(session_id, key, message, owner.now())
    deadline = None if wait is None else monotonic() + wait
    with owner.callers.watch(session_id) as changes:
        while True:
            row = await store.session(session_id)
            waiting = {item.number for item in await store.mailbox(session_id)}
            if receipt.number not in waiting:
                return []
            if row.owner is None:
                return [receipt.number]
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return SentEvent(session_id=session_id, why="its owner has not taken the message yet")
            pause = min(OWNER_LOOK_S, max(0.05, ((row.lease_until or 0) - owner.now()) / 1000))
            await changes.changed(timeout=pause if left is None else min(pause, left))
