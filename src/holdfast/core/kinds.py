"""What a program kind brings to its sessions: record, query and message types of its own, and how they are folded.

Rules of this file
------------------
- The kernel knows what every session has. A kind that needs more, as agents do with their inbox and their turns,
  registers a `SessionKind`; the kinds `native`, `lua` and `python` need nothing and register none.
- A kind's own part of a session is a `KindFold`. The session calls it at fixed points, after its own checks, and it
  changes nothing but itself: it never decides about the state of the session.
- Where kinds live is written in `holdfast.SESSION_KINDS`. Such a module is imported when a session of its kind, or a
  type that nobody here knows, is first met. Nothing else is ever imported because a journal names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import msgspec

from holdfast import SESSION_KINDS
from holdfast.core.errors import UnsupportedMessageError

if TYPE_CHECKING:
    from holdfast.core.compare import ComparedJournal
    from holdfast.core.decide import Decision, KindMessage, Repeats
    from holdfast.core.fork_points import KindForkPoints
    from holdfast.core.needs import Need
    from holdfast.core.queries import Answer, Query, Usage
    from holdfast.core.records import EndRecord, Entry, KindRecord, Record
    from holdfast.core.state import Session

T = TypeVar("T")


class KindFold:
    """A program kind's own part of a session, folded from the same journal. This one keeps nothing."""

    parent: str | None = None
    """The session that this one belongs to without answering one of its queries, or None."""
    title: str = ""
    """What it is called if nobody has said; empty if that is as for any program."""
    turns: int = 0
    """How many inputs it has worked on, or works on."""

    # --- folding: called by `Session.apply`, in the order of the journal ---------------------------------

    def check(self, session: Session, record: KindRecord) -> str | None:
        """Why a record of this kind may not come next, or None if it may. Changes nothing."""
        return f"programs of the kind '{session.program_kind}' write no such record"

    def on_record(self, record: KindRecord, at: int, position: int) -> None:
        """A record of this kind was written, then and there."""

    def on_asked(self, query: Query) -> None:
        """The program asked a query."""

    def on_answered(self, query: Query, answer: Answer, usage: Usage | None) -> None:
        """A query got its answer, which cost so much."""

    def on_ended(self, record: EndRecord, at: int) -> None:
        """The session ended."""

    def on_forked(self, at: int) -> None:
        """The records after this one are the fork's own; those before came from its source."""

    # --- checkpoints --------------------------------------------------------------------------------------

    format: ClassVar[int] = 0
    """Changes whenever the kind's fold does: what another version has folded is not used."""

    def dump(self) -> bytes:
        """All that this part keeps, as JSON."""
        return b"null"

    def restore(self, state: bytes) -> bool:
        """Take over what `dump` returned, instead of folding it again; False if it cannot be read."""
        return True

    # --- what listings and timers need to know -----------------------------------------------------------

    @property
    def waiting_for(self) -> str | None:
        """What the session waits for beside its queries, in one word for listings, or None."""
        return None

    def next_due(self) -> int | None:
        """When this part has something to do because time passes (unix ms), or None."""
        return None

    def is_left_to_worker(self, session: Session, now: int) -> bool:
        """Whether what is due here is left to a worker, so that waking the session does nothing."""
        return False

    # --- what the parent of a child is told -----------------------------------------------------------------

    def parent_answer(self, session: Session) -> Answer | None:
        """What the parent of a session that has ended is answered; None if that is its result, or why it has none."""
        return None

    def usage_by_model(self) -> dict[str, Usage] | None:
        """What a session and its children have spent on each model; None if that is not known."""
        return None

    # --- what it needs of a process -----------------------------------------------------------------------

    def query_needs(self, query: Query) -> Sequence[Need] | None:
        """What a process needs to answer a query by itself; None if that is as for any program."""
        return None

    def waiting_needs(self) -> Sequence[Need]:
        """What a process needs for what this part has to do beside the queries of the program."""
        return ()

    # --- decisions ----------------------------------------------------------------------------------------

    def repeats_of(self, message: KindMessage) -> Repeats | None:
        """What a message of this kind may be a repeat of; None if it says something new."""
        return None

    def decide(self, session: Session, message: KindMessage, now: int, recorded: Mapping[str, Entry]) -> Decision:
        """What a message of this kind does to the session, or an error that says why it is refused.

        `recorded` holds the entries that it may repeat, as `repeats_of` names them.
        """
        raise UnsupportedMessageError(session.id, message.tag, session.program_kind)

    def decide_waiting(self, session: Session, now: int) -> list[Record]:
        """What this part adds by itself while the program waits, before answers let the program continue."""
        return []

    def decide_expire(self, session: Session, reason: str) -> list[Record] | None:
        """What is stopped because nobody has answered for too long; None if that is the session itself."""
        return None


class ViewSegment(Protocol):
    """What a view gained between two positions of the journal."""

    @property
    def after(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def data(self) -> bytes: ...


class KindView(Protocol):
    """What readers are shown of a session of a kind, folded from entries that are durable and from nothing else."""

    position: int
    """Of the last entry that is in it."""

    @property
    def is_sound(self) -> bool:
        """Whether it has all that it needs; if not, it is made again from the whole journal."""
        ...

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        ...

    def segment(self) -> ViewSegment | None:
        """What it gained since the last segment, once; None if there is nothing, or no end to cut at."""
        ...

    def dump(self) -> bytes | None:
        """All that is in no segment, for a checkpoint; None if it cannot be written down just now."""
        ...


class ViewKind(Protocol):
    """How the views of a kind are made."""

    def __call__(self, session_id: str, *, keep_all: bool) -> KindView:
        """The view of an empty journal. Unless it is to `keep_all`, it may forget what it can do without."""
        ...

    def restore(self, session_id: str, state: bytes, segments: Sequence[bytes], *, keep_all: bool) -> KindView | None:
        """The view that `dump` was called on; None if a segment is missing, or another version wrote them."""
        ...


class SessionKind(msgspec.Struct, frozen=True):
    """A program kind that brings something of its own to its sessions."""

    name: str
    fold: Callable[[Session], KindFold]
    """Makes the kind's part of a session that has just started."""
    records: Sequence[type[KindRecord]] = ()
    queries: Sequence[type[Query]] = ()
    messages: Sequence[type[KindMessage]] = ()
    fork_places: Sequence[str] = ()
    """Words for the kind's own places to fork at, as `Holdfast.fork` takes them."""
    fork_points: Callable[[str], KindForkPoints] | None = None
    """Finds those places in the journal of the session with this id."""
    view: ViewKind | None = None
    """What readers of such sessions are shown; None if that is the session itself."""
    ends_with_parent: bool = True
    """Whether whoever cancels a session cancels those of this kind that belong to it, too."""
    compared_journal: type[ComparedJournal] | None = None
    """Says how the kind's records read when sessions are compared; None: as those of any program."""


_registered: dict[str, SessionKind] = {}
_on_register: list[Callable[[], None]] = []


def register(kind: SessionKind) -> None:
    """Make a kind known to this process."""
    _registered[kind.name] = kind
    for renew in _on_register:
        renew()


def registered_kinds() -> list[SessionKind]:
    """The kinds that are known to this process so far."""
    return list(_registered.values())


def find_kind(name: str) -> SessionKind | None:
    """What a program kind brings, or None if it brings nothing of its own."""
    if name not in _registered and name in SESSION_KINDS:
        import_module(SESSION_KINDS[name])
    return _registered.get(name)


def load_kinds() -> bool:
    """Import every kind that has a home and is not known yet; whether there was one."""
    missing = [name for name in SESSION_KINDS if name not in _registered]
    for name in missing:
        find_kind(name)
    return bool(missing)


class KindDecoder:
    """A JSON decoder of a union that kinds add types to.

    It is made when it is defined, and again when a kind is registered: both happen while a module is imported, so in
    one thread. msgspec does not survive two threads that build a decoder of the same types at once.
    """

    def __init__(self, union: Callable[[], Any]) -> None:
        self._union = union
        self._renew()
        _on_register.append(self._renew)

    def _renew(self) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._union())

    def decode(self, body: str | bytes) -> Any:
        """The value in `body`; raises `msgspec.MsgspecError` or `ValueError` with the place of the fault."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError:
            if not load_kinds():
                raise
            return self._decoder.decode(body)
