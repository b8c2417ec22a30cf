"""`ToolContext`, which a tool gets beside its arguments, and what it may return or raise beside plain values."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.agent.tools.output import OutputStream
from holdfast.agent.tools.subprocesses import SubprocessResult, run_process
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """One run of a tool. A parameter annotated with this class receives it; the model does not see that parameter.

    Without a runtime, as in a test, a tool can be called with `ToolContext()`.
    """

    session_id: str = ""
    turn: str = ""
    """The turn in which the model made the call. Empty if a strategy made it."""
    call_id: str = ""
    """The model's id of the call, or the query's id if a strategy made it."""
    tool: str = ""
    key: str = ""
    """An idempotency key: the same each time this call is run, after a crash or a failure, and for no other call."""
    attempt: int = 1
    """1, plus one for each process that died during the call."""
    retry: int = 0
    """How often the call was retried in this attempt."""
    deadline: float | None = None
    """When its time is up, on the clock of `time.monotonic()`, or None for no limit."""
    _output: OutputStream = field(default_factory=OutputStream, repr=False, compare=False)

    def output(self, text: str) -> None:
        """Write output before there is a result.

        Watchers of the turn see it at once. If the tool fails or runs out of time, the model sees it as `partial`;
        if the tool returns, the model sees only the result.
        """
        self._output.write(text)

    def progress(self, step: float, total: float | None = None, message: str = "") -> None:
        """Show watchers of the turn how far the tool is. This is not kept."""
        far = f"{step}" if total is None else f"{step} of {total}"
        self._output.remark(f"{message} ({far})\n".lstrip())

    async def run(
        self,
        *argv: str,
        stdin: str = "",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SubprocessResult:
        """Run an OS process in a process group of its own. Its output is written to `output` as it comes, and returned.

        If the turn is stopped, or the tool runs out of time, the group is asked to end, and killed after two seconds.
        """
        return await run_process(argv, self.output, stdin=stdin, cwd=cwd, env=env)

    @property
    def left_s(self) -> float | None:
        """Seconds until its time is up, or None for no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for the tool any more, because it was cancelled or its time is up.

        A function in a thread cannot be stopped from outside. It can check this, and return.
        """
        return self._output.is_closed


class Finish(msgspec.Struct, frozen=True):
    """Returned by a tool to end the turn with a value."""

    value: Json = None


class SwitchFrame(msgspec.Struct, frozen=True):
    """Returned by a tool to continue in a new frame: the model then sees `task`, and nothing from before."""

    frame: str
    task: str


TURNS_OWN = frozenset(["cancelled"])
"""Codes that describe a turn, and that a tool may not use."""


class ToolError(HoldfastError):
    """Raised by a tool that failed: the model gets the message and the code as the result of its call.

    It gets any other exception, too. This one also says what kind of failure it is, and whether the same call may
    succeed later (`retryable`), which matters if the tool has a retry policy.
    """

    kind = "tool_error"

    def __init__(
        self, message: str, *, code: str = "failed", retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        if code in TURNS_OWN:
            raise ValueError(f"the code '{code}' is reserved for turns that were stopped; choose another one")
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        """How long the other side asks to wait."""
