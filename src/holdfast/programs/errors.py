"""What can go wrong with programs, one class a kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class ProgramNotFoundError(HoldfastError):
    """The program of a session is not available in this process."""

    program: str
    why: str
    kind = "program_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"program '{self.program}' cannot be run here: {self.why}"


class UnknownLanguageError(HoldfastError):
    """A language in which no program can be written here."""

    language: str
    known: tuple[str, ...]
    kind = "unknown_language"

    def __str__(self) -> str:
        return f"there is no language '{self.language}' (there are: {', '.join(self.known)})"


class DivergenceError(HoldfastError):
    """A replay asked something other than what was recorded. Nothing was changed."""

    session_id: str
    position: int
    recorded: str
    asked: str
    where: str
    began_with: str | None = None
    """The version of the code that the session began with, if it is recorded."""
    here: str | None = None
    """The version of the code in this process, if the program has versions."""
    file: str | None = None
    """Where that code is."""
    kind = "divergence"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': the program no longer does what the journal says it did.\n"
            f"  recorded at position {self.position}: {self.recorded}\n"
            f"  asked now{f' at {self.where}' if self.where else ''}: {self.asked}\n"
            f"{self._versions()}"
            "Nothing was changed. Run it with the code it was started with, keep the old way for it"
            f" with `ctx.patched`, fork it at position {self.position - 1} to continue with this code, or cancel it"
        )

    def _versions(self) -> str:
        if self.here is None:
            return ""
        if self.began_with == self.here:
            why = "so the difference comes from something else: another module, or what differs between processes"
            return f"  both are version {self.here} ({self.file}), {why}\n"
        began = f"version {self.began_with}" if self.began_with else "an unknown version"
        return f"  it began with {began}; here is version {self.here} ({self.file})\n"


class QueryFailedError(HoldfastError):
    """A query was answered with a failure. Raised inside programs, which may catch it."""

    kind = "query_failed"

    def __init__(self, message: str, code: str = "failed") -> None:
        super().__init__(message)
        self.code = code


class NotAQueryError(HoldfastError):
    """A strategy waited for something that is not a query, and that could not be waited for again after a restart."""

    kind = "not_a_query"


class InstanceLostError(HoldfastError):
    """A live program is not there any more. The journal has all that is needed to build it again."""

    kind = "instance_lost"

    def __init__(self, why: str, *, is_suspect: bool = False) -> None:
        super().__init__(f"the program has to be rebuilt: {why}")
        self.why = why
        self.is_suspect = is_suspect
        """Whether the program's own step may be the cause."""


class SnapshotUnusableError(InstanceLostError):
    """A snapshot cannot be gone on from. The program is rebuilt by running it again."""

    kind = "snapshot_unusable"
