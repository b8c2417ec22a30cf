"""Errors of triggers, one class for each kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class RevisionConflictError(HoldfastError):
    """Somebody else has changed a trigger or an event type since it was read."""

    name: str
    expected: int
    found: int
    kind = "revision_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"'{self.name}' was changed: expected revision {self.expected}, found {self.found}; read it, and try again"
        )


class TriggerMovingError(HoldfastError):
    """A schedule is just being continued by another session. Whoever finds it again by its name finds that one."""

    trigger_id: str
    kind = "trigger_moving"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"'{self.trigger_id}' is being continued by another session, as it has run often; try again"


class TriggerNotFoundError(HoldfastError):
    """No trigger has that name."""

    name: str
    service: str
    kind = "trigger_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"service '{self.service}' has no trigger or schedule '{self.name}'"


class TriggerExistsError(HoldfastError):
    """There is a trigger of that name already, and it is another one."""

    name: str
    service: str
    kind = "trigger_exists"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"service '{self.service}' has another trigger or schedule '{self.name}'; update or remove it"


class UnknownEventTypeError(HoldfastError):
    """An event type that nobody has declared."""

    type: str
    declared: list[str]
    kind = "unknown_event_type"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        known = ", ".join(self.declared) or "none"
        return f"event type '{self.type}' is not declared; declare it first (declared are: {known})"


class InvalidPayloadError(HoldfastError):
    """A payload that does not fit the schema of its event type."""

    type: str
    problems: list[str]
    kind = "invalid_payload"

    def __str__(self) -> str:
        return f"the payload does not fit event type '{self.type}': {'; '.join(self.problems)}"


class EmitConflictError(HoldfastError):
    """An idempotency key that another event has."""

    type: str
    idempotency_key: str
    kind = "emit_conflict"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"another '{self.type}' was emitted under the idempotency key '{self.idempotency_key}'"
