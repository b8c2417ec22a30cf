"""What can go wrong with programs, one class a kind."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.errors import ExitCode, HoldfastError


@dataclass(eq=False)
class ProgramNotFoundError(HoldfastError):
    """The program of a session is not available in this process."""

    program: str
    why: str
    kind = "program_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"program '{self.program}' cannot be run here: {self.why}"


@dataclass(eq=False)
class UnknownLanguageError(HoldfastError):
    """A language in which no program can be written here."""

    language: str
    known: tuple[str, ...]
    kind = "unknown_language"

    def __str__(self) -> str:
        return f"there is no language '{self.language}' (there are: {', '.join(self.known)})"


@dataclass(eq=False)
class DivergenceError(HoldfastError):
    """A replay asked something other than what was recorded. Nothing was changed."""

    session_id: str
    position: int
    recorded: str
    asked: str
    where: str
    kind = "divergence"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}': the program no longer does what the journal says it did.\n"
            f"  recorded at position {self.position}: {self.recorded}\n"
            f"  asked now{f' at {self.where}' if self.where else ''}: {self.asked}\n"
            "Nothing was changed. Run it with the code it was started with, fork it at"
            f" position {self.position - 1} to continue with this code, or cancel it"
        )


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
