"""Errors in messages to an agent and in answers to it, one class for each kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, FeedError, HoldfastError


class InboxError(HoldfastError):
    """Base of the errors when an agent does not accept what was sent to it. Nothing was changed."""

    kind = "inbox"


class NoInboxError(InboxError):
    """The session has ended and accepts no more items."""

    session_id: str
    why: str
    kind = "no_inbox"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}' accepts no items: {self.why}"


class ItemConflictError(InboxError):
    """An item with this id was sent before, with other content."""

    session_id: str
    item_id: str
    kind = "item_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': item '{self.item_id}' was sent before with other content; the first one"
            " stands, so send this one under another id"
        )


class InboxFullError(InboxError):
    """So many items wait that no more are accepted."""

    session_id: str
    waiting: int
    kind = "inbox_full"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': {self.waiting} items wait, and no more are accepted; drain them with a"
            " worker, or cancel some"
        )


class InvalidDecisionError(FeedError):
    """An answer that does not decide about the call it was asked for."""

    session_id: str
    query_id: str
    tool: str
    why: str
    kind = "invalid_decision"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': {self.query_id} asks whether to run the tool '{self.tool}', but the answer"
            f" is an {self.why}"
        )


class NotAnInputError(FeedError):
    """An answer to an agent that waits for the input of its next turn, and is none."""

    session_id: str
    query_id: str
    kind = "not_an_input"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' is between turns: {self.query_id} waits for the input of the next one; begin"
            " it with `session.turn(…)`, or send an item to the inbox with `session.enqueue(…)`"
        )
