"""What can go wrong, one class a kind, each with the fields a program needs and a sentence a person can act on."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, dataclass_transform


class ExitCode(IntEnum):
    """How a command ends. Scripts rely on these numbers."""

    OK = 0
    ENDED_BADLY = 1
    """The session failed, was cancelled or expired; or damage remains."""
    BAD_INPUT = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    """The store or the model cannot be reached."""
    BUG = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141


@dataclass_transform(eq_default=False)
class HoldfastError(Exception):
    """Base of every error that Holdfast raises on purpose.

    A class of errors lists its fields as a dataclass does, and takes them by position or by name. It is no dataclass:
    to make the code of so many took a tenth of the time in which a short command starts.
    """

    kind = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.BAD_INPUT
    """The exit code of a command that this error ends."""
    field_names: ClassVar[tuple[str, ...]] = ()
    """The names of its fields."""

    def __init_subclass__(cls) -> None:
        cls.field_names = (*cls.field_names, *cls.__annotations__)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given)
        names = self.field_names
        if not names and not named:
            return  # it has its text, as any exception
        values = dict(zip(names, given, strict=False)) | named
        missing = [name for name in names if name not in values and not hasattr(type(self), name)]
        if missing or len(values) < len(given) + len(named) or not values.keys() <= set(names):
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(names) or 'a text'}, but was given {given} and {named}"
            )
        vars(self).update(values)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.field_names)
        return f"{type(self).__name__}({fields})" if fields else super().__repr__()

    def to_json(self) -> dict[str, Any]:
        """The error as JSON: its kind, its sentence, and its fields."""
        return {"kind": self.kind, "error": str(self), **{name: getattr(self, name) for name in self.field_names}}


# --- bad input ---------------------------------------------------------------------------------


class InvalidIdError(HoldfastError):
    """An id or key that does not follow the grammar of ids."""

    what: str
    shown: str
    why: str
    kind = "invalid_id"

    def __str__(self) -> str:
        return f"invalid {self.what} {self.shown}: {self.why}"


class InvalidValueError(HoldfastError):
    """A value that cannot be kept as JSON without changing it."""

    what: str
    why: str
    path: str = ""
    kind = "invalid_value"

    def __str__(self) -> str:
        place = f" at {self.path}" if self.path else ""
        return f"invalid {self.what}{place}: {self.why}"


class InvalidFilterError(HoldfastError):
    """A pending filter that is neither a known preset nor a filter object."""

    why: str
    kind = "invalid_filter"

    def __str__(self) -> str:
        return self.why


# --- sessions ----------------------------------------------------------------------------------


class SessionNotFoundError(HoldfastError):
    """No session has this id."""

    session_id: str
    kind = "session_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"session '{self.session_id}' not found"


class SessionDeletedError(SessionNotFoundError):
    """The session was deleted; its id stays taken."""

    deleted_at: int = 0
    kind = "session_deleted"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"session '{self.session_id}' not found (it was deleted; its id is not used again)"


class SessionExistsError(HoldfastError):
    """A new session was asked for under an id that is taken."""

    session_id: str
    difference: str | None = None
    """How that session was started otherwise, if it was."""
    kind = "session_exists"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        but = "" if self.difference is None else f", and {self.difference}"
        return f"session '{self.session_id}' already exists{but}; choose another id, or go on with that one"


class TransitionError(HoldfastError):
    """A record that is not legal in the session's state."""

    session_id: str
    record: str
    expected: str
    actual: str
    kind = "invalid_transition"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"invalid state transition: expected {self.expected}, got {self.actual}"
            f" (session '{self.session_id}', record '{self.record}')"
        )


class NotAdoptedError(TransitionError):
    """Something was asked of a session that was imported from a file, and that nobody has adopted."""

    kind = "not_adopted"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' was imported from a file and does nothing until it is adopted:"
            f" `holdfast adopt {self.session_id}` shows what it would run, and lets it"
        )


class JournalError(HoldfastError):
    """The journal of one session cannot be folded: a gap, a foreign record, a record that contradicts it."""

    session_id: str
    position: int
    why: str
    kind = "invalid_journal"
    exit_code = ExitCode.ENDED_BADLY

    def __str__(self) -> str:
        return f"session '{self.session_id}': journal record {self.position} cannot be used: {self.why}"


# --- feeding -----------------------------------------------------------------------------------


class FeedError(HoldfastError):
    """Base of the reasons for which a feed is refused. Nothing was changed."""

    kind = "feed"


class EmptyFeedError(FeedError):
    """A feed without any answer."""

    session_id: str
    kind = "empty_feed"

    def __str__(self) -> str:
        return f"session '{self.session_id}': no answers given; give at least one"


class NoPendingQueryError(FeedError):
    """An answer without a query id, while no query is pending."""

    session_id: str
    state: str
    kind = "no_pending_query"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"no pending queries (session '{self.session_id}' is {self.state})"


class QueryIdRequiredError(FeedError):
    """An answer without a query id, while several queries are pending."""

    session_id: str
    pending: list[str]
    kind = "query_id_required"

    def __str__(self) -> str:
        ids = ", ".join(self.pending[:10]) + (", …" if len(self.pending) > 10 else "")
        return (
            f"{len(self.pending)} queries pending; specify query_id explicitly"
            f" (session '{self.session_id}' waits for {ids})"
        )


class UnknownQueryError(FeedError):
    """A query id that this session has never asked."""

    session_id: str
    query_id: str
    pending: list[str]
    kind = "unknown_query"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        waits = ", ".join(self.pending[:10]) if self.pending else "nothing"
        return f"unknown query_id: {self.query_id} (session '{self.session_id}' waits for {waits})"


class StaleQueryError(FeedError):
    """A query that was asked, was never answered, and is not waited for any more."""

    session_id: str
    query_id: str
    why: str
    kind = "stale_query"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"stale query_id: {self.query_id} of session '{self.session_id}' no longer waits for an answer: {self.why}"
        )


class AnswerConflictError(FeedError):
    """A second, different answer to a query that has one."""

    session_id: str
    query_id: str
    recorded: str
    given: str
    kind = "answer_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"already responded to query_id: {self.query_id} (session '{self.session_id}':"
            f" recorded {self.recorded}, now given {self.given}); the recorded answer stands"
        )


# --- messages ----------------------------------------------------------------------------------


class UnsupportedMessageError(HoldfastError):
    """A message of a kind that the session's program does not take. Nothing was changed."""

    session_id: str
    message: str
    program_kind: str
    kind = "unsupported_message"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' does not take a message of the type '{self.message}':"
            f" its program is of the kind '{self.program_kind}'"
        )


# --- budgets -----------------------------------------------------------------------------------


class BudgetExceededError(HoldfastError):
    """A query that does not fit into what is left of a budget. Nothing was asked."""

    session_id: str
    limit: str
    why: str
    kind = "budget_exceeded"

    def __str__(self) -> str:
        return f"budget_exceeded: {self.why}"


class InvalidBudgetError(HoldfastError):
    """A budget that cannot be kept."""

    why: str
    kind = "invalid_budget"

    def __str__(self) -> str:
        return f"invalid budget: {self.why}"
