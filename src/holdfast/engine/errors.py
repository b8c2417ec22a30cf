"""What can go wrong in the engine, one class a kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class ResultTimeoutError(HoldfastError):
    """A session had not ended when the wait was over."""

    session_id: str
    seconds: float
    state: str
    why: str = ""
    """Why this process leaves the session to somebody else, if it does."""
    kind = "result_timeout"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' is still {self.state} after {self.seconds:g} s;"
            f" {self.why or 'look at its status to see what it waits for'}"
        )


class TooManyEntriesError(HoldfastError):
    """A session is too long to be read whole."""

    session_id: str
    entries: int
    most: int
    kind = "too_many_entries"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' has {self.entries:,} entries, and at most {self.most:,} can be compared;"
            " compare forks of it that end earlier"
        )


class SessionFailedError(HoldfastError):
    """The result of a session was asked for, and it ended without one."""

    session_id: str
    state: str
    why: str
    kind = "session_failed"

    def __str__(self) -> str:
        return f"session '{self.session_id}' has no result: it is {self.state}: {self.why}"


class ForkPointError(HoldfastError):
    """A fork at a query, turn or node that the session does not have."""

    session_id: str
    what: str
    wanted: str
    near: list[str]
    kind = "fork_point"

    def __str__(self) -> str:
        known = f"near it are {', '.join(self.near)}" if self.near else f"it has no {self.what} at all"
        return (
            f"session '{self.session_id}' cannot be forked at {self.what} '{self.wanted}', which it does not have:"
            f" {known}; `fork_points` (`holdfast fork --points`) lists every place"
        )


class ContentionError(HoldfastError):
    """Others wrote to the session each time before this message could be."""

    session_id: str
    tries: int
    kind = "contention"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}': others wrote first {self.tries} times; nothing was changed, try again"


class DriverError(HoldfastError):
    """A driver that cannot be registered as asked."""

    why: str
    kind = "driver"

    def __str__(self) -> str:
        return self.why


class StaleError(Exception):
    """Somebody else wrote first: decide again."""

    def __init__(self, *, is_lost: bool) -> None:
        super().__init__()
        self.is_lost = is_lost
        """Whether it was the session that was written to. A state item is another matter: the session is still ours."""


class ProgramElsewhereError(Exception):
    """Answers that let a program continue which this process does not run: they belong into the mailbox."""

    def __init__(self, program: str, why: str, *, service: str = "") -> None:
        super().__init__()
        self.program = program
        """Empty if this process has it."""
        self.service = service
        """The service that the program runs for, if this process does not serve it."""
        self.why = why
        """Why it does not: the program is missing, or belongs to another service."""


class WorkerExistsError(HoldfastError):
    """A second worker was started on one runtime."""

    url: str
    kind = "worker_exists"

    def __str__(self) -> str:
        return f"this runtime has a worker on '{self.url}' already; let that one work more turns at a time"


class RuntimeClosedError(HoldfastError):
    """Something was used before it was opened or after it was closed, or was closed while it was waited for."""

    kind = "runtime_closed"

    def __init__(self, session_id: str | None = None) -> None:
        if session_id is None:
            why = (
                "the runtime is not open: use it, and all that comes from it, inside `with SyncRuntime(…) as runtime:`"
                " or `with holdfast.open_sync(…) as hf:`"
            )
        else:
            why = (
                f"session '{session_id}' was waited for in a runtime that is closed; nothing is lost: the session goes"
                " on in any process that serves it, and can be waited for there, or here once it is opened again"
            )
        super().__init__(why)
        self.session_id = session_id
