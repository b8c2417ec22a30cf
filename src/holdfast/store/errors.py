"""What can go wrong in a store, one class a kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class StoreError(HoldfastError):
    """Base of everything a store may refuse or fail with."""

    kind = "store"


# --- the store as a whole ------------------------------------------------------------------------


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached."""

    url: str
    why: str
    kind = "store_unavailable"
    exit_code = ExitCode.UNAVAILABLE

    def __str__(self) -> str:
        return f"store {self.url} cannot be used: {self.why}"


class StoreReplacedError(StoreUnavailableError):
    """The file of the store is not the one that was opened. Nothing is acknowledged any more."""

    kind = "store_replaced"

    def __str__(self) -> str:
        return (
            f"store {self.url} cannot be used: {self.why} while this process had it open, so what is written now would"
            " be lost. Put the file back or choose another, and start this process again"
        )


class SchemaVersionError(StoreError):
    """The stored data was written by a newer Holdfast. Nothing was read."""

    where: str
    found: int
    supported: int
    kind = "schema_version"
    exit_code = ExitCode.UNAVAILABLE

    def __str__(self) -> str:
        advice = "Use a newer Holdfast" if self.found > self.supported else "No Holdfast has written that"
        return (
            f"{self.where} has schema version {self.found}, and this Holdfast reads up to {self.supported};"
            f" nothing was read or changed. {advice}"
        )


# --- writing -------------------------------------------------------------------------------------


class LeaseHeldError(StoreError):
    """Another owner holds the session."""

    session_id: str
    owner: str
    until: int
    kind = "lease_held"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' is held by {self.owner} until {self.until} (unix ms);"
            " send it a message, or wait until the lease runs out"
        )


class LeaseLostError(StoreError):
    """The writer is not the owner any more: somebody took the session over. Nothing was written."""

    session_id: str
    held: int
    current: int
    kind = "lease_lost"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': ownership was lost (epoch {self.held} is held, {self.current} is current);"
            " nothing was written. Read the session again before going on"
        )


class PositionConflictError(StoreError):
    """Somebody else wrote first. Nothing was written."""

    session_id: str
    expected: int
    actual: int
    kind = "position_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': the journal is at position {self.actual}, not at {self.expected};"
            " nothing was written. Read what is new, decide again, and append after it"
        )


class MessageConflictError(StoreError):
    """A message under a key that was used for another message."""

    session_id: str
    key: str
    kind = "message_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}': key '{self.key}' was used for another message; use a key of its own"


class MessageTakenError(StoreError):
    """A commit takes a message that is not in the mailbox (any more). Nothing was written."""

    session_id: str
    number: int
    kind = "message_taken"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}': message {self.number} is not in its mailbox; nothing was written"


class StateConflictError(StoreError):
    """A state item changed since it was read. Nothing was written."""

    namespace: str
    key: str
    expected: int
    actual: int
    kind = "state_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"state '{self.namespace}/{self.key}' is at version {self.actual}, not at {self.expected};"
            " nothing was written. Read it again and decide again"
        )


class ForkPositionError(StoreError):
    """A fork at a position that the journal does not have."""

    session_id: str
    position: int
    last: int
    kind = "fork_position"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' cannot be forked at {self.position}: choose a position from 1 to {self.last}"
        )


# --- reading -------------------------------------------------------------------------------------


class CorruptSessionError(StoreError):
    """What is stored of one session cannot be trusted. Other sessions are not affected."""

    session_id: str
    place: str
    why: str
    kind = "corrupt_session"
    exit_code = ExitCode.ENDED_BADLY

    def __str__(self) -> str:
        return f"session '{self.session_id}' is damaged at {self.place}: {self.why}"


class CorruptStateError(StoreError):
    """What is stored of one state item cannot be trusted. Other items are not affected."""

    namespace: str
    key: str
    why: str
    kind = "corrupt_state"

    def __str__(self) -> str:
        return f"state '{self.namespace}/{self.key}' is damaged: {self.why}; write it anew, or delete it"


# --- files ---------------------------------------------------------------------------------------


class ExportFileError(StoreError):
    """An export file that cannot be trusted. Nothing was imported."""

    line: int
    why: str
    kind = "export_file"

    def __str__(self) -> str:
        return f"export file, line {self.line}: {self.why}; nothing was imported"


class EnvelopeError(StoreError):
    """A stored envelope that cannot be read."""

    session_id: str
    why: str
    kind = "envelope"

    def __str__(self) -> str:
        return f"envelope of session '{self.session_id}': {self.why}"
