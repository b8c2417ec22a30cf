"""`FoldedSession`: a session as a checkpoint keeps it, so that its journal need not be folded again.

The types of fields are evaluated here, and not kept as text: msgspec would compile every text again in each process.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic

import msgspec

from holdfast.core.kinds import KindDecoder
from holdfast.core.metrics import Metrics
from holdfast.core.queries import Answer
from holdfast.core.records import AskedQuery, EndRecord, StartedRecord, any_query
from holdfast.core.values import encode
from holdfast.core.wake import Wake

if TYPE_CHECKING:
    from holdfast.core.pending_queries import PendingQuery
    from holdfast.core.state import Session

FORMAT = 4
"""Changes whenever the fold of a session does: what another version has folded is not used."""


class FoldedQuery(msgspec.Struct, Generic[AskedQuery], frozen=True, omit_defaults=True):
    """A pending query."""

    query: AskedQuery
    asked_at: int
    attempts: int = 0
    deaths: int = 0

    @staticmethod
    def of(pending: "PendingQuery") -> "FoldedQuery":
        """A pending query of a session."""
        return FoldedQuery(pending.query, pending.asked_at, pending.attempts, pending.deaths)


class FoldedSession(msgspec.Struct, Generic[AskedQuery], frozen=True, omit_defaults=True, kw_only=True):
    """Everything that a session is, up to a position of its journal. The fields are those of `Session`."""

    format: int
    state: str
    adopted_state: str = ""
    """The state that it is in once it is adopted, if it is imported."""
    position: int
    started: StartedRecord | None
    ended: EndRecord | None
    pending: list[FoldedQuery[AskedQuery]]
    settled: dict[str, int]
    undelivered: list[tuple[str, Answer]]
    """Answers that the program has not been given, with their queries."""
    failure_undelivered: bool = False
    wakings: int
    is_outward: bool = False
    queries_asked: int
    asked_last: int
    wake: Wake
    metrics: Metrics
    llm: str
    title: str = ""
    labels: tuple[str, ...] = ()
    kind_format: int
    kind: msgspec.Raw
    """The program kind's own part of the session, in a form of its own."""


_decoder = KindDecoder(lambda: FoldedSession[any_query()])  # type: ignore[misc]


def folded_session(session: "Session", undelivered: Sequence[tuple[str, Answer]]) -> FoldedSession:
    """The session as a checkpoint keeps it. It says what `undelivered` names, which only the journal has."""
    return FoldedSession(
        format=FORMAT,
        state=session.state,
        adopted_state=session.adopted_state or "",
        position=session.position,
        started=session.started,
        ended=session.ended,
        pending=[FoldedQuery.of(pending) for pending in session.pending.values()],
        settled=session.settled,
        undelivered=list(undelivered),
        failure_undelivered=session.failure_undelivered,
        wakings=session.wakings,
        is_outward=session.is_outward,
        queries_asked=session.queries_asked,
        asked_last=session.asked_last,
        wake=session.wake,
        metrics=session.metrics.copied(),
        llm=session.llm,
        title=session.title,
        labels=session.labels,
        kind_format=session.kind_fold.format,
        kind=msgspec.Raw(session.kind_fold.dump()),
    )


def encode_folded(folded: FoldedSession) -> bytes:
    """The JSON of a folded session."""
    return encode(folded)


def decode_folded(body: bytes) -> FoldedSession | None:
    """A folded session from its JSON; None if another version has folded it, or if it cannot be read."""
    try:
        folded: FoldedSession = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return folded if folded.format == FORMAT else None
