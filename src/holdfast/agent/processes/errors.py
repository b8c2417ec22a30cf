"""Errors of processes, one class for each kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class NotAProcessError(HoldfastError):
    """A session was named as a process, and is none."""

    session_id: str
    found: str
    kind = "not_a_process"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"session '{self.session_id}' is not a process, but of the kind '{self.found}'; `holdfast ps` lists them"


class ProcessNotFoundError(HoldfastError):
    """No process has this id."""

    process: str
    kind = "process_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"there is no process '{self.process}'; `holdfast ps --all` lists them"


class SignalRefusedError(HoldfastError):
    """A process cannot take a signal now."""

    process: str
    signal: str
    why: str
    kind = "signal_refused"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"process '{self.process}' does not take the signal '{self.signal}': {self.why}"
